//! When the next standby status update is due.

use std::time::{Duration, Instant};

/// Status updates are at least this far apart under load: what a killed relay has confirmed and
/// not yet reported is repeated, so the gap is small; each update wakes the walsender, so it is
/// not zero.
const GAP: Duration = Duration::from_millis(20);
/// Bounds of the time between two status updates, whatever `wal_sender_timeout` allows.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct StatusUpdates {
    sent_at: Instant,
    interval: Duration,
    /// The server has asked for an update.
    pub(super) requested: bool,
    /// A server that is silent for this long is asked to answer.
    probe_after: Duration,
    probed_at: Option<Instant>,
}

/// A status update is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    /// The server is asked to answer it.
    pub(super) reply_requested: bool,
}

impl StatusUpdates {
    pub(super) fn new(stall_timeout: Duration) -> StatusUpdates {
        StatusUpdates {
            sent_at: Instant::now(),
            interval: INTERVAL_MAX,
            requested: false,
            probe_after: stall_timeout / 2,
            probed_at: None,
        }
    }

    /// A new session. A third of the timeout, so that two updates may get lost.
    pub(super) fn connected(&mut self, wal_sender_timeout: Option<Duration>) {
        let allowed = wal_sender_timeout.map_or(INTERVAL_MAX, |timeout| timeout / 3);
        self.interval = allowed.clamp(INTERVAL_MIN, INTERVAL_MAX);
        self.probed_at = None;
    }

    pub(super) fn sent(&mut self, now: Instant) {
        (self.sent_at, self.requested) = (now, false);
    }

    /// Whether an update is due, when the server was last `heard`, and there is something `new` to
    /// report or not.
    pub(super) fn due(&mut self, now: Instant, heard: Instant, new: bool) -> Option<Due> {
        let silent = now.saturating_duration_since(heard) > self.probe_after;
        let probe = silent && self.probed_at.is_none_or(|at| heard > at);
        let since = now.saturating_duration_since(self.sent_at);
        let worth_it = new || self.requested;
        if probe {
            self.probed_at = Some(now);
        }
        let due = probe || since >= self.interval || (worth_it && since >= GAP);
        due.then_some(Due { reply_requested: probe })
    }
}
