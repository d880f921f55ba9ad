//! Reads the dead-letter topic: all partitions from the wanted start to where they ended when the
//! topic was opened, and then what is written later.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use super::cluster::{self, ANSWER_WITHIN};
use super::code::code_of;
use super::connection_errors::{TopicConsumer, why_unreachable};
use super::lost_brokers::LostBrokers;
use super::record_ffi::headers_of_read;
use super::settings::KafkaSettings;
use crate::base::error::Fault;
use crate::dead_letter::record::{LogEntry, PartitionOffset};
use crate::sink::log::{DeadLetterLog, LogRead, ReadFrom};

/// How often the topic is asked for new partitions.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);
/// Short, because the reader waits; without an answer the topic is asked again later.
const COUNT_WITHIN: Duration = Duration::from_millis(500);

const PROPERTIES: &[(&str, &str)] = &[
    ("enable.partition.eof", "true"),
    ("fetch.wait.max.ms", "100"),
    // This limit does not count headers, and a dead letter may consist of little else. So nothing is
    // fetched while more than a few records wait, and little at a time: what waits in memory is that
    // and one answer, whatever stands in the topic. What is compressed is larger once it has come.
    ("queued.max.messages.kbytes", "16384"),
    ("queued.min.messages", "32"),
    ("fetch.message.max.bytes", "262144"),
    ("fetch.max.bytes", "4194304"),
    // Otherwise fetching stops for a second whenever the queue is full.
    ("fetch.queue.backoff.ms", "5"),
];

pub(super) struct KafkaDeadLetterLog {
    consumer: TopicConsumer,
    settings: KafkaSettings,
    topic: String,
    /// Partitions that were not yet read to where they ended at the opening, and that offset.
    ends: BTreeMap<i32, i64>,
    /// [`LogRead::End`] was returned.
    end_reported: bool,
    partitions: usize,
    counted_at: Instant,
    /// How long the reader has waited since the last record. It may do other things meanwhile.
    waited: Duration,
    lost_brokers: LostBrokers,
}

impl KafkaDeadLetterLog {
    pub(super) fn open(
        settings: &KafkaSettings,
        topic: &str,
        from: &ReadFrom,
    ) -> Result<KafkaDeadLetterLog, Fault> {
        let mut log = KafkaDeadLetterLog {
            consumer: cluster::consumer(settings, "walrelay-dead-letters", PROPERTIES)?,
            settings: settings.clone(),
            topic: topic.to_owned(),
            ends: BTreeMap::new(),
            end_reported: false,
            partitions: 0,
            counted_at: Instant::now(),
            waited: Duration::ZERO,
            lost_brokers: LostBrokers::new(settings),
        };
        log.assign(from).map_err(|error| log.fault(&error))?;
        Ok(log)
    }

    fn assign(&mut self, from: &ReadFrom) -> KafkaResult<()> {
        let mut starts = TopicPartitionList::new();
        for found in cluster::partitions(self.consumer.client(), &self.topic, ANSWER_WITHIN)? {
            let partition = found.id;
            let (low, high) =
                self.consumer.fetch_watermarks(&self.topic, partition, ANSWER_WITHIN)?;
            let start = if *from == ReadFrom::Beginning { low } else { high };
            starts.add_partition_offset(&self.topic, partition, Offset::Offset(start))?;
            self.ends.insert(partition, high);
        }
        if let ReadFrom::Time(unix_us) = from {
            let mut times = starts.clone();
            times.set_all_offsets(Offset::Offset(unix_us.div_euclid(1000).max(0)))?;
            for found in self.consumer.offsets_for_times(times, ANSWER_WITHIN)?.elements() {
                found.error()?;
                // A partition without records of that time or later is read from its end.
                if matches!(found.offset(), Offset::Offset(_)) {
                    let partition = found.partition();
                    starts.set_partition_offset(&self.topic, partition, found.offset())?;
                }
            }
        }
        self.consumer.assign(&starts)?;
        self.partitions = starts.count();
        for start in starts.elements() {
            if let Offset::Offset(offset) = start.offset() {
                self.read_up_to(start.partition(), offset);
            }
        }
        Ok(())
    }

    /// Reads new partitions, too, from their beginning: all their records are new. A reader that
    /// stops at the end does not need them.
    fn add_partitions(&mut self) -> KafkaResult<()> {
        if !self.end_reported || self.counted_at.elapsed() < COUNT_INTERVAL {
            return Ok(());
        }
        let found = cluster::partitions(self.consumer.client(), &self.topic, COUNT_WITHIN);
        self.counted_at = Instant::now();
        // Reading fails for the same reason, if it lasts.
        let Ok(found) = found else { return Ok(()) };
        let mut new = TopicPartitionList::new();
        for found in found.into_iter().skip(self.partitions) {
            new.add_partition_offset(&self.topic, found.id, Offset::Beginning)?;
        }
        if new.count() > 0 {
            tracing::info!(new = new.count(), "the dead-letter topic has more partitions");
            self.consumer.incremental_assign(&new)?;
            self.partitions += new.count();
        }
        Ok(())
    }

    fn fault(&self, error: &KafkaError) -> Fault {
        match error.rdkafka_error_code() {
            Some(
                code @ (Code::UnknownTopic
                | Code::UnknownTopicOrPartition
                | Code::UnknownPartition
                | Code::TopicAuthorizationFailed),
            ) => cluster::dead_letters_unusable(code_of(code), &self.settings, &self.topic),
            code => {
                let as_told = || code.map_or_else(|| error.to_string(), |code| code.to_string());
                let why = why_unreachable(&self.consumer, error);
                cluster::unreachable(&self.settings, &why.unwrap_or_else(as_told))
            }
        }
    }

    fn read_up_to(&mut self, partition: i32, offset: i64) {
        if self.ends.get(&partition).is_some_and(|end| offset >= *end) {
            self.ends.remove(&partition);
        }
    }
}

impl DeadLetterLog for KafkaDeadLetterLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        let deadline = Instant::now() + patience;
        self.add_partitions().map_err(|error| self.fault(&error))?;
        loop {
            if self.ends.is_empty() && !self.end_reported {
                self.end_reported = true;
                return Ok(LogRead::End);
            }
            let began = Instant::now();
            let left = deadline.saturating_duration_since(began);
            let read = self.lost_brokers.poll(&self.consumer, left);
            match read.map(|read| read.map(|message| entry(&message))) {
                Some(Ok(entry)) => {
                    self.waited = Duration::ZERO;
                    self.read_up_to(entry.position.partition, entry.position.offset + 1);
                    return Ok(LogRead::Entry(entry));
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    self.waited = Duration::ZERO;
                    self.read_up_to(partition, i64::MAX);
                }
                Some(Err(error)) if cluster::ends_reading(&error) => {
                    return Err(self.fault(&error));
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "reading the dead-letter topic");
                }
                None => {
                    self.waited += began.elapsed();
                    if !self.end_reported && self.waited > ANSWER_WITHIN {
                        let reason = "the dead-letter topic cannot be read to its end";
                        return Err(cluster::unreachable(&self.settings, reason));
                    }
                }
            }
            if left.is_zero() && (self.end_reported || !self.ends.is_empty()) {
                return Ok(LogRead::Nothing);
            }
        }
    }
}

fn entry(message: &BorrowedMessage<'_>) -> LogEntry {
    LogEntry {
        position: PartitionOffset { partition: message.partition(), offset: message.offset() },
        written_unix_us: message.timestamp().to_millis().unwrap_or_default().saturating_mul(1000),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers_of_read(message),
        event_type: None,
        content_type: None,
    }
}
