//! Why an event came twice: what was killed between its two appearances, by the broker's clock.

use std::collections::{BTreeMap, HashMap};

use walrelay_harness::consumer::Record;

const SHOWN: usize = 5;
const IN_FLIGHT_MS: i64 = 2_000;
/// A relay that has lost its session withdraws what is in flight up to half of `wal_sender_timeout`
/// later.
const WITHDRAWN_MS: i64 = IN_FLIGHT_MS + 3_000;
const LARGE_ROWS: u64 = 500;

/// Wall clock before each fault, in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    /// Kills of the relay, and its starts after it gave up.
    pub(super) relay: Vec<i64>,
    /// From when until when the relay was frozen. Its client may send what it holds as soon as it runs again.
    pub(super) freezes: Vec<(i64, i64)>,
    pub(super) broker: Vec<i64>,
    pub(super) postgres: Vec<i64>,
    /// Walsenders that were terminated.
    pub(super) terminations: Vec<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Causes {
    pub(super) relay: u64,
    /// After a kill of the relay and a crash of Postgres, which forgets what it was told of late:
    /// with both gone nobody knows it.
    pub(super) relay_and_postgres: u64,
    /// A relay that was frozen withdraws what is in flight: a peer could have the slot.
    pub(super) frozen: u64,
    pub(super) broker: u64,
    /// After a crash of Postgres or a terminated walsender alone.
    pub(super) source: u64,
    pub(super) unexplained: u64,
    pub(super) first_unexplained: Vec<String>,
    /// How many, by kill of the relay and commit LSN, where Postgres had not crashed.
    by_kill: BTreeMap<(i64, Option<u64>), u64>,
}

/// Every appearance after the first, laid to what was killed since the one before. The broker cuts
/// its times off to milliseconds.
pub(super) fn explain(records: &[Record], moments: &Moments) -> Causes {
    let mut by_id: HashMap<&str, Vec<&Record>> = HashMap::new();
    records.iter().for_each(|record| by_id.entry(&record.id).or_default().push(record));
    let mut causes = Causes::default();
    for appearances in by_id.values_mut().filter(|appearances| appearances.len() > 1) {
        appearances.sort_by_key(|record| (record.timestamp_ms, record.offset));
        for pair in appearances.windows(2) {
            causes.add(pair[0], pair[1], moments);
        }
    }
    causes
}

impl Causes {
    /// Repetitions of large transactions that a kill of the relay cut. A transaction is repeated
    /// whole, so one unlucky moment repeats up to its 10,000 rows, however fast the relay is.
    pub(super) fn in_large_transactions(&self) -> u64 {
        self.by_kill.values().filter(|count| **count >= LARGE_ROWS).sum()
    }

    fn add(&mut self, first: &Record, again: &Record, moments: &Moments) {
        let (from_ms, until_ms) = (first.timestamp_ms, again.timestamp_ms);
        // What was in flight at a kill may reach the log a moment after it.
        let last_since = |since_ms: i64, moments: &[i64]| {
            let between = |us: &&i64| (since_ms..=until_ms).contains(&(**us / 1_000));
            moments.iter().rfind(between).copied()
        };
        let last_of = |moments: &[i64]| last_since(from_ms - IN_FLIGHT_MS, moments);
        let of_source = |moments: &[i64]| last_since(from_ms - WITHDRAWN_MS, moments);
        // Also one that had begun earlier: the client of the broker goes on before the relay notices.
        let is_frozen = moments.freezes.iter().any(|(frozen_us, thawed_us)| {
            frozen_us / 1_000 <= until_ms && thawed_us / 1_000 >= from_ms - IN_FLIGHT_MS
        });
        match (last_of(&moments.relay), last_of(&moments.postgres), last_of(&moments.broker)) {
            (Some(_), Some(_), _) => self.relay_and_postgres += 1,
            (Some(kill_us), None, _) => {
                self.relay += 1;
                *self.by_kill.entry((kill_us, first.lsn)).or_default() += 1;
            }
            (None, ..) if is_frozen => self.frozen += 1,
            (None, _, Some(_)) => self.broker += 1,
            (None, _, None)
                if of_source(&moments.postgres).or(of_source(&moments.terminations)).is_some() =>
            {
                self.source += 1;
            }
            (None, _, None) => {
                self.unexplained += 1;
                if self.first_unexplained.len() < SHOWN {
                    let Record { id, partition, .. } = first;
                    let (at, back) = (first.offset, again.offset);
                    let what =
                        format!("{id} at {partition}@{at} ({from_ms}) and @{back} ({until_ms})");
                    self.first_unexplained.push(what);
                }
            }
        }
    }
}
