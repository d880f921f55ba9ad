//! Parts that the three services share: the event they exchange, their options, `/metrics`, and
//! spans.
//!
//! The interesting files are `order_service/orders.rs`, which writes an event in the transaction of
//! its order, and `billing_service/billing.rs`, which handles one in the transaction of its invoice.

mod consumer;
mod event;
mod http;
mod shutdown;
mod telemetry;

pub use consumer::{BrokerName, ConsumerOptions, consume, duration};
pub use event::{OrderEvent, record_handled};
pub use http::serve;
pub use shutdown::Shutdown;
pub use telemetry::{Telemetry, http_parent, traceparent};

/// An error that ends a service. People read it; no code looks into it.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
