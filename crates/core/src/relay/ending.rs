//! How far a relay that stops is with its end: the open transaction is finished, and what is in flight
//! is settled, within a time.

use std::time::{Duration, Instant};

use crate::base::error::Fault;
use crate::sink::driver::SinkDriver;

pub(super) struct Ending {
    /// The outcome that ends the relay.
    pub(super) outcome: Result<(), Fault>,
    deadline: Instant,
    read_until: Instant,
    began: Instant,
}

impl Ending {
    /// It ends at `now`. Some of the time is kept for the confirms of what is read last.
    pub(super) fn new(outcome: Result<(), Fault>, timeout: Duration, now: Instant) -> Ending {
        let deadline = now + timeout;
        Ending { outcome, deadline, read_until: deadline - timeout / 4, began: now }
    }

    /// Whether the open transaction is still read.
    pub(super) fn reads(&self, now: Instant) -> bool {
        self.outcome.is_ok() && now < self.read_until
    }

    /// Whether its time is over.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        now >= self.deadline
    }

    /// Whether what is in flight will not settle any more. After a failure, or if it waits in vain, the
    /// broker may confirm nothing for no longer than `patience`.
    pub(super) fn has_stalled(
        &self,
        driver: &SinkDriver,
        now: Instant,
        patience: Duration,
        is_in_vain: bool,
    ) -> bool {
        let is_in_vain = is_in_vain || self.outcome.is_err();
        is_in_vain && driver.silence(self.began, now) > patience
    }
}

#[cfg(test)]
#[path = "ending_tests.rs"]
mod tests;
