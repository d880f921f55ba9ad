//! Deleting old records of the dead-letter topic: in each partition all before the oldest one that
//! must stay. Nothing is rewritten.
//!
//! A record must stay if its dead letter is open, if it parks a key, or if it is younger than asked
//! for; and so must a stop that stands. A resolution must stay as long as any dead letter that it resolves, wherever that is, or the
//! dead letter would be open again; and so must a release, as long as a dead letter that parks its
//! key.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::fold::{DeadLetterIndex, DeadLetterState};
use super::reader::DeadLetterTopic;
use super::record::{
    DeadLetterId, LogRecord, PartitionOffset, ResolutionKind, StopRecord, StopRecordKind,
};
use super::writer::KeyHash;
use crate::base::error::Fault;
use crate::sink::log::ReadFrom;

/// The subject of a record, and the time when it was written.
#[derive(Clone, Copy, Debug)]
struct PurgedRecord {
    position: PartitionOffset,
    unix_us: i64,
    about: About,
}

#[derive(Clone, Copy, Debug)]
enum About {
    /// And the key that it parks.
    DeadLetter(DeadLetterId, Option<KeyHash>),
    Resolution(DeadLetterId),
    Release(Option<KeyHash>),
    /// A stop of a relay, or its acknowledgement.
    Stop,
}

/// The records of one partition that are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PartitionPurge {
    pub(crate) partition: i32,
    /// The first offset that stays.
    pub(crate) before: i64,
    pub(crate) records: u64,
    /// Why the record at that offset stays; empty at the end of the partition.
    pub(crate) kept: &'static str,
}

/// Plans a purge of records that are older than this; changes nothing.
pub(crate) fn plan(
    topic: &DeadLetterTopic<'_>,
    before_unix_us: i64,
) -> Result<Vec<PartitionPurge>, Fault> {
    let mut log = PurgedLog::default();
    topic.each(ReadFrom::Beginning, |record| {
        log.add(&record);
        Ok(true)
    })?;
    Ok(log.cut(before_unix_us))
}

/// The log, as far as a purge needs it: some 80 bytes a record.
#[derive(Debug, Default)]
struct PurgedLog {
    records: Vec<PurgedRecord>,
    index: DeadLetterIndex,
    stops: Vec<StopRecord>,
    /// The first offset that was not read.
    ends: BTreeMap<i32, i64>,
}

impl PurgedLog {
    fn add(&mut self, record: &LogRecord) {
        self.index.apply(record);
        let (position, unix_us, about) = match record {
            LogRecord::DeadLetter(letter) => {
                let parks = letter.key_hash().filter(|_| letter.parks_key);
                let about = About::DeadLetter(letter.id(), parks);
                (letter.position, letter.failed_unix_us, about)
            }
            LogRecord::Resolution(it) if it.kind == ResolutionKind::Released => {
                (it.position, it.resolved_unix_us, About::Release(it.key_hash()))
            }
            LogRecord::Resolution(it) => {
                (it.position, it.resolved_unix_us, About::Resolution(it.id()))
            }
            LogRecord::Stop(it) => {
                self.stops.push((**it).clone());
                (it.position, it.body.unix_us, About::Stop)
            }
            // It goes with those around it.
            LogRecord::Foreign => return,
        };
        self.ends.insert(position.partition, position.offset + 1);
        self.records.push(PurgedRecord { position, unix_us, about });
    }

    /// The first offset of each partition that stays, and why.
    fn cut(self, before_unix_us: i64) -> Vec<PartitionPurge> {
        let PurgedLog { records, index, stops, ends } = self;
        let needed_stops = needed_stops(&stops);
        let parked: HashSet<KeyHash> = index.releases().filter_map(|it| it.key_hash()).collect();
        let mut cuts: BTreeMap<i32, (i64, &'static str)> =
            ends.into_iter().map(|(partition, end)| (partition, (end, ""))).collect();
        for PurgedRecord { position, unix_us, about } in &records {
            let is_open = |id| index.state(id) == Some(DeadLetterState::Open);
            let why = match about {
                About::DeadLetter(id, _) if is_open(*id) => "an open dead letter",
                About::DeadLetter(_, Some(key)) if parked.contains(key) => {
                    "a dead letter that parks its key"
                }
                About::Stop if needed_stops.contains(position) => "a stop that is needed",
                _ if *unix_us >= before_unix_us => "a record that is younger",
                _ => continue,
            };
            if !stays(&cuts, *position) {
                cuts.insert(position.partition, (position.offset, why));
            }
        }
        // What stays in one partition may need records of others.
        with_resolutions(&records, &mut cuts);
        let count = |partition, before| {
            let before = |it: &&PurgedRecord| {
                it.position.partition == partition && it.position.offset < before
            };
            records.iter().filter(before).count() as u64
        };
        let purges = cuts.into_iter().map(|(partition, (before, kept))| PartitionPurge {
            partition,
            before,
            records: count(partition, before),
            kept,
        });
        purges.collect()
    }
}

/// Keeps the resolutions of dead letters that stay, and the releases of keys that they park.
fn with_resolutions(records: &[PurgedRecord], cuts: &mut BTreeMap<i32, (i64, &'static str)>) {
    let mut is_settled = false;
    while !is_settled {
        is_settled = true;
        let (mut letters, mut keys) = (HashSet::new(), HashSet::new());
        for record in records.iter().filter(|it| stays(cuts, it.position)) {
            if let About::DeadLetter(id, parks) = record.about {
                letters.insert(id);
                keys.extend(parks);
            }
        }
        for PurgedRecord { position, about, .. } in records {
            let is_needed = match about {
                About::DeadLetter(..) | About::Stop => false,
                About::Resolution(id) => letters.contains(id),
                About::Release(key) => key.is_some_and(|key| keys.contains(&key)),
            };
            if is_needed && !stays(cuts, *position) {
                cuts.insert(position.partition, (position.offset, "a resolution that is needed"));
                is_settled = false;
            }
        }
    }
}

/// Stops that nobody has acknowledged, and of each slot the last acknowledgement that says which
/// publication was in order.
fn needed_stops(stops: &[StopRecord]) -> HashSet<PartitionOffset> {
    let (mut acknowledged, mut published) = (HashSet::new(), HashSet::new());
    let mut needed = HashSet::new();
    for StopRecord { position, kind, body } in stops.iter().rev() {
        let owner = (body.slot.as_str(), body.system.as_str());
        let stop = (owner, body.stop.code.as_str(), body.stop.since_unix_us);
        let is_needed = match kind {
            StopRecordKind::Stopped => !acknowledged.contains(&stop),
            StopRecordKind::Resumed => {
                acknowledged.insert(stop);
                body.publication.is_some() && published.insert(owner)
            }
        };
        if is_needed {
            needed.insert(*position);
        }
    }
    needed
}

fn stays(cuts: &BTreeMap<i32, (i64, &'static str)>, at: PartitionOffset) -> bool {
    cuts.get(&at.partition).is_none_or(|(cut, _)| at.offset >= *cut)
}

#[cfg(test)]
#[path = "purge_tests.rs"]
mod tests;
