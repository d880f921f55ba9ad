//! A log line that may come a thousand times a second, and is worth saying a few times.

use std::time::{Duration, Instant};

/// What the bound is counted in.
const PERIOD: Duration = Duration::from_secs(1);

/// Speaks a few times a second.
#[derive(Debug)]
pub(super) struct Voice {
    most: u32,
    since: Option<Instant>,
    said: u32,
    unsaid: u64,
}

impl Voice {
    /// Speaks at most so often in a second.
    pub(super) fn new(most: u32) -> Voice {
        Voice { most, since: None, said: 0, unsaid: 0 }
    }

    /// May it be said? Then this is how often it was not, since it was last.
    pub(super) fn speaks(&mut self, now: Instant) -> Option<u64> {
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
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_a_few_times_a_second_and_what_was_not_is_counted() {
        let (mut voice, now) = (Voice::new(2), Instant::now());
        let said = [(); 5].map(|()| voice.speaks(now));
        assert_eq!(said, [Some(0), Some(0), None, None, None]);
        assert_eq!(voice.speaks(now + PERIOD), Some(3));
        assert_eq!(voice.speaks(now + PERIOD), Some(0));
    }
}
