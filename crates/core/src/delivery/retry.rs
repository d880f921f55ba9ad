//! Which events are tried again, and when.
//!
//! An event whose failure may be temporary gets `attempts_max` attempts in all, with
//! full jitter between them. Attempts belong to the event: a new sink does not give
//! it new ones. A budget limits all retries together, so that many failing events
//! leave room for those that succeed. A retry that is confirmed costs nothing, so
//! the rate of retries rises once they succeed. While the window is full the budget
//! is suspended: nothing new can come in before waiting events are retried.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::base::backoff::Backoff;
use crate::base::event::Sequence;
use crate::base::hash::HashMap;

/// Retries that are allowed however little is published; no more than these can be saved up.
const RESERVE: u64 = 100;
/// How many of them are granted again each second.
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

/// The failed attempts of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    pub count: u32,
    /// Those that are not counted, because the event was not to blame.
    pub uncounted: u32,
    /// Microseconds since the Unix epoch.
    pub first_failed_unix_us: i64,
}

impl Retries {
    /// There will be at most `budget_percent` retries in a hundred first attempts.
    pub fn new(attempts_max: u32, budget_percent: u32, backoff: Backoff) -> Retries {
        Retries {
            attempts_max,
            backoff,
            failed: HashMap::default(),
            due: BTreeSet::new(),
            budget: Budget::new(budget_percent),
        }
    }

    /// An attempt has failed. Returns all that have.
    pub fn failed(&mut self, sequence: Sequence, now_unix_us: i64) -> Attempts {
        let attempts = self.so_far(sequence, now_unix_us);
        let attempts = Attempts { count: attempts.count + 1, ..attempts };
        self.failed.insert(sequence, attempts);
        attempts
    }

    /// An attempt has failed, and the event is not to blame: it is not counted, but the waits grow.
    /// Returns all that have.
    pub fn delayed(&mut self, sequence: Sequence, now_unix_us: i64) -> Attempts {
        let attempts = self.so_far(sequence, now_unix_us);
        let attempts = Attempts { uncounted: attempts.uncounted.saturating_add(1), ..attempts };
        self.failed.insert(sequence, attempts);
        attempts
    }

    /// `count` attempts were made by an earlier claim of the row.
    pub fn has_failed_before(&mut self, sequence: Sequence, count: u32, now_unix_us: i64) {
        let attempts = Attempts { count, uncounted: 0, first_failed_unix_us: now_unix_us };
        self.failed.insert(sequence, attempts);
    }

    pub fn so_far(&self, sequence: Sequence, now_unix_us: i64) -> Attempts {
        let none = Attempts { count: 0, uncounted: 0, first_failed_unix_us: now_unix_us };
        self.failed.get(&sequence).copied().unwrap_or(none)
    }

    pub fn is_exhausted(&self, attempts: Attempts) -> bool {
        attempts.count >= self.attempts_max
    }

    /// An event that has failed waits for its next attempt. Returns the shortest wait.
    pub fn wait(&mut self, sequence: Sequence, now: Instant) -> Duration {
        let all = |attempts: &Attempts| attempts.count.saturating_add(attempts.uncounted);
        let count = self.failed.get(&sequence).map_or(1, all);
        let wait = self.backoff.delay_after(count.saturating_sub(1));
        self.due.insert((now + wait, sequence));
        wait
    }

    /// An event whose wait is over, if the budget allows another retry. `published` first attempts
    /// were made until now, and `has_room` says whether the window has room for more.
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

    /// Returns how many attempts have failed.
    #[inline]
    pub fn settled(&mut self, sequence: Sequence) -> u32 {
        if self.failed.is_empty() {
            return 0;
        }
        let Some(attempts) = self.failed.remove(&sequence) else { return 0 };
        self.budget.refund();
        attempts.count
    }

    pub fn given_up(&mut self, sequence: Sequence) {
        self.failed.remove(&sequence);
    }

    /// Whether an event that has failed is still unsettled.
    pub fn has_unsettled_failures(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Numbers from `next` on will be given to other events than before.
    pub fn forget(&mut self, next: Sequence) {
        self.failed.retain(|sequence, _| *sequence < next);
        self.due.retain(|(_, sequence)| *sequence < next);
    }

    /// Everything unsettled is published again, so no event waits any more. `renumbered` if the
    /// numbers mean other events now.
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
        // After a rewind the count falls, so the same events earn nothing twice.
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
