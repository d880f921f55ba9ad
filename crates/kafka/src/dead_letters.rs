//! Reads the dead-letter topic: all partitions from the wanted start to where they ended when the
//! topic was opened, and then what is written later.

use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};

use super::cluster;
use super::code::code_of;
use super::reachability::{ANSWER_WITHIN, unreachable};
use super::record_ffi::headers_of_read;
use super::scan::{Scanned, TopicScan, time};
use super::settings::KafkaSettings;
use walrelay_base::error::Fault;
use walrelay_core::dead_letter::record::{LogEntry, PartitionOffset};
use walrelay_sink::log::{DeadLetterLog, LogRead, ReadFrom};

/// How often the topic is asked for new partitions.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);
/// Short, because the reader waits; without an answer the topic is asked again later.
const COUNT_WITHIN: Duration = Duration::from_millis(500);

const PROPERTIES: &[(&str, &str)] = &[
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
    scan: TopicScan,
    settings: KafkaSettings,
    topic: String,
    /// [`LogRead::End`] was returned.
    end_reported: bool,
    counted_at: Instant,
}

impl KafkaDeadLetterLog {
    pub(super) fn open(
        settings: &KafkaSettings,
        topic: &str,
        from: &ReadFrom,
    ) -> Result<KafkaDeadLetterLog, Fault> {
        let mut log = KafkaDeadLetterLog {
            scan: TopicScan::new(settings, "walrelay-dead-letters", PROPERTIES)?,
            settings: settings.clone(),
            topic: topic.to_owned(),
            end_reported: false,
            counted_at: Instant::now(),
        };
        log.start(from).map_err(|error| log.fault(&error))?;
        Ok(log)
    }

    fn start(&mut self, from: &ReadFrom) -> KafkaResult<()> {
        let from = match from {
            ReadFrom::Beginning => Offset::Beginning,
            ReadFrom::End => Offset::End,
            ReadFrom::Time(unix_us) => time(*unix_us),
        };
        let found = self.scan.partitions(&self.topic, ANSWER_WITHIN)?;
        let ids: Vec<i32> = found.iter().map(|found| found.id).collect();
        let deadline = Instant::now() + ANSWER_WITHIN;
        let ranges = self.scan.ranges(&self.topic, &ids, from, deadline)?;
        self.scan.start(&self.topic, &ranges)
    }

    /// Reads new partitions, too, from their beginning: all their records are new. A reader that
    /// stops at the end does not need them.
    fn add_partitions(&mut self) -> KafkaResult<()> {
        if self.end_reported && self.counted_at.elapsed() >= COUNT_INTERVAL {
            let new = self.scan.add_partitions(COUNT_WITHIN)?;
            self.counted_at = Instant::now();
            if new > 0 {
                tracing::info!(new, "the dead-letter topic has more partitions");
            }
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
                let why = self.scan.why_unreachable(error);
                unreachable(&self.settings, &why.unwrap_or_else(as_told))
            }
        }
    }
}

impl DeadLetterLog for KafkaDeadLetterLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        let deadline = Instant::now() + patience;
        self.add_partitions().map_err(|error| self.fault(&error))?;
        loop {
            if self.scan.is_read() && !self.end_reported {
                self.end_reported = true;
                return Ok(LogRead::End);
            }
            let is_late = Instant::now() >= deadline;
            let entry = match self.scan.next(deadline) {
                Ok(Scanned::Record(message) | Scanned::Later(message)) => Ok(Some(entry(&message))),
                Ok(Scanned::Nothing) => Ok(None),
                Err(error) => Err(error),
            };
            if let Some(entry) = entry.map_err(|error| self.fault(&error))? {
                return Ok(LogRead::Entry(entry));
            }
            if !self.end_reported && self.scan.silence() > ANSWER_WITHIN {
                let reason = "the dead-letter topic cannot be read to its end";
                return Err(unreachable(&self.settings, reason));
            }
            if is_late && (self.end_reported || !self.scan.is_read()) {
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
