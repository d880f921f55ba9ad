//! Which events are tried again, and when.
//!
//! An event whose failure may pass gets `attempts_max` attempts in all, with full jitter between
//! them. Attempts belong to the event: a new sink does not give it new ones.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::message::Sequence;

/// The events that have failed and are not settled.
#[derive(Debug)]
pub struct Retries {
    attempts_max: u32,
    backoff: Backoff,
    /// Attempts that have failed, by event.
    failed: HashMap<Sequence, u32>,
    due: BTreeSet<(Instant, Sequence)>,
    numbers_change: bool,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another, after this wait.
    Retry {
        /// Attempts so far.
        attempts: u32,
        /// How long to wait.
        wait: Duration,
    },
    /// None.
    Exhausted {
        /// Attempts so far.
        attempts: u32,
    },
}

impl Retries {
    /// Nothing has failed.
    #[must_use]
    pub fn new(attempts_max: u32, backoff: Backoff) -> Retries {
        Retries {
            attempts_max,
            backoff,
            failed: HashMap::new(),
            due: BTreeSet::new(),
            numbers_change: false,
        }
    }

    /// An attempt has failed.
    pub fn failed(&mut self, sequence: Sequence, now: Instant) -> Next {
        let attempts = self.failed.entry(sequence).or_default();
        *attempts += 1;
        let attempts = *attempts;
        if attempts >= self.attempts_max {
            return Next::Exhausted { attempts };
        }
        let wait = self.backoff.delay_after(attempts - 1);
        self.due.insert((now + wait, sequence));
        Next::Retry { attempts, wait }
    }

    /// An event whose wait is over.
    pub fn take_due(&mut self, now: Instant) -> Option<Sequence> {
        let first = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.remove(&first);
        Some(first.1)
    }

    /// The broker has the event after all.
    #[inline]
    pub fn settled(&mut self, sequence: Sequence) {
        if !self.failed.is_empty() {
            self.failed.remove(&sequence);
        }
    }

    /// Everything unsettled is published anew: nobody waits any more.
    pub fn rewind(&mut self) {
        self.due.clear();
        if std::mem::take(&mut self.numbers_change) {
            self.failed.clear();
        }
    }

    /// From the next rewind on the numbers mean other events. What is in flight stays in flight,
    /// and what waits for its turn keeps it.
    pub fn forget(&mut self) {
        self.numbers_change = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(200);

    fn retries(attempts_max: u32) -> Retries {
        Retries::new(
            attempts_max,
            Backoff::seeded(BASE, Duration::from_secs(30), 0x9E37_79B9_7F4A_7C15),
        )
    }

    #[test]
    fn an_event_gets_its_attempts_and_no_more() {
        let (mut retries, mut now) = (retries(5), Instant::now());
        for attempt in 1..5 {
            let Next::Retry { attempts, wait } = retries.failed(9, now) else { panic!() };
            assert_eq!(attempts, attempt);
            assert!(wait <= BASE * (1 << (attempt - 1)));
            assert_eq!(retries.take_due(now + wait), Some(9));
            assert_eq!(retries.take_due(now + wait), None, "once per wait");
            now += wait;
        }
        assert_eq!(retries.failed(9, now), Next::Exhausted { attempts: 5 });
        assert_eq!(retries.take_due(now + Duration::from_secs(60)), None);
    }

    #[test]
    fn nobody_is_due_before_the_wait_is_over_and_the_first_comes_first() {
        let (mut retries, now) = (retries(3), Instant::now());
        let waits = [1, 2, 3].map(|sequence| match retries.failed(sequence, now) {
            Next::Retry { wait, .. } => (wait, sequence),
            Next::Exhausted { .. } => panic!(),
        });
        let mut expected = waits;
        expected.sort();
        let Some(just_before) = now.checked_add(expected[0].0 - Duration::from_nanos(1)) else {
            panic!()
        };
        assert_eq!(retries.take_due(just_before), None);
        let due: Vec<_> = std::iter::from_fn(|| retries.take_due(now + BASE)).collect();
        assert_eq!(due, expected.map(|(_, sequence)| sequence));
    }

    #[test]
    fn attempts_survive_a_new_sink_and_end_with_the_event() {
        let (mut retries, now) = (retries(2), Instant::now());
        assert!(matches!(retries.failed(1, now), Next::Retry { attempts: 1, .. }));
        retries.rewind();
        assert_eq!(retries.take_due(now + BASE), None);
        assert_eq!(retries.failed(1, now), Next::Exhausted { attempts: 2 });
        retries.settled(1);
        assert!(matches!(retries.failed(1, now), Next::Retry { attempts: 1, .. }));
    }

    #[test]
    fn another_timeline_takes_nobodys_turn_and_new_numbers_begin_anew() {
        let (mut retries, now) = (retries(3), Instant::now());
        assert!(matches!(retries.failed(1, now), Next::Retry { attempts: 1, .. }));
        // GIVEN an event that waits WHEN the timeline changes THEN its turn comes all the same
        retries.forget();
        assert_eq!(retries.take_due(now + BASE), Some(1));
        assert!(matches!(retries.failed(1, now), Next::Retry { attempts: 2, .. }));
        // WHEN the sink is built anew THEN 1 is another event
        retries.rewind();
        assert!(matches!(retries.failed(1, now), Next::Retry { attempts: 1, .. }));
    }
}
