//! The events of the normal producer, a slot each: those that it has, and those that wait for it. Events
//! that the isolated producer has must not overtake them.
//!
//! The producer is idempotent, so a partition stores no event before those that were handed over for it
//! earlier. Where a later event of a key is confirmed, an earlier one is stored, although its answer is
//! outstanding: it must not be published once more behind the later one. So a confirmed event keeps its slot
//! until all before it are answered.

use std::collections::{BTreeSet, VecDeque};

use super::port::TopicId;
use super::record::Record;
use crate::base::event::Sequence;
use crate::base::hash::HashMap;
use crate::mutants::{Mutant, on};

#[derive(Debug, Default)]
pub(super) struct Events {
    /// The sequence of the first slot.
    first: Sequence,
    /// The first slot is filled if there is any.
    slots: VecDeque<Option<Event>>,
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

#[derive(Debug)]
pub(super) struct Event {
    /// Microseconds since the Unix epoch, which librdkafka does not return with a failed delivery.
    pub(super) commit_unix_us: i64,
    /// The lane of its key.
    pub(super) lane: Option<u64>,
    pub(super) state: SendState,
}

#[derive(Debug)]
pub(super) enum SendState {
    /// The producer has it.
    Sent(Destination),
    /// The broker has it.
    Confirmed(Destination),
    /// The partition is not warmed up. Later events of the key may follow it there.
    AwaitsPartition(Destination, Box<Record>),
    /// Older events of the key are unconfirmed at another destination, or the queue is full.
    AwaitsTurn(Box<Record>),
}

impl Event {
    pub(super) fn awaits_turn(record: Record) -> Event {
        let (commit_unix_us, lane) = (record.commit_unix_us, record.lane);
        Event { commit_unix_us, lane, state: SendState::AwaitsTurn(Box::new(record)) }
    }

    /// Where it was handed over to; with its partition, as far as that is known.
    pub(super) fn sent_to(&self) -> Option<Destination> {
        match self.state {
            SendState::Sent(to) | SendState::AwaitsPartition(to, _) => Some(to),
            SendState::Confirmed(_) | SendState::AwaitsTurn(_) => None,
        }
    }

    /// The lane of its key, once the event was handed over.
    pub(super) fn lane_sent(&self) -> Option<u64> {
        self.sent_to().and(self.lane)
    }

    fn is_held(&self) -> bool {
        matches!(self.state, SendState::AwaitsPartition(..) | SendState::AwaitsTurn(_))
    }

    fn is_confirmed(&self) -> bool {
        matches!(self.state, SendState::Confirmed(_))
    }
}

impl Events {
    #[inline]
    pub(super) fn add(&mut self, sequence: Sequence, event: Event) {
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
    pub(super) fn remove(&mut self, sequence: Sequence) -> Option<Event> {
        let index = sequence.checked_sub(self.first)? as usize;
        let removed = self.slots.get_mut(index).and_then(Option::take);
        self.drop_answered();
        removed
    }

    /// The broker has confirmed the event. Returns its lane; none if it was reported already.
    #[inline]
    pub(super) fn confirm(&mut self, sequence: Sequence) -> Option<Option<u64>> {
        let index = sequence.checked_sub(self.first)? as usize;
        let event = self.slots.get_mut(index)?.as_mut()?;
        let lane = event.lane_sent();
        if let Some(to) = event.sent_to() {
            event.state = SendState::Confirmed(to);
        }
        self.drop_answered();
        Some(lane)
    }

    #[inline]
    fn drop_answered(&mut self) {
        let is_answered = |slot: &Option<Event>| slot.as_ref().is_none_or(Event::is_confirmed);
        while self.slots.front().is_some_and(is_answered) {
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// The events that are stored, because the broker has confirmed a later one of their key, and that it has
    /// not answered.
    pub(super) fn stored_before(&self) -> BTreeSet<Sequence> {
        let (mut confirmed, mut stored) = (HashMap::default(), BTreeSet::new());
        if on(Mutant::KafkaStoredBefore) {
            return stored;
        }
        for (index, slot) in self.slots.iter().enumerate().rev() {
            match slot.as_ref().map(|event| (event.lane, &event.state)) {
                Some((Some(lane), SendState::Confirmed(to))) => {
                    confirmed.insert(lane, *to);
                }
                Some((Some(lane), SendState::Sent(to))) if confirmed.get(&lane) == Some(to) => {
                    stored.insert(self.first + index as Sequence);
                }
                _ => {}
            }
        }
        stored
    }

    /// Removes an event that waits. Returns its record, and its lane if it was handed over.
    pub(super) fn remove_held(&mut self, sequence: Sequence) -> Option<(Record, Option<u64>)> {
        self.get(sequence).filter(|event| event.is_held())?;
        let event = self.remove(sequence)?;
        let lane_sent = event.lane_sent();
        match event.state {
            SendState::Sent(_) | SendState::Confirmed(_) => None,
            SendState::AwaitsPartition(_, record) | SendState::AwaitsTurn(record) => {
                Some((*record, lane_sent))
            }
        }
    }

    /// An event that the broker has not confirmed.
    #[inline]
    pub(super) fn get(&self, sequence: Sequence) -> Option<&Event> {
        let index = sequence.checked_sub(self.first)? as usize;
        self.slots.get(index)?.as_ref().filter(|event| !event.is_confirmed())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The newest event of this lane that is older than `sequence`.
    pub(super) fn before(&self, sequence: Sequence, lane: u64) -> Option<Sequence> {
        let of_lane = |slot: &Option<Event>| {
            slot.as_ref().is_some_and(|it| it.lane == Some(lane) && !it.is_confirmed())
        };
        let index = self.slots.range(..self.index_of(sequence)).rposition(of_lane)?;
        Some(self.first + index as Sequence)
    }

    /// The events of this lane that wait and are newer than `sequence`.
    pub(super) fn held_behind(&self, sequence: Sequence, lane: u64) -> Vec<Sequence> {
        let behind = self.index_of(sequence + 1);
        let numbered = (self.first + behind as Sequence..).zip(self.slots.range(behind..));
        let events = numbered.filter_map(|(sequence, slot)| Some((sequence, slot.as_ref()?)));
        let held = events.filter(|(_, event)| event.is_held() && event.lane == Some(lane));
        held.map(|(sequence, _)| sequence).collect()
    }

    /// The index of the first slot that is not older.
    fn index_of(&self, sequence: Sequence) -> usize {
        sequence.saturating_sub(self.first).min(self.slots.len() as Sequence) as usize
    }

    /// The events of a topic that the producer has, and their partition as far as it is known.
    pub(super) fn under_way(
        &self,
        topic: TopicId,
    ) -> impl Iterator<Item = (Sequence, Option<i32>)> {
        let numbered = (self.first..).zip(&self.slots);
        numbered.filter_map(move |(sequence, slot)| match slot.as_ref()?.state {
            SendState::Sent(to) if to.topic == topic => Some((sequence, to.partition)),
            _ => None,
        })
    }

    /// The lanes of the events that were handed over, one for each event.
    pub(super) fn lanes(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().flatten().filter_map(Event::lane_sent)
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
