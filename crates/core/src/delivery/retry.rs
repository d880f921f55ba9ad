//! When events that have failed are tried again.
//!
//! An event whose failure may be temporary gets `attempts_max` attempts in all, with
//! full jitter between them. Attempts belong to the event ([`super::flight`]): a new
//! sink does not give it new ones. A budget limits all retries together, so that many failing events
//! leave room for those that succeed. A retry that is confirmed costs nothing, so
//! the rate of retries rises once they succeed. While the window is full the budget
//! is suspended: nothing new can come in before waiting events are retried.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::flight::Attempts;
use crate::base::backoff::Backoff;
use crate::base::event::Sequence;

/// Retries that are allowed however little is published; no more than these can be saved up.
const RESERVE: u64 = 100;
/// How many of them are granted again each second.
const RESERVE_PER_SECOND: u64 = 10;
/// The budget is counted in hundredths of a retry: a first attempt earns `percent` of them.
const RETRY: u64 = 100;

#[derive(Debug)]
pub struct Retries {
    attempts_max: u32,
    backoff: Backoff,
    due: BTreeSet<(Instant, Sequence)>,
    budget: Budget,
}

impl Retries {
    /// There will be at most `budget_percent` retries in a hundred first attempts.
    pub fn new(attempts_max: u32, budget_percent: u32, backoff: Backoff) -> Retries {
        Retries { attempts_max, backoff, due: BTreeSet::new(), budget: Budget::new(budget_percent) }
    }

    pub fn is_exhausted(&self, attempts: Attempts) -> bool {
        attempts.count >= self.attempts_max
    }

    /// An event with these failed attempts waits for its next one. Returns the shortest wait.
    pub fn wait(&mut self, sequence: Sequence, attempts: Attempts, now: Instant) -> Duration {
        let wait = self.backoff.delay_after(attempts.all().saturating_sub(1));
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

    /// An event that had failed was confirmed.
    pub fn refund(&mut self) {
        self.budget.refund();
    }

    /// Everything unsettled is published again, so no event waits any more.
    pub fn rewind(&mut self) {
        self.due.clear();
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
