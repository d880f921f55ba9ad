//! Every event, compared by what it says: relays write the same JSON in different ways.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use serde::Deserialize;
use walrelay_harness::Result;
use walrelay_harness::consumer::{Consumer, Mode, Record};
use walrelay_harness::kit::payload_hash;
use walrelay_harness::oracle::{TruthRow, Verdict, check};

use crate::peer::Target;

const LIMIT: Duration = Duration::from_secs(60);

/// The payload that the loads of the harness write.
#[derive(Deserialize)]
struct Payload<'a> {
    seq: i64,
    #[serde(borrow, alias = "pad")]
    text: Cow<'a, str>,
}

/// For [`Mode::Content`]: an event that is no such payload has no id, and so was never committed.
pub(crate) fn read(key: &str, value: &[u8]) -> (String, u128) {
    match serde_json::from_slice::<Payload<'_>>(value) {
        Ok(payload) => (format!("{key}/{}", payload.seq), payload_hash(payload.text.as_bytes())),
        Err(_) => (String::new(), 0),
    }
}

/// Reads a topic from its beginning.
pub(crate) fn consumer(target: &Target) -> Result<Consumer> {
    Consumer::start(&target.brokers, &[&target.topic], Mode::Content(read))
}

/// Reads the `held` records of a topic and compares them with what was committed.
pub(crate) fn judge(target: &Target, held: u64, truth: &[TruthRow]) -> Result<Verdict> {
    let consumer = consumer(target)?;
    consumer.wait_until(held, LIMIT)?;
    Ok(judged(truth, &consumer.stop().records))
}

pub(crate) fn judged(truth: &[TruthRow], records: &[Record]) -> Verdict {
    check(truth, records, &HashSet::new())
}

/// Faults other than lost, out of order and repeated.
pub(crate) fn other_faults(verdict: &Verdict) -> u64 {
    let Verdict { invented, altered, split_keys, wrong_key, stale_last, .. } = verdict;
    let others = [invented, altered, split_keys, wrong_key, stale_last];
    others.iter().map(|offences| offences.count).sum()
}

/// For a table: that all is well, or what is not.
pub(crate) fn told(verdict: &Verdict) -> String {
    if verdict.is_exact(0) {
        return "exact".into();
    }
    let faults = [
        ("lost", verdict.missing.count),
        ("out of order", verdict.out_of_order.count),
        ("repeated", verdict.duplicates),
        ("otherwise wrong", other_faults(verdict)),
    ];
    let told = faults.iter().filter(|(_, count)| *count > 0);
    let words: Vec<String> = told.map(|(name, count)| format!("{count} {name}")).collect();
    format!("✗ {}", words.join(", "))
}
