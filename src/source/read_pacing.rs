//! When not to read: a backlog is read in large gulps.
//!
//! Most of a walsender's CPU is one `send()` per message into an empty socket. A reader that wakes
//! for each keeps the socket empty and halves what both can do. So while bytes come fast the reader
//! sleeps between gulps and lets the socket fill; naps of a few milliseconds do not pay there (the
//! walsender drains and refills in step with them). Traffic that is merely brisk gets naps of one
//! millisecond, and slower traffic none at all: it keeps its latency.

use std::time::{Duration, Instant};

/// Bytes per microsecond above which a backlog is assumed: some 40,000 events a second, far more
/// than the steady rates that want latency.
const BACKLOG_BYTES_PER_US: f64 = 16.0;
/// A backlog is judged over at least this long.
const BACKLOG_OVER: Duration = Duration::from_millis(1);
/// A gulp at least this large means there is more: read on at once.
pub(super) const LARGE_READ_BYTES: usize = 32 * 1024;
/// Long enough for megabytes to gather, short enough to go unnoticed behind a backlog.
const BACKLOG_NAP: Duration = Duration::from_millis(12);
/// Bytes per microsecond of brisk traffic, some 3,000 events a second: waking for each event by
/// itself would cost more time than it saves.
const BRISK_BYTES_PER_US: f64 = 1.4;
/// Brisk traffic is judged over at least this long, so that a burst does not count.
const BRISK_OVER: Duration = Duration::from_millis(10);
/// A few events together, at the price of half of this on average.
const BRISK_NAP: Duration = Duration::from_millis(1);

/// How fast bytes arrive.
#[derive(Debug)]
pub(crate) struct ReadPacing {
    since: Instant,
    bytes: usize,
    brisk: bool,
}

impl ReadPacing {
    /// Starts to count.
    pub(crate) fn new(now: Instant) -> ReadPacing {
        ReadPacing { since: now, bytes: 0, brisk: false }
    }

    /// `bytes` were read; how long to leave the socket alone, if at all.
    pub(crate) fn after_read(&mut self, now: Instant, bytes: usize) -> Option<Duration> {
        self.bytes += bytes;
        let elapsed = now.saturating_duration_since(self.since);
        if bytes >= LARGE_READ_BYTES {
            return None;
        }
        let bytes_per_us = self.bytes as f64 / (elapsed.as_secs_f64() * 1e6);
        if elapsed >= BACKLOG_OVER && bytes_per_us > BACKLOG_BYTES_PER_US {
            (self.since, self.bytes) = (now, 0);
            return Some(BACKLOG_NAP);
        }
        if elapsed >= BRISK_OVER {
            self.brisk = bytes_per_us > BRISK_BYTES_PER_US;
            (self.since, self.bytes) = (now, 0);
        }
        (self.brisk && bytes > 0).then_some(BRISK_NAP)
    }
}

#[cfg(test)]
#[path = "read_pacing_tests.rs"]
mod tests;
