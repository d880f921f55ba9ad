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
//! A key is known by its hash ([`KeyId`]), because a letter may hold only the beginning of it. So a
//! parked key costs some 45 to 90 bytes, whatever its length.

use std::collections::HashMap;

use crate::letter::KeyId;
use crate::message::Position;

/// The parked keys.
#[derive(Debug, Default)]
pub struct ParkedKeys {
    keys: HashMap<KeyId, Parked>,
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
        self.entry(KeyId::of(key), position).unseen += 1;
    }

    /// A letter that parks the key was read.
    pub fn seen(&mut self, key: KeyId, position: Position) {
        let parked = self.entry(key, position);
        parked.unseen = parked.unseen.saturating_sub(1);
    }

    fn entry(&mut self, key: KeyId, position: Position) -> &mut Parked {
        let parked = self.keys.entry(key).or_insert(Parked { from: position, unseen: 0 });
        parked.from = parked.from.min(position);
        parked
    }

    /// A release of the key was read.
    pub fn released(&mut self, key: KeyId) {
        if self.keys.get(&key).is_some_and(|parked| parked.unseen == 0) {
            self.keys.remove(&key);
        }
    }

    /// Must this event of the key wait in the dead-letter topic?
    #[must_use]
    pub fn holds(&self, key: &[u8], position: Position) -> bool {
        !self.is_empty()
            && self.keys.get(&KeyId::of(key)).is_some_and(|parked| position >= parked.from)
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
mod tests {
    use super::*;
    use crate::lsn::Lsn;

    fn at(ordinal: u64) -> Position {
        Position { commit_lsn: Lsn::from_wire(100), ordinal }
    }

    #[test]
    fn a_key_is_parked_from_its_letter_until_its_release() {
        let mut parked = ParkedKeys::default();
        parked.park(b"k", at(7));
        // What is older than the poison event has nothing to do with it.
        assert!(!parked.holds(b"k", at(6)));
        assert!(parked.holds(b"k", at(7)) && !parked.holds(b"other", at(8)));
        parked.seen(KeyId::of(b"k"), at(7));
        assert_eq!(parked.len(), 1);
        parked.released(KeyId::of(b"k"));
        assert!(parked.is_empty() && !parked.holds(b"k", at(9)));
    }

    #[test]
    fn a_release_that_is_older_than_a_letter_of_ours_ends_nothing() {
        let mut parked = ParkedKeys::default();
        parked.park(b"k", at(7));
        parked.park(b"k", at(8));
        // GIVEN two letters on their way WHEN a release stands between them in the log
        parked.seen(KeyId::of(b"k"), at(7));
        parked.released(KeyId::of(b"k"));
        assert!(parked.holds(b"k", at(9)));
        // WHEN the second is read THEN only a later release ends it
        parked.seen(KeyId::of(b"k"), at(8));
        assert!(parked.holds(b"k", at(9)));
        parked.released(KeyId::of(b"k"));
        assert!(!parked.holds(b"k", at(9)));
    }

    #[test]
    fn whoever_parked_it_first_says_from_where_on() {
        let mut parked = ParkedKeys::default();
        // GIVEN a key of an earlier process THEN what comes before its letter passes
        parked.seen(KeyId::of(b"k"), at(5));
        assert!(!parked.holds(b"k", at(4)) && parked.holds(b"k", at(5)));
        // WHEN another letter parks it, later or earlier
        parked.park(b"k", at(9));
        assert!(parked.holds(b"k", at(5)));
        parked.park(b"k", at(3));
        assert!(parked.holds(b"k", at(3)) && !parked.holds(b"k", at(2)));
    }
}
