//! The table of the events in flight, in commit order: one slot an event, from its first hand-over to a
//! sink until it and all before it are settled.
//!
//! Confirms arrive in any order, and Postgres may discard only what precedes the first unconfirmed
//! event. So the table is a ring: `admit` appends, `settle` marks, and the settled prefix is removed
//! from the front. What is unsettled is limited, so that a broker that stalls does not grow the
//! process: a full table stops intake, and nothing else. The ring may be several times as long, so
//! that one event that waits for long stops no other.
//!
//! When the sink breaks, the table keeps its slots, and every event that is not settled in order is
//! received again under its number: the slots behind `admitted` are those of events that are still to
//! come, with what is known of them. Those that do not come again are dropped ([`Flights::forget`]).

use std::collections::VecDeque;
use std::ops::RangeBounds;
use std::time::{Duration, Instant};

use super::confirm_time::ConfirmTime;
use super::flight::{Flight, FlightState};
use super::in_flight_limit::InFlightLimit;
use super::known::Fingerprint;
use super::overtaken::Overtaken;
use crate::base::event::{Position, Sequence};
use crate::base::lsn::Lsn;
use crate::mutants::{Mutant, on};

/// How many times as many events as may be unsettled the ring has room for.
const SPAN_FACTOR: usize = 4;

#[derive(Debug)]
pub struct Flights {
    /// Every event below this one is settled.
    settled_below: Sequence,
    ring: VecDeque<Flight>,
    /// How many slots are of events that this sink has, or that are settled. The others are of events
    /// that an earlier sink had: they come next.
    admitted: usize,
    /// Events below this number will not be received again under the same numbers: they are of
    /// another timeline, or a peer has confirmed them.
    forgotten_below: Sequence,
    /// Unsettled events of this sink, and their bytes.
    events: usize,
    bytes: usize,
    /// Events with failed attempts that are unsettled. They and those of their keys wait, and do not
    /// keep the broker busy: then only the upper bound applies, and not the measured limit.
    failing: usize,
    /// Most unsettled events.
    limit: InFlightLimit,
    /// The limit was reached since it was adapted last.
    was_full: bool,
    /// An event had failed when the limit was adapted last.
    is_retrying: bool,
    confirm_time: ConfirmTime,
    overtaken: Overtaken,
    /// The broker can be reached, as far as is known.
    is_reachable: bool,
    /// Unsettled events below this number wait for a destination that does not answer.
    waiting_below: Sequence,
    /// How many they are.
    waiting: usize,
    /// Since the start of the process.
    confirmed: u64,
    span_max: usize,
    bytes_max: usize,
}

/// The consequences of a rewind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewound {
    /// The first event that must be received again.
    pub from: Option<Position>,
    /// The events whose dead letters parked their keys, and of which nothing is known any more.
    pub dropped_letters: Vec<Position>,
}

/// A report on an event that is not in flight. This is a bug in a sink, and stops the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sink reported event {0}, which is not in flight")]
pub struct NotInFlight(pub Sequence);

impl Flights {
    pub fn new(events_max: usize, bytes_max: usize) -> Flights {
        Flights {
            settled_below: 0,
            ring: VecDeque::new(),
            admitted: 0,
            forgotten_below: 0,
            events: 0,
            bytes: 0,
            failing: 0,
            limit: InFlightLimit::new(events_max),
            was_full: false,
            is_retrying: false,
            confirm_time: ConfirmTime::default(),
            overtaken: Overtaken::default(),
            is_reachable: true,
            waiting_below: 0,
            waiting: 0,
            confirmed: 0,
            span_max: events_max.saturating_mul(SPAN_FACTOR),
            bytes_max,
        }
    }

    /// Adapts the limit to how fast events are confirmed, and whether any of them has failed and is
    /// retried. Called in each pass of the loop.
    pub fn adapt(&mut self, now: Instant) {
        let is_retrying = self.failing > 0;
        let full = std::mem::take(&mut self.was_full) || self.events >= self.limit();
        self.limit.observe(now, self.confirmed, full && !is_retrying && self.waiting == 0);
        self.is_retrying = is_retrying;
        let (settled_below, next) = (self.settled_below, self.next());
        self.confirm_time.observe(now, next, settled_below);
        self.overtaken.observe(now, (settled_below, next), self.confirm_time.usual());
        let standing = if self.is_reachable { self.overtaken.standing_below(now) } else { 0 };
        self.wait_below(self.overtaken.below().max(standing));
    }

    /// The events below this number are too old: they wait for a destination that does not answer.
    fn wait_below(&mut self, below: Sequence) {
        let from = self.waiting_below.max(self.settled_below);
        if below <= from || on(Mutant::SilentHoldsAll) {
            return;
        }
        let first = (from - self.settled_below) as usize;
        let old = self.handed().skip(first).take((below - from) as usize);
        self.waiting += old.filter(|it| !it.state.is_settled()).count();
        self.waiting_below = below;
    }

    /// Whether the broker can be reached. While it cannot, more events in flight help nobody.
    pub fn set_reachable(&mut self, is_reachable: bool) {
        self.is_reachable = is_reachable;
    }

    /// The unsettled events that wait while the broker confirms later ones, oldest first.
    pub fn overtaken(&self) -> impl Iterator<Item = Sequence> {
        let old = self.overtaken.below().saturating_sub(self.settled_below) as usize;
        let unsettled =
            self.handed().take(old).enumerate().filter(|(_, it)| !it.state.is_settled());
        unsettled.map(|(index, _)| self.settled_below + index as Sequence)
    }

    /// How long they have been waiting.
    pub fn overtaken_for(&self, now: Instant) -> Duration {
        self.overtaken.waiting_time(now)
    }

    /// How long the broker usually takes to confirm.
    pub fn confirm_time(&self) -> Duration {
        self.confirm_time.usual()
    }

    /// How many events may be unsettled. Those that wait for a destination that does not answer say
    /// nothing of what keeps the broker busy, and as many more may come, because the next ones may be for
    /// the same destination. Those that wait for another attempt are not counted: then only the upper bound
    /// applies.
    pub fn limit(&self) -> usize {
        let (measured, max) = (self.limit.limit(), self.limit.max());
        if self.is_retrying { max } else { (measured.max(self.waiting) + self.waiting).min(max) }
    }

    /// Whether one more event may come in. The last one may exceed the limit of bytes.
    pub fn has_room(&self) -> bool {
        on(Mutant::WindowUnbounded)
            || self.events < self.limit()
                && self.admitted < self.span_max
                && self.bytes < self.bytes_max
    }

    /// The number that the next admitted event will get.
    pub fn next(&self) -> Sequence {
        self.settled_below + self.admitted as Sequence
    }

    /// The flight of the next event that an earlier sink has left.
    pub fn earlier(&self) -> Option<&Flight> {
        self.ring.get(self.admitted)
    }

    /// Whether an earlier sink has had a further event of the transaction.
    pub fn expects_more_of(&self, commit_lsn: Lsn) -> bool {
        self.earlier().is_some_and(|next| next.position.commit_lsn == commit_lsn)
    }

    /// The sink has taken the next event.
    pub fn admit(&mut self, mut flight: Flight) -> Sequence {
        let sequence = self.next();
        self.events += 1;
        self.bytes += flight.bytes as usize;
        if let Some(earlier) = self.ring.get_mut(self.admitted) {
            flight.resume(earlier);
        }
        self.place(flight);
        self.was_full |= self.events >= self.limit();
        sequence
    }

    /// The next event is settled already.
    pub fn pass_over(&mut self, position: Position) {
        self.place(Flight::settled(position));
        self.advance();
    }

    fn place(&mut self, flight: Flight) {
        self.failing += usize::from(flight.attempts().is_some());
        match self.ring.get_mut(self.admitted) {
            Some(slot) => {
                self.failing -= usize::from(slot.attempts().is_some());
                *slot = flight;
            }
            None => self.ring.push_back(flight),
        }
        self.admitted += 1;
    }

    /// Lets `decide` judge an event that the sink has.
    pub fn update<T>(
        &mut self,
        sequence: Sequence,
        decide: impl FnOnce(&mut Flight) -> T,
    ) -> Result<T, NotInFlight> {
        let index = self.index_of(sequence)?;
        let flight = &mut self.ring[index];
        self.failing -= usize::from(flight.attempts().is_some());
        let outcome = decide(flight);
        self.failing += usize::from(flight.attempts().is_some());
        Ok(outcome)
    }

    /// The broker has the event, or its dead letter. Returns what was known of the event.
    pub fn settle(&mut self, sequence: Sequence) -> Result<Flight, NotInFlight> {
        let index = self.index_of(sequence)?;
        let settled = Flight::settled(self.ring[index].position);
        let flight = std::mem::replace(&mut self.ring[index], settled);
        self.failing -= usize::from(flight.attempts().is_some());
        self.events -= 1;
        self.confirmed += 1;
        self.overtaken.confirmed(sequence);
        self.waiting -= usize::from(sequence < self.waiting_below);
        self.bytes -= flight.bytes as usize;
        self.advance();
        Ok(flight)
    }

    fn index_of(&self, sequence: Sequence) -> Result<usize, NotInFlight> {
        let index = sequence.checked_sub(self.settled_below);
        let index = index.and_then(|index| usize::try_from(index).ok());
        index
            .filter(|index| *index < self.admitted && !self.ring[*index].state.is_settled())
            .ok_or(NotInFlight(sequence))
    }

    /// The events that the sink has, and those that are settled before the last of them.
    fn handed(&self) -> impl Iterator<Item = &Flight> {
        self.ring.iter().take(self.admitted)
    }

    /// The events that become dead letters once the dead-letter topic has been read.
    pub fn given_up(&self) -> Vec<Sequence> {
        let given_up = |it: &&Flight| matches!(it.state, FlightState::GivenUp(_));
        let numbered = (self.settled_below..).zip(self.handed());
        numbered.filter(|(_, it)| given_up(it)).map(|(sequence, _)| sequence).collect()
    }

    /// Everything that is not settled in order will be admitted again, in the same order and under
    /// the same numbers, for a sink that was rebuilt. What was decided about an event stays decided.
    /// Events that are forgotten leave the table. If the dead letter of one of them parked its key, it may
    /// not have been written: then it is decided anew which events behind are dead letters because of it. The
    /// sink holds those back until it is confirmed, so none of them is settled.
    pub fn rewind(&mut self) -> Rewound {
        let forgotten = self.forgotten_below.saturating_sub(self.settled_below);
        let mut dropped_letters = self.drop_slots(..forgotten as usize);
        // The same event may have come again as a new one, and be such a dead letter as well.
        let parks = |at: &Position| self.ring.iter().any(|it| it.parks_from() == Some(*at));
        dropped_letters.retain(|at| !parks(at));
        self.settled_below += forgotten;
        let from = self.ring.front().map(|flight| flight.position);
        for flight in &mut self.ring {
            if !dropped_letters.is_empty() && flight.take_parked() {
                self.failing -= usize::from(flight.attempts().is_some());
                flight.set_attempts(None);
            }
            if on(Mutant::SettledRepublished) && flight.state.is_settled() {
                flight.state = FlightState::Sent;
            }
        }
        self.admitted = 0;
        self.events = 0;
        self.bytes = 0;
        self.overtaken.forget();
        self.confirm_time.forget();
        (self.waiting_below, self.waiting) = (0, 0);
        Rewound { from, dropped_letters }
    }

    /// Forgets these events: an event that is received from here on repeats none of them, because
    /// it is another timeline, or a peer has confirmed events. Returns those whose dead letters parked
    /// their keys and that no sink has.
    pub fn forget(&mut self) -> Vec<Position> {
        if on(Mutant::NumbersReused) {
            return Vec::new();
        }
        let dropped_letters = self.drop_slots(self.admitted..);
        self.forgotten_below = self.next();
        self.ring.iter_mut().for_each(|flight| flight.fingerprint = Fingerprint::NONE);
        dropped_letters
    }

    /// Drops these slots. Returns the positions of the events whose dead letters parked their keys.
    fn drop_slots(&mut self, slots: impl RangeBounds<usize>) -> Vec<Position> {
        let Flights { ring, failing, .. } = self;
        let count = |it: &Flight| *failing -= usize::from(it.attempts().is_some());
        ring.drain(slots).inspect(count).filter_map(|it| it.parks_from()).collect()
    }

    fn advance(&mut self) {
        while self.admitted > 0 && self.ring.front().is_some_and(|it| it.state.is_settled()) {
            self.ring.pop_front();
            self.admitted -= 1;
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
#[path = "flights_tests.rs"]
mod tests;
