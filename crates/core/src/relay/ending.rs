//! How far a relay that stops is with its end: the open transaction is finished, and what is in flight
//! is settled, within a time.

use std::time::{Duration, Instant};

use crate::base::error::Fault;

pub(super) struct Ending {
    /// The outcome that ends the relay.
    pub(super) outcome: Result<(), Fault>,
    deadline: Instant,
    read_until: Instant,
    /// How many events are settled, and when the last one was.
    settled: (u64, Instant),
}

impl Ending {
    /// It ends at `now`, when so many events are `settled`. Some of the time is kept for the confirms
    /// of what is read last.
    pub(super) fn new(
        outcome: Result<(), Fault>,
        timeout: Duration,
        now: Instant,
        settled: u64,
    ) -> Ending {
        let deadline = now + timeout;
        Ending { outcome, deadline, read_until: deadline - timeout / 4, settled: (settled, now) }
    }

    /// Whether the open transaction is still read.
    pub(super) fn reads(&self, now: Instant) -> bool {
        self.outcome.is_ok() && now < self.read_until
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        now >= self.deadline
    }

    /// Whether what is in flight will not settle any more. After a failure, or if it waits in vain, the
    /// broker may confirm nothing for no longer than `patience`.
    pub(super) fn has_stalled(
        &mut self,
        settled: u64,
        now: Instant,
        patience: Duration,
        is_in_vain: bool,
    ) -> bool {
        if self.settled.0 != settled {
            self.settled = (settled, now);
        }
        let is_in_vain = is_in_vain || self.outcome.is_err();
        is_in_vain && now.saturating_duration_since(self.settled.1) > patience
    }
}
