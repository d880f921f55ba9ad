//! Payload formats: what a value looks like when it is published.
//!
//! `raw` publishes the payload column's bytes, and so does Debezium's Outbox Event Router. Only the
//! CloudEvents formats look into a payload. No format changes topic, key, id or partition.

mod cloudevents;

pub(crate) use self::cloudevents::CloudEvents;
use crate::base::event::CloudEventsBinding;

/// Every format by name, as [`make`] knows them.
pub(crate) const FORMATS: &[&str] = &["raw", "cloudevents", "cloudevents-structured", "debezium"];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no format {0:?}")]
pub(crate) struct UnknownFormat(String);

/// Makes the format of that name, or `None` where bytes pass through untouched. `source` says where
/// the events come from, a URI reference: `/walrelay/public.outbox`.
pub(crate) fn make(
    name: &str,
    source: String,
    binding: CloudEventsBinding,
) -> Result<Option<CloudEvents>, UnknownFormat> {
    match name {
        "raw" | "debezium" => Ok(None),
        "cloudevents" => Ok(Some(CloudEvents::binary(source, binding))),
        "cloudevents-structured" => Ok(Some(CloudEvents::structured(source))),
        _ => Err(UnknownFormat(name.to_owned())),
    }
}

#[cfg(test)]
mod tests;
