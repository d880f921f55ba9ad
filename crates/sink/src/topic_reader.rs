//! Reads what topics hold, for a process that has to know what an earlier one has published.

use std::time::Duration;

use walrelay_base::event::Outbound;

pub trait TopicReader: Send {
    /// Hands over the records of a topic that were written at `from_unix_us` or later, up to where
    /// the topic ends now, and those of each partition in order. A record that the broker might
    /// still lose is not handed over.
    ///
    /// Returns whether all partitions were read: one is left out if its replicas are not in sync, or
    /// if a record is not shown because a transaction is open.
    /// Fails when that takes longer than `within`, or when `take` returns false.
    fn read(
        &mut self,
        topic: &str,
        from_unix_us: i64,
        within: Duration,
        take: &mut dyn FnMut(&Outbound<'_>) -> bool,
    ) -> Result<bool, String>;
}
