//! Reads topics: from where in each partition, how far they reached at the start, and the next record.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{ClientConfig, Offset};
use walrelay_core::sink::kafka::reachability::LostBrokers;

use super::brokers_ffi::{add_brokers_to, known_end};
use super::certificate_files::CertificateFiles;
use super::cluster::{self, DescribedPartition};
use super::code::code_of;
use super::reachability::ConnectionErrors;
use super::settings::KafkaSettings;
use walrelay_base::error::Fault;

/// Properties of a producer that a consumer understands as well: how the cluster is reached.
#[rustfmt::skip]
const SHARED: &[&str] = &[
    "bootstrap.servers", "client.", "security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.",
    "https.", "socket.", "broker.", "api.version.", "reconnect.", "connections.max.idle.ms",
    "metadata.", "plugin.library.paths", "log.connection.close", "debug",
];

/// Properties of every consumer. No group is joined and no offset is committed, so that reading
/// needs only the right to read the topic; but librdkafka assigns no partition without a group id.
const READ_ONLY: &[(&str, &str)] = &[
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("enable.partition.eof", "true"),
    // Records that are deleted while they are read are skipped.
    ("auto.offset.reset", "earliest"),
    // The relay's records are in no transaction, and an open one of others would hide the end.
    ("isolation.level", "read_uncommitted"),
    ("allow.auto.create.topics", "false"),
    // A consumer that is dropped would wait a second for the last answer.
    ("enable.metrics.push", "false"),
];

pub(super) const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

fn is_shared(name: &str, value: &str) -> bool {
    match name {
        // Records would come from a replica that may not have the last ones yet.
        "client.rack" => false,
        // A producer needs less than a consumer, whose default this is.
        "receive.message.max.bytes" => value.parse().is_ok_and(|bytes: u64| bytes > 100_000_000),
        _ => SHARED.iter().any(|known| name.starts_with(known)),
    }
}

/// The end of a range that ends where the client reaches the end of the partition.
pub(super) const UNKNOWN_END: i64 = i64::MAX;

/// The records of a partition that were there when its end was asked for.
pub(super) struct PartitionRange {
    pub(super) id: i32,
    pub(super) start: i64,
    /// The offset behind the last of them.
    pub(super) end: i64,
}

pub(super) enum Scanned<'a> {
    /// A record of a [`PartitionRange`].
    Record(BorrowedMessage<'a>),
    /// A record behind it.
    Later(BorrowedMessage<'a>),
    Nothing,
}

/// A consumer that reads one topic after another.
pub(super) struct TopicScan {
    consumer: BaseConsumer<ConnectionErrors>,
    brokers: String,
    certificates: CertificateFiles,
    lost_brokers: LostBrokers,
    topic: String,
    partitions: usize,
    /// The ends of the ranges that were not read to there.
    ends: BTreeMap<i32, i64>,
}

impl TopicScan {
    /// Connects when it is used.
    pub(super) fn new(
        settings: &KafkaSettings,
        group_id: &str,
        properties: &[(&str, &str)],
    ) -> Result<TopicScan, Fault> {
        let now = settings.effective_properties()?;
        let certificates = CertificateFiles::of(settings, &now);
        let now = now.into_iter().filter(|(name, value)| is_shared(name, value));
        let mut config: ClientConfig = now.collect();
        for (name, value) in [("group.id", group_id)].iter().chain(READ_ONLY).chain(properties) {
            config.set(*name, *value);
        }
        let created = config.create_with_context(ConnectionErrors::default());
        Ok(TopicScan {
            consumer: created.map_err(|error| cluster::refused_client(settings, &error))?,
            brokers: settings.brokers.clone(),
            certificates,
            lost_brokers: LostBrokers::default(),
            topic: String::new(),
            partitions: 0,
            ends: BTreeMap::new(),
        })
    }

    pub(super) fn brokers(&self) -> &str {
        &self.brokers
    }

    pub(super) fn consumer(&self) -> &BaseConsumer<ConnectionErrors> {
        &self.consumer
    }

    pub(super) fn partitions(
        &self,
        topic: &str,
        within: Duration,
    ) -> KafkaResult<Vec<DescribedPartition>> {
        cluster::partitions(self.consumer.client(), topic, within)
    }

    /// The ranges of records that the partitions hold from [`Offset::Beginning`], [`Offset::End`] or
    /// the offset of a [`time`] on.
    pub(super) fn ranges(
        &self,
        topic: &str,
        ids: &[i32],
        from: Offset,
        deadline: Instant,
    ) -> KafkaResult<Vec<PartitionRange>> {
        let ends = self.offsets(topic, ids, Offset::End, deadline)?;
        if ends.len() < ids.len() {
            return Err(KafkaError::OffsetFetch(Code::NoOffset));
        }
        let starts = self.offsets(topic, ids, from, deadline)?;
        // A partition without records of that time or later begins at its end.
        let range = |(id, end)| PartitionRange { id, start: *starts.get(&id).unwrap_or(&end), end };
        Ok(ends.into_iter().map(range).collect())
    }

    /// The offsets of a time. A broker that has just become the leader of a partition may not know
    /// them yet, and is asked again.
    pub(super) fn offsets(
        &self,
        topic: &str,
        ids: &[i32],
        time: Offset,
        deadline: Instant,
    ) -> KafkaResult<BTreeMap<i32, i64>> {
        loop {
            let times = cluster::offset_list(topic, ids.iter().map(|id| (*id, time)))?;
            let left = deadline.saturating_duration_since(Instant::now());
            // librdkafka may also fail all of it with the error of one partition.
            let found = self.consumer.offsets_for_times(times, left).and_then(|found| {
                let failed = found.elements().iter().find_map(|it| it.error().err());
                failed.map_or(Ok(found), Err)
            });
            match found {
                Ok(found) => {
                    let known = found.elements().into_iter().filter_map(|it| match it.offset() {
                        Offset::Offset(offset) => Some((it.partition(), offset)),
                        _ => None,
                    });
                    return Ok(known.collect());
                }
                Err(error) if ends_reading(&error) || left.is_zero() => return Err(error),
                Err(error) => tracing::debug!(%error, "asking for offsets again"),
            }
            std::thread::sleep(ASK_AGAIN_AFTER);
        }
    }

    /// Begins to read these ranges of the topic.
    pub(super) fn start(&mut self, topic: &str, ranges: &[PartitionRange]) -> KafkaResult<()> {
        self.assign(topic, range_starts(ranges), unread_ends(ranges).collect())
    }

    /// Begins to read these partitions of the topic; `ends` are those of ranges.
    pub(super) fn assign(
        &mut self,
        topic: &str,
        starts: impl Iterator<Item = (i32, Offset)>,
        ends: BTreeMap<i32, i64>,
    ) -> KafkaResult<()> {
        let partitions = cluster::offset_list(topic, starts)?;
        self.consumer.assign(&partitions)?;
        topic.clone_into(&mut self.topic);
        (self.partitions, self.ends) = (partitions.count(), ends);
        Ok(())
    }

    /// Reads partitions that the topic has got since, from their beginning. Returns how many these
    /// are.
    pub(super) fn add_partitions(&mut self, within: Duration) -> KafkaResult<usize> {
        let found = self.partitions(&self.topic, within)?;
        let new = found.into_iter().skip(self.partitions).map(|it| (it.id, Offset::Beginning));
        self.assign_more(new)
    }

    /// Begins to read ranges of further partitions of the topic.
    pub(super) fn add_ranges(&mut self, ranges: &[PartitionRange]) -> KafkaResult<()> {
        self.assign_more(range_starts(ranges))?;
        self.ends.extend(unread_ends(ranges));
        Ok(())
    }

    fn assign_more(&mut self, new: impl Iterator<Item = (i32, Offset)>) -> KafkaResult<usize> {
        let new = cluster::offset_list(&self.topic, new)?;
        if new.count() > 0 {
            self.consumer.incremental_assign(&new)?;
            self.partitions += new.count();
        }
        Ok(new.count())
    }

    /// Whether all ranges were read to their ends.
    pub(super) fn is_read(&self) -> bool {
        self.ends.is_empty()
    }

    /// The partitions that were not read to the ends of their ranges.
    pub(super) fn unread(&self) -> impl Iterator<Item = i32> {
        self.ends.keys().copied()
    }

    /// The next record, if one comes before the deadline. An error ends the scan.
    pub(super) fn next(&mut self, deadline: Instant) -> KafkaResult<Scanned<'_>> {
        let now = Instant::now();
        if self.lost_brokers.must_be_named(now) {
            add_brokers_to(&self.consumer, &self.brokers);
        }
        // In the part of a millisecond that is left the client would ask without a pause.
        let left_ms = deadline.saturating_duration_since(now).as_nanos().div_ceil(1_000_000);
        let patience = Duration::from_millis(u64::try_from(left_ms).unwrap_or(u64::MAX));
        match self.consumer.poll(patience) {
            Some(Ok(message)) => {
                self.lost_brokers.answered();
                let (partition, offset) = (message.partition(), message.offset());
                let end = self.ends.get(&partition).copied().unwrap_or(offset);
                if offset + 1 >= end {
                    self.ends.remove(&partition);
                }
                let is_later = offset >= end;
                Ok(if is_later { Scanned::Later(message) } else { Scanned::Record(message) })
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                // A new leader may not show its last records yet.
                let reached = known_end(&self.consumer, &self.topic, partition);
                let is_end = |end| end == UNKNOWN_END || reached.is_none_or(|it| it >= end);
                if self.ends.get(&partition).is_some_and(|end| is_end(*end)) {
                    self.ends.remove(&partition);
                }
                Ok(Scanned::Nothing)
            }
            Some(Err(error)) => {
                let code = error.rdkafka_error_code().map(code_of);
                let now = Instant::now();
                code.into_iter().for_each(|code| self.lost_brokers.reported(code, now));
                let is_outdated = self.certificates.renewal(code).is_some();
                if is_outdated || ends_reading(&error) {
                    return Err(error);
                }
                tracing::debug!(%error, topic = self.topic, "reading a topic");
                Ok(Scanned::Nothing)
            }
            None => Ok(Scanned::Nothing),
        }
    }

    /// Passes the records of the ranges to `take` until it returns false. Returns whether all were
    /// read; fails when that takes longer than until the deadline.
    pub(super) fn read(
        &mut self,
        deadline: Instant,
        take: &mut dyn FnMut(&BorrowedMessage<'_>) -> bool,
    ) -> KafkaResult<bool> {
        let read = self.read_ranges(deadline, take);
        let _released = self.consumer.unassign().is_ok();
        read
    }

    fn read_ranges(
        &mut self,
        deadline: Instant,
        take: &mut dyn FnMut(&BorrowedMessage<'_>) -> bool,
    ) -> KafkaResult<bool> {
        while !self.is_read() {
            let is_late = Instant::now() >= deadline;
            match self.next(deadline)? {
                Scanned::Record(message) if !take(&message) => return Ok(false),
                _ if is_late => {
                    return Err(KafkaError::MessageConsumption(Code::OperationTimedOut));
                }
                Scanned::Record(_) | Scanned::Later(_) | Scanned::Nothing => {}
            }
        }
        Ok(true)
    }
}

fn range_starts(ranges: &[PartitionRange]) -> impl Iterator<Item = (i32, Offset)> {
    ranges.iter().map(|range| (range.id, Offset::Offset(range.start)))
}

/// The ends of those ranges in which there is something to read.
fn unread_ends(ranges: &[PartitionRange]) -> impl Iterator<Item = (i32, i64)> {
    let unread = ranges.iter().filter(|range| range.start < range.end);
    unread.map(|range| (range.id, range.end))
}

/// The offset that asks for a time, given in microseconds since the Unix epoch.
pub(super) fn time(unix_us: i64) -> Offset {
    Offset::Offset(unix_us.div_euclid(1000).max(0))
}

/// Whether a consumer must be given up; from all other errors librdkafka recovers by itself.
pub(super) fn ends_reading(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        None | Some(
            Code::UnknownTopic
                | Code::UnknownTopicOrPartition
                | Code::TopicAuthorizationFailed
                | Code::Authentication
                | Code::SaslAuthenticationFailed
                | Code::Fatal
        )
    )
}
