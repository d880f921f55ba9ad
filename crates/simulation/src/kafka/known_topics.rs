//! The knowledge of a relay about the topics that one of its clients has met.

use std::collections::{BTreeMap, BTreeSet};

use walrelay_core::sink::kafka::Code;

use super::client::Place;

/// Each topic has a number, which is another one when it was created again.
#[derive(Debug, Default)]
pub(super) struct KnownTopics {
    /// The number of the topic of each partition that has confirmed an event.
    confirmed: BTreeMap<Place, u128>,
    /// The number of each topic when it was described last.
    described: BTreeMap<usize, u128>,
    /// Topics whose descriptions the relay has not taken yet.
    new_descriptions: Vec<usize>,
    /// Topics that were described to the relay, and are still the same ones as far as it knows.
    described_to_relay: BTreeSet<usize>,
}

impl KnownTopics {
    pub(super) fn confirmed(&self, place: Place) -> Option<u128> {
        self.confirmed.get(&place).copied()
    }

    pub(super) fn note_confirmed(&mut self, place: Place, made: u128) {
        self.confirmed.insert(place, made);
    }

    /// Returns whether the topic is another one than that which was described before.
    pub(super) fn note_described(&mut self, topic: usize, made: u128) -> bool {
        self.new_descriptions.push(topic);
        self.described.insert(topic, made).is_some_and(|last| last != made)
    }

    /// The relay takes the descriptions.
    pub(super) fn take_descriptions(&mut self) {
        self.described_to_relay.extend(self.new_descriptions.drain(..));
    }

    pub(super) fn is_described(&self, topic: usize) -> bool {
        self.described_to_relay.contains(&topic)
    }

    pub(super) fn forget(&mut self, topic: usize) {
        self.confirmed.retain(|place, _| place.0 != topic);
        self.described_to_relay.remove(&topic);
    }
}

/// Whether a relay knows by this failure that the topic is another one, or will be.
pub(super) fn shows_change(code: Code, asked: bool) -> bool {
    code == Code::UnknownTopic || code == Code::UnknownPartition && asked
}
