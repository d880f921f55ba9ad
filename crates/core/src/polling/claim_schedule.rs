//! When the next claim is due, and how many rows it examines. Pure: time is an argument.

use std::time::{Duration, Instant};

/// A claim examines at least this many times more rows than it takes, because keys may be busy.
const LOOKAHEAD_MIN: usize = 4;
/// Most rows that a claim examines. Free keys beyond
/// them wait until some of the busy keys are done.
const REACH_MAX: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimOutcome {
    pub taken: usize,
    /// Ready rows among those that it examined.
    pub ready: usize,
    /// It took as many rows, or bytes, as it may.
    pub full: bool,
}

#[derive(Debug)]
pub struct ClaimSchedule {
    interval: Duration,
    batch_max: usize,
    due: Option<Instant>,
    lookahead: usize,
    /// All ready rows were of busy keys.
    passed_over: bool,
}

impl ClaimSchedule {
    pub const fn new(interval: Duration, batch_max: usize) -> ClaimSchedule {
        ClaimSchedule {
            interval,
            batch_max,
            due: None,
            lookahead: LOOKAHEAD_MIN,
            passed_over: false,
        }
    }

    pub fn wait(&self, now: Instant) -> Duration {
        self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// Most rows that the next claim examines.
    pub fn reach(&self) -> usize {
        self.batch_max.saturating_mul(self.lookahead).min(REACH_MAX.max(self.batch_max))
    }

    /// A claim that began at `began` found this.
    pub fn found(&mut self, found: ClaimOutcome, began: Instant) {
        let looked_at_all = found.ready < self.reach();
        let meagre = found.taken < self.batch_max / 2 && !found.full;
        self.lookahead = if meagre && !looked_at_all {
            if self.reach() < REACH_MAX { self.lookahead * 2 } else { self.lookahead }
        } else {
            (self.lookahead / 2).max(LOOKAHEAD_MIN)
        };
        self.passed_over = found.taken == 0 && found.ready > 0;
        // There are more rows than were taken, or examined.
        let more = found.full || (found.taken > 0 && !looked_at_all);
        self.due = if more { None } else { Some(began + self.interval) };
    }

    /// Rows were settled: keys that were busy because of them need not wait for the interval.
    pub fn settled(&mut self) {
        if self.passed_over {
            self.due = None;
        }
    }

    pub fn failed(&mut self, began: Instant) {
        // It may have taken too long because it examined too many rows.
        self.lookahead = LOOKAHEAD_MIN;
        self.due = Some(began + self.interval);
    }
}

#[cfg(test)]
#[path = "claim_schedule_tests.rs"]
mod tests;
