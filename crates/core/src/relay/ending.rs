//! How far work that stops is with its end: the open transaction is finished, and what is in flight is
//! settled, within a time.

use std::time::{Duration, Instant};

use crate::base::error::Fault;

pub struct Ending {
    /// The outcome that ends the relay.
    pub outcome: Result<(), Fault>,
    deadline: Instant,
    read_until: Instant,
    began: Instant,
}

impl Ending {
    /// It ends at `now`. Some of the time is kept for the confirms of what is read last.
    pub fn new(outcome: Result<(), Fault>, timeout: Duration, now: Instant) -> Ending {
        let deadline = now + timeout;
        Ending { outcome, deadline, read_until: deadline - timeout / 4, began: now }
    }

    /// Whether the open transaction is still read.
    pub fn reads(&self, now: Instant) -> bool {
        self.outcome.is_ok() && now < self.read_until
    }

    /// Whether its time is over.
    pub fn is_late(&self, now: Instant) -> bool {
        now >= self.deadline
    }

    /// Whether what is in flight will not settle any more. After a failure, or if it waits in vain, the
    /// broker may confirm nothing for no longer than `patience`; it last did at `settled_at`.
    pub fn has_stalled(
        &self,
        settled_at: Instant,
        now: Instant,
        patience: Duration,
        is_in_vain: bool,
    ) -> bool {
        let since = settled_at.max(self.began);
        let is_in_vain = is_in_vain || self.outcome.is_err();
        is_in_vain && now.saturating_duration_since(since) > patience
    }
}
