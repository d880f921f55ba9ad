//! The shared nouns: what travels from the outbox to a sink, and where in the log it stood.

use crate::lsn::Lsn;

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
    /// Kafka topic / RabbitMQ routing key.
    pub topic: &'a str,
    /// Ordering key; `None` has no order with anything.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is a Kafka tombstone.
    pub value: Option<&'a [u8]>,
    /// Event id as text.
    pub id: &'a str,
    /// Headers in order; `id` is among them where the preset wants it.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// Commit time, microseconds since the Unix epoch.
    pub commit_unix_us: i64,
    /// Explicit partition, where a column gives one.
    pub partition: Option<i32>,
}

impl Outbound<'_> {
    /// What the event weighs in the window: its bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.topic.len()
            + self.key.map_or(0, <[u8]>::len)
            + self.value.map_or(0, <[u8]>::len)
            + headers
    }
}
