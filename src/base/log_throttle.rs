//! A log line that may come a thousand times a second, and is worth saying a few times.

use std::time::{Duration, Instant};

/// What the bound is counted in.
const PERIOD: Duration = Duration::from_secs(1);

/// Speaks a few times a second.
#[derive(Debug)]
pub(crate) struct Voice {
    most: u32,
    since: Option<Instant>,
    said: u32,
    unsaid: u64,
}

impl Voice {
    /// Speaks at most so often in a second.
    pub(crate) fn new(most: u32) -> Voice {
        Voice { most, since: None, said: 0, unsaid: 0 }
    }

    /// May it be said? Then this is how often it was not, since it was last.
    pub(crate) fn speaks(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.duration_since(since) >= PERIOD) {
            (self.since, self.said) = (Some(now), 0);
        }
        if self.said == self.most {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
#[path = "log_throttle_tests.rs"]
mod tests;
