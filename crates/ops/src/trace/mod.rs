//! Traces: a span `outbox.publish` for each sampled event, from its hand-over to the sink until it is
//! settled, sent to a collector over OTLP.
//!
//! [`EventSpans`] belongs to the data thread. It keeps the spans of sampled events in flight, and
//! nothing while traces are off. A finished span goes into a bounded queue, from which a thread of its
//! own sends batches; a collector that is slow or away costs spans, and nothing else.
//!
//! Without the feature `otlp` an endpoint is refused, and the compiler leaves the exporter out.

mod endpoint;
mod exporter;
mod http;
mod otlp;
mod queue;
mod settings;

use walrelay_core::trace::{context, event_spans, span};

pub use self::endpoint::{OtlpEndpoint, parse_headers};
pub use self::exporter::{SpanExporter, inspect};
pub use self::otlp::SpanSource;
pub use self::settings::TracingSettings;
