//! Which events are tried again, and when.
//!
//! An event whose failure may pass gets `attempts_max` attempts in all, with full jitter between
//! them. Attempts belong to the event: a new sink does not give it new ones. All retries together
//! keep to a budget: where much fails, what works must not drown in what does not. A retry that is
//! confirmed costs nothing, so a mended route recovers ever faster; and while there is no room for
//! anything that might drown, nothing is charged, or events that wait would keep all others out.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::base::backoff::Backoff;
use crate::base::event::Sequence;

/// Retries that are allowed however little is published, and how many of them may be saved up.
const RESERVE: u64 = 100;
/// As many of them come back each second.
const RESERVE_PER_SECOND: u64 = 10;
/// The budget is counted in hundredths of a retry: a first attempt earns `percent` of them.
const RETRY: u64 = 100;

/// The events that have failed and are not settled.
#[derive(Debug)]
pub struct Retries {
    attempts_max: u32,
    backoff: Backoff,
    failed: HashMap<Sequence, Attempts>,
    due: BTreeSet<(Instant, Sequence)>,
    budget: Budget,
}

/// The attempts of one event that have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// How many.
    pub count: u32,
    /// When the first did, in microseconds since the Unix epoch.
    pub first_failed_unix_us: i64,
}

impl Retries {
    /// Nothing has failed. There are at most `budget_percent` retries in a hundred first attempts.
    #[must_use]
    pub fn new(attempts_max: u32, budget_percent: u32, backoff: Backoff) -> Retries {
        Retries {
            attempts_max,
            backoff,
            failed: HashMap::new(),
            due: BTreeSet::new(),
            budget: Budget::new(budget_percent),
        }
    }

    /// An attempt has failed; all that have.
    pub fn failed(&mut self, sequence: Sequence, now_unix_us: i64) -> Attempts {
        let attempts = self.so_far(sequence, now_unix_us);
        let attempts = Attempts { count: attempts.count + 1, ..attempts };
        self.failed.insert(sequence, attempts);
        attempts
    }

    /// So many attempts have failed elsewhere.
    pub fn has_failed_before(&mut self, sequence: Sequence, count: u32, now_unix_us: i64) {
        let attempts = Attempts { count, first_failed_unix_us: now_unix_us };
        self.failed.insert(sequence, attempts);
    }

    /// The attempts that have failed before now.
    #[must_use]
    pub fn so_far(&self, sequence: Sequence, now_unix_us: i64) -> Attempts {
        let none = Attempts { count: 0, first_failed_unix_us: now_unix_us };
        self.failed.get(&sequence).copied().unwrap_or(none)
    }

    /// Was that the last attempt?
    #[must_use]
    pub fn is_exhausted(&self, attempts: Attempts) -> bool {
        attempts.count >= self.attempts_max
    }

    /// An event that has failed waits for its next attempt; says how long at least.
    pub fn wait(&mut self, sequence: Sequence, now: Instant) -> Duration {
        let count = self.failed.get(&sequence).map_or(1, |attempts| attempts.count);
        let wait = self.backoff.delay_after(count.saturating_sub(1));
        self.due.insert((now + wait, sequence));
        wait
    }

    /// An event whose wait is over, as far as the budget goes. `published` first attempts were
    /// made until now; is there room for more?
    pub fn take_due(
        &mut self,
        now: Instant,
        published: Sequence,
        has_room: bool,
    ) -> Option<Sequence> {
        let first = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        if has_room && !self.budget.pay(now, published) {
            return None;
        }
        self.due.remove(&first);
        Some(first.1)
    }

    /// The broker has the event, perhaps after all.
    #[inline]
    pub fn settled(&mut self, sequence: Sequence) {
        if !self.failed.is_empty() && self.failed.remove(&sequence).is_some() {
            self.budget.refund();
        }
    }

    /// The event is given up.
    pub fn given_up(&mut self, sequence: Sequence) {
        self.failed.remove(&sequence);
    }

    /// Numbers from `next` on will be given to other events than before.
    pub fn forget(&mut self, next: Sequence) {
        self.failed.retain(|sequence, _| *sequence < next);
        self.due.retain(|(_, sequence)| *sequence < next);
    }

    /// Everything unsettled is published anew: nobody waits any more. `renumbered` when the numbers
    /// mean other events.
    pub fn rewind(&mut self, renumbered: bool) {
        self.due.clear();
        if renumbered {
            self.failed.clear();
        }
    }
}

/// A token bucket that first attempts and time fill.
#[derive(Debug)]
struct Budget {
    percent: u64,
    /// In hundredths of a retry.
    balance: u64,
    published: Sequence,
    filled_at: Option<Instant>,
}

impl Budget {
    fn new(percent: u32) -> Budget {
        Budget {
            percent: u64::from(percent),
            balance: RESERVE * RETRY,
            published: 0,
            filled_at: None,
        }
    }

    /// Pays for one retry if there is enough.
    fn pay(&mut self, now: Instant, published: Sequence) -> bool {
        // After a rewind the count falls: the same events earn nothing twice.
        let earned = published.saturating_sub(self.published).saturating_mul(self.percent);
        self.published = self.published.max(published);
        let since = self.filled_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let given = since_ms.saturating_mul(RESERVE_PER_SECOND * RETRY) / 1000;
        if given > 0 || self.filled_at.is_none() {
            self.filled_at = Some(now);
        }
        let balance = self.balance.saturating_add(earned).saturating_add(given);
        self.balance = balance.min(RESERVE * RETRY);
        let enough = self.balance >= RETRY;
        if enough {
            self.balance -= RETRY;
        }
        enough
    }

    fn refund(&mut self) {
        self.balance = (self.balance + RETRY).min(RESERVE * RETRY);
    }
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
