//! When the next standby status update is due.

use std::time::{Duration, Instant};

use crate::base::clock::earlier;

/// Shortest time between two status updates. It is short because a killed relay repeats what it has
/// not reported; it is not zero because each update wakes the walsender.
const GAP: Duration = Duration::from_millis(20);
/// Bounds of the interval that follows from `wal_sender_timeout`.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct StatusUpdates {
    sent_at: Instant,
    interval: Duration,
    /// The server has requested an update.
    pub(super) requested: bool,
    /// After this silence the server is asked for a keepalive.
    probe_after: Duration,
    probed_at: Option<Instant>,
}

impl StatusUpdates {
    pub(super) fn new(stall_timeout: Duration, now: Instant) -> StatusUpdates {
        StatusUpdates {
            sent_at: now,
            interval: INTERVAL_MAX,
            requested: false,
            probe_after: stall_timeout / 2,
            probed_at: None,
        }
    }

    /// A new session. The interval is a third of the timeout, so that two updates may get lost.
    pub(super) fn connected(&mut self, wal_sender_timeout: Option<Duration>) {
        let allowed = wal_sender_timeout.map_or(INTERVAL_MAX, |timeout| timeout / 3);
        self.interval = allowed.clamp(INTERVAL_MIN, INTERVAL_MAX);
        self.probed_at = None;
    }

    /// The clock has missed so much time, in which no update was sent.
    pub(super) fn missed(&mut self, missed: Duration) {
        self.sent_at = earlier(self.sent_at, missed);
    }

    pub(super) fn sent(&mut self, now: Instant) {
        (self.sent_at, self.requested) = (now, false);
    }

    /// If an update is due: whether it requests a reply. `heard` is when bytes last arrived, and `new`
    /// says that there is a new position to report. On an idle stream the replies show that the
    /// session lives.
    pub(super) fn due(&mut self, now: Instant, heard: Instant, new: bool) -> Option<bool> {
        let unheard = now.saturating_duration_since(heard);
        let silent = unheard > self.probe_after;
        let probe = silent && self.probed_at.is_none_or(|at| heard > at);
        let since = now.saturating_duration_since(self.sent_at);
        let worth_it = new || self.requested;
        if probe {
            self.probed_at = Some(now);
        }
        let due = probe || since >= self.interval || (worth_it && since >= GAP);
        due.then_some(probe || unheard >= self.interval / 2)
    }
}

#[cfg(test)]
#[path = "status_updates_tests.rs"]
mod tests;
