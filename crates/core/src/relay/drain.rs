//! The end of the loop: the open transaction is finished, and what is in flight is settled and reported.

use std::time::{Duration, Instant};

use super::{Feed, Life, Relay, faults};
use crate::base::error::Fault;
use crate::mutants::{Mutant, on};

/// Longest wait for a confirm while the relay stops.
const DRAIN_TICK: Duration = Duration::from_millis(2);

/// How far a loop is with its end.
pub(super) struct Drain {
    /// What ends it.
    outcome: Result<(), Fault>,
    deadline: Instant,
    /// The open transaction is read until then.
    read_until: Instant,
    /// How many events are settled, and when the last one was.
    settled: (u64, Instant),
}

impl<F: Feed> Relay<F> {
    /// Finishes the open transaction, settles what is in flight and reports it. A transaction that
    /// would take longer is left as it is, in time to settle what is in flight of it. After a fault,
    /// what was admitted before it is still settled.
    pub(super) fn begin_drain(&mut self, outcome: Result<(), Fault>) {
        self.feed.close();
        let now = self.clock.instant();
        let deadline = now + self.drain_timeout;
        let read_until = deadline - self.drain_timeout / 4;
        let settled = (self.down.driver.settled_events, now);
        self.life = Life::Draining(Drain { outcome, deadline, read_until, settled });
    }

    pub(super) fn drain_step(&mut self) -> Option<Result<(), Fault>> {
        let Life::Draining(mut drain) = std::mem::replace(&mut self.life, Life::Stopped) else {
            return None;
        };
        let now = self.clock.instant();
        let has_sink = self.down.driver.sink.is_some();
        let reads = drain.outcome.is_ok() && has_sink && now < drain.read_until;
        let reading = reads && self.feed.is_mid_transaction() && !on(Mutant::DrainInTransaction);
        if now >= drain.deadline || self.has_drained(&mut drain, reading, now) {
            let outcome = self.end(drain.outcome);
            self.publish_status();
            return Some(outcome);
        }
        self.life = Life::Draining(drain);
        let passed = self.drain_pass(reading);
        if let Life::Draining(Drain { outcome: outcome @ Ok(()), .. }) = &mut self.life {
            *outcome = passed;
        }
        None
    }

    /// Whether nothing more can be settled.
    fn has_drained(&self, drain: &mut Drain, reading: bool, now: Instant) -> bool {
        let Relay { feed, down, .. } = self;
        if !reading && (down.driver.sink.is_none() || feed.in_flight() <= down.policy.unpublishable)
        {
            return true;
        }
        if drain.settled.0 != down.driver.settled_events {
            drain.settled = (down.driver.settled_events, now);
        }
        // Events that wait behind a refused event of their key will never settle, nor do those that
        // may not be sent.
        let in_vain = drain.outcome.is_err() || feed.awaits_retries() || self.is_cut_off(now);
        in_vain && now.saturating_duration_since(drain.settled.1) > F::LAST_CONFIRM_WITHIN
    }

    /// Reports what is settled, and closes the source.
    fn end(&mut self, outcome: Result<(), Fault>) -> Result<(), Fault> {
        if outcome.is_ok() && self.feed.is_mid_transaction() {
            tracing::warn!(
                code = "stop.unfinished",
                "a transaction was not finished within drain_timeout: the next start goes on within it as far as the state file, or the end of the topics, says what was published, and publishes the rest again"
            );
        }
        let is_cut_off = self.is_cut_off(self.clock.instant());
        let left = self.feed.finish(&mut self.down, outcome.as_ref().err());
        if outcome.is_ok() && left > 0 && is_cut_off {
            tracing::warn!(
                code = "stop.no-session",
                left,
                "the session ended while the relay stopped: what the broker has not confirmed is left to the next process"
            );
        } else if outcome.is_ok() && left > 0 {
            return Err(faults::drain_timed_out(left, self.drain_timeout));
        }
        outcome
    }

    fn drain_pass(&mut self, reading: bool) -> Result<(), Fault> {
        let now = self.clock.instant();
        self.withdraw(now)?;
        let more = if reading {
            self.feed.intake(&mut self.down, now, true)
        } else {
            self.feed.hold(now);
            Ok(false)
        };
        self.limit_sink();
        let tick = |more| if more { Duration::ZERO } else { DRAIN_TICK };
        let collected = more.and_then(|more| self.collect(tick(more)));
        self.retry_due(self.clock.instant());
        let read = collected.and_then(|()| self.read_tail_events());
        self.feed.report(&mut self.down, self.clock.instant());
        self.publish_status();
        read
    }
}
