//! The dead-letter topic as a relay follows it: how much is open, and what the relay must hear.
//!
//! A reading ends when the broker goes away, and the next one begins at the beginning: a letter may
//! be written long after the time that it bears, so no time says where to go on. What was told
//! before is not told again, or a release of long ago would free a key that was parked since. A topic
//! that ends before what was told is another one: it is read once more, and all of it is told.
//!
//! Relays may share the topic. Of their letters only those of this one's slot are findings; whoever
//! releases a key, releases it for all of them.
//!
//! Memory is what is open ([`super::open`]), and no more than a bound.

use std::collections::HashMap;

use super::fold::Change;
use super::open::OpenLetters;
use super::record::{DeadLetter, LogRecord, Resolution, ResolutionKind};
use crate::base::event::Position;
use crate::dead_letter::record::PartitionOffset;
use crate::dead_letter::writer::{CLASS_PARKED, KeyHash};

/// What a relay must hear of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A letter that parks this key, and where its event stood.
    Parked(KeyHash, Position),
    /// A release of this key.
    Released(KeyHash),
    /// A letter of an earlier process that is recent enough for the breaker.
    Letter {
        /// When it was given up; microseconds since the Unix epoch.
        failed_unix_us: i64,
        /// Its class.
        class: String,
    },
}

/// What the end of the topic means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything of before this process has been told, for the first time.
    CaughtUp,
    /// Nothing new.
    Again,
    /// It is another topic than was read before: read it once more.
    MadeAnew,
}

/// Follows the topic from record to record.
#[derive(Debug)]
pub struct Follower {
    /// Whose letters are findings.
    slot: String,
    letters: OpenLetters,
    /// Earlier letters are of no concern to the breaker.
    since_unix_us: i64,
    /// What the breaker must know was told.
    caught_up: bool,
    /// The end was reached in this reading.
    complete: bool,
    /// The last record of each partition in this reading.
    read: HashMap<i32, i64>,
    /// Up to where earlier readings have told what they found.
    told: HashMap<i32, i64>,
    oldest: Oldest,
}

/// When the oldest open letter was given up, as far as it is known without looking.
#[derive(Clone, Copy, Debug)]
enum Oldest {
    Known(Option<i64>),
    Unknown,
}

impl Follower {
    /// Letters that were given up before `since_unix_us`, or by a relay of another slot, are no
    /// findings.
    #[must_use]
    pub fn new(slot: &str, since_unix_us: i64) -> Follower {
        Follower {
            slot: slot.to_owned(),
            letters: OpenLetters::default(),
            since_unix_us,
            caught_up: false,
            complete: false,
            read: HashMap::new(),
            told: HashMap::new(),
            oldest: Oldest::Known(None),
        }
    }

    /// The topic is read from the beginning.
    pub fn begin(&mut self) {
        for (partition, offset) in self.read.drain() {
            let told = self.told.entry(partition).or_insert(offset);
            *told = offset.max(*told);
        }
        self.letters = OpenLetters::default();
        self.complete = false;
        self.oldest = Oldest::Known(None);
    }

    /// Takes the next record; what it means for the relay goes into `findings`.
    pub fn read(&mut self, record: &LogRecord, findings: &mut Vec<Finding>) {
        let PartitionOffset { partition, offset } = match record {
            LogRecord::DeadLetter(letter) => letter.position,
            LogRecord::Resolution(resolution) => resolution.position,
            LogRecord::Foreign => return,
        };
        self.read.insert(partition, offset);
        let change = self.letters.apply(record);
        self.age(record, change);
        if self.told.get(&partition).is_none_or(|told| offset > *told) {
            match record {
                LogRecord::DeadLetter(letter) => self.letter(letter, change, findings),
                LogRecord::Resolution(resolution) => released(resolution, findings),
                LogRecord::Foreign => {}
            }
        }
    }

    fn letter(&self, letter: &DeadLetter, change: Change, findings: &mut Vec<Finding>) {
        if letter.relay.split('@').next() != Some(self.slot.as_str()) {
            return;
        }
        let failed_unix_us = letter.failed_unix_us;
        let recent = !self.caught_up && failed_unix_us >= self.since_unix_us;
        // What was parked follows from another; what a kill repeated is one letter.
        if recent && change == Change::Opened && letter.error_class != CLASS_PARKED {
            findings.push(Finding::Letter { failed_unix_us, class: letter.error_class.clone() });
        }
        if let Some(key) = letter.key_id().filter(|_| letter.parks_key) {
            // One that does not say where it stood parks its key for all events.
            let commit_lsn = letter.lsn.parse().unwrap_or_default();
            let position = Position { commit_lsn, ordinal: letter.ordinal };
            findings.push(Finding::Parked(key, position));
        }
    }

    fn age(&mut self, record: &LogRecord, change: Change) {
        self.oldest = match (self.oldest, record, change) {
            (Oldest::Known(oldest), LogRecord::DeadLetter(letter), Change::Opened) => {
                let failed = letter.failed_unix_us;
                Oldest::Known(Some(oldest.map_or(failed, |oldest| oldest.min(failed))))
            }
            (_, _, Change::Resolved) => Oldest::Unknown,
            (known, _, _) => known,
        };
    }

    /// All that was there is read.
    pub fn end(&mut self) -> Ended {
        self.complete = true;
        let shorter = |(partition, told): (&i32, &i64)| {
            self.read.get(partition).is_some_and(|read| read < told)
        };
        let made_anew = self.told.iter().any(shorter);
        // What comes now is new.
        self.told.clear();
        if made_anew {
            self.read.clear();
            return Ended::MadeAnew;
        }
        if std::mem::replace(&mut self.caught_up, true) { Ended::Again } else { Ended::CaughtUp }
    }

    /// What the breaker must know was told by another reading.
    pub fn skip_letters(&mut self) {
        self.caught_up = true;
    }

    /// Was everything told that the breaker must know?
    #[must_use]
    pub fn caught_up(&self) -> bool {
        self.caught_up
    }

    /// How many letters are open, and when the oldest was given up; nothing while that is not
    /// known.
    pub fn open(&mut self) -> Option<(usize, Option<i64>)> {
        if !self.complete {
            return None;
        }
        let oldest = match self.oldest {
            Oldest::Known(oldest) => oldest,
            Oldest::Unknown => self.letters.oldest_unix_us(),
        };
        self.oldest = Oldest::Known(oldest);
        Some((self.letters.count(), oldest))
    }

    /// Are there so many open letters that further ones are only counted?
    #[must_use]
    pub fn only_counts(&self) -> bool {
        self.letters.is_beyond()
    }
}

fn released(resolution: &Resolution, findings: &mut Vec<Finding>) {
    if resolution.kind == ResolutionKind::Released {
        findings.extend(resolution.key_id().map(Finding::Released));
    }
}

#[cfg(test)]
#[path = "follower_tests.rs"]
mod tests;
