//! Why an event came twice: what was killed between its two appearances, by the broker's clock.

use std::collections::{BTreeMap, HashMap};

use walrelay_harness::consumer::Record;

const SHOWN: usize = 5;
const IN_FLIGHT_MS: i64 = 1_000;

/// Wall clock before each fault, in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    /// Kills of the relay, and its starts after it gave up.
    pub(super) relay: Vec<i64>,
    pub(super) kafka: Vec<i64>,
    pub(super) postgres: Vec<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Causes {
    /// After a kill of the relay.
    pub(super) relay: u64,
    /// After a kill of the relay and a crash of Postgres, which forgets what it was told of late:
    /// with both gone nobody knows it.
    pub(super) relay_and_postgres: u64,
    /// After a kill of Kafka alone.
    pub(super) kafka: u64,
    /// Without any.
    pub(super) unexplained: u64,
    pub(super) first_unexplained: Vec<String>,
    /// By kill of the relay: how many were repeated, and the age of the oldest.
    pub(super) by_kill: BTreeMap<i64, (u64, i64)>,
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
    fn add(&mut self, first: &Record, again: &Record, moments: &Moments) {
        let (from_ms, until_ms) = (first.timestamp_ms, again.timestamp_ms);
        // What was in flight at a kill may reach the log a moment after it.
        let since_ms = from_ms - IN_FLIGHT_MS;
        let last_of = |moments: &[i64]| {
            let between = |us: &&i64| (since_ms..=until_ms).contains(&(**us / 1_000));
            moments.iter().rfind(between).copied()
        };
        match (last_of(&moments.relay), last_of(&moments.postgres), last_of(&moments.kafka)) {
            (Some(kill_us), crash, _) => {
                let (count, oldest_ms) = self.by_kill.entry(kill_us).or_default();
                *count += 1;
                *oldest_ms = (*oldest_ms).max(kill_us / 1_000 - from_ms);
                let sum =
                    if crash.is_some() { &mut self.relay_and_postgres } else { &mut self.relay };
                *sum += 1;
            }
            (None, _, Some(_)) => self.kafka += 1,
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
