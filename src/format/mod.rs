//! Payload formats: what a value looks like when it is published.
//!
//! `raw` publishes the payload column's bytes, and so does Debezium's Outbox Event Router. Only the
//! CloudEvents formats look into a payload. No format changes topic, key, id or partition.

mod cloudevents;

pub(crate) use self::cloudevents::CloudEvents;
use crate::base::event::CloudEventsBinding;
use crate::outbox::settings::PayloadFormat;

/// The format, or `None` where bytes pass through untouched. `source` says where the events come
/// from, a URI reference: `/walrelay/public.outbox`.
pub(crate) fn make(
    format: PayloadFormat,
    source: String,
    binding: CloudEventsBinding,
) -> Option<CloudEvents> {
    match format {
        PayloadFormat::Raw | PayloadFormat::Debezium => None,
        PayloadFormat::CloudEvents => Some(CloudEvents::binary(source, binding)),
        PayloadFormat::CloudEventsStructured => Some(CloudEvents::structured(source)),
    }
}

#[cfg(test)]
mod tests;
