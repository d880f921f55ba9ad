//! Why an event came twice: what was killed between its two appearances, by the broker's clock.

use std::collections::HashMap;

use walrelay_harness::consumer::Record;

const SHOWN: usize = 5;

#[derive(Default)]
pub(super) struct Causes {
    pub(super) relay: u64,
    pub(super) kafka: u64,
    pub(super) unexplained: u64,
    pub(super) first_unexplained: Vec<String>,
}

pub(super) fn count(moments: &[i64]) -> u64 {
    moments.len() as u64
}

/// Every appearance after the first, laid to a kill since the one before. The broker cuts its
/// times off to milliseconds.
pub(super) fn explain(records: &[Record], relay_us: &[i64], kafka_us: &[i64]) -> Causes {
    let mut by_id: HashMap<&str, Vec<&Record>> = HashMap::new();
    records.iter().for_each(|record| by_id.entry(&record.id).or_default().push(record));
    let mut causes = Causes::default();
    for appearances in by_id.values_mut().filter(|appearances| appearances.len() > 1) {
        appearances.sort_by_key(|record| (record.timestamp_ms, record.offset));
        for pair in appearances.windows(2) {
            let (from_ms, until_ms) = (pair[0].timestamp_ms, pair[1].timestamp_ms);
            let between = |moments: &[i64]| {
                moments.iter().any(|us| (from_ms..=until_ms).contains(&(us / 1_000)))
            };
            // What was in flight at the kill may reach the log a moment after it.
            let late = |moments: &[i64]| {
                moments.iter().any(|us| us / 1_000 <= from_ms && from_ms - us / 1_000 < 1_000)
            };
            if between(relay_us) || late(relay_us) {
                causes.relay += 1;
            } else if between(kafka_us) {
                causes.kafka += 1;
            } else {
                causes.unexplained += 1;
                if causes.first_unexplained.len() < SHOWN {
                    let Record { id, partition, .. } = pair[0];
                    let (first, again) = (pair[0].offset, pair[1].offset);
                    let what = format!(
                        "{id} at {partition}@{first} ({from_ms}) and @{again} ({until_ms})"
                    );
                    causes.first_unexplained.push(what);
                }
            }
        }
    }
    causes
}
