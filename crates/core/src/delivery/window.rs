//! The bounded set of events between admission and confirmation.
//!
//! Confirms arrive in any order, and Postgres may discard only what precedes the first unconfirmed
//! event. So the window is a ring: `admit` appends, `settle` marks, and the settled prefix is
//! removed from the front. What is unsettled is limited, so that a broker that stalls does not grow
//! the process: a full window stops intake, and nothing else. The ring may be several times as long,
//! so that one event that waits for long stops no other.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::confirm_time::ConfirmTime;
use super::in_flight_limit::InFlightLimit;
use super::known::Fingerprint;
use super::overtaken::Overtaken;
use crate::base::event::Sequence;
use crate::mutants::{Mutant, on};

/// How many times as many events as may be unsettled the ring has room for.
const SPAN_FACTOR: usize = 4;

#[derive(Debug)]
pub struct Window {
    /// Every event below this one is settled.
    settled_below: Sequence,
    ring: VecDeque<Slot>,
    /// After a rewind: which of the next events were confirmed before it.
    confirmed_before: VecDeque<bool>,
    /// Events below this number will not be received again under the same numbers: they are of
    /// another timeline, or a peer has confirmed them.
    forgotten_below: Sequence,
    events: usize,
    bytes: usize,
    /// Most unsettled events.
    limit: InFlightLimit,
    /// The limit was reached since it was adapted last.
    was_full: bool,
    /// An event has failed and is unsettled. It and those of its key wait, and do not keep the
    /// broker busy: only the upper bound applies, and not the measured limit.
    is_retrying: bool,
    confirm_time: ConfirmTime,
    overtaken: Overtaken,
    /// The broker can be reached, as far as is known.
    is_reachable: bool,
    /// Something waits for a destination that does not answer.
    is_lifted: bool,
    /// Since the start of the process.
    confirmed: u64,
    span_max: usize,
    bytes_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    bytes: usize,
    commit_unix_us: i64,
    fingerprint: Fingerprint,
    settled: bool,
}

/// An event that was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledEvent {
    pub commit_unix_us: i64,
    /// None for an event that must not be marked.
    pub fingerprint: Fingerprint,
}

/// A report on an event that is not in the window. This is a bug in a sink, and stops the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sink reported event {0}, which is not in flight")]
pub struct NotInFlight(pub Sequence);

impl Window {
    pub fn new(events_max: usize, bytes_max: usize) -> Window {
        Window {
            settled_below: 0,
            ring: VecDeque::new(),
            confirmed_before: VecDeque::new(),
            forgotten_below: 0,
            events: 0,
            bytes: 0,
            limit: InFlightLimit::new(events_max),
            was_full: false,
            is_retrying: false,
            confirm_time: ConfirmTime::default(),
            overtaken: Overtaken::default(),
            is_reachable: true,
            is_lifted: false,
            confirmed: 0,
            span_max: events_max.saturating_mul(SPAN_FACTOR),
            bytes_max,
        }
    }

    /// Adapts the limit to how fast events are confirmed, and whether any of them has failed and is
    /// retried. Called in each pass of the loop.
    pub fn adapt(&mut self, now: Instant, is_retrying: bool) {
        let full = std::mem::take(&mut self.was_full) || self.events >= self.limit();
        self.limit.observe(now, self.confirmed, full && !is_retrying && !self.is_lifted);
        self.is_retrying = is_retrying;
        let (settled_below, next) = (self.settled_below, self.next());
        self.confirm_time.observe(now, next, settled_below);
        self.overtaken.observe(now, (settled_below, next), self.confirm_time.usual());
        let is_overtaken = settled_below < self.overtaken.below();
        self.is_lifted = is_overtaken || (self.is_reachable && self.overtaken.stands(now));
        self.is_lifted &= !on(Mutant::SilentHoldsAll);
    }

    /// Whether the broker can be reached. While it cannot, more events in flight help nobody.
    pub fn set_reachable(&mut self, is_reachable: bool) {
        self.is_reachable = is_reachable;
    }

    /// The unsettled events that wait while the broker confirms later ones, oldest first.
    pub fn overtaken(&self) -> impl Iterator<Item = Sequence> {
        let old = self.overtaken.below().saturating_sub(self.settled_below) as usize;
        let unsettled = self.ring.iter().take(old).enumerate().filter(|(_, slot)| !slot.settled);
        unsettled.map(|(index, _)| self.settled_below + index as Sequence)
    }

    /// How long the broker usually takes to confirm.
    pub fn confirm_time(&self) -> Duration {
        self.confirm_time.usual()
    }

    /// How many events may be unsettled. Those that wait for another attempt, or for a destination
    /// that does not answer, say nothing of what keeps the broker busy: then only the upper bound
    /// applies.
    pub fn limit(&self) -> usize {
        if self.is_retrying || self.is_lifted { self.limit.max() } else { self.limit.limit() }
    }

    /// Whether one more event may come in. The last one may exceed the limit of bytes.
    pub fn has_room(&self) -> bool {
        on(Mutant::WindowUnbounded)
            || self.events < self.limit()
                && self.ring.len() < self.span_max
                && self.bytes < self.bytes_max
    }

    /// The number that the next admitted event will get.
    pub fn next(&self) -> Sequence {
        self.settled_below + self.ring.len() as Sequence
    }

    pub fn admit(
        &mut self,
        bytes: usize,
        commit_unix_us: i64,
        fingerprint: Fingerprint,
    ) -> Sequence {
        let sequence = self.next();
        self.confirmed_before.pop_front();
        self.ring.push_back(Slot { bytes, commit_unix_us, fingerprint, settled: false });
        self.events += 1;
        self.bytes += bytes;
        self.was_full |= self.events >= self.limit();
        sequence
    }

    /// Marks an event as confirmed.
    pub fn settle(&mut self, sequence: Sequence) -> Result<SettledEvent, NotInFlight> {
        let slot = sequence
            .checked_sub(self.settled_below)
            .and_then(|index| self.ring.get_mut(usize::try_from(index).ok()?))
            .filter(|slot| !slot.settled)
            .ok_or(NotInFlight(sequence))?;
        slot.settled = true;
        let Slot { commit_unix_us, fingerprint, .. } = *slot;
        self.events -= 1;
        self.confirmed += 1;
        self.overtaken.confirmed(sequence);
        self.bytes -= slot.bytes;
        self.advance();
        Ok(SettledEvent { commit_unix_us, fingerprint })
    }

    /// Whether the next event was confirmed before a rewind. Then it is not published again.
    pub fn next_is_confirmed(&self) -> bool {
        self.confirmed_before.front() == Some(&true)
    }

    /// Admits the next event as one that is confirmed already.
    pub fn pass_over(&mut self) {
        self.confirmed_before.pop_front();
        self.ring.push_back(Slot {
            bytes: 0,
            commit_unix_us: 0,
            fingerprint: Fingerprint::NONE,
            settled: true,
        });
        self.advance();
    }

    /// Everything that is not settled in order will be admitted again, in the same order and under
    /// the same numbers, for a sink that was rebuilt.
    ///
    /// Returns true if part of it will not be received again: then the numbers are reused for
    /// different events.
    pub fn rewind(&mut self) -> bool {
        let rest = std::mem::take(&mut self.confirmed_before);
        self.confirmed_before = self.ring.drain(..).map(|slot| slot.settled).chain(rest).collect();
        let renumbered = self.settled_below < self.forgotten_below;
        if renumbered || on(Mutant::SettledRepublished) {
            self.confirmed_before.clear();
            self.forgotten_below = self.settled_below;
        }
        self.events = 0;
        self.bytes = 0;
        self.overtaken.forget();
        self.is_lifted = false;
        renumbered
    }

    /// What is received from here on is no repetition of the window: it is another timeline, or a
    /// peer has confirmed events.
    pub fn forget(&mut self) {
        if on(Mutant::NumbersReused) {
            return;
        }
        self.confirmed_before.clear();
        self.forgotten_below = self.next();
        self.ring.iter_mut().for_each(|slot| slot.fingerprint = Fingerprint::NONE);
    }

    fn advance(&mut self) {
        while self.ring.front().is_some_and(|slot| slot.settled) {
            self.ring.pop_front();
            self.settled_below += 1;
        }
    }

    /// Every event below this one is settled.
    pub fn settled_below(&self) -> Sequence {
        self.settled_below
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Unsettled events.
    pub fn events(&self) -> usize {
        self.events
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
