//! Reads the end of a topic: the records that an earlier process may have published, or those among
//! which an event is looked for.
//!
//! For the next process a record counts as stored only if it would count as confirmed. Consumers are
//! shown what every replica in sync has, and these may be fewer than `min.insync.replicas`, so a
//! partition is left out unless all its replicas are in sync.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use super::cluster;
use super::connection_errors::{TopicConsumer, why_unreachable};
use super::lost_brokers::LostBrokers;
use super::record_ffi::headers_of_read;
use super::settings::KafkaSettings;
use crate::base::error::Fault;
use crate::base::event::Outbound;
use crate::sink::topic_reader::TopicReader;

const PROPERTIES: &[(&str, &str)] = &[
    // What a transaction of another producer has taken back is not in the topic.
    ("isolation.level", "read_committed"),
    ("enable.partition.eof", "true"),
    ("fetch.wait.max.ms", "10"),
    // Read once, and then never again: little of it needs to wait in memory.
    ("queued.max.messages.kbytes", "8192"),
    ("fetch.message.max.bytes", "262144"),
    // Otherwise fetching stops for a second whenever the queue is full.
    ("fetch.queue.backoff.ms", "5"),
];

const OUT_OF_SYNC: &str =
    "a replica is not in sync: what an earlier process has published there may be published again";

const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The records of a topic that are read: those of a time or later, up to where it ends now.
#[derive(Clone, Copy)]
pub(super) struct TopicTail<'a> {
    pub(super) topic: &'a str,
    pub(super) from_unix_us: i64,
    pub(super) partitions: TailPartitions,
}

/// The partitions of which a tail is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TailPartitions {
    /// The partitions whose replicas are all in sync.
    InSync,
    Only(i32),
}

impl TailPartitions {
    fn contains(self, partition: i32) -> bool {
        match self {
            TailPartitions::InSync => true,
            TailPartitions::Only(only) => partition == only,
        }
    }
}

/// How far a tail was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailRead {
    /// `take` has returned false.
    Ended,
    /// No partition was left out, if it is `whole`.
    ToTheEnd { whole: bool },
}

pub(super) struct KafkaTopicReader {
    consumer: TopicConsumer,
    lost_brokers: LostBrokers,
}

impl KafkaTopicReader {
    /// Connects when it is used.
    pub(super) fn new(settings: &KafkaSettings) -> Result<KafkaTopicReader, Fault> {
        let consumer = cluster::consumer(settings, "walrelay-topics", PROPERTIES)?;
        Ok(KafkaTopicReader { consumer, lost_brokers: LostBrokers::new(settings) })
    }

    /// Why records of the topic cannot be read, if they cannot.
    pub(super) fn refusal(&mut self, topic: &str, within: Duration) -> Option<String> {
        let mut probe = || {
            let mut end = TopicPartitionList::new();
            end.add_partition_offset(topic, 0, Offset::End)?;
            self.consumer.assign(&end)?;
            // The end of the partition is told once a fetch was allowed.
            self.poll(Instant::now() + within).map(drop)
        };
        probe().err().map(|error| reason(&error, topic))
    }

    /// Why no broker can be reached, if that is what `error` means.
    pub(super) fn why_unreachable(&self, error: &KafkaError) -> Option<String> {
        why_unreachable(&self.consumer, error)
    }

    /// Where reading begins, the ends of the partitions in which there is something to read, and
    /// whether these are all of them.
    fn tail(
        &self,
        tail: &TopicTail<'_>,
        deadline: Instant,
    ) -> KafkaResult<(TopicPartitionList, BTreeMap<i32, i64>, bool)> {
        let TopicTail { topic, from_unix_us, partitions: wanted } = *tail;
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut all = TopicPartitionList::new();
        let found = cluster::partitions(self.consumer.client(), topic, left())?;
        for partition in found.iter().filter(|it| wanted.contains(it.id)) {
            all.add_partition(topic, partition.id);
        }
        let ends = self.offsets(&all, Offset::End, deadline)?;
        // Asked after the ends: so whatever is before them is in all these replicas.
        let partitions = cluster::partitions(self.consumer.client(), topic, left())?;
        let (mut starts, mut open) = (TopicPartitionList::new(), BTreeMap::new());
        let mut whole = true;
        let from = Offset::Offset(from_unix_us.div_euclid(1000).max(0));
        for found in self.offsets(&all, from, deadline)?.elements() {
            let id = found.partition();
            let end = ends.find_partition(topic, id).map(|end| end.offset());
            // A partition without records of that time or later begins at its end.
            let (Offset::Offset(start), Some(Offset::Offset(end))) = (found.offset(), end) else {
                continue;
            };
            if start >= end {
                continue;
            }
            let is_in_sync = || partitions.iter().any(|it| it.id == id && it.is_in_sync);
            if wanted == TailPartitions::InSync && !is_in_sync() {
                tracing::warn!(
                    code = "sink.topic-replica-unread",
                    topic,
                    partition = id,
                    "{OUT_OF_SYNC}"
                );
                whole = false;
                continue;
            }
            starts.add_partition_offset(topic, id, Offset::Offset(start))?;
            open.insert(id, end);
        }
        Ok((starts, open, whole))
    }

    /// Have records of the tail been removed? So it may be where a partition has lost its beginning,
    /// and what is left of it begins later than the tail.
    pub(super) fn has_lost_records(
        &self,
        tail: &TopicTail<'_>,
        deadline: Instant,
    ) -> KafkaResult<bool> {
        let TopicTail { topic, from_unix_us, partitions } = *tail;
        let left = deadline.saturating_duration_since(Instant::now());
        let mut all = TopicPartitionList::new();
        let found = cluster::partitions(self.consumer.client(), topic, left)?;
        for partition in found.iter().filter(|it| partitions.contains(it.id)) {
            all.add_partition(topic, partition.id);
        }
        let beginnings = self.offsets(&all, Offset::Beginning, deadline)?;
        let ends = self.offsets(&all, Offset::End, deadline)?;
        let from = Offset::Offset(from_unix_us.div_euclid(1000).max(0));
        let offset = |of: &TopicPartitionList, id| match of.find_partition(topic, id)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        Ok(self.offsets(&all, from, deadline)?.elements().iter().any(|found| {
            let id = found.partition();
            let (first, end) = (offset(&beginnings, id), offset(&ends, id));
            let start = match found.offset() {
                Offset::Offset(start) => Some(start),
                _ => end,
            };
            first.is_some_and(|first| first > 0) && start <= first
        }))
    }

    /// The partitions of a topic there are.
    pub(super) fn partition_count(&self, topic: &str, within: Duration) -> KafkaResult<i32> {
        let found = cluster::partitions(self.consumer.client(), topic, within)?;
        Ok(i32::try_from(found.len()).unwrap_or(i32::MAX))
    }

    /// The offsets of a time. A broker that has just become the leader of a partition may not know
    /// them yet, and is asked again.
    fn offsets(
        &self,
        of: &TopicPartitionList,
        time: Offset,
        deadline: Instant,
    ) -> KafkaResult<TopicPartitionList> {
        loop {
            let mut times = of.clone();
            times.set_all_offsets(time)?;
            let left = deadline.saturating_duration_since(Instant::now());
            let found = self.consumer.offsets_for_times(times, left)?;
            match found.elements().iter().find_map(|it| it.error().err()) {
                None => return Ok(found),
                Some(error) if cluster::ends_reading(&error) || left.is_zero() => {
                    return Err(error);
                }
                Some(error) => tracing::debug!(%error, "asking for offsets again"),
            }
            std::thread::sleep(ASK_AGAIN_AFTER);
        }
    }

    /// Passes the records to `take`.
    pub(super) fn read_tail(
        &mut self,
        tail: &TopicTail<'_>,
        deadline: Instant,
        take: &mut dyn FnMut(&BorrowedMessage<'_>) -> bool,
    ) -> KafkaResult<TailRead> {
        let read = self.read_assigned(tail, deadline, take);
        let _released = self.consumer.unassign().is_ok();
        read
    }

    fn read_assigned(
        &mut self,
        tail: &TopicTail<'_>,
        deadline: Instant,
        take: &mut dyn FnMut(&BorrowedMessage<'_>) -> bool,
    ) -> KafkaResult<TailRead> {
        let (starts, mut ends, whole) = self.tail(tail, deadline)?;
        self.consumer.assign(&starts)?;
        while !ends.is_empty() {
            let (partition, next) = match self.poll(deadline)? {
                Polled::End(partition) => (partition, i64::MAX),
                Polled::Record(message) => {
                    let (partition, offset) = (message.partition(), message.offset());
                    let wanted = ends.get(&partition).is_some_and(|end| offset < *end);
                    if wanted && !take(&message) {
                        return Ok(TailRead::Ended);
                    }
                    (partition, offset + 1)
                }
            };
            if ends.get(&partition).is_some_and(|end| next >= *end) {
                ends.remove(&partition);
            }
        }
        Ok(TailRead::ToTheEnd { whole })
    }

    fn poll(&mut self, deadline: Instant) -> KafkaResult<Polled<'_>> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lost_brokers.poll(&self.consumer, left) {
                Some(Ok(message)) => return Ok(Polled::Record(message)),
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    return Ok(Polled::End(partition));
                }
                Some(Err(error)) if cluster::ends_reading(&error) => return Err(error),
                Some(Err(error)) => tracing::debug!(%error, "reading a topic"),
                None => {}
            }
            if left.is_zero() {
                return Err(KafkaError::MessageConsumption(Code::OperationTimedOut));
            }
        }
    }
}

enum Polled<'a> {
    Record(BorrowedMessage<'a>),
    /// The partition has no further record.
    End(i32),
}

impl TopicReader for KafkaTopicReader {
    fn read(
        &mut self,
        topic: &str,
        from_unix_us: i64,
        within: Duration,
        take: &mut dyn FnMut(&Outbound<'_>) -> bool,
    ) -> Result<bool, String> {
        let tail = TopicTail { topic, from_unix_us, partitions: TailPartitions::InSync };
        let take = &mut |message: &BorrowedMessage<'_>| take_record(message, take);
        match self.read_tail(&tail, Instant::now() + within, take) {
            Ok(TailRead::ToTheEnd { whole }) => Ok(whole),
            Ok(TailRead::Ended) => Err("it has too many records".to_owned()),
            // Then it holds nothing, and the sink says so with the first event.
            Err(KafkaError::MetadataFetch(Code::UnknownTopicOrPartition)) => Ok(true),
            Err(error) => Err(reason(&error, topic)),
        }
    }
}

fn take_record(message: &BorrowedMessage<'_>, take: &mut dyn FnMut(&Outbound<'_>) -> bool) -> bool {
    let headers = headers_of_read(message);
    let headers: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    take(&Outbound {
        exchange: "",
        topic: message.topic(),
        key: message.key(),
        value: message.payload(),
        id: "",
        event_type: None,
        content_type: None,
        headers: &headers,
        commit_unix_us: message.timestamp().to_millis().unwrap_or_default().saturating_mul(1000),
        partition: Some(message.partition()),
    })
}

pub(super) fn reason(error: &KafkaError, topic: &str) -> String {
    match error.rdkafka_error_code() {
        Some(Code::TopicAuthorizationFailed) => format!(
            "this login has no right to; kafka-acls.sh --add --allow-principal User:… --operation Read --topic {topic}"
        ),
        Some(Code::OperationTimedOut) => "its end was not reached in time".to_owned(),
        _ => error.to_string(),
    }
}
