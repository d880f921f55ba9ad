//! How many dead letters are open, and when the oldest was given up, for as long as a relay runs.
//!
//! The same rules as in [`super::fold`], which the commands use, with less memory: 16 bytes for an open
//! letter, and an eighth of that for what has changed since they were sorted. So a hash of 64 bits
//! stands for a letter, and the partition and the millisecond of its last record for its place in the
//! log. Records of one partition are read in their order, so the later one read is the later one.
//!
//! Of what is not open only the last [`RESOLVED_MAX`] resolutions are known. Beyond [`KNOWN_MAX`] open
//! letters further ones are only counted: one that is written twice then counts twice, and any
//! resolution of a letter that is not known takes one away. A new reading of the log begins anew.

use std::collections::{BTreeMap, HashMap};

use super::fold::Change;
use super::record::{LogRecord, ResolutionKind};

/// Open letters that are told apart: 18 MB.
const KNOWN_MAX: usize = 1_000_000;
/// Resolutions that are remembered; then all of them are forgotten.
const RESOLVED_MAX: usize = 65_536;
/// Changes that are kept apart from what is sorted, at least.
const RECENT_MIN: usize = 1024;

/// Where the last record of a letter stands, and when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64);

const PARTITION_BITS: u32 = 16;

impl Stamp {
    fn new(partition: i32, unix_us: i64) -> Stamp {
        let partition = u64::from(u16::try_from(partition).unwrap_or(u16::MAX));
        let unix_ms = u64::try_from(unix_us / 1000).unwrap_or_default();
        // 48 bits are enough for 8,900 years.
        Stamp(unix_ms.min((1 << (64 - PARTITION_BITS)) - 1) << PARTITION_BITS | partition)
    }

    fn partition(self) -> u16 {
        self.0 as u16
    }

    fn unix_ms(self) -> u64 {
        self.0 >> PARTITION_BITS
    }

    /// Of a record that is read now, about another that was read before.
    fn is_after(self, other: Stamp) -> bool {
        self.partition() == other.partition() || self.unix_ms() > other.unix_ms()
    }
}

/// The open letters of a log.
#[derive(Debug, Default)]
pub(super) struct OpenLetters {
    /// Letters and their stamps, by letter.
    sorted: Vec<(u64, Stamp)>,
    /// What has changed since: opened, or not open any more.
    recent: BTreeMap<u64, Option<Stamp>>,
    /// Open letters in both.
    known: usize,
    resolved: HashMap<u64, Stamp>,
    resolutions: usize,
    /// Open letters beyond [`KNOWN_MAX`], and when the first of them was given up.
    beyond: usize,
    beyond_oldest: Option<Stamp>,
}

impl OpenLetters {
    /// Takes the next record of the log.
    pub(super) fn apply(&mut self, record: &LogRecord) -> Change {
        match record {
            LogRecord::DeadLetter(letter) => {
                let stamp = Stamp::new(letter.position.partition, letter.failed_unix_us);
                self.letter(letter.identity().hash(), stamp)
            }
            LogRecord::Resolution(resolution) if resolution.kind != ResolutionKind::Released => {
                let stamp = Stamp::new(resolution.position.partition, resolution.resolved_unix_us);
                self.resolution(resolution.identity().hash(), stamp)
            }
            LogRecord::Resolution(_) | LogRecord::Foreign => Change::Nothing,
        }
    }

    fn letter(&mut self, letter: u64, stamp: Stamp) -> Change {
        if self.stamp(letter).is_some() {
            return Change::Nothing;
        }
        if let Some(resolved) = self.resolved.get(&letter) {
            if !stamp.is_after(*resolved) {
                return Change::Nothing;
            }
            self.resolved.remove(&letter);
        }
        if self.known == KNOWN_MAX {
            self.beyond += 1;
            self.beyond_oldest.get_or_insert(stamp);
        } else {
            self.known += 1;
            self.change(letter, Some(stamp));
        }
        Change::Opened
    }

    fn resolution(&mut self, letter: u64, stamp: Stamp) -> Change {
        self.resolutions += 1;
        if self.resolutions >= RESOLVED_MAX {
            self.resolutions = 0;
            self.resolved = HashMap::new();
        }
        if let Some(opened) = self.stamp(letter) {
            if !stamp.is_after(opened) {
                return Change::Nothing;
            }
            self.known -= 1;
            self.change(letter, None);
        } else if let Some(known) = self.resolved.get_mut(&letter) {
            if stamp.is_after(*known) {
                *known = stamp;
            }
            return Change::Nothing;
        } else if self.beyond > 0 {
            self.beyond -= 1;
            if self.beyond == 0 {
                self.beyond_oldest = None;
            }
        } else {
            self.resolved.insert(letter, stamp);
            return Change::Nothing;
        }
        self.resolved.insert(letter, stamp);
        Change::Resolved
    }

    /// The stamp of a letter that is known to be open.
    fn stamp(&self, letter: u64) -> Option<Stamp> {
        if let Some(recent) = self.recent.get(&letter) {
            return *recent;
        }
        let at = self.sorted.binary_search_by_key(&letter, |(known, _)| *known).ok()?;
        Some(self.sorted[at].1)
    }

    fn change(&mut self, letter: u64, stamp: Option<Stamp>) {
        self.recent.insert(letter, stamp);
        if self.recent.len() > RECENT_MIN.max(self.sorted.len() / 8) {
            self.sort();
        }
    }

    /// Takes what is recent into what is sorted, where it stands: a copy would be as large.
    fn sort(&mut self) {
        let mut recent = std::mem::take(&mut self.recent).into_iter().peekable();
        let mut new: Vec<(u64, Stamp)> = Vec::new();
        self.sorted.retain_mut(|(letter, stamp)| {
            while let Some((before, opened)) = recent.next_if(|(other, _)| other < letter) {
                new.extend(opened.map(|stamp| (before, stamp)));
            }
            match recent.next_if(|(other, _)| other == letter) {
                None => true,
                Some((_, None)) => false,
                Some((_, Some(anew))) => {
                    *stamp = anew;
                    true
                }
            }
        });
        new.extend(recent.filter_map(|(letter, opened)| Some((letter, opened?))));
        let mut from = self.sorted.len();
        self.sorted.reserve_exact(new.len());
        self.sorted.extend_from_slice(&new);
        // From the back: what is written there has been moved already.
        let mut to = self.sorted.len();
        for item in new.into_iter().rev() {
            while from > 0 && self.sorted[from - 1].0 > item.0 {
                (from, to) = (from - 1, to - 1);
                self.sorted[to] = self.sorted[from];
            }
            to -= 1;
            self.sorted[to] = item;
        }
        if self.sorted.capacity() > 2 * self.sorted.len().max(RECENT_MIN) {
            self.sorted.shrink_to_fit();
        }
    }

    /// How many letters are open.
    pub(super) fn count(&self) -> usize {
        self.known + self.beyond
    }

    /// Are there more than can be told apart?
    pub(super) fn is_beyond(&self) -> bool {
        self.beyond > 0
    }

    /// When the open letter that has waited longest was given up; microseconds since the Unix
    /// epoch. Looks at all of them.
    pub(super) fn oldest_unix_us(&self) -> Option<i64> {
        // Both are in the same order.
        let mut changed = self.recent.keys().peekable();
        let unchanged = self.sorted.iter().filter(move |(letter, _)| {
            while changed.next_if(|it| *it < letter).is_some() {}
            changed.peek().is_none_or(|it| *it != letter)
        });
        let recent = self.recent.values().flatten().chain(&self.beyond_oldest);
        let oldest_ms =
            unchanged.map(|(_, stamp)| stamp).chain(recent).map(|it| it.unix_ms()).min();
        oldest_ms.map(|unix_ms| i64::try_from(unix_ms).unwrap_or(i64::MAX).saturating_mul(1000))
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
