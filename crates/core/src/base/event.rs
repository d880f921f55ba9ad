//! The event as it goes from the outbox to a sink, and its position in the log.

use std::borrow::Cow;

pub use walrelay_dead_letter::header::is_reserved_header;

use crate::base::lsn::Lsn;
use crate::base::text::truncated;

/// The position of an event. Positions of one slot on one timeline are totally ordered, because
/// pgoutput delivers transactions in commit order and their rows always in the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// `final_lsn` of Begin, which is `commit_lsn` of Commit.
    pub commit_lsn: Lsn,
    /// Events of the same transaction before this one.
    pub ordinal: u64,
}

/// The header with the W3C trace context.
pub const TRACEPARENT: &str = "traceparent";

/// Identifies an event between admission and confirmation: consecutive from 0 per process.
pub type Sequence = u64;

/// An event ready to be published. Borrowed: a sink copies what it keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outbound<'a> {
    /// RabbitMQ exchange; empty for Kafka.
    pub exchange: &'a str,
    /// Kafka topic or RabbitMQ routing key.
    pub topic: &'a str,
    /// Ordering key; `None` is not ordered with any event.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is a Kafka tombstone.
    pub value: Option<&'a [u8]>,
    /// The id that consumers see. It is not unique: a record that resolves a dead letter has the id of its
    /// event. A broker must not use it to drop duplicates.
    pub id: &'a str,
    /// The type that the row has, if it has one: a property of an AMQP message.
    pub event_type: Option<&'a str>,
    /// The media type of the value, if it is known: a property of an AMQP message.
    pub content_type: Option<&'a str>,
    /// In order, with `id` if the preset has it.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// Commit time. Not the time of the record, which is that of its publish.
    pub commit_unix_us: i64,
    /// Given by a column.
    pub partition: Option<i32>,
}

impl<'a> Outbound<'a> {
    /// The value of the first header of this name.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The bytes that count against the window.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.exchange.len()
            + self.topic.len()
            + self.key.map_or(0, <[u8]>::len)
            + self.value.map_or(0, <[u8]>::len)
            + headers
    }
}

/// How the attributes of CloudEvents are named in the headers of a protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloudEventsBinding {
    /// Kafka headers: `ce_id`.
    #[default]
    Kafka,
    /// AMQP headers: `cloudEvents_id`.
    Amqp,
}

/// How OpenTelemetry names the parts of a message that not every broker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagingNames {
    pub key: Option<&'static str>,
    pub tombstone: Option<&'static str>,
    pub routing_key: Option<&'static str>,
}

impl MessagingNames {
    pub const NONE: MessagingNames =
        MessagingNames { key: None, tombstone: None, routing_key: None };
}

/// Longer texts of a row are cut in errors and in the log.
const BRIEF_BYTES_MAX: usize = 200;

/// Cuts a text of a row for errors and the log: an id may have megabytes.
pub fn brief(text: &str) -> Cow<'_, str> {
    if text.len() <= BRIEF_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let begins = truncated(text, BRIEF_BYTES_MAX);
    Cow::Owned(format!("{begins}… ({} bytes)", text.len()))
}

/// The event in errors and the log. The dead letter of a row that became no event may lack id and topic.
#[must_use]
pub fn subject(id: &str, topic: &str) -> String {
    let (id, topic) = (brief(id), brief(topic));
    match (&*id, &*topic) {
        ("", "") => "an event without id and topic".to_owned(),
        ("", topic) => format!("an event without id, topic {topic}"),
        (id, "") => format!("event {id}, without a topic"),
        (id, topic) => format!("event {id}, topic {topic}"),
    }
}

/// The capacity that a reused buffer keeps: an event of usual size allocates nothing, and one of
/// hundreds of megabytes does not hold its memory afterwards.
pub const KEPT_BYTES_MAX: usize = 1 << 20;

/// Frees a buffer that has grown beyond [`KEPT_BYTES_MAX`], with its content.
#[inline]
pub fn give_back(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES_MAX {
        *buffer = Vec::new();
    }
}

/// More headers than these are an error of the event.
pub const HEADERS_MAX: usize = 32;

/// The headers of one event on the stack, from which [`Outbound::headers`] borrows.
#[derive(Clone, Debug)]
pub struct HeaderSlots<'a> {
    slots: [(&'a str, &'a [u8]); HEADERS_MAX],
    used: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {HEADERS_MAX} headers")]
pub struct TooManyHeaders;

impl<'a> HeaderSlots<'a> {
    #[inline]
    pub const fn new() -> HeaderSlots<'a> {
        HeaderSlots { slots: [("", &[]); HEADERS_MAX], used: 0 }
    }

    #[inline]
    pub fn push(&mut self, name: &'a str, value: &'a [u8]) -> Result<(), TooManyHeaders> {
        *self.slots.get_mut(self.used).ok_or(TooManyHeaders)? = (name, value);
        self.used += 1;
        Ok(())
    }

    #[inline]
    pub fn as_slice(&self) -> &[(&'a str, &'a [u8])] {
        &self.slots[..self.used]
    }
}

impl Default for HeaderSlots<'_> {
    fn default() -> Self {
        HeaderSlots::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_named_by_the_parts_that_it_has() {
        assert_eq!(subject("e1", "orders"), "event e1, topic orders");
        assert_eq!(subject("e1", ""), "event e1, without a topic");
        assert_eq!(subject("", "orders"), "an event without id, topic orders");
        assert_eq!(subject("", ""), "an event without id and topic");
    }
}
