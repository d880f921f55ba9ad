//! Keys whose events go to the dead-letter topic until somebody releases them.
//!
//! The dead-letter topic is the only store: a dead letter parks its key, a release ends that, and
//! whoever reads both in order knows which keys are parked. This set may know of a parked key
//! before its dead letter is read back from the topic. A release that is read before that dead
//! letter is older than it, and frees nothing.
//!
//! Events before the one that parked the key are not affected, in the next process either, so a key
//! is parked from a position on. LSNs, and so parked keys, continue from timeline to timeline.
//!
//! A key is known by its hash ([`KeyHash`]), because a dead letter may hold only its beginning. So
//! a parked key takes some 45 to 90 bytes, whatever its length.

use std::collections::BTreeSet;

use crate::base::event::Position;
use crate::base::hash::HashMap;
use crate::dead_letter::writer::KeyHash;

#[derive(Debug, Default)]
pub struct ParkedKeys {
    /// The first event with a dead letter that was read and parks its key. No release that was read has
    /// followed.
    in_topic: HashMap<KeyHash, Position>,
    /// The events with dead letters of this process that park their key and were not read back yet.
    unseen: HashMap<KeyHash, BTreeSet<Position>>,
}

impl ParkedKeys {
    /// A dead letter of this process parks the key, for its event and all after it.
    pub fn park(&mut self, key: &[u8], position: Position) {
        self.unseen.entry(KeyHash::of(key)).or_default().insert(position);
    }

    /// A dead letter that parks the key was read.
    pub fn seen(&mut self, key: KeyHash, position: Position) {
        let first = self.in_topic.entry(key).or_insert(position);
        *first = position.min(*first);
        let Some(unseen) = self.unseen.get_mut(&key) else { return };
        // A dead letter may be without a position.
        if !unseen.remove(&position) {
            unseen.pop_first();
        }
        if unseen.is_empty() {
            self.unseen.remove(&key);
        }
    }

    /// The event comes again, and nothing is known of its dead letter: a key that only this dead letter
    /// has parked is parked again when that is read, or when the event becomes a dead letter once more.
    pub fn forget(&mut self, position: Position) {
        self.unseen.retain(|_, unseen| {
            unseen.remove(&position);
            !unseen.is_empty()
        });
    }

    /// A release of the key was read.
    pub fn released(&mut self, key: KeyHash) {
        self.in_topic.remove(&key);
    }

    /// Whether this event of the key must go to the dead-letter topic.
    pub fn holds(&self, key: &[u8], position: Position) -> bool {
        if self.is_empty() {
            return false;
        }
        let key = KeyHash::of(key);
        let unseen = self.unseen.get(&key).and_then(BTreeSet::first);
        self.in_topic.get(&key).into_iter().chain(unseen).any(|first| position >= *first)
    }

    pub fn len(&self) -> usize {
        let is_only_unseen = |key: &&KeyHash| !self.in_topic.contains_key(*key);
        self.in_topic.len() + self.unseen.keys().filter(is_only_unseen).count()
    }

    pub fn is_empty(&self) -> bool {
        self.in_topic.is_empty() && self.unseen.is_empty()
    }
}

#[cfg(test)]
#[path = "parked_tests.rs"]
mod tests;
