//! Payload formats. `raw` publishes the payload column's bytes, and so
//! does Debezium's Outbox Event Router. Only the CloudEvents formats
//! read a payload. No format changes topic, key, id or partition.

mod cloudevents;

pub use self::cloudevents::CloudEvents;
use crate::base::event::CloudEventsBinding;
use crate::outbox::settings::PayloadFormat;

/// `None` where the payload's bytes are published unchanged. `source` is the `source` attribute, a URI
/// reference like `/walrelay/public.outbox`.
pub fn make(
    format: PayloadFormat,
    source: String,
    binding: CloudEventsBinding,
) -> Option<CloudEvents> {
    match format {
        PayloadFormat::Raw | PayloadFormat::Debezium => None,
        PayloadFormat::CloudEvents => Some(CloudEvents::new(source, Some(binding))),
        PayloadFormat::CloudEventsStructured => Some(CloudEvents::new(source, None)),
    }
}

#[cfg(test)]
mod tests;
