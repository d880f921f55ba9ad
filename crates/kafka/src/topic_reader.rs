//! Reads the end of a topic: the records that an earlier process may have published, or those among
//! which an event is looked for.
//!
//! For the next process a record counts as stored only if it would count as confirmed. Consumers are
//! shown what every replica in sync has, and these may be fewer than `min.insync.replicas`, so a
//! partition is left out unless all its replicas are in sync.
//!
//! A partition is shown up to the first record of a transaction that is open, by whomever. What the
//! relay has published behind it would be taken for not stored, so such a partition is left out, too,
//! unless the transaction ends soon. A search is shown what is behind it.

use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};

use super::cluster::DescribedPartition;
use super::record_ffi::headers_of_read;
use super::scan::{ASK_AGAIN_AFTER, PartitionRange, TopicScan, UNKNOWN_END, time};
use super::settings::KafkaSettings;
use walrelay_base::error::Fault;
use walrelay_base::event::Outbound;
use walrelay_sink::topic_reader::TopicReader;

const GROUP: &str = "walrelay-topics";
/// Only what a transaction of another producer has not taken back is in the topic.
const COMMITTED: &[(&str, &str)] = &[("isolation.level", "read_committed")];
const PROPERTIES: &[(&str, &str)] = &[
    ("fetch.wait.max.ms", "10"),
    // Read once, and then never again: little of it needs to wait in memory.
    ("queued.max.messages.kbytes", "8192"),
    ("fetch.message.max.bytes", "262144"),
    // Otherwise fetching stops for a second whenever the queue is full.
    ("fetch.queue.backoff.ms", "5"),
];

/// How long a topic may be unknown, for all topics together, before it counts as missing: one broker is asked, and a
/// broker that has just started learns of the topics a little later.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// How long the end of open transactions is waited for.
const TRANSACTIONS_END_WITHIN: Duration = Duration::from_secs(1);
const OUT_OF_SYNC: &str =
    "a replica is not in sync: what an earlier process has published there may be published again";
const NO_LEADER: &str =
    "a partition has no leader: what an earlier process has published there may be published again";
const TRANSACTION_OPEN: &str = "a transaction of another producer is open: what an earlier process has published there may be published again";

/// Reads the ends of topics.
pub(super) struct EndReader {
    scan: TopicScan,
    /// Tells how far a partition reaches, with open transactions.
    uncommitted: TopicScan,
    /// From when on an unknown topic counts as missing; set by the first one.
    missing_from: Option<Instant>,
}

pub(super) fn open(settings: &KafkaSettings) -> Result<EndReader, Fault> {
    Ok(EndReader {
        scan: scan(settings)?,
        uncommitted: TopicScan::new(settings, GROUP, &[])?,
        missing_from: None,
    })
}

/// A scan for the ends of topics.
pub(super) fn scan(settings: &KafkaSettings) -> Result<TopicScan, Fault> {
    TopicScan::new(settings, GROUP, &[PROPERTIES, COMMITTED].concat())
}

/// A scan that also shows what is behind the first record of an open transaction. The relay's own
/// records are in none.
pub(super) fn uncommitted_scan(settings: &KafkaSettings) -> Result<TopicScan, Fault> {
    TopicScan::new(settings, GROUP, PROPERTIES)
}

/// Why records of the topic cannot be read, if they cannot.
pub(super) fn refusal(scan: &mut TopicScan, topic: &str, within: Duration) -> Option<String> {
    let deadline = Instant::now() + within;
    let mut probe = || {
        // The end of the partition is told once a fetch was allowed.
        let unknown_end = [(0, UNKNOWN_END)].into();
        scan.assign(topic, [(0, Offset::End)].into_iter(), unknown_end)?;
        scan.read(deadline, &mut |_| false)
    };
    probe().err().map(|error| reason(&error, topic, scan.brokers()))
}

impl EndReader {
    /// Begins to read the partitions that have a leader, whose replicas are all in sync, and in which
    /// no transaction is open. Returns whether these are all in which there is something to read.
    fn start(&mut self, topic: &str, from_unix_us: i64, deadline: Instant) -> KafkaResult<bool> {
        let found = self.partitions(topic, deadline)?;
        // One without would keep the others from being read, and the topics after this one.
        let (led, leaderless): (Vec<_>, Vec<_>) = found.iter().partition(|found| found.leader >= 0);
        for partition in leaderless.iter().map(|found| found.id) {
            tracing::warn!(code = "sink.topic-replica-unread", topic, partition, "{NO_LEADER}");
        }
        let ids: Vec<i32> = led.iter().map(|found| found.id).collect();
        if ids.is_empty() {
            self.scan.start(topic, &[])?;
            return Ok(false);
        }
        let reached = self.uncommitted.offsets(topic, &ids, Offset::End, deadline)?;
        let reached = |range: &PartitionRange| reached.get(&range.id).copied().unwrap_or(i64::MAX);
        let patience = deadline.min(Instant::now() + TRANSACTIONS_END_WITHIN);
        let mut ranges = loop {
            let ranges = self.scan.ranges(topic, &ids, time(from_unix_us), deadline)?;
            let is_open = ranges.iter().any(|range| range.end < reached(range));
            if !is_open || Instant::now() >= patience {
                break ranges;
            }
            std::thread::sleep(ASK_AGAIN_AFTER);
        };
        ranges.retain(|range| range.start < range.end.max(reached(range)));
        let count = ranges.len();
        // Asked after the ends: so whatever is before them is in all these replicas.
        let described = self.partitions(topic, deadline)?;
        ranges.retain(|range| {
            let partition = range.id;
            let is_in_sync = described.iter().any(|it| it.id == partition && it.is_in_sync);
            let is_decided = range.end >= reached(range);
            if !is_in_sync {
                tracing::warn!(
                    code = "sink.topic-replica-unread",
                    topic,
                    partition,
                    "{OUT_OF_SYNC}"
                );
            } else if !is_decided {
                tracing::warn!(
                    code = "sink.topic-transaction-open",
                    topic,
                    partition,
                    "{TRANSACTION_OPEN}"
                );
            }
            is_in_sync && is_decided
        });
        self.scan.start(topic, &ranges)?;
        Ok(ranges.len() == count && leaderless.is_empty())
    }

    fn partitions(
        &mut self,
        topic: &str,
        deadline: Instant,
    ) -> KafkaResult<Vec<DescribedPartition>> {
        let EndReader { scan, missing_from, .. } = self;
        let left = || deadline.saturating_duration_since(Instant::now());
        topic_answer(missing_from, deadline, || scan.partitions(topic, left()))
    }
}

/// The answer of the cluster about a topic, which is asked for again while it is unknown.
fn topic_answer<T>(
    missing_from: &mut Option<Instant>,
    deadline: Instant,
    mut look: impl FnMut() -> KafkaResult<T>,
) -> KafkaResult<T> {
    loop {
        let answer = look();
        let next = Instant::now() + ASK_AGAIN_AFTER;
        let until = *missing_from.get_or_insert(next + UNKNOWN_FOR);
        if !is_unknown(&answer) || next > until.min(deadline) {
            return answer;
        }
        std::thread::sleep(ASK_AGAIN_AFTER);
    }
}

fn is_unknown<T>(answer: &KafkaResult<T>) -> bool {
    matches!(answer, Err(KafkaError::MetadataFetch(Code::UnknownTopicOrPartition)))
}

impl TopicReader for EndReader {
    fn read(
        &mut self,
        topic: &str,
        from_unix_us: i64,
        within: Duration,
        take: &mut dyn FnMut(&Outbound<'_>) -> bool,
    ) -> Result<bool, String> {
        let deadline = Instant::now() + within;
        let take = &mut |message: &BorrowedMessage<'_>| take_record(message, take);
        let read = self
            .start(topic, from_unix_us, deadline)
            .and_then(|whole| Ok((whole, self.scan.read(deadline, take)?)));
        match read {
            Ok((whole, true)) => Ok(whole),
            Ok((_, false)) => Err("it has too many records".to_owned()),
            // Then it holds nothing, and the sink says so with the first event.
            Err(KafkaError::MetadataFetch(Code::UnknownTopicOrPartition)) => Ok(true),
            Err(error) => Err(reason(&error, topic, self.scan.brokers())),
        }
    }
}

fn take_record(message: &BorrowedMessage<'_>, take: &mut dyn FnMut(&Outbound<'_>) -> bool) -> bool {
    let headers = headers_of_read(message);
    let headers: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    take(&Outbound {
        topic: message.topic(),
        key: message.key(),
        value: message.payload(),
        headers: &headers,
        commit_unix_us: message.timestamp().to_millis().unwrap_or_default().saturating_mul(1000),
        partition: Some(message.partition()),
        ..Outbound::default()
    })
}

pub(super) fn reason(error: &KafkaError, topic: &str, brokers: &str) -> String {
    match error.rdkafka_error_code() {
        Some(Code::TopicAuthorizationFailed) => format!(
            "this login has no right to; kafka-acls.sh --bootstrap-server {brokers} --add --allow-principal User:… --operation Read --topic {topic}"
        ),
        Some(Code::OperationTimedOut) => "its end was not reached in time".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
#[path = "topic_reader_tests.rs"]
mod tests;
