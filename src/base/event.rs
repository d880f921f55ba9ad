//! The shared nouns: what travels from the outbox to a sink, and where in the log it stood.

use std::borrow::Cow;

use crate::base::lsn::Lsn;
use crate::base::text::truncated;

/// Where an event stood: in the transaction whose commit record begins at `commit_lsn`, as the
/// `ordinal`-th event of it (from 0). Positions of one slot on one timeline are totally ordered,
/// because pgoutput delivers transactions in commit order and their rows always in the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// `final_lsn` of Begin, which is `commit_lsn` of Commit.
    pub commit_lsn: Lsn,
    /// Events of the same transaction before this one.
    pub ordinal: u64,
}

/// The name an event has between admission and confirmation: consecutive from 0 per process.
pub type Sequence = u64;

/// An event ready to be published. Borrowed: a sink copies what it keeps.
#[derive(Clone, Copy, Debug)]
pub struct Outbound<'a> {
    /// RabbitMQ exchange; empty for Kafka.
    pub exchange: &'a str,
    /// Kafka topic / RabbitMQ routing key.
    pub topic: &'a str,
    /// Ordering key; `None` has no order with anything.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is a Kafka tombstone.
    pub value: Option<&'a [u8]>,
    /// Event id as text.
    pub id: &'a str,
    /// Event type, where the row has one: a property of an AMQP message.
    pub event_type: Option<&'a str>,
    /// What the value is, where that is known: a property of an AMQP message.
    pub content_type: Option<&'a str>,
    /// Headers in order; `id` is among them where the preset wants it.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// Commit time, microseconds since the Unix epoch.
    pub commit_unix_us: i64,
    /// Explicit partition, where a column gives one.
    pub partition: Option<i32>,
}

impl Outbound<'_> {
    /// What the event weighs in the window: its bytes.
    #[inline]
    #[must_use]
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

/// How the protocol of a broker spells the attributes of CloudEvents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloudEventsBinding {
    /// Kafka headers: `ce_id`.
    #[default]
    Kafka,
    /// AMQP headers: `cloudEvents_id`.
    Amqp,
}

/// Longer texts of a row are cut in errors and in the log.
const BRIEF_BYTES_MAX: usize = 200;

/// A text out of a row, as errors and the log show it: an id may have megabytes.
#[must_use]
pub fn brief(text: &str) -> Cow<'_, str> {
    if text.len() <= BRIEF_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let begins = truncated(text, BRIEF_BYTES_MAX);
    Cow::Owned(format!("{begins}… ({} bytes)", text.len()))
}

/// A buffer that is kept from event to event keeps no more than this: an event of usual size needs no
/// new memory, and one of hundreds of megabytes leaves nothing behind.
pub const KEPT_BYTES_MAX: usize = 1 << 20;

/// Empties a buffer that only an unusually large event has needed, and gives its memory back.
#[inline]
pub fn give_back(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES_MAX {
        *buffer = Vec::new();
    }
}

/// Most headers of one event; more is an event error, so that a row cannot grow the relay.
pub const HEADERS_MAX: usize = 32;

/// Room on the stack for the headers of one event. [`Outbound::headers`] borrows from it.
#[derive(Clone, Debug)]
pub struct HeaderSlots<'a> {
    slots: [(&'a str, &'a [u8]); HEADERS_MAX],
    used: usize,
}

/// No room for another header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {HEADERS_MAX} headers")]
pub struct TooManyHeaders;

impl<'a> HeaderSlots<'a> {
    /// No headers.
    #[inline]
    #[must_use]
    pub const fn new() -> HeaderSlots<'a> {
        HeaderSlots { slots: [("", &[]); HEADERS_MAX], used: 0 }
    }

    /// Adds a header.
    #[inline]
    pub fn push(&mut self, name: &'a str, value: &'a [u8]) -> Result<(), TooManyHeaders> {
        *self.slots.get_mut(self.used).ok_or(TooManyHeaders)? = (name, value);
        self.used += 1;
        Ok(())
    }

    /// The headers in order.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[(&'a str, &'a [u8])] {
        &self.slots[..self.used]
    }
}

impl Default for HeaderSlots<'_> {
    fn default() -> Self {
        HeaderSlots::new()
    }
}
