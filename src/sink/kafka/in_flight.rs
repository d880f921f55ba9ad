//! The events that the normal producer has, or that wait for it: events that the isolated producer
//! has must not overtake them.

use std::collections::VecDeque;

use crate::base::event::Sequence;

#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The sequence of the first slot.
    first: Sequence,
    /// The first slot is filled if there is any.
    slots: VecDeque<Option<EventInFlight>>,
}

/// What librdkafka does not return with a failed delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventInFlight {
    /// Microseconds since the Unix epoch.
    pub(super) commit_unix_us: i64,
    /// The lane of its key, once the event was handed over.
    pub(super) lane: Option<u64>,
}

impl InFlight {
    pub(super) fn add(&mut self, sequence: Sequence, event: EventInFlight) {
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
        self.slots[index] = Some(event);
    }

    pub(super) fn remove(&mut self, sequence: Sequence) -> Option<EventInFlight> {
        let index = sequence.checked_sub(self.first)? as usize;
        let removed = self.slots.get_mut(index).and_then(Option::take);
        while self.slots.front() == Some(&None) {
            self.slots.pop_front();
            self.first += 1;
        }
        removed
    }

    pub(super) fn oldest(&self) -> Option<Sequence> {
        (!self.slots.is_empty()).then_some(self.first)
    }

    /// The lanes of the events that were handed over, one for each event.
    pub(super) fn lanes(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().flatten().filter_map(|event| event.lane)
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
