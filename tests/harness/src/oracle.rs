//! The judge: what was committed against what Kafka holds, exactly.
//!
//! Truth is the outbox table, read after the run: whatever a writer believed, a row that is there
//! was committed and one that is not was not. `seq` rises per key in commit order because the
//! writers take it under a row lock. A relay may repeat, never lose, invent, alter or reorder; and
//! when all is quiet, the last record of every key is its latest event. Order is that of offsets
//! within a partition, and that of the messages within a queue.

mod confirmed;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

pub use confirmed::{ConfirmedSample, ConfirmedSampler, ConfirmedVerdict, check_confirmed};

use crate::Result;
use crate::consumer::Record;
use crate::kit::{Session, block_on, payload_hash};
use crate::load::table_name;

/// Offenders named per fault; their number is always told.
const OFFENDERS_SHOWN: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruthRow {
    pub id: String,
    pub key: String,
    pub seq: i64,
    /// [`payload_hash`] of the payload as the server prints it.
    pub hash: u128,
}

/// Reads the truth from an outbox table that a load of this kit filled.
pub fn read_truth(url: &str, table: &str) -> Result<Vec<TruthRow>> {
    read(url, table, "id::text", "payload::text")
}

/// The same by content alone, whatever JSON it comes in: an id is `key/seq`, the hash that of the
/// payload's text. Goes with [`Mode::Content`](crate::consumer::Mode::Content).
pub fn read_content_truth(url: &str, table: &str) -> Result<Vec<TruthRow>> {
    let id = "aggregateid || '/' || (payload->>'seq')";
    read(url, table, id, "coalesce(payload->>'text', payload->>'pad')")
}

fn read(url: &str, table: &str, id: &str, hashed: &str) -> Result<Vec<TruthRow>> {
    let sql = format!(
        "select {id}, aggregateid, (payload->>'seq')::bigint, {hashed} from {}",
        table_name(table)?
    );
    block_on(async {
        let session = Session::open(url).await?;
        let none: [&str; 0] = [];
        let rows = session.client.query_raw(&sql, none).await?;
        let mut rows = std::pin::pin!(rows);
        let mut truth = Vec::new();
        // Row by row: a million payloads at once would cost more memory than the relay may have.
        while let Some(row) = futures_util::StreamExt::next(&mut rows).await {
            let row = row?;
            truth.push(TruthRow {
                id: row.get(0),
                key: row.get(1),
                seq: row.get(2),
                hash: payload_hash(row.get::<_, &str>(3).as_bytes()),
            });
        }
        Ok(truth)
    })
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offences {
    pub count: u64,
    pub first: Vec<String>,
}

impl Offences {
    fn add(&mut self, describe: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < OFFENDERS_SHOWN {
            self.first.push(describe());
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub committed: u64,
    pub delivered: u64,
    pub distinct: u64,
    /// Committed rows excused because they were dead-lettered.
    pub dead_lettered: u64,
    /// Records beyond the first of their id.
    pub duplicates: u64,
    pub missing: Offences,
    /// Delivered, never committed: rolled back, made up, or without an id.
    pub invented: Offences,
    /// First deliveries of a key whose `seq` does not rise.
    pub out_of_order: Offences,
    /// Keys whose records lie in several partitions of a topic, where no order exists.
    pub split_keys: Offences,
    pub wrong_key: Offences,
    /// Payload bytes differ from the row's, in a first delivery or a repeated one.
    pub altered: Offences,
    /// Keys whose last record in a partition or queue is not that of their latest event there.
    pub stale_last: Offences,
}

/// A key in one partition or queue, as far as its records were looked at.
#[derive(Clone, Copy)]
struct KeyEnd<'r> {
    /// The highest `seq` of a first delivery, and where it is.
    newest: (i64, i64),
    /// The records with the highest `seq` and the last; those of dead-lettered rows do not count.
    latest: Option<(i64, &'r Record)>,
    last: Option<(i64, &'r Record)>,
}

/// Compares what was committed with what was delivered. `dead_lettered` ids are excused from
/// delivery; an id of it that is delivered all the same is judged like any other, but may be the
/// last of its key, because a replay puts it there.
pub fn check(truth: &[TruthRow], delivered: &[Record], dead_lettered: &HashSet<String>) -> Verdict {
    let rows: HashMap<&str, &TruthRow> = truth.iter().map(|row| (row.id.as_str(), row)).collect();
    let mut verdict = Verdict {
        committed: truth.len() as u64,
        delivered: delivered.len() as u64,
        ..Verdict::default()
    };
    let mut seen: HashSet<&str> = HashSet::with_capacity(truth.len());
    let mut homes: HashMap<(&str, &str), i32> = HashMap::new();
    let mut ends: HashMap<(&str, i32, &str), KeyEnd<'_>> = HashMap::new();
    for record in in_offset_order(delivered) {
        let Some(row) = rows.get(record.id.as_str()) else {
            verdict.invented.add(|| describe(record));
            continue;
        };
        if record.hash != row.hash {
            verdict.altered.add(|| describe(record));
        }
        if record.key != row.key {
            verdict.wrong_key.add(|| format!("{}, committed as key {}", describe(record), row.key));
        }
        let home = *homes.entry((&record.topic, &row.key)).or_insert(record.partition);
        if home != record.partition {
            verdict.split_keys.add(|| format!("{}, earlier in partition {home}", describe(record)));
        }
        let end = ends.entry((&record.topic, record.partition, &row.key)).or_insert(KeyEnd {
            newest: (i64::MIN, -1),
            latest: None,
            last: None,
        });
        if !dead_lettered.contains(&row.id) {
            end.last = Some((row.seq, record));
            end.latest = end.latest.filter(|(seq, _)| *seq >= row.seq).or(end.last);
        }
        if !seen.insert(&row.id) {
            verdict.duplicates += 1;
            continue;
        }
        let (seq, offset) = end.newest;
        if row.seq <= seq {
            let what = format!("{}, seq {} behind {seq} at {offset}", describe(record), row.seq);
            verdict.out_of_order.add(|| what);
        } else {
            end.newest = (row.seq, record.offset);
        }
    }
    verdict.distinct = seen.len() as u64;
    verdict.stale_last = stale_last(ends.into_values().collect());
    for row in truth.iter().filter(|row| !seen.contains(row.id.as_str())) {
        if dead_lettered.contains(&row.id) {
            verdict.dead_lettered += 1;
        } else {
            verdict.missing.add(|| format!("id {} key {} seq {}", row.id, row.key, row.seq));
        }
    }
    verdict
}

/// Keys that end with an event older than the newest that was delivered.
fn stale_last(mut ends: Vec<KeyEnd<'_>>) -> Offences {
    ends.sort_by_key(|end| end.last.map(|(_, record)| (record.partition, record.offset)));
    let mut stale = Offences::default();
    for KeyEnd { latest, last, .. } in ends {
        let Some(((newest, latest), (seq, last))) = latest.zip(last) else { continue };
        if seq < newest {
            let at = latest.offset;
            stale.add(|| format!("{}, seq {seq} behind {newest} at {at}", describe(last)));
        }
    }
    stale
}

fn describe(record: &Record) -> String {
    let id = if record.id.is_empty() { "(none)" } else { &record.id };
    let Record { topic, partition, offset, key, .. } = record;
    format!("{topic}/{partition}@{offset} id {id} key {key}")
}

/// Records of all partitions, each partition by offset.
fn in_offset_order(delivered: &[Record]) -> Vec<&Record> {
    let mut records: Vec<&Record> = delivered.iter().collect();
    records
        .sort_by(|a, b| (&a.topic, a.partition, a.offset).cmp(&(&b.topic, b.partition, b.offset)));
    records
}

impl Verdict {
    fn faults(&self) -> BTreeMap<&'static str, &Offences> {
        BTreeMap::from([
            ("altered", &self.altered),
            ("invented", &self.invented),
            ("missing", &self.missing),
            ("out of order", &self.out_of_order),
            ("split keys", &self.split_keys),
            ("stale last", &self.stale_last),
            ("wrong key", &self.wrong_key),
        ])
    }

    /// Whether nothing is wrong but at most so many duplicates.
    pub fn is_exact(&self, duplicates_max: u64) -> bool {
        self.is_complete() && self.duplicates <= duplicates_max
    }

    /// Whether nothing is wrong but duplicates. An empty truth proves nothing and is refused.
    fn is_complete(&self) -> bool {
        self.committed > 0 && self.faults().values().all(|offences| offences.count == 0)
    }

    /// Panics with the whole report unless [`Verdict::is_exact`].
    pub fn assert_exact(&self, duplicates_max: u64) {
        assert!(self.is_exact(duplicates_max), "at most {duplicates_max} duplicates:\n{self}");
    }

    /// Panics with the whole report if anything is wrong but duplicates: the test bounds these in
    /// another way, or the fault bounds them by nothing.
    pub fn assert_complete(&self) {
        assert!(self.is_complete(), "{self}");
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "committed {} · delivered {} · distinct {} · duplicates {} · dead-lettered {}",
            self.committed, self.delivered, self.distinct, self.duplicates, self.dead_lettered
        )?;
        for (name, offences) in self.faults() {
            let mark = if offences.count == 0 { '✓' } else { '✗' };
            writeln!(f, "  {mark} {name:<13}{}", offences.count)?;
            for offender in &offences.first {
                writeln!(f, "      {offender}")?;
            }
            let more = offences.count.saturating_sub(offences.first.len() as u64);
            if more > 0 {
                writeln!(f, "      … and {more} more")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "oracle/tests.rs"]
mod tests;
