//! Reads the dead-letter topic: all partitions from the wanted start to where they ended when the
//! topic was opened, and then what is written later.
//!
//! A partition without a leader cannot be read to its end, and the others are read meanwhile. While
//! the cluster answers, that is a silence and not an outage.

use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};

use super::cluster::{self, DescribedPartition};
use super::code::code_of;
use super::reachability::{ANSWER_WITHIN, unreachable, why_unreachable};
use super::record_ffi::headers_of_read;
use super::scan::{Scanned, TopicScan, ends_reading, time};
use super::settings::KafkaSettings;
use walrelay_base::error::{Exit, Fault};
use walrelay_core::dead_letter::record::{LogEntry, PartitionOffset};
use walrelay_core::dead_letter::writer::ORIGINAL_EXCHANGE;
use walrelay_sink::log::{self, DeadLetterLog, LogRead, ReadFrom, SILENT};

/// How often the topic is asked for new partitions.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);
/// So many questions for them fail in a row before the topic counts as one that cannot be read.
const UNCOUNTED_MAX: u32 = 4;
/// Short, because the reader waits; without an answer the topic is asked again later.
const COUNT_WITHIN: Duration = Duration::from_millis(500);
/// How often the cluster is asked whether it still answers, and which partitions have a leader, while
/// the end does not come nearer.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long partitions that have got a leader may take to tell their ends; then they are asked again.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// The same for one of them, after that was too short for all.
const END_WITHIN: Duration = Duration::from_millis(500);
/// Partitions that a fault names.
const NAMED_MAX: usize = 10;
const SILENCE_MAX: Duration = if cfg!(test) { Duration::from_secs(3) } else { log::SILENCE_MAX };

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
    from: Offset,
    /// Partitions of which it is not yet known where they end.
    unstarted: Vec<i32>,
    /// [`LogRead::End`] was returned.
    end_reported: bool,
    counted_at: Instant,
    /// How many questions for the partitions have failed since the last answer.
    uncounted: u32,
    looked_at: Instant,
    /// How long was waited since the end has come nearer.
    silence: Duration,
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
            from: match from {
                ReadFrom::Beginning => Offset::Beginning,
                ReadFrom::End => Offset::End,
                ReadFrom::Time(unix_us) => time(*unix_us),
            },
            unstarted: Vec::new(),
            end_reported: false,
            counted_at: Instant::now(),
            uncounted: 0,
            looked_at: Instant::now(),
            silence: Duration::ZERO,
        };
        log.start().map_err(|error| log.fault(&error))?;
        // What is written from now on is known only where the end is.
        while log.from == Offset::End && !log.unstarted.is_empty() {
            std::thread::sleep(LOOK_INTERVAL);
            log.stay_silent(LOOK_INTERVAL)?;
        }
        Ok(log)
    }

    fn start(&mut self) -> KafkaResult<()> {
        let found = self.look()?;
        self.unstarted = found.iter().map(|found| found.id).collect();
        self.scan.start(&self.topic, &[])?;
        self.start_partitions(&found, ANSWER_WITHIN)?;
        if !self.unstarted.is_empty() {
            // Without an answer there is an outage.
            let found = self.look()?;
            tracing::debug!(reason = self.silence_reason(&found), "reading the dead-letter topic");
        }
        Ok(())
    }

    fn look(&mut self) -> KafkaResult<Vec<DescribedPartition>> {
        self.scan.partitions(&self.topic, ANSWER_WITHIN)
    }

    /// Begins to read the partitions that have a leader by now. Where their ends cannot be told in
    /// time, they are asked again later.
    fn start_partitions(
        &mut self,
        found: &[DescribedPartition],
        within: Duration,
    ) -> KafkaResult<()> {
        let is_led = |id: &i32| found.iter().any(|found| found.id == *id && found.leader >= 0);
        let ids: Vec<i32> = self.unstarted.iter().copied().filter(is_led).collect();
        if ids.is_empty() {
            return Ok(());
        }
        if self.start_group(&ids, within)? {
            return Ok(());
        }
        // One of them keeps the others from being read.
        for id in ids {
            self.start_group(&[id], END_WITHIN)?;
        }
        Ok(())
    }

    /// False where the ends of these partitions were not told in time.
    fn start_group(&mut self, ids: &[i32], within: Duration) -> KafkaResult<bool> {
        match self.scan.ranges(&self.topic, ids, self.from, Instant::now() + within) {
            Ok(ranges) => {
                self.scan.add_ranges(&ranges)?;
                self.unstarted.retain(|id| !ids.contains(id));
                Ok(true)
            }
            Err(error) if ends_reading(&error) => Err(error),
            Err(error) => {
                tracing::debug!(%error, topic = self.topic, "asking for the ends again");
                Ok(false)
            }
        }
    }

    fn is_read(&self) -> bool {
        self.unstarted.is_empty() && self.scan.is_read()
    }

    /// The end has not come nearer for this time. Fails where the cluster does not
    /// answer, and where it does and the silence lasts too long.
    fn stay_silent(&mut self, waited: Duration) -> Result<(), Fault> {
        self.silence += waited;
        let is_over = self.silence > SILENCE_MAX;
        if !is_over && (self.silence < LOOK_INTERVAL || self.looked_at.elapsed() < LOOK_INTERVAL) {
            return Ok(());
        }
        let began = Instant::now();
        let looked = self.look().and_then(|found| {
            self.start_partitions(&found, ENDS_WITHIN)?;
            Ok(found)
        });
        // A leader that does not answer has taken this time.
        self.silence += began.elapsed();
        self.looked_at = Instant::now();
        let found = looked.map_err(|error| self.fault(&error))?;
        if !is_over || self.is_read() {
            return Ok(());
        }
        let (seconds, reason) = (SILENCE_MAX.as_secs(), self.silence_reason(&found));
        let what = format!(
            "the end of the dead-letter topic has not come nearer for {seconds} s: {reason}"
        );
        let describe = cluster::describe_command(&self.settings, &self.topic);
        Err(Fault::new(Exit::Sink, SILENT, what, "the dead-letter topic", describe).passing())
    }

    /// Which partitions keep the end from being reached.
    fn silence_reason(&self, found: &[DescribedPartition]) -> String {
        let unread: Vec<i32> = self.unstarted.iter().copied().chain(self.scan.unread()).collect();
        let has_no_leader =
            |found: &&DescribedPartition| found.leader < 0 && unread.contains(&found.id);
        let leaderless: Vec<i32> = found.iter().filter(has_no_leader).map(|it| it.id).collect();
        let (ids, reason) = if leaderless.is_empty() {
            (unread, "cannot be read to the end")
        } else {
            (leaderless, "without a leader")
        };
        let more = ids.len().saturating_sub(NAMED_MAX);
        let ids: Vec<String> = ids.iter().take(NAMED_MAX).map(i32::to_string).collect();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("partition {}{more} of {} {reason}", ids.join(", "), self.topic)
    }

    /// Reads new partitions, too, from their beginning: all their records are new. A reader that
    /// stops at the end does not need them. Behind the end only these questions show that nothing can be read.
    fn add_partitions(&mut self) -> KafkaResult<()> {
        if !self.end_reported || self.counted_at.elapsed() < COUNT_INTERVAL {
            return Ok(());
        }
        // The question that ends the reading has as long as any other that does.
        let is_last = self.uncounted + 1 == UNCOUNTED_MAX;
        let counted = self.scan.add_partitions(if is_last { ANSWER_WITHIN } else { COUNT_WITHIN });
        self.counted_at = Instant::now();
        match counted {
            Ok(new) => {
                self.uncounted = 0;
                if new > 0 {
                    tracing::info!(new, "the dead-letter topic has more partitions");
                }
                Ok(())
            }
            Err(error) => {
                self.uncounted += 1;
                if self.uncounted < UNCOUNTED_MAX { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Also whether this brings the end nearer.
    fn read(&mut self, deadline: Instant) -> Result<(LogRead, bool), Fault> {
        loop {
            if self.is_read() && !self.end_reported {
                self.end_reported = true;
                return Ok((LogRead::End, true));
            }
            let is_late = Instant::now() >= deadline;
            let entry = self.scan.next(deadline).map(|scanned| match scanned {
                Scanned::Record(message) => Some((entry(&message), true)),
                Scanned::Later(message) => Some((entry(&message), false)),
                Scanned::Nothing => None,
            });
            if let Some((entry, is_nearer)) = entry.map_err(|error| self.fault(&error))? {
                return Ok((LogRead::Entry(entry), is_nearer));
            }
            if is_late && (self.end_reported || !self.is_read()) {
                return Ok((LogRead::Nothing, false));
            }
        }
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
                let why = why_unreachable(self.scan.consumer(), error);
                unreachable(&self.settings, &why.unwrap_or_else(as_told))
            }
        }
    }
}

impl DeadLetterLog for KafkaDeadLetterLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        let began = Instant::now();
        self.add_partitions().map_err(|error| self.fault(&error))?;
        let (read, is_nearer) = self.read(began + patience)?;
        if is_nearer || self.end_reported {
            self.silence = Duration::ZERO;
        } else {
            // What others write meanwhile does not end the silence: they may go on for ever.
            self.stay_silent(began.elapsed())?;
        }
        Ok(read)
    }
}

fn entry(message: &BorrowedMessage<'_>) -> LogEntry {
    let mut headers = headers_of_read(message);
    // Of a dead letter that somebody has copied from RabbitMQ. No topic here belongs to an exchange.
    headers.retain(|(name, _)| name != ORIGINAL_EXCHANGE);
    LogEntry {
        position: PartitionOffset { partition: message.partition(), offset: message.offset() },
        written_unix_us: message.timestamp().to_millis().unwrap_or_default().saturating_mul(1000),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers,
        event_type: None,
        content_type: None,
    }
}

#[cfg(test)]
#[path = "dead_letters_tests.rs"]
mod tests;
