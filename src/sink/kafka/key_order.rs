//! Keeps the events of a key in order where they go to several topics.
//!
//! The producer keeps the order of a key within one partition. Of two topics, one may be missing or
//! without a leader while the other takes everything, so an event whose key has unconfirmed events
//! at another destination waits here until those are answered.
//!
//! While everything unconfirmed goes to one destination nothing is recorded. What waits is bounded
//! by the window, as what fails is. It only waits for older events that were handed over, so
//! whatever comes, the oldest unconfirmed event never waits here.
//!
//! Pure: no producer, no clock.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::base::event::Sequence;
use crate::sink::kafka::in_flight::InFlight;
use crate::sink::kafka::producer_ffi::TopicId;

/// Where the producer keeps the order of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) topic: TopicId,
    /// The partition that the event asks for; otherwise it follows from the key.
    pub(super) partition: Option<i32>,
}

/// Events of one key that were handed over and are not answered for.
#[derive(Clone, Copy, Debug)]
struct Unconfirmed {
    to: Destination,
    events: u32,
}

/// A lane is a keyed hash already.
#[derive(Debug, Default)]
struct LaneHasher(u64);

impl Hasher for LaneHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, lane: u64) {
        self.0 = lane;
    }
}

type ByLane<V> = HashMap<u64, V, BuildHasherDefault<LaneHasher>>;
type Waiting<T> = BTreeMap<Sequence, (Destination, T)>;

/// What is unconfirmed of each key, and what waits for it.
#[derive(Debug)]
pub(super) struct KeyOrder<T> {
    /// Where everything unconfirmed goes while nothing is recorded.
    only: Option<Destination>,
    is_recording: bool,
    unconfirmed: ByLane<Unconfirmed>,
    waiting: ByLane<Waiting<T>>,
}

impl<T> Default for KeyOrder<T> {
    fn default() -> KeyOrder<T> {
        KeyOrder {
            only: None,
            is_recording: false,
            unconfirmed: ByLane::default(),
            waiting: ByLane::default(),
        }
    }
}

impl<T> KeyOrder<T> {
    /// Does nothing wait here?
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Must the event wait for older ones of its key? Then call [`KeyOrder::wait`], otherwise
    /// [`KeyOrder::handed_over`] when it is.
    #[inline]
    pub(super) fn must_wait(
        &mut self,
        sequence: Sequence,
        lane: Option<u64>,
        to: Destination,
        flight: &InFlight,
    ) -> bool {
        if !self.is_recording && self.only == Some(to) {
            return false;
        }
        self.must_wait_by_key(sequence, lane, to, flight)
    }

    fn must_wait_by_key(
        &mut self,
        sequence: Sequence,
        lane: Option<u64>,
        to: Destination,
        flight: &InFlight,
    ) -> bool {
        if flight.is_empty() {
            (self.only, self.is_recording) = (Some(to), false);
            self.unconfirmed.clear();
            return false;
        }
        if !self.is_recording {
            self.record(flight);
        }
        let Some(lane) = lane else { return false };
        let older = |waiting: &Waiting<T>| {
            waiting.first_key_value().is_some_and(|(first, _)| *first < sequence)
        };
        self.unconfirmed.get(&lane).is_some_and(|it| it.to != to)
            || (!self.waiting.is_empty() && self.waiting.get(&lane).is_some_and(older))
    }

    /// There is a second destination: from here on it matters which keys are unconfirmed where.
    #[cold]
    fn record(&mut self, flight: &InFlight) {
        self.is_recording = true;
        let Some(to) = self.only else { return };
        for lane in flight.lanes() {
            self.unconfirmed.entry(lane).or_insert(Unconfirmed { to, events: 0 }).events += 1;
        }
    }

    /// An event waits until what is unconfirmed of its key is answered.
    pub(super) fn wait(&mut self, sequence: Sequence, lane: u64, to: Destination, item: T) {
        self.waiting.entry(lane).or_default().insert(sequence, (to, item));
    }

    /// An event was handed over.
    #[inline]
    pub(super) fn handed_over(&mut self, lane: Option<u64>, to: Destination) {
        if let Some(lane) = lane.filter(|_| self.is_recording) {
            self.unconfirmed.entry(lane).or_insert(Unconfirmed { to, events: 0 }).events += 1;
        }
    }

    /// An event that was handed over is taken back.
    pub(super) fn taken_back(&mut self, lane: Option<u64>) {
        let Some(lane) = lane.filter(|_| self.is_recording) else { return };
        if let Some(unconfirmed) = self.unconfirmed.get_mut(&lane) {
            unconfirmed.events -= 1;
            if unconfirmed.events == 0 {
                self.unconfirmed.remove(&lane);
            }
        }
    }

    /// An event was answered for. Hands out what may go now, in order.
    #[inline]
    pub(super) fn answered(&mut self, lane: Option<u64>) -> Vec<(Sequence, T)> {
        self.taken_back(lane);
        lane.map_or_else(Vec::new, |lane| self.release(lane))
    }

    /// Hands out what waits of a lane of which nothing is unconfirmed, as far as it goes to one
    /// destination.
    pub(super) fn release(&mut self, lane: u64) -> Vec<(Sequence, T)> {
        let mut released = Vec::new();
        if self.waiting.is_empty() || self.unconfirmed.contains_key(&lane) {
            return released;
        }
        let Some(waiting) = self.waiting.get_mut(&lane) else { return released };
        let to = waiting.first_key_value().map(|(_, (to, _))| *to);
        while let Some(first) = waiting.first_entry().filter(|it| Some(it.get().0) == to) {
            let (sequence, (_, item)) = first.remove_entry();
            released.push((sequence, item));
        }
        if waiting.is_empty() {
            self.waiting.remove(&lane);
        }
        released
    }
}

#[cfg(test)]
#[path = "key_order_tests.rs"]
mod tests;
