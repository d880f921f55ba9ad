//! Keeps the events of a key in order where they go to several topics.
//!
//! The producer keeps the order of a key within one partition. Of two topics, one may be missing or
//! without a leader while the other takes every event. So an event whose key has unconfirmed events
//! at another destination waits here until the broker has answered for those.
//!
//! While all unconfirmed events go to one destination nothing is recorded. The window bounds how
//! many events wait. An event waits only for older events that were handed over, so the oldest
//! unconfirmed event never waits here.
//!
//! Pure: no producer, no clock.

use std::collections::BTreeMap;

use super::events::{Destination, Events};
use crate::base::event::Sequence;
use crate::base::hash::HashMap;
use crate::mutants::{Mutant, on};

/// Events of one key that were handed over and are not answered.
#[derive(Clone, Copy, Debug)]
struct Unconfirmed {
    to: Destination,
    events: u32,
}

#[derive(Debug, Default)]
pub(super) struct KeyOrder {
    /// Where all unconfirmed events go while nothing is recorded.
    only: Option<Destination>,
    is_recording: bool,
    unconfirmed: HashMap<u64, Unconfirmed>,
    waiting: HashMap<u64, BTreeMap<Sequence, Destination>>,
}

impl KeyOrder {
    /// Whether no event waits here.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether an event must wait for older ones of its key. Call [`KeyOrder::wait`] if it must,
    /// and [`KeyOrder::handed_over`] once it was handed over.
    #[inline]
    pub(super) fn must_wait(
        &mut self,
        sequence: Sequence,
        lane: Option<u64>,
        to: Destination,
        events: &Events,
    ) -> bool {
        if on(Mutant::KafkaTwoTopics) || !self.is_recording && self.only == Some(to) {
            return false;
        }
        if events.is_empty() {
            (self.only, self.is_recording) = (Some(to), false);
            self.unconfirmed.clear();
            return false;
        }
        if !self.is_recording {
            self.start_recording(events);
        }
        let Some(lane) = lane else { return false };
        let first_waiting = self.waiting.get(&lane).and_then(|waiting| waiting.first_key_value());
        self.unconfirmed.get(&lane).is_some_and(|it| it.to != to)
            || first_waiting.is_some_and(|(first, _)| *first < sequence)
    }

    /// There is a second destination, so it matters where the unconfirmed events of a key go.
    #[cold]
    fn start_recording(&mut self, events: &Events) {
        self.is_recording = true;
        let Some(to) = self.only else { return };
        for lane in events.lanes() {
            self.handed_over(Some(lane), to);
        }
    }

    pub(super) fn wait(&mut self, sequence: Sequence, lane: u64, to: Destination) {
        self.waiting.entry(lane).or_default().insert(sequence, to);
    }

    #[inline]
    pub(super) fn handed_over(&mut self, lane: Option<u64>, to: Destination) {
        if let Some(lane) = lane.filter(|_| self.is_recording) {
            self.unconfirmed.entry(lane).or_insert(Unconfirmed { to, events: 0 }).events += 1;
        }
    }

    /// An event that was handed over was not sent, and is admitted anew.
    pub(super) fn taken_back(&mut self, lane: Option<u64>) {
        let Some(lane) = lane.filter(|_| self.is_recording) else { return };
        if let Some(unconfirmed) = self.unconfirmed.get_mut(&lane) {
            unconfirmed.events -= 1;
            if unconfirmed.events == 0 {
                self.unconfirmed.remove(&lane);
            }
        }
    }

    /// The events of this lane that are younger than `sequence` wait here no longer.
    pub(super) fn forget_behind(&mut self, lane: u64, sequence: Sequence) {
        let Some(waiting) = self.waiting.get_mut(&lane) else { return };
        waiting.retain(|waiting, _| *waiting <= sequence);
        if waiting.is_empty() {
            self.waiting.remove(&lane);
        }
    }

    /// The broker has answered for an event that was handed over. Returns as [`KeyOrder::release`].
    #[inline]
    pub(super) fn answered(&mut self, lane: Option<u64>) -> Vec<Sequence> {
        self.taken_back(lane);
        self.release(lane)
    }

    /// Takes out what waits of a lane without unconfirmed events, as far as it goes to one
    /// destination, in order.
    #[inline]
    pub(super) fn release(&mut self, lane: Option<u64>) -> Vec<Sequence> {
        let mut released = Vec::new();
        let Some(lane) = lane.filter(|_| !self.waiting.is_empty()) else { return released };
        if self.unconfirmed.contains_key(&lane) {
            return released;
        }
        let Some(waiting) = self.waiting.get_mut(&lane) else { return released };
        let to = waiting.first_key_value().map(|(_, to)| *to);
        while let Some(first) = waiting.first_entry().filter(|it| Some(*it.get()) == to) {
            released.push(first.remove_entry().0);
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
