//! The events that the normal producer has, or that wait for it: events that the isolated producer
//! has must not overtake them.

use std::collections::VecDeque;

use super::port::TopicId;
use crate::base::event::Sequence;

#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The sequence of the first slot.
    first: Sequence,
    /// The first slot is filled if there is any.
    slots: VecDeque<Option<EventInFlight>>,
}

/// Where the producer keeps the order of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) topic: TopicId,
    /// The partition that the event asks for; otherwise it follows from the key.
    pub(super) partition: Option<i32>,
    /// How often the partitions of the topic had changed: a key may have another one since.
    pub(super) changes: u32,
}

/// The facts that librdkafka does not return with a failed delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventInFlight {
    /// Microseconds since the Unix epoch.
    pub(super) commit_unix_us: i64,
    /// The lane of its key.
    pub(super) lane: Option<u64>,
    /// Where it was handed over to; with its partition, as far as that is known.
    pub(super) sent_to: Option<Destination>,
}

impl EventInFlight {
    /// The lane of its key, once the event was handed over.
    pub(super) fn lane_sent(&self) -> Option<u64> {
        self.sent_to.and(self.lane)
    }
}

impl InFlight {
    #[inline]
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

    #[inline]
    pub(super) fn remove(&mut self, sequence: Sequence) -> Option<EventInFlight> {
        let index = sequence.checked_sub(self.first)? as usize;
        let removed = self.slots.get_mut(index).and_then(Option::take);
        while self.slots.front() == Some(&None) {
            self.slots.pop_front();
            self.first += 1;
        }
        removed
    }

    #[inline]
    pub(super) fn get(&self, sequence: Sequence) -> Option<&EventInFlight> {
        let index = sequence.checked_sub(self.first)? as usize;
        self.slots.get(index)?.as_ref()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The newest event of this lane that is older than `sequence`.
    pub(super) fn before(&self, sequence: Sequence, lane: u64) -> Option<Sequence> {
        let older = sequence.saturating_sub(self.first).min(self.slots.len() as Sequence) as usize;
        let of_lane = |slot: &Option<EventInFlight>| slot.is_some_and(|it| it.lane == Some(lane));
        let index = self.slots.range(..older).rposition(of_lane)?;
        Some(self.first + index as Sequence)
    }

    /// The lanes of the events that were handed over, one for each event.
    pub(super) fn lanes(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().flatten().filter_map(EventInFlight::lane_sent)
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
