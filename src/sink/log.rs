//! The dead-letter topic as it is read: a log that reading does not change.

use std::time::Duration;

use crate::base::error::Fault;

/// Where a record stands. Offsets rise within a partition; RabbitMQ has one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Partition.
    pub partition: i32,
    /// Offset in it.
    pub offset: i64,
}

/// A record of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub place: Place,
    /// When the broker or its writer says that it was written; microseconds since the Unix epoch.
    pub written_unix_us: i64,
    /// Key of the event.
    pub key: Option<Vec<u8>>,
    /// Value of the event, perhaps cut.
    pub value: Option<Vec<u8>>,
    /// Headers of the event, and those of [`crate::dead_letter::writer`].
    pub headers: Vec<(String, Vec<u8>)>,
    /// A property of AMQP messages.
    pub event_type: Option<String>,
    /// A property of AMQP messages.
    pub content_type: Option<String>,
}

/// Where reading begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// The oldest record there is.
    Beginning,
    /// The first record that may have been written at this time or later, found without reading
    /// what is before it. Earlier ones may come first. Microseconds since the Unix epoch.
    Time(i64),
    /// What is written from now on.
    End,
}

/// What reading brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The next record.
    Entry(Entry),
    /// Everything that was there when the log was opened has been read; told once.
    End,
    /// Nothing new within the patience.
    Nothing,
}

/// A reader. Records of one partition come in order.
pub trait Log: Send {
    /// The next record, also of those written since it was opened.
    fn next(&mut self, patience: Duration) -> Result<Read, Fault>;
}
