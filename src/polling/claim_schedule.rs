//! When the next claim is due, and how far it looks.
//!
//! Pure: time is an argument.

use std::time::{Duration, Instant};

/// A claim looks at so many times more rows than it takes: others may be of keys that are busy.
const LOOKAHEAD_MIN: usize = 4;
/// Rows beyond which keys that are not busy wait until some of the busy ones are done.
const REACH_MAX: usize = 100_000;

/// What a claim found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Rows it took.
    pub taken: usize,
    /// Rows that were ready, as far as it looked.
    pub ready: usize,
    /// It took as much as it could carry.
    pub full: bool,
}

/// Of one process.
#[derive(Debug)]
pub struct Pace {
    interval: Duration,
    batch_max: usize,
    due: Option<Instant>,
    lookahead: usize,
    /// All rows that were ready were of busy keys.
    passed_over: bool,
}

impl Pace {
    /// The first claim is due at once.
    #[must_use]
    pub const fn new(interval: Duration, batch_max: usize) -> Pace {
        Pace { interval, batch_max, due: None, lookahead: LOOKAHEAD_MIN, passed_over: false }
    }

    /// How long until the next claim.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Duration {
        self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// Most rows that the next claim looks at.
    #[must_use]
    pub fn reach(&self) -> usize {
        self.batch_max.saturating_mul(self.lookahead).min(REACH_MAX.max(self.batch_max))
    }

    /// A claim that began at `began` found this.
    pub fn found(&mut self, found: Found, began: Instant) {
        let looked_at_all = found.ready < self.reach();
        let meagre = found.taken < self.batch_max / 2 && !found.full;
        self.lookahead = if meagre && !looked_at_all {
            if self.reach() < REACH_MAX { self.lookahead * 2 } else { self.lookahead }
        } else {
            (self.lookahead / 2).max(LOOKAHEAD_MIN)
        };
        self.passed_over = found.taken == 0 && found.ready > 0;
        // More is there than was taken, or than was seen.
        let more = found.full || (found.taken > 0 && !looked_at_all);
        self.due = if more { None } else { Some(began + self.interval) };
    }

    /// Rows were settled: what was passed over because of them need not wait for the interval.
    pub fn settled(&mut self) {
        if self.passed_over {
            self.due = None;
        }
    }

    /// A claim could not be made.
    pub fn failed(&mut self, began: Instant) {
        // It may have looked too far.
        self.lookahead = LOOKAHEAD_MIN;
        self.due = Some(began + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(500);

    fn found(taken: usize, ready: usize) -> Found {
        Found { taken, ready, full: taken == 100 }
    }

    #[test]
    fn a_full_claim_is_followed_at_once_and_any_other_after_the_interval() {
        let now = Instant::now();
        let mut pace = Pace::new(INTERVAL, 100);
        assert_eq!(pace.wait(now), Duration::ZERO);
        pace.found(found(100, 250), now);
        assert_eq!(pace.wait(now), Duration::ZERO);
        pace.found(found(99, 99), now);
        assert_eq!(pace.wait(now), INTERVAL);
        assert_eq!(pace.wait(now + INTERVAL * 2), Duration::ZERO);
        pace.found(found(0, 0), now);
        assert_eq!(pace.wait(now), INTERVAL);
        pace.failed(now + INTERVAL);
        assert_eq!(pace.wait(now), INTERVAL * 2);
    }

    #[test]
    fn it_looks_further_while_busy_keys_are_in_the_way_and_not_without_end() {
        let now = Instant::now();
        let mut pace = Pace::new(INTERVAL, 100);
        assert_eq!(pace.reach(), 400);
        // GIVEN that all it sees is of busy keys
        pace.found(found(0, 400), now);
        assert_eq!(pace.reach(), 800);
        assert_eq!(pace.wait(now), INTERVAL, "there is nothing to be had at once");
        // WHEN a little is found THEN it goes on at once, and further
        pace.found(found(3, 800), now);
        assert_eq!((pace.reach(), pace.wait(now)), (1600, Duration::ZERO));
        // THEN it comes back
        pace.found(found(100, 1600), now);
        assert_eq!(pace.reach(), 800);
        // WHEN those keys are done with THEN the rows that were seen need not wait
        pace.found(found(0, 400), now);
        pace.settled();
        assert_eq!(pace.wait(now), Duration::ZERO);
        // THEN a settlement alone is no reason to ask again
        pace.found(found(3, 3), now);
        pace.settled();
        assert_eq!(pace.wait(now), INTERVAL);
        for _ in 0..40 {
            pace.found(found(0, pace.reach()), now);
        }
        assert_eq!(pace.reach(), REACH_MAX);
        // WHEN that was too far THEN it begins anew
        pace.failed(now);
        assert_eq!(pace.reach(), 400);
    }
}
