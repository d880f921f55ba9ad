//! The dead-letter topic as it is read: a log that reading does not change.

use std::time::Duration;

use crate::base::error::Fault;
use crate::dead_letter::record::LogEntry;

/// Where reading begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFrom {
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
pub enum LogRead<T = LogEntry> {
    /// The next record.
    Entry(T),
    /// Everything that was there when the log was opened has been read; returned once.
    End,
    /// Nothing new within the patience.
    Nothing,
}

/// A reader. Records of one partition come in order.
pub trait DeadLetterLog: Send {
    /// The next record, also of those written since it was opened.
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault>;
}
