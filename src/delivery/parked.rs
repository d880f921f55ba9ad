//! Keys whose events go to the dead-letter topic, until somebody releases them.
//!
//! The dead-letter topic is the only store: a letter parks its key, a release ends it, and whoever
//! reads both in order knows what is parked. This set runs ahead of that reading, because it parks
//! a key before its letter is written; a release that is read before that letter is older than it,
//! and ends nothing.
//!
//! What stands before the event that parked a key has nothing to do with it, also in the next
//! process: so a key is parked from a position on. LSNs go on from timeline to timeline, and so do
//! parked keys.
//!
//! A key is known by its hash ([`KeyHash`]), because a letter may hold only the beginning of it. So a
//! parked key costs some 45 to 90 bytes, whatever its length.

use std::collections::HashMap;

use crate::base::event::Position;
use crate::dead_letter::writer::KeyHash;

/// The parked keys.
#[derive(Debug, Default)]
pub struct ParkedKeys {
    keys: HashMap<KeyHash, Parked>,
}

#[derive(Clone, Copy, Debug)]
struct Parked {
    /// The first event that parked the key.
    from: Position,
    /// Letters of ours that park it and were not read back yet.
    unseen: u32,
}

impl ParkedKeys {
    /// A letter of ours parks the key, for it and all events after it.
    pub fn park(&mut self, key: &[u8], position: Position) {
        self.entry(KeyHash::of(key), position).unseen += 1;
    }

    /// A letter that parks the key was read.
    pub fn seen(&mut self, key: KeyHash, position: Position) {
        let parked = self.entry(key, position);
        parked.unseen = parked.unseen.saturating_sub(1);
    }

    fn entry(&mut self, key: KeyHash, position: Position) -> &mut Parked {
        let parked = self.keys.entry(key).or_insert(Parked { from: position, unseen: 0 });
        parked.from = parked.from.min(position);
        parked
    }

    /// A release of the key was read.
    pub fn released(&mut self, key: KeyHash) {
        if self.keys.get(&key).is_some_and(|parked| parked.unseen == 0) {
            self.keys.remove(&key);
        }
    }

    /// Must this event of the key wait in the dead-letter topic?
    #[must_use]
    pub fn holds(&self, key: &[u8], position: Position) -> bool {
        !self.is_empty()
            && self.keys.get(&KeyHash::of(key)).is_some_and(|parked| position >= parked.from)
    }

    /// How many keys are parked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Is no key parked?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

#[cfg(test)]
#[path = "parked_tests.rs"]
mod tests;
