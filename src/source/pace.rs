//! When not to read: a backlog is read in large gulps.
//!
//! Most of a walsender's CPU is one `send()` per message into an empty socket. A reader that wakes
//! for each keeps the socket empty and halves what both can do. So while bytes come fast the reader
//! sleeps between gulps and lets the socket fill. Naps of a few milliseconds do not pay (the
//! walsender drains and refills in step with them); below the rate of a backlog there are none at
//! all, so steady traffic keeps its latency.

use std::time::{Duration, Instant};

/// Bytes per microsecond above which a backlog is assumed: some 40,000 events a second, far more
/// than the steady rates that want latency.
const BACKLOG_BYTES_PER_US: u64 = 16;
/// The rate is judged over at least this long.
const JUDGED_OVER: Duration = Duration::from_millis(1);
/// A gulp at least this large means there is more: read on at once.
pub(super) const LARGE_READ_BYTES: usize = 32 * 1024;
/// Long enough for megabytes to gather, short enough to go unnoticed behind a backlog.
const NAP: Duration = Duration::from_millis(12);

/// How fast bytes arrive.
#[derive(Debug)]
pub struct Pace {
    since: Instant,
    bytes: u64,
}

impl Pace {
    /// Starts to count.
    #[must_use]
    pub fn new(now: Instant) -> Pace {
        Pace { since: now, bytes: 0 }
    }

    /// `bytes` were read; how long to leave the socket alone, if at all.
    pub fn after_read(&mut self, now: Instant, bytes: usize) -> Option<Duration> {
        self.bytes += bytes as u64;
        let elapsed = now.saturating_duration_since(self.since);
        if bytes >= LARGE_READ_BYTES || elapsed < JUDGED_OVER {
            return None;
        }
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let fast = self.bytes > BACKLOG_BYTES_PER_US.saturating_mul(elapsed_us);
        *self = Pace::new(now);
        fast.then_some(NAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_earns_a_nap_and_steady_traffic_none() {
        let start = Instant::now();
        let ms = |n| start + Duration::from_millis(n);
        let mut pace = Pace::new(start);
        assert_eq!(pace.after_read(ms(2), 200_000), None, "a large gulp means there is more");
        assert_eq!(pace.after_read(ms(2), 10_000), Some(NAP));
        assert_eq!(pace.after_read(ms(12), 10_000), None, "1 byte per microsecond");
        assert_eq!(pace.after_read(ms(12), 30_000), None, "too soon to judge");
    }
}
