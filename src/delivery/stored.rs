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
//! what follows the event of the last record is published again, in order.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::ops::Range;

use crate::base::event::{Outbound, TRACEPARENT};
use crate::base::lsn::Lsn;

/// The header with the position of the transaction.
const POSITION: &str = "lsn";

/// Whether a topic holds an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    No,
    Yes,
    /// Yes, as the last one of its key: what follows of the key must be published.
    Last,
}

/// 128 bits: two records that differ have the same hash with no probability that matters. The keys
/// of the hashes are drawn by each process.
type RecordHash = [u64; 2];

#[derive(Clone, Debug, Default)]
pub struct StoredEvents {
    hashers: [RandomState; 2],
    /// The transactions that Postgres sends again and that an earlier process can have published.
    transactions: Range<Lsn>,
    records: HashMap<RecordHash, u32>,
    /// The last record of each key; none of a key about which nothing is known.
    last: HashMap<u64, RecordHash>,
    /// The last of the transactions of which there are records.
    newest: Lsn,
}

impl StoredEvents {
    /// Those of the transactions whose commit LSN is in the range.
    pub fn of(transactions: Range<Lsn>) -> StoredEvents {
        StoredEvents { transactions, ..StoredEvents::default() }
    }

    /// The same, of which no record is known yet: another thread can add some.
    pub fn another(&self) -> StoredEvents {
        let hashers = self.hashers.clone();
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

    /// A record of a topic. Those of one partition are added in order. It has a partition if the
    /// events of its topic ask for one.
    pub fn add(&mut self, record: &Outbound<'_>) {
        let Some(lsn) = position(record) else { return };
        let lane = self.lane(record);
        if !self.transactions.contains(&lsn) {
            // The key has gone back behind what is sent again, or another timeline has written.
            lane.map(|lane| self.last.remove(&lane));
            return;
        }
        let hash = self.hash(record);
        *self.records.entry(hash).or_default() += 1;
        lane.map(|lane| self.last.insert(lane, hash));
        self.newest = self.newest.max(lsn);
    }

    /// Adds those of topics that are not among these.
    pub fn append(&mut self, others: StoredEvents) {
        self.records.extend(others.records);
        self.last.extend(others.last);
        self.newest = self.newest.max(others.newest);
    }

    /// Whether there is a record of this event, which then stands for no other.
    pub fn take(&mut self, event: &Outbound<'_>, commit_lsn: Lsn) -> Stored {
        if commit_lsn > self.newest || !self.may_hold(event, commit_lsn) {
            return Stored::No;
        }
        let hash = self.hash(event);
        let Entry::Occupied(mut count) = self.records.entry(hash) else { return Stored::No };
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
        let Some(lane) = self.lane(event) else { return Stored::Yes };
        match self.last.get(&lane) {
            None => Stored::No,
            Some(last) if *last == hash => Stored::Last,
            Some(_) => Stored::Yes,
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

    /// Events of one key in one topic.
    fn lane(&self, record: &Outbound<'_>) -> Option<u64> {
        let Outbound { topic, key, partition, .. } = record;
        key.map(|key| self.hashers[0].hash_one((topic, key, partition)))
    }
}

fn position(record: &Outbound<'_>) -> Option<Lsn> {
    let (_, text) = record.headers.iter().find(|(name, _)| *name == POSITION)?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
