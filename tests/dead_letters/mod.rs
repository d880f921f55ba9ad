//! Tests with events that cannot be published, and of their replay: the real relay and the real
//! commands, on Kafka and on RabbitMQ.
//!
//! An event of aggregate type `NAME` has a route, one
//! of `NAME.lost` has none until a test makes it.

pub(crate) mod api;
pub(crate) mod fixture;
mod forbidden;
mod halt;
mod kills;
mod missing;
mod outage;
mod oversized;
mod poison;
mod refused;
mod refused_time;
mod replay;
mod silent;
mod small_rabbitmq;
mod storm;
mod takeover;
