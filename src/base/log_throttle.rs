//! Bounds how often a log line is written that may be due thousands of times a second.

use std::time::{Duration, Instant};

/// Permits a number of lines in each period and counts those it has suppressed.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    period: Duration,
    lines_max: u32,
    period_began: Option<Instant>,
    written: u32,
    suppressed: u64,
}

impl LogThrottle {
    /// Permits `lines_max` lines in each `period`.
    pub(crate) const fn new(lines_max: u32, period: Duration) -> LogThrottle {
        LogThrottle { period, lines_max, period_began: None, written: 0, suppressed: 0 }
    }

    /// Returns how many lines were suppressed since the last one if this line may be written.
    pub(crate) fn permit(&mut self, now: Instant) -> Option<u64> {
        if self.period_began.is_none_or(|began| now.duration_since(began) >= self.period) {
            (self.period_began, self.written) = (Some(now), 0);
        }
        if self.written == self.lines_max {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
#[path = "log_throttle_tests.rs"]
mod tests;
