//! Was the LSN ever confirmed ahead of the broker? The promise that loses data when broken.
//!
//! During the run `confirmed_flush_lsn` is sampled with the wall clock. Afterwards every record
//! of a transaction below a sample must have been in its topic by then, by the *broker's* clock:
//! the topic needs `message.timestamp.type=LogAppendTime`, and records the relay's `lsn` header.
//! The header names the commit record and a slot is confirmed up to its *end*, where the next
//! commit record may begin: so only strictly smaller LSNs must be there. A row that never came
//! has no LSN: that is the other judge's `missing`.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Offences, describe, in_offset_order};
use crate::Result;
use crate::consumer::{Record, parse_lsn};
use crate::kit::{Session, lock, now_us, runtime};

/// The longest one look may take before its session is given up.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmedSample {
    pub lsn: u64,
    /// Wall clock right after the answer: what it tells was true by then.
    pub at_us: i64,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    samples: Mutex<Vec<ConfirmedSample>>,
}

/// A thread that samples a slot's confirmed LSN until stopped, through crashes of Postgres.
pub struct ConfirmedSampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ConfirmedSampler {
    /// Samples every `interval`; 100 ms is usual.
    pub fn start(url: &str, slot: &str, interval: Duration) -> Result<ConfirmedSampler> {
        let runtime = runtime()?;
        let shared = Arc::new(Shared::default());
        let (own, url, slot) = (shared.clone(), url.to_owned(), slot.to_owned());
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                while !own.stop.load(Ordering::Relaxed) {
                    // An error means that Postgres is away: there is nothing to sample, go on.
                    drop(sample(&url, &slot, interval, &own).await);
                    tokio::time::sleep(interval).await;
                }
            });
        });
        Ok(ConfirmedSampler { shared, thread: Some(thread) })
    }

    pub fn count(&self) -> usize {
        lock(&self.shared.samples).len()
    }

    pub fn stop(mut self) -> Vec<ConfirmedSample> {
        self.end();
        std::mem::take(&mut *lock(&self.shared.samples))
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for ConfirmedSampler {
    fn drop(&mut self) {
        self.end();
    }
}

async fn sample(url: &str, slot: &str, interval: Duration, shared: &Shared) -> Result<()> {
    let session = Session::open(url).await?;
    let sql = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = $1";
    let look = session.client.prepare(sql).await?;
    while !shared.stop.load(Ordering::Relaxed) {
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&slot];
        let answer = session.client.query_opt(&look, &values);
        let Ok(row) = tokio::time::timeout(LOOK_TIMEOUT, answer).await else { return Ok(()) };
        let text: Option<String> = row?.and_then(|row| row.get(0));
        if let Some(lsn) = text.and_then(|text| parse_lsn(text.as_bytes())) {
            let sample = ConfirmedSample { lsn, at_us: now_us() };
            lock(&shared.samples).push(sample);
        }
        tokio::time::sleep(interval).await;
    }
    Ok(())
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfirmedVerdict {
    pub samples: u64,
    /// Samples with at least one record below their LSN: the ones that could have failed.
    pub compared: u64,
    /// Records without an `lsn` header, which cannot be compared.
    pub unmarked: u64,
    /// Samples that confirmed what the broker did not hold yet.
    pub early: Offences,
}

impl ConfirmedVerdict {
    /// Whether something was compared and nothing was early.
    pub fn is_clean(&self) -> bool {
        self.compared > 0 && self.unmarked == 0 && self.early.count == 0
    }

    /// Panics with the report unless [`ConfirmedVerdict::is_clean`].
    pub fn assert_clean(&self) {
        assert!(self.is_clean(), "{self}");
    }
}

impl fmt::Display for ConfirmedVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfirmedVerdict { samples, compared, unmarked, early } = self;
        writeln!(
            f,
            "confirmed LSN: {samples} samples · {compared} compared · {} early",
            early.count
        )?;
        if *unmarked > 0 {
            writeln!(f, "  ✗ {unmarked} records without an `lsn` header")?;
        }
        early.first.iter().try_for_each(|offender| writeln!(f, "  ✗ {offender}"))
    }
}

/// For each sample: was every first delivery of a smaller LSN in its topic by then?
///
/// All topics of a slot belong into `delivered` at once. Broker time is in whole milliseconds,
/// cut off, so a violation under 1 ms may pass, and none is ever made up.
pub fn check_confirmed(samples: &[ConfirmedSample], delivered: &[Record]) -> ConfirmedVerdict {
    let mut first: std::collections::HashMap<&str, &Record> = std::collections::HashMap::new();
    let mut verdict = ConfirmedVerdict { samples: samples.len() as u64, ..Default::default() };
    for record in in_offset_order(delivered) {
        let known = first.entry(&record.id).or_insert(record);
        if record.timestamp_ms < known.timestamp_ms {
            *known = record;
        }
    }
    verdict.unmarked = first.values().filter(|record| record.lsn.is_none()).count() as u64;
    let mut marked: Vec<(u64, &Record)> =
        first.values().filter_map(|record| Some((record.lsn?, *record))).collect();
    marked.sort_by_key(|(lsn, record)| (*lsn, record.timestamp_ms, record.offset));
    // latest[i] is the record among marked[..=i] that the broker appended last.
    let mut latest: Vec<&Record> = Vec::with_capacity(marked.len());
    for (_, record) in &marked {
        let before = latest.last().copied().unwrap_or(record);
        let is_later = record.timestamp_ms > before.timestamp_ms;
        latest.push(if is_later { record } else { before });
    }
    for sample in samples {
        let below = marked.partition_point(|(lsn, _)| *lsn < sample.lsn);
        let Some(record) = below.checked_sub(1).map(|at| latest[at]) else { continue };
        verdict.compared += 1;
        if record.timestamp_ms * 1_000 > sample.at_us {
            let ahead_ms = record.timestamp_ms - sample.at_us / 1_000;
            let (high, low) = (sample.lsn >> 32, sample.lsn & 0xFFFF_FFFF);
            verdict.early.add(|| {
                format!("{high:X}/{low:X} confirmed {ahead_ms} ms before {}", describe(record))
            });
        }
    }
    verdict
}
