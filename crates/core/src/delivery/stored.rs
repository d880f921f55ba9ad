//! Which of the events that Postgres sends again after a start the topics hold already: their
//! records were found before this process had published anything there.
//!
//! A record stands for one event: the one with the same topic, key, value and headers, without the
//! trace context. One of the headers is `lsn`, the position of its transaction. A transaction is
//! sent again as a whole, so equal rows of it are all there to be counted, and equal rows of other
//! transactions differ from it. Without that header nothing is found.
//!
//! The last record of a key in its topic shows how far the key has come. Records of later events
//! may stand before it, where an earlier process has repeated events and died. They do not count:
//! what follows the event of the last record is published again, in order, whatever else is known of
//! it. So what a topic says that was read is final; only what it cannot say is left to others. Where
//! the topic was given more partitions, a key has records in two of them, which have no order: its
//! events are published again.

use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::ops::Range;

use crate::base::event::{Outbound, TRACEPARENT};
use crate::base::hash::HashMap;
use crate::base::lsn::Lsn;
use crate::base::random::Salt;
use crate::mutants::{Mutant, on};

/// The header with the position of the transaction.
const POSITION: &str = "lsn";

/// The answer of a topic about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The answer is not known: the topic, or the partition of the event, was not read.
    Unknown,
    /// It holds the event, and the key ends with it or with a later event.
    Yes,
    /// It does not hold the event, but ends the key with one of a later transaction: the event is
    /// elsewhere, or its record has been removed.
    Overtaken,
    /// It does not hold the event; or ends the key with an earlier one, and then the event must be
    /// published again.
    No,
}

/// 128 bits: two records that differ have the same hash with no probability that matters. The keys
/// of the hashes are drawn by each process.
type RecordHash = [u64; 2];

#[derive(Clone, Debug, Default)]
pub struct StoredEvents {
    hashers: [Salt; 2],
    /// The transactions that Postgres sends again and that an earlier process can have published.
    transactions: Range<Lsn>,
    records: HashMap<RecordHash, u32>,
    /// How far each key of a topic has come.
    ends: HashMap<u64, KeyEnd>,
    /// The topics that were read for events that ask for no partition, and for those that ask for one, and whether
    /// all of their partitions were.
    topics: [HashMap<String, bool>; 2],
    /// The last of the transactions of which there are records.
    newest: Lsn,
}

/// No partition has this number.
const SEVERAL: i32 = -1;

/// The last record of a key in its topic.
#[derive(Clone, Copy, Debug, Default)]
struct KeyEnd {
    /// Zero if the record is of another timeline, or of a transaction that is not sent again: then
    /// the key has gone back behind all that is. Zero also for a key with records in two partitions.
    commit_lsn: Lsn,
    record: RecordHash,
    /// The partition in which all records of the key were found, or [`SEVERAL`].
    partition: i32,
    /// The event of the record was received, so what follows is not stored behind it.
    passed: bool,
}

impl StoredEvents {
    /// The stored events of the transactions whose commit LSN is in the range.
    pub fn of(transactions: Range<Lsn>) -> StoredEvents {
        StoredEvents { transactions, ..StoredEvents::default() }
    }

    /// The same, with hashes of its own.
    #[must_use]
    pub fn salted(self, hashers: [Salt; 2]) -> StoredEvents {
        StoredEvents { hashers, ..self }
    }

    /// The same, of which no record is known yet: another thread can add some.
    pub fn another(&self) -> StoredEvents {
        let hashers = self.hashers;
        StoredEvents { hashers, ..StoredEvents::of(self.transactions.clone()) }
    }

    /// Whether there can be a record of an event of this transaction.
    #[inline]
    pub fn may_hold(&self, event: &Outbound<'_>, commit_lsn: Lsn) -> bool {
        self.transactions.contains(&commit_lsn) && position(event) == Some(commit_lsn)
    }

    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// A record of a topic that was `found_in` this partition. Those of one partition are added in
    /// order. The record itself has a partition if the events of its topic ask for one.
    pub fn add(&mut self, record: &Outbound<'_>, found_in: i32) {
        let Some(commit_lsn) = position(record) else { return };
        let lane = self.lane(record);
        if !self.transactions.contains(&commit_lsn) {
            if let Some(end) = lane.and_then(|lane| self.ends.get_mut(&lane)) {
                end.commit_lsn = Lsn::ZERO;
            }
            return;
        }
        let hash = self.hash(record);
        *self.records.entry(hash).or_default() += 1;
        if let Some(lane) = lane {
            let first = KeyEnd { partition: found_in, ..KeyEnd::default() };
            let end = self.ends.entry(lane).or_insert(first);
            if end.partition != found_in {
                end.partition = SEVERAL;
            }
            end.commit_lsn = if end.partition == SEVERAL { Lsn::ZERO } else { commit_lsn };
            end.record = hash;
        }
        self.newest = self.newest.max(commit_lsn);
    }

    /// Adds those of another topic, which was read to its end; `whole` if all its partitions were. They answer for
    /// events that ask for a partition, or for those that do not.
    pub fn append(
        &mut self,
        (topic, by_partition): (String, bool),
        mut others: StoredEvents,
        whole: bool,
    ) {
        if others.records.len() > self.records.len() {
            // The larger table is not copied.
            std::mem::swap(&mut self.records, &mut others.records);
        }
        self.records.extend(others.records);
        self.ends.extend(others.ends);
        self.topics[usize::from(by_partition)].insert(topic, whole);
        self.newest = self.newest.max(others.newest);
    }

    /// Takes the answer of its topic about this event. A record of it then stands for no other.
    pub fn take(&mut self, event: &Outbound<'_>, commit_lsn: Lsn) -> Stored {
        if !self.may_hold(event, commit_lsn) {
            return Stored::Unknown;
        }
        let topics = &self.topics[usize::from(event.partition.is_some())];
        let Some(&whole) = topics.get(event.topic) else { return Stored::Unknown };
        if whole && commit_lsn > self.newest {
            return Stored::No;
        }
        let hash = self.hash(event);
        let lane = self.lane(event);
        let end = lane.and_then(|lane| self.ends.get_mut(&lane));
        let is_behind = |end: &&mut KeyEnd| end.passed || commit_lsn > end.commit_lsn;
        if end.as_ref().is_some_and(is_behind) && !on(Mutant::TopicEndIgnored) {
            return Stored::No;
        }
        let is_held = take_one(&mut self.records, hash);
        match end {
            Some(end) if is_held => {
                end.passed = end.record == hash;
                Stored::Yes
            }
            Some(end) if commit_lsn < end.commit_lsn => Stored::Overtaken,
            None if is_held => Stored::Yes,
            None if !whole => Stored::Unknown,
            Some(_) | None => Stored::No,
        }
    }

    fn hash(&self, record: &Outbound<'_>) -> RecordHash {
        let Outbound { topic, key, value, partition, .. } = record;
        self.hashers.each_ref().map(|hashers| {
            let mut hasher = hashers.build_hasher();
            (topic, key, value, partition).hash(&mut hasher);
            // The relay may have added the trace context, with another span id than it would now.
            for header in record.headers.iter().filter(|(name, _)| *name != TRACEPARENT) {
                header.hash(&mut hasher);
            }
            hasher.finish()
        })
    }

    /// Events of one key in one topic. An empty key is in any partition, so its events have no order.
    fn lane(&self, record: &Outbound<'_>) -> Option<u64> {
        let Outbound { topic, key, partition, .. } = record;
        key.filter(|key| !key.is_empty())
            .map(|key| self.hashers[0].hash_one((topic, key, partition)))
    }
}

/// Removes a record, if there is one.
fn take_one(records: &mut HashMap<RecordHash, u32>, hash: RecordHash) -> bool {
    let Entry::Occupied(mut count) = records.entry(hash) else { return false };
    *count.get_mut() -= 1;
    if *count.get() == 0 {
        count.remove();
    }
    true
}

fn position(record: &Outbound<'_>) -> Option<Lsn> {
    std::str::from_utf8(record.header(POSITION)?).ok()?.parse().ok()
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
