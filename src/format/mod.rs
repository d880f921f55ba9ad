//! Payload formats: what a value looks like when it is published.
//!
//! A format takes an event and gives it back, shaped: it may borrow a new value and further headers
//! from its scratch, and it never changes topic, key, id or partition. `raw` and `debezium` pass
//! everything through untouched; only the CloudEvents formats look into a payload.
//!
//! A new format is one file, one line in [`FORMATS`] and one golden file.

mod cloudevents;
mod raw;

use crate::base::event::{HeaderSlots, Outbound};
use crate::outbox::EventError;

/// Shapes events.
pub trait Format: std::fmt::Debug + Send + Sync {
    /// Shapes one event. The scratch is kept from event to event; the headers are fresh, and used
    /// only by a format that adds some.
    fn shape<'a>(
        &'a self,
        event: Outbound<'a>,
        scratch: &'a mut Vec<u8>,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, EventError>;
}

/// How the broker's protocol spells CloudEvents attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Kafka headers: `ce_id`.
    Kafka,
    /// AMQP headers: `cloudEvents_id`.
    Amqp,
}

/// What a format may need to know.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where the events come from, a URI reference: `/walrelay/public.outbox`.
    pub source: String,
    /// Which broker they go to.
    pub binding: Binding,
}

/// Makes a format.
pub type Constructor = fn(&Context) -> Box<dyn Format>;

/// Every format by name.
pub const FORMATS: &[(&str, Constructor)] = &[
    // The payload column's bytes.
    ("raw", raw::make),
    // Attributes in headers, the payload's bytes as the value.
    ("cloudevents", cloudevents::make_binary),
    // One JSON document with the payload in it.
    ("cloudevents-structured", cloudevents::make_structured),
    // Debezium's Outbox Event Router publishes the payload column as it is, too.
    ("debezium", raw::make),
];

/// A format that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no format {0:?}")]
pub struct UnknownFormat(pub String);

/// Makes the format of that name.
pub fn make(name: &str, context: &Context) -> Result<Box<dyn Format>, UnknownFormat> {
    let found = FORMATS.iter().find(|(known, _)| *known == name);
    found.map(|(_, make)| make(context)).ok_or_else(|| UnknownFormat(name.to_owned()))
}

#[cfg(test)]
mod tests;
