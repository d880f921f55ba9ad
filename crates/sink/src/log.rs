//! The dead-letter topic as a log. Reading it changes nothing.

use std::time::Duration;

use walrelay_base::error::Fault;
use walrelay_core::dead_letter::record::LogEntry;

/// The code of a fault: the broker answers, and sends nothing of the dead-letter topic.
pub const SILENT: &str = "dead-letter.silent";
/// How long the broker may send nothing before the end of the log is reached.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    Beginning,
    /// At the first record that may have been written at this time or later; earlier ones may come
    /// first. Microseconds since the Unix epoch.
    Time(i64),
    /// With what is written from now on.
    End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRead<T = LogEntry> {
    Entry(T),
    /// Everything that was there when the log was opened has been read. Returned once.
    End,
    /// No new record within the patience.
    Nothing,
}

/// Returns the records of one partition in order.
pub trait DeadLetterLog: Send {
    /// The next record, also of those written since it was opened.
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault>;
}
