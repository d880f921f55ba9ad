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

use crate::base::event::Position;
use crate::base::hash::HashMap;
use crate::dead_letter::writer::KeyHash;

#[derive(Debug, Default)]
pub struct ParkedKeys {
    keys: HashMap<KeyHash, Parked>,
}

#[derive(Clone, Copy, Debug)]
struct Parked {
    /// The first event that parked the key.
    from: Position,
    /// Dead letters of this process that park it and were not read back yet.
    unseen: u32,
}

impl ParkedKeys {
    /// A dead letter of this process parks the key, for its event and all after it.
    pub fn park(&mut self, key: &[u8], position: Position) {
        self.entry(KeyHash::of(key), position).unseen += 1;
    }

    /// A dead letter that parks the key was read.
    pub fn seen(&mut self, key: KeyHash, position: Position) {
        let parked = self.entry(key, position);
        parked.unseen = parked.unseen.saturating_sub(1);
    }

    fn entry(&mut self, key: KeyHash, position: Position) -> &mut Parked {
        let parked = self.keys.entry(key).or_insert(Parked { from: position, unseen: 0 });
        parked.from = parked.from.min(position);
        parked
    }

    /// The event comes again, and nothing is known of its dead letter: a key that only this dead letter
    /// has parked is parked again when that is read, or when the event becomes a dead letter once more.
    pub fn forget(&mut self, position: Position) {
        self.keys.retain(|_, parked| parked.from != position || parked.unseen == 0);
    }

    /// A release of the key was read.
    pub fn released(&mut self, key: KeyHash) {
        if self.keys.get(&key).is_some_and(|parked| parked.unseen == 0) {
            self.keys.remove(&key);
        }
    }

    /// Whether this event of the key must go to the dead-letter topic.
    pub fn holds(&self, key: &[u8], position: Position) -> bool {
        !self.is_empty()
            && self.keys.get(&KeyHash::of(key)).is_some_and(|parked| position >= parked.from)
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

#[cfg(test)]
#[path = "parked_tests.rs"]
mod tests;
