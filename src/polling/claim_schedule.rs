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
pub(crate) struct ClaimOutcome {
    /// Rows it took.
    pub(crate) taken: usize,
    /// Rows that were ready, as far as it looked.
    pub(crate) ready: usize,
    /// It took as much as it could carry.
    pub(crate) full: bool,
}

/// When one process claims next, and how far it looks.
#[derive(Debug)]
pub(crate) struct ClaimSchedule {
    interval: Duration,
    batch_max: usize,
    due: Option<Instant>,
    lookahead: usize,
    /// All rows that were ready were of busy keys.
    passed_over: bool,
}

impl ClaimSchedule {
    /// The first claim is due at once.
    #[must_use]
    pub(crate) const fn new(interval: Duration, batch_max: usize) -> ClaimSchedule {
        ClaimSchedule {
            interval,
            batch_max,
            due: None,
            lookahead: LOOKAHEAD_MIN,
            passed_over: false,
        }
    }

    /// How long until the next claim.
    #[must_use]
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// Most rows that the next claim looks at.
    #[must_use]
    pub(crate) fn reach(&self) -> usize {
        self.batch_max.saturating_mul(self.lookahead).min(REACH_MAX.max(self.batch_max))
    }

    /// A claim that began at `began` found this.
    pub(crate) fn found(&mut self, found: ClaimOutcome, began: Instant) {
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
    pub(crate) fn settled(&mut self) {
        if self.passed_over {
            self.due = None;
        }
    }

    /// A claim could not be made.
    pub(crate) fn failed(&mut self, began: Instant) {
        // It may have looked too far.
        self.lookahead = LOOKAHEAD_MIN;
        self.due = Some(began + self.interval);
    }
}

#[cfg(test)]
#[path = "claim_schedule_tests.rs"]
mod tests;
