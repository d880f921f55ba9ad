//! Which events an earlier process has published, so that this one does not publish them again.
//!
//! After a process has died, Postgres sends again what was committed after the slot's position, and
//! much of it the broker has confirmed. An event that is known to be confirmed is passed over, but
//! only if no earlier event of its key was published again: the last record of a key must be that of
//! its latest event. So when the broker holds a1 and a2 and only a2 is known, both are published
//! again, in that order.
//!
//! The same rule applies to what earlier processes have repeated. Marks are in the order of the
//! confirms: a mark of a2 in front of a mark of a1 means that a1 was published again after a2, and
//! then the mark of a2 does not count.
//!
//! Besides marks there is what the topics hold ([`super::stored`]). For each event there is one
//! decision ([`KnownEvents::pass_over`]): what a topic says that was read overrules a mark of an
//! event that was published, because the topic may have been made anew, or a key may have gone back in
//! it. A dead letter stands elsewhere, so its mark counts whatever the topic says.

use std::hash::Hasher as _;

use super::prefix::ConfirmedPrefix;
use super::stored::Stored;
use crate::base::event::{Outbound, Position};
use crate::base::hash::{FixedHasher, HashMap, HashSet};
use crate::base::lsn::Lsn;
use crate::metrics::KnownFrom;
use crate::mutants::{Mutant, on};

/// Identifies the content and the position of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(Rust, packed(4))]
pub struct Fingerprint {
    /// 0 for none.
    pub event: u64,
    /// 0 for an event without a key, which is not ordered with any other.
    pub key: u32,
}

impl Fingerprint {
    pub const NONE: Fingerprint = Fingerprint { event: 0, key: 0 };

    /// An id need not be unique, and the position of an event depends on which tables are outboxes:
    /// so the content counts as well.
    pub fn of(position: Position, event: &Outbound<'_>) -> Fingerprint {
        let mut hasher = FixedHasher::default();
        hasher.write(event.key.unwrap_or_default());
        // Equal hashes of different keys cost repetitions and nothing else.
        let key = event.key.map_or(0, |_| (hasher.finish() as u32).max(1));
        let lengths = [event.key, event.value].map(|it| it.map_or(u64::MAX, |it| it.len() as u64));
        lengths.into_iter().for_each(|length| hasher.write_u64(length));
        for text in [event.id, event.exchange, event.topic] {
            hasher.write_u64(text.len() as u64);
            hasher.write(text.as_bytes());
        }
        hasher.write(event.value.unwrap_or_default());
        // The position comes last: the writer of a row may choose bytes of equal hashes, and still
        // not the hash of an event at another position.
        hasher.write_i64(event.commit_unix_us);
        hasher.write_u64(position.commit_lsn.to_wire());
        hasher.write_u64(position.ordinal);
        Fingerprint { event: hasher.finish().max(1), key }
    }
}

/// The broker has confirmed this event, or its dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub position: Position,
    pub fingerprint: Fingerprint,
    pub is_dead_letter: bool,
}

/// Empty, except while events come that an earlier process may have published.
#[derive(Debug, Default)]
pub struct KnownEvents {
    published: HashSet<u64>,
    /// With the commit LSN.
    dead_lettered: HashMap<u64, Lsn>,
    /// Counts as a mark of each of its events.
    prefix: Option<ConfirmedPrefix>,
    /// Commit LSN of the last transaction that may hold known events; zero for none.
    until: Lsn,
    /// Keys whose events are published again.
    republished: HashSet<u32>,
    /// Something is published again although it is marked.
    overruled: bool,
    /// The next process does not find the marks of earlier ones any more.
    are_forgotten: bool,
}

impl KnownEvents {
    /// Loads the marks of events that were committed at `from` or later. They are in the order in
    /// which they were made, and those before `from` may still tell which ones do not count.
    /// Returns how many were loaded.
    pub fn load(
        &mut self,
        marks: impl DoubleEndedIterator<Item = Mark> + Clone,
        from: Lsn,
    ) -> usize {
        let is_relevant = |mark: &Mark| mark.position.commit_lsn >= from;
        if !marks.clone().any(|mark| is_relevant(&mark)) {
            return 0;
        }
        let mut confirmed_later: HashMap<u32, Position> = HashMap::default();
        for mark in marks.rev() {
            let Mark { position, fingerprint: Fingerprint { event, key }, is_dead_letter } = mark;
            let mut counts = is_relevant(&mark);
            if key != 0 {
                let earliest = confirmed_later.entry(key).or_insert(position);
                counts &= position <= *earliest || on(Mutant::MarksOutOfOrder);
                *earliest = position.min(*earliest);
            }
            if counts && is_dead_letter {
                self.dead_lettered.insert(event, position.commit_lsn);
            } else if counts {
                self.published.insert(event);
            }
            if counts {
                self.until = self.until.max(position.commit_lsn);
            }
        }
        self.published.len() + self.dead_lettered.len()
    }

    /// Loads what is confirmed of a transaction that comes.
    pub fn load_prefix(&mut self, prefix: ConfirmedPrefix) {
        self.until = self.until.max(prefix.commit_lsn);
        self.prefix = Some(prefix);
    }

    /// Whether marks were overruled: then the next process must not believe them, which may know less.
    /// Asked before the event is published, and true once.
    pub fn take_overruled(&mut self) -> bool {
        let is_first = !self.are_forgotten && self.overruled;
        self.are_forgotten |= is_first;
        is_first && !on(Mutant::OverruledMarksKept)
    }

    /// Whether an event that comes now may be known.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.until != Lsn::ZERO
    }

    /// Whether the topics are asked about this event.
    #[inline]
    pub fn asks_topics(&self, fingerprint: Fingerprint) -> bool {
        !(on(Mutant::MarkedNotLookedUp) && self.published.contains(&{ fingerprint.event }))
    }

    /// A transaction begins, of which nothing is known from topics.
    #[inline]
    pub fn begin(&mut self, commit_lsn: Lsn) {
        if commit_lsn > self.until && (self.is_active() || !self.republished.is_empty()) {
            self.forget();
        }
    }

    /// Whether this event must not be published again, and where that is known from. If it must, no
    /// later event of its key will be passed over.
    pub fn pass_over(
        &mut self,
        position: Position,
        fingerprint: Fingerprint,
        stored: Stored,
    ) -> Option<KnownFrom> {
        let Fingerprint { event, key } = fingerprint;
        let is_claimed = self.prefix.is_some_and(|prefix| prefix.contains(position));
        if self.republished.contains(&key) && !on(Mutant::KnownBehindRepublished) {
            // Its mark says nothing of the order any more.
            self.overruled |= is_claimed || self.published.contains(&event);
            return None;
        }
        let is_dead_letter = self.dead_lettered.remove(&event).is_some();
        let is_marked = self.published.remove(&event) || is_dead_letter || is_claimed;
        self.overruled |= stored == Stored::No && is_marked && !is_dead_letter;
        let known = match stored {
            Stored::No if on(Mutant::MarkOverrulesTopic) && is_marked => Some(KnownFrom::StateFile),
            Stored::No => is_dead_letter.then_some(KnownFrom::StateFile),
            _ if is_marked => Some(KnownFrom::StateFile),
            Stored::Yes => Some(KnownFrom::Topic),
            Stored::Unknown | Stored::Overtaken => None,
        };
        if key != 0 && known.is_none() {
            self.republished.insert(key);
        }
        known
    }

    /// The topics hold nothing of what comes: only dead letters are still known.
    pub fn forget_published(&mut self) {
        (self.published, self.prefix) = (HashSet::default(), None);
        self.until = self.dead_lettered.values().copied().max().unwrap_or_default();
    }

    /// Forgets the known events: an event that comes repeats none of them.
    pub fn forget(&mut self) {
        *self = KnownEvents::default();
    }
}

#[cfg(test)]
#[path = "known_tests.rs"]
mod tests;
