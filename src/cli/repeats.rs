//! Bounds how often a line of the log is repeated: one limit for all that may be due once per event
//! or per reconnect.
//!
//! Lines of one kind come from one place in the code and have one code. In each period the first of
//! a kind are written and the others counted; what was counted is written once the period is over,
//! which `run` asks for each second, and at the end of the process. The number of kinds is bounded by
//! the program, because codes are constants of it.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

pub(super) const PERIOD: Duration = Duration::from_secs(30);
pub(super) const LINES_MAX: u32 = 10;

/// What is known of each kind of line. `S` is what it takes to name the kind in the log.
#[derive(Debug)]
pub(super) struct Repeats<K, S> {
    kinds: HashMap<K, Repeated<S>>,
}

#[derive(Debug)]
struct Repeated<S> {
    period_began: Instant,
    written: u32,
    /// Lines that were not written, with the time of the last one.
    suppressed: u64,
    last_at: Instant,
    shown: S,
}

/// Lines of one kind that were not written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suppressed<S> {
    pub(super) shown: S,
    pub(super) lines: u64,
    pub(super) within: Duration,
}

impl<K: Eq + Hash, S: Clone> Repeats<K, S> {
    pub(super) fn new() -> Repeats<K, S> {
        Repeats { kinds: HashMap::new() }
    }

    /// Whether a line of this kind may be written now.
    pub(super) fn permit(&mut self, kind: K, now: Instant, show: impl FnOnce() -> S) -> bool {
        let known = self.kinds.entry(kind).or_insert_with(|| Repeated {
            period_began: now,
            written: 0,
            suppressed: 0,
            last_at: now,
            shown: show(),
        });
        if known.is_over(now) {
            (known.period_began, known.written) = (now, 0);
        }
        if known.written == LINES_MAX {
            (known.suppressed, known.last_at) = (known.suppressed + 1, now);
            return false;
        }
        known.written += 1;
        true
    }

    /// What was not written in periods that are over. To be asked before [`Repeats::permit`], which
    /// begins the next period.
    pub(super) fn take_suppressed(&mut self, now: Instant) -> Vec<Suppressed<S>> {
        self.take(|known| known.is_over(now))
    }

    /// What was not written so far.
    pub(super) fn take_all_suppressed(&mut self) -> Vec<Suppressed<S>> {
        self.take(|_| true)
    }

    fn take(&mut self, wanted: impl Fn(&Repeated<S>) -> bool) -> Vec<Suppressed<S>> {
        let taken = self.kinds.values_mut().filter(|known| known.suppressed > 0 && wanted(known));
        taken
            .map(|known| Suppressed {
                shown: known.shown.clone(),
                lines: std::mem::take(&mut known.suppressed),
                within: known.last_at.duration_since(known.period_began),
            })
            .collect()
    }
}

impl<S> Repeated<S> {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.period_began) >= PERIOD
    }
}

#[cfg(test)]
#[path = "repeats_tests.rs"]
mod tests;
