//! Which events are on the fast way, so that nothing that was held back overtakes them.

use std::collections::VecDeque;

use crate::base::event::Sequence;

/// The numbers on the fast way.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The number of the first slot.
    first: Sequence,
    /// What is on the way. The first one is, if there is any.
    slots: VecDeque<Option<EventInFlight>>,
}

/// What the client does not give back of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventInFlight {
    /// Commit time, microseconds since the Unix epoch.
    pub(super) commit_unix_us: i64,
    /// The lane of its key, once it was handed over.
    pub(super) lane: Option<u64>,
}

impl InFlight {
    /// An event takes off.
    pub(super) fn add(&mut self, sequence: Sequence, commit_unix_us: i64, lane: Option<u64>) {
        if self.slots.is_empty() {
            self.first = sequence;
        }
        while sequence < self.first {
            self.slots.push_front(None);
            self.first -= 1;
        }
        let index = (sequence - self.first) as usize;
        while self.slots.len() <= index {
            self.slots.push_back(None);
        }
        self.slots[index] = Some(EventInFlight { commit_unix_us, lane });
    }

    /// It has landed, or is held back after all: what is known of it, if it was on the way.
    pub(super) fn remove(&mut self, sequence: Sequence) -> Option<EventInFlight> {
        let index = sequence.checked_sub(self.first).map(|index| index as usize);
        let slot = index.and_then(|index| self.slots.get_mut(index));
        let taken = slot.and_then(Option::take);
        while self.slots.front() == Some(&None) {
            self.slots.pop_front();
            self.first += 1;
        }
        taken
    }

    /// Is nothing on the way?
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The lanes of what was handed over, one for each event.
    pub(super) fn lanes(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().flatten().filter_map(|slot| slot.lane)
    }

    /// The oldest that is on the way.
    pub(super) fn oldest(&self) -> Option<Sequence> {
        (!self.slots.is_empty()).then_some(self.first)
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
