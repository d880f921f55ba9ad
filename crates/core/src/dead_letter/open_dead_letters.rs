//! How many dead letters are open, and when the oldest of them failed, for as long as a relay runs.
//!
//! The rule is that of [`super::fold`], in 20 to 40 bytes for an open dead
//! letter, and as much again if it counts replays: a hash of 64 bits stands
//! for its id, and partition and millisecond of the last record about it for
//! the position of that record. Records of one partition are read in their
//! order, so the one read later is later.
//!
//! At most [`RESOLVED_MAX`] resolved dead letters are remembered. Beyond
//! [`KNOWN_MAX`] open ones further ones are only counted: one that is
//! written twice is then counted twice, and any resolution of an unknown
//! one takes one away. A new reading of the log begins with an empty store.

use super::fold::{Change, DeadLetterState, DeadLetterStore, apply};
use super::record::{DeadLetterId, LogRecord, PartitionOffset, RecordMark};
use crate::base::hash::HashMap;

/// Open dead letters that are known one by one; a table for so many takes 18 MB, and for more of them
/// twice as much.
const KNOWN_MAX: usize = 900_000;
/// Resolved dead letters that are remembered; beyond that all of them are forgotten.
const RESOLVED_MAX: usize = 65_536;

/// Partition and millisecond of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64);

const PARTITION_BITS: u32 = 16;

impl Stamp {
    fn new(mark: RecordMark) -> Stamp {
        let partition = u64::from(u16::try_from(mark.position.partition).unwrap_or(u16::MAX));
        let unix_ms = u64::try_from(mark.unix_us / 1000).unwrap_or_default();
        // 48 bits are enough for 8,900 years.
        Stamp(unix_ms.min((1 << (64 - PARTITION_BITS)) - 1) << PARTITION_BITS | partition)
    }

    /// The lowest offset, because a record of the partition that is read later is later; and the
    /// last microsecond, because records of one millisecond have no order.
    fn mark(self) -> RecordMark {
        let position = PartitionOffset { partition: i32::from(self.0 as u16), offset: i64::MIN };
        RecordMark { position, unix_us: self.unix_us().saturating_add(999) }
    }

    fn unix_us(self) -> i64 {
        i64::try_from(self.0 >> PARTITION_BITS).unwrap_or(i64::MAX).saturating_mul(1000)
    }
}

#[derive(Debug, Default)]
pub struct OpenDeadLetters {
    open: HashMap<u64, Stamp>,
    resolved: HashMap<u64, Stamp>,
    /// The most replays that a dead letter counts, of the open ones that count any: they are those of a
    /// consumer.
    failed_after: HashMap<u64, u32>,
    /// Open dead letters beyond [`KNOWN_MAX`], and when the first of them failed.
    beyond: usize,
    beyond_oldest: Option<Stamp>,
}

/// Half of the id is enough to tell a million apart.
fn hash_of(id: DeadLetterId) -> u64 {
    id.0[0]
}

/// A map that has become nearly empty gives its memory back.
fn remove_from<T>(map: &mut HashMap<u64, T>, hash: u64) -> bool {
    let removed = map.remove(&hash).is_some();
    if map.capacity() / 4 > map.len() {
        map.shrink_to_fit();
    }
    removed
}

impl OpenDeadLetters {
    /// Applies the next record of the log.
    pub fn apply(&mut self, record: &LogRecord) -> Change {
        let id = match record {
            LogRecord::DeadLetter(letter) => letter.id(),
            LogRecord::Resolution(resolution) => resolution.id(),
            LogRecord::Stop(_) | LogRecord::Foreign => return Change::Nothing,
        };
        apply(self, id, record)
    }

    fn remove(&mut self, hash: u64) -> bool {
        remove_from(&mut self.failed_after, hash);
        remove_from(&mut self.open, hash)
    }

    /// One of those that are only counted is resolved.
    fn remove_beyond(&mut self) -> bool {
        let removed = self.beyond > 0;
        self.beyond -= usize::from(removed);
        if self.beyond == 0 {
            self.beyond_oldest = None;
        }
        removed
    }

    pub fn count(&self) -> usize {
        self.open.len() + self.beyond
    }

    /// Are there so many that further ones are only counted?
    pub fn is_beyond(&self) -> bool {
        self.beyond > 0
    }

    /// When the oldest open dead letter failed, to the millisecond. Reads all of them.
    pub fn oldest_unix_us(&self) -> Option<i64> {
        self.open.values().chain(&self.beyond_oldest).map(|stamp| stamp.unix_us()).min()
    }
}

impl DeadLetterStore for OpenDeadLetters {
    fn last(&self, id: DeadLetterId) -> Option<(RecordMark, bool)> {
        let hash = hash_of(id);
        let open = self.open.get(&hash).map(|stamp| (stamp.mark(), true));
        open.or_else(|| self.resolved.get(&hash).map(|stamp| (stamp.mark(), false)))
    }

    fn open(&mut self, id: DeadLetterId, mark: RecordMark) {
        let (hash, stamp) = (hash_of(id), Stamp::new(mark));
        self.resolved.remove(&hash);
        if self.open.len() == KNOWN_MAX {
            self.beyond += 1;
            self.beyond_oldest.get_or_insert(stamp);
        } else {
            self.open.insert(hash, stamp);
        }
    }

    fn resolve(&mut self, id: DeadLetterId, _: DeadLetterState, mark: RecordMark) -> bool {
        let hash = hash_of(id);
        let is_known = self.resolved.contains_key(&hash);
        let was_open = self.remove(hash) || (!is_known && self.remove_beyond());
        if self.resolved.len() >= RESOLVED_MAX {
            self.resolved = HashMap::default();
        }
        self.resolved.insert(hash, Stamp::new(mark));
        was_open
    }

    fn failed_after(&self, id: DeadLetterId) -> u32 {
        self.failed_after.get(&hash_of(id)).copied().unwrap_or_default()
    }

    fn note_failed_after(&mut self, id: DeadLetterId, replays: u32) {
        let hash = hash_of(id);
        if self.open.contains_key(&hash) {
            let most = self.failed_after.entry(hash).or_default();
            *most = replays.max(*most);
        }
    }
}

#[cfg(test)]
#[path = "open_dead_letters_tests.rs"]
mod tests;
