//! Which LSN may be reported to Postgres.
//!
//! Postgres forgets what is reported, accepts a position ahead of its own WAL without complaint,
//! and then skips what is written there later. Therefore: what is reported never runs ahead of
//! what was seen, never goes back, and follows a keepalive only when nothing is unconfirmed or
//! half received. Then it must: a shutdown of Postgres waits until the consumer has confirmed
//! everything, and an idle slot would pin the WAL that its neighbours write.

use crate::base::lsn::Lsn;

/// What was seen, settled and reported.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    seen: Lsn,
    keepalive: Lsn,
    settled: Lsn,
    reported: Lsn,
}

impl Progress {
    /// The walsender has sent everything before `wal_end`.
    pub(crate) fn on_keepalive(&mut self, wal_end: Lsn) {
        self.keepalive = self.keepalive.max(wal_end);
        self.seen = self.seen.max(wal_end);
    }

    /// A new connection: what the old one's keepalives promised to have sent may be sent again, and
    /// after a rewind it is unconfirmed again.
    pub(crate) fn on_connected(&mut self) {
        self.keepalive = Lsn::ZERO;
    }

    /// WAL up to here was seen in the stream.
    pub(crate) fn on_wal(&mut self, wal_end: Lsn) {
        self.seen = self.seen.max(wal_end);
    }

    /// Everything before `lsn` is settled.
    pub(crate) fn on_settled(&mut self, lsn: Lsn) {
        self.settled = self.settled.max(lsn);
    }

    /// What may be reported now; `clear` when nothing is unconfirmed or half received.
    pub(crate) fn reportable(&self, clear: bool) -> Lsn {
        let safe = if clear { self.settled.max(self.keepalive) } else { self.settled };
        safe.min(self.seen).max(self.reported)
    }

    /// `lsn` has been sent.
    pub(crate) fn on_reported(&mut self, lsn: Lsn) {
        self.reported = self.reported.max(lsn);
    }

    /// The newest position that was reported.
    pub(crate) fn reported(&self) -> Lsn {
        self.reported
    }

    /// The newest position that was seen.
    pub(crate) fn seen(&self) -> Lsn {
        self.seen
    }

    /// Another timeline: nothing that was seen or reported means anything there.
    pub(crate) fn forget(&mut self) {
        *self = Progress::default();
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
