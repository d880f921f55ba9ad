//! How many dead letters are open, and when the oldest of them failed, for as long as a relay runs.
//!
//! The rule is that of [`super::fold`], in 16 to 18 bytes for an open dead
//! letter: a hash of 64 bits stands for its id, and partition and millisecond
//! of the last record about it for the position of that record. Records of
//! one partition are read in their order, so the one read later is later.
//!
//! At most [`RESOLVED_MAX`] resolved dead letters are remembered. Beyond
//! [`KNOWN_MAX`] open ones further ones are only counted: one that is
//! written twice is then counted twice, and any resolution of an unknown
//! one takes one away. A new reading of the log begins with an empty store.

use super::fold::{Change, DeadLetterState, DeadLetterStore, apply};
use super::record::{DeadLetterId, LogRecord, PartitionOffset, RecordMark};
use crate::base::hash::HashMap;

/// Open dead letters that are known one by one; they take 18 MB.
const KNOWN_MAX: usize = 1_000_000;
/// Resolved dead letters that are remembered; beyond that all of them are forgotten.
const RESOLVED_MAX: usize = 65_536;
/// The open dead letters are spread over sorted lists, so that inserting one moves few others.
const SHARD_BITS: u32 = 12;
/// As many fit into one list; most relays never have more.
const ONE_LIST_MAX: usize = 256;

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

#[derive(Debug)]
pub struct OpenDeadLetters {
    /// By the first bits of the hash, once there are many; each list is sorted by hash.
    shards: Vec<Vec<(u64, Stamp)>>,
    /// Length of all lists.
    known: usize,
    resolved: HashMap<u64, Stamp>,
    /// Open dead letters beyond [`KNOWN_MAX`], and when the first of them failed.
    beyond: usize,
    beyond_oldest: Option<Stamp>,
}

impl Default for OpenDeadLetters {
    fn default() -> OpenDeadLetters {
        let shards = vec![Vec::new()];
        let resolved = HashMap::default();
        OpenDeadLetters { shards, known: 0, resolved, beyond: 0, beyond_oldest: None }
    }
}

/// Half of the id is enough to tell a million apart.
fn hash_of(id: DeadLetterId) -> u64 {
    id.0[0]
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

    fn shard_of(&self, hash: u64) -> usize {
        if self.shards.len() == 1 { 0 } else { (hash >> (64 - SHARD_BITS)) as usize }
    }

    /// Spreads one list over many.
    fn spread(&mut self) {
        let all: Vec<_> = self.shards.drain(..).flatten().collect();
        self.shards.resize(1 << SHARD_BITS, Vec::new());
        for entry in all {
            let shard = self.shard_of(entry.0);
            self.shards[shard].push(entry);
        }
    }

    /// Where a dead letter is in its list, or would be inserted.
    fn search(&self, hash: u64) -> Result<usize, usize> {
        self.shards[self.shard_of(hash)].binary_search_by_key(&hash, |(known, _)| *known)
    }

    fn insert(&mut self, hash: u64, stamp: Stamp) {
        if self.shards.len() == 1 && self.known == ONE_LIST_MAX {
            self.spread();
        }
        let Err(at) = self.search(hash) else { return };
        let shard = self.shard_of(hash);
        let shard = &mut self.shards[shard];
        if shard.len() == shard.capacity() {
            // Doubling would leave up to half of the memory empty.
            shard.reserve_exact(shard.len() / 8 + 1);
        }
        shard.insert(at, (hash, stamp));
        self.known += 1;
    }

    fn remove(&mut self, hash: u64) -> bool {
        let Ok(at) = self.search(hash) else { return false };
        let shard = self.shard_of(hash);
        let shard = &mut self.shards[shard];
        shard.remove(at);
        if shard.capacity() > 2 * shard.len() + 8 {
            shard.shrink_to_fit();
        }
        self.known -= 1;
        true
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
        self.known + self.beyond
    }

    /// Are there so many that further ones are only counted?
    pub fn is_beyond(&self) -> bool {
        self.beyond > 0
    }

    /// When the oldest open dead letter failed, to the millisecond. Reads all of them.
    pub fn oldest_unix_us(&self) -> Option<i64> {
        let stamps = self.shards.iter().flatten().map(|(_, stamp)| stamp);
        stamps.chain(&self.beyond_oldest).map(|stamp| stamp.unix_us()).min()
    }
}

impl DeadLetterStore for OpenDeadLetters {
    fn last(&self, id: DeadLetterId) -> Option<(RecordMark, bool)> {
        let hash = hash_of(id);
        match self.search(hash) {
            Ok(at) => Some((self.shards[self.shard_of(hash)][at].1.mark(), true)),
            Err(_) => self.resolved.get(&hash).map(|stamp| (stamp.mark(), false)),
        }
    }

    fn open(&mut self, id: DeadLetterId, mark: RecordMark) {
        let (hash, stamp) = (hash_of(id), Stamp::new(mark));
        self.resolved.remove(&hash);
        if self.known == KNOWN_MAX {
            self.beyond += 1;
            self.beyond_oldest.get_or_insert(stamp);
        } else {
            self.insert(hash, stamp);
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
}

#[cfg(test)]
#[path = "open_dead_letters_tests.rs"]
mod tests;
