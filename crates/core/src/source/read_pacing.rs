//! When not to read: a backlog is read in large pieces.
//!
//! A walsender spends most of its CPU on one `send()` per message into an empty socket. A reader
//! that wakes for each message keeps the socket empty, which halves the throughput of both. So
//! while bytes arrive fast, the reader sleeps between reads and lets the socket fill. A few
//! milliseconds are not enough for that: the walsender would send in step with them. In moderate
//! traffic a read and a request to the broker for each few events would cost all sides more time
//! than it saves: its pauses follow the time that the broker takes to confirm, which grows when
//! anything has too much to do. Slow traffic gets no pauses, so that it keeps its latency.

use std::time::{Duration, Instant};

/// Bytes per microsecond above which a backlog is assumed: some 40,000 events a second, far above
/// rates at which latency matters.
const BACKLOG_BYTES_PER_US: f64 = 16.0;
/// A backlog is judged over at least this long.
const BACKLOG_OVER: Duration = Duration::from_millis(1);
/// A read of this size means that there is more, which is read at once.
pub const LARGE_READ_BYTES: usize = 32 * 1024;
/// Long enough for megabytes to gather, and short compared with the age of a backlog.
const BACKLOG_PAUSE: Duration = Duration::from_millis(12);
/// Bytes per microsecond of moderate traffic, some 3,000 events a second.
const MODERATE_BYTES_PER_US: f64 = 1.4;
/// Moderate traffic is judged over at least this long, so that a burst does not count.
const MODERATE_OVER: Duration = Duration::from_millis(10);
/// A pause is half as long as a confirm takes. What is confirmed during a pause is seen only behind
/// it: were it as long, it would never become shorter.
const PART_OF_CONFIRM_TIME: u32 = 2;
/// Costs half of this in latency on average.
const MODERATE_PAUSE_MIN: Duration = Duration::from_millis(1);
const MODERATE_PAUSE_MAX: Duration = Duration::from_millis(8);

#[derive(Debug)]
pub struct ReadPacing {
    pub confirm_time: Duration,
    since: Instant,
    bytes: usize,
    is_moderate: bool,
}

impl ReadPacing {
    pub fn new(now: Instant) -> ReadPacing {
        ReadPacing { confirm_time: Duration::ZERO, since: now, bytes: 0, is_moderate: false }
    }

    /// Takes the size of a read; returns how long to pause before the next.
    pub fn after_read(&mut self, now: Instant, bytes: usize) -> Option<Duration> {
        self.bytes += bytes;
        let elapsed = now.saturating_duration_since(self.since);
        if bytes >= LARGE_READ_BYTES {
            return None;
        }
        let bytes_per_us = self.bytes as f64 / (elapsed.as_secs_f64() * 1e6);
        if elapsed >= BACKLOG_OVER && bytes_per_us > BACKLOG_BYTES_PER_US {
            (self.since, self.bytes) = (now, 0);
            return Some(BACKLOG_PAUSE);
        }
        if elapsed >= MODERATE_OVER {
            self.is_moderate = bytes_per_us > MODERATE_BYTES_PER_US;
            (self.since, self.bytes) = (now, 0);
        }
        let pause = self.confirm_time / PART_OF_CONFIRM_TIME;
        (self.is_moderate && bytes > 0).then(|| pause.clamp(MODERATE_PAUSE_MIN, MODERATE_PAUSE_MAX))
    }
}

#[cfg(test)]
#[path = "read_pacing_tests.rs"]
mod tests;
