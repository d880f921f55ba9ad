//! The dead-letter topic as it is read: every partition, from where it is asked, to where it ended
//! when it was opened, and on.
//!
//! Nothing is committed and no group is joined, so reading needs no right but to read the topic.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::settings::{KafkaSettings, effective_properties};
use crate::base::error::Fault;
use crate::dead_letter::record::{LogEntry, PartitionOffset};
use crate::sink::kafka::doctor;
use crate::sink::kafka::record_ffi::headers_of_read;
use crate::sink::log::{DeadLetterLog, LogRead, ReadFrom};

/// How long the broker may take to answer a question, or to bring what is known to be there.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How often the topic is asked whether it has grown.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);
/// A reader is not kept for longer: a missing answer only means later.
const COUNT_WITHIN: Duration = Duration::from_millis(500);

/// What a consumer understands of a producer's properties: the way to the cluster.
const SHARED: &[&str] = &[
    "bootstrap.servers",
    "client.",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "socket.",
    "broker.",
    "api.version.",
    "reconnect.",
    "connections.max.idle.ms",
    "metadata.",
    "receive.message.max.bytes",
    "plugin.library.paths",
    "log.connection.close",
    "debug",
];

/// Come after the user's, and win.
const PROPERTIES: &[(&str, &str)] = &[
    // The client library assigns nothing without a name; nobody joins the group.
    ("group.id", "walrelay-dead-letters"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // What is deleted while it is read is passed over.
    ("auto.offset.reset", "earliest"),
    ("enable.partition.eof", "true"),
    // Dead letters are written in no transaction; one of somebody else's would hide the end.
    ("isolation.level", "read_uncommitted"),
    ("fetch.wait.max.ms", "100"),
    ("queued.max.messages.kbytes", "16384"),
    // That counts no headers, and a letter may be little else: without these, a hundred thousand of
    // each partition would wait in memory.
    ("queued.min.messages", "4000"),
    ("fetch.message.max.bytes", "262144"),
    // Otherwise a full queue would end fetching for a second, whenever it is emptied.
    ("fetch.queue.backoff.ms", "5"),
    ("allow.auto.create.topics", "false"),
];

/// The way to the cluster, for a consumer.
pub(super) fn consumer_config(settings: &KafkaSettings) -> ClientConfig {
    let properties = effective_properties(settings).into_iter();
    let shared = |name: &str| SHARED.iter().any(|known| name.starts_with(known));
    properties.filter(|(name, _)| shared(name)).collect()
}

/// A reader of the dead-letter topic.
pub(super) struct KafkaDeadLetterLog {
    consumer: BaseConsumer,
    settings: KafkaSettings,
    topic: String,
    /// Partitions not yet read to where they ended at the opening.
    ends: BTreeMap<i32, i64>,
    told_end: bool,
    /// How many partitions are read, and when that was looked at.
    partitions: usize,
    counted_at: Instant,
    /// How long nothing has come while somebody waited. A reader may take its time between two.
    waited: Duration,
}

impl KafkaDeadLetterLog {
    /// Opens the topic.
    pub(super) fn open(
        settings: &KafkaSettings,
        topic: &str,
        from: &ReadFrom,
    ) -> Result<KafkaDeadLetterLog, Fault> {
        let mut config = consumer_config(settings);
        for (name, value) in PROPERTIES {
            config.set(*name, *value);
        }
        let consumer: BaseConsumer =
            config.create().map_err(|error| doctor::refused_property(&error.to_string()))?;
        let mut log = KafkaDeadLetterLog {
            consumer,
            settings: settings.clone(),
            topic: topic.to_owned(),
            ends: BTreeMap::new(),
            told_end: false,
            partitions: 0,
            counted_at: Instant::now(),
            waited: Duration::ZERO,
        };
        log.assign(from)?;
        Ok(log)
    }

    fn assign(&mut self, from: &ReadFrom) -> Result<(), Fault> {
        let told = |error| self.fault(&error);
        let (mut starts, mut ends) = (TopicPartitionList::new(), BTreeMap::new());
        for partition in self.partitions_within(ANSWER_WITHIN)? {
            let found = self.consumer.fetch_watermarks(&self.topic, partition, ANSWER_WITHIN);
            let (low, high) = found.map_err(told)?;
            let start = if *from == ReadFrom::Beginning { low } else { high };
            let start = Offset::Offset(start);
            starts.add_partition_offset(&self.topic, partition, start).map_err(told)?;
            ends.insert(partition, high);
        }
        if let ReadFrom::Time(unix_us) = from {
            self.seek_time(unix_us.div_euclid(1000), &mut starts).map_err(told)?;
        }
        self.consumer.assign(&starts).map_err(told)?;
        self.partitions = starts.count();
        for start in starts.elements() {
            let (partition, start) = (start.partition(), start.offset());
            let is_there = |end: &i64| matches!(start, Offset::Offset(start) if start >= *end);
            if ends.get(&partition).is_some_and(is_there) {
                ends.remove(&partition);
            }
        }
        self.ends = ends;
        Ok(())
    }

    fn partitions_within(&self, limit: Duration) -> Result<Vec<i32>, Fault> {
        let found = self.consumer.fetch_metadata(Some(&self.topic), limit);
        let found = found.map_err(|error| self.fault(&error))?;
        let topic = found.topics().iter().find(|topic| topic.name() == self.topic);
        let error = topic.and_then(|topic| topic.error()).map(Code::from);
        let partitions: Vec<i32> = topic
            .into_iter()
            .flat_map(|topic| topic.partitions().iter().map(|partition| partition.id()))
            .collect();
        match error {
            None if !partitions.is_empty() => Ok(partitions),
            code => Err(self.fault_of(code.unwrap_or(Code::UnknownTopicOrPartition))),
        }
    }

    /// Reads partitions that came later, too: all that is in them was written since. A reader that
    /// only reads to the end has no need of them.
    fn grow(&mut self) -> Result<(), Fault> {
        if !self.told_end || self.counted_at.elapsed() < COUNT_INTERVAL {
            return Ok(());
        }
        let found = self.partitions_within(COUNT_WITHIN);
        self.counted_at = Instant::now();
        // What keeps the broker from answering shows while reading.
        let Ok(found) = found else { return Ok(()) };
        let mut new = TopicPartitionList::new();
        for partition in found.into_iter().skip(self.partitions) {
            let added = new.add_partition_offset(&self.topic, partition, Offset::Beginning);
            added.map_err(|error| self.fault(&error))?;
        }
        if new.count() > 0 {
            tracing::info!(new = new.count(), "the dead-letter topic has more partitions");
            self.consumer.incremental_assign(&new).map_err(|error| self.fault(&error))?;
            self.partitions += new.count();
        }
        Ok(())
    }

    /// Moves the starts to the first records of that time; those that have none stay at the end.
    fn seek_time(&self, unix_ms: i64, starts: &mut TopicPartitionList) -> Result<(), KafkaError> {
        let mut times = TopicPartitionList::new();
        for start in starts.elements() {
            let time = Offset::Offset(unix_ms.max(0));
            times.add_partition_offset(&self.topic, start.partition(), time)?;
        }
        for found in self.consumer.offsets_for_times(times, ANSWER_WITHIN)?.elements() {
            found.error()?;
            if let Offset::Offset(offset) = found.offset() {
                starts.set_partition_offset(
                    &self.topic,
                    found.partition(),
                    Offset::Offset(offset),
                )?;
            }
        }
        Ok(())
    }

    fn fault(&self, error: &KafkaError) -> Fault {
        match error.rdkafka_error_code() {
            Some(code) => self.fault_of(code),
            None => doctor::unreachable(&self.settings, &error.to_string()),
        }
    }

    fn fault_of(&self, code: Code) -> Fault {
        match code {
            Code::UnknownTopic
            | Code::UnknownTopicOrPartition
            | Code::UnknownPartition
            | Code::TopicAuthorizationFailed => {
                doctor::dead_letters_unusable(code, &self.settings, &self.topic)
            }
            _ => doctor::unreachable(&self.settings, &code.to_string()),
        }
    }

    /// What an error means for the reader.
    fn stumble(&mut self, error: &KafkaError) -> Result<(), Fault> {
        if let KafkaError::PartitionEOF(partition) = error {
            self.reached(*partition, i64::MAX);
            return Ok(());
        }
        match error.rdkafka_error_code() {
            Some(
                code @ (Code::UnknownTopic
                | Code::UnknownTopicOrPartition
                | Code::TopicAuthorizationFailed
                | Code::Authentication
                | Code::SaslAuthenticationFailed),
            ) => Err(self.fault_of(code)),
            Some(Code::Fatal) | None => Err(self.fault(error)),
            // The client comes back by itself. A group nobody joins needs no right.
            Some(code) => {
                tracing::debug!(%code, "reading the dead-letter topic");
                Ok(())
            }
        }
    }

    /// A partition has been read up to `offset`.
    fn reached(&mut self, partition: i32, offset: i64) {
        self.waited = Duration::ZERO;
        if self.ends.get(&partition).is_some_and(|end| offset >= *end) {
            self.ends.remove(&partition);
        }
    }
}

impl DeadLetterLog for KafkaDeadLetterLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        let deadline = Instant::now() + patience;
        self.grow()?;
        loop {
            if self.ends.is_empty() && !self.told_end {
                self.told_end = true;
                return Ok(LogRead::End);
            }
            let began = Instant::now();
            let left = deadline.saturating_duration_since(began);
            let outcome = match self.consumer.poll(left) {
                Some(Ok(message)) => Ok(entry(&message)),
                Some(Err(error)) => Err(Some(error)),
                None => Err(None),
            };
            match outcome {
                Ok(entry) => {
                    self.reached(entry.position.partition, entry.position.offset + 1);
                    return Ok(LogRead::Entry(entry));
                }
                Err(Some(error)) => self.stumble(&error)?,
                Err(None) => {
                    self.waited += began.elapsed();
                    if !self.told_end && self.waited > ANSWER_WITHIN {
                        let reason = "the dead-letter topic cannot be read to its end";
                        return Err(doctor::unreachable(&self.settings, reason));
                    }
                }
            }
            if left.is_zero() && (self.told_end || !self.ends.is_empty()) {
                return Ok(LogRead::Nothing);
            }
        }
    }
}

fn entry(message: &BorrowedMessage<'_>) -> LogEntry {
    let headers = headers_of_read(message).into_iter();
    LogEntry {
        position: PartitionOffset { partition: message.partition(), offset: message.offset() },
        written_unix_us: message.timestamp().to_millis().unwrap_or_default().saturating_mul(1000),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.map(|(name, value)| (name, value.into_vec())).collect(),
        event_type: None,
        content_type: None,
    }
}
