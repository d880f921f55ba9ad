//! Looks for published events in the topics to which they may have gone.
//!
//! Where the key is known, the partition to which the producer sends it is read first. The rest of
//! the topic is read only if nothing is found there: the topic may have had fewer partitions when
//! the event was published.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};

use super::cluster::{self, ANSWER_WITHIN};
use super::producer_ffi::key_partition;
use super::record_ffi::headers_of_read;
use super::settings::KafkaSettings;
use super::topic_reader::{KafkaTopicReader, TailPartitions, TopicTail, reason};
use crate::sink::search::{
    SearchLimits, SearchReport, SearchRoute, SearchScope, StoredRecord, TakeRecord,
};

/// Topics that are searched; a template may fit any number of them.
const TOPICS_MAX: usize = 100;
/// Topics of the cluster itself.
const INTERNAL: &str = "__";

pub(super) fn search(
    settings: &KafkaSettings,
    scope: &SearchScope<'_>,
    take: &mut TakeRecord<'_>,
) -> SearchReport {
    let reader = match KafkaTopicReader::new(settings) {
        Ok(reader) => reader,
        Err(fault) => return SearchReport::not_possible(fault.what),
    };
    let report = SearchReport::default();
    let mut search = TopicSearch { settings, scope, take, reader, report, records: 0 };
    let topics = search.topics();
    for (at, (topic, route)) in topics.iter().enumerate() {
        if let Some(limit) = scope.limits.reached(search.records) {
            let left = topics.len() - at;
            search.leave_out(format!("{left} more topics, among them {topic}: {limit}"));
            break;
        }
        // Without a broker every topic would wait for it.
        if search.topic(topic, route).is_err() {
            return search.report;
        }
    }
    search.name_compacted(&topics);
    search.report
}

struct TopicSearch<'s, 't> {
    settings: &'s KafkaSettings,
    scope: &'s SearchScope<'s>,
    take: &'t mut TakeRecord<'t>,
    reader: KafkaTopicReader,
    report: SearchReport,
    /// Read so far.
    records: u64,
}

/// No broker answers.
struct Unreachable;

impl<'s> TopicSearch<'s, '_> {
    fn leave_out(&mut self, what: String) {
        self.report.not_searched.push(what);
    }

    /// A record that is not found may have been there.
    fn name_compacted(&mut self, topics: &BTreeMap<String, &SearchRoute>) {
        let within = self.patience();
        if topics.is_empty() || within.is_zero() {
            return;
        }
        let names: Vec<&str> = topics.keys().map(String::as_str).collect();
        for topic in cluster::compacted(self.settings, &names, within) {
            self.leave_out(format!(
                "records of topic {topic} that compaction has removed: it keeps the last one of a key"
            ));
        }
    }

    /// How long one answer is waited for.
    fn patience(&self) -> Duration {
        self.scope.limits.left().min(ANSWER_WITHIN)
    }

    /// The topics, each with a route that leads to it.
    fn topics(&mut self) -> BTreeMap<String, &'s SearchRoute> {
        let SearchScope { routes, dead_letters, .. } = *self.scope;
        let mut topics = BTreeMap::new();
        let constant = |route: &SearchRoute| route.topic.constant().map(str::to_owned);
        for route in routes {
            if let Some(topic) = constant(route) {
                topics.entry(topic).or_insert(route);
            }
        }
        let open: Vec<&SearchRoute> =
            routes.iter().filter(|route| constant(route).is_none()).collect();
        if open.is_empty() {
            return topics;
        }
        let listed = self.reader.topics(self.patience());
        let is_listed = listed.is_ok();
        let known = listed.unwrap_or_else(|error| {
            let why = self.reader.why_unreachable(&error).unwrap_or_else(|| reason(&error, "…"));
            self.leave_out(format!("topics of the cluster: they cannot be listed: {why}"));
            Vec::new()
        });
        let mut left_out = 0;
        for topic in self.settings.topics.iter().chain(&known) {
            if topic.starts_with(INTERNAL) || dead_letters == Some(topic) {
                continue;
            }
            let Some(route) = open.iter().find(|route| route.topic.could_become(topic)) else {
                continue;
            };
            if topics.len() < TOPICS_MAX {
                topics.entry(topic.clone()).or_insert(*route);
            } else if !topics.contains_key(topic) {
                left_out += 1;
            }
        }
        let fits = |route: &&&SearchRoute| topics.keys().any(|it| route.topic.could_become(it));
        for route in open.iter().filter(|route| is_listed && !fits(route)) {
            self.leave_out(format!(
                "topics that {} could become: this login sees none",
                route.topic
            ));
        }
        if left_out > 0 {
            self.leave_out(format!("{left_out} more topics: {TOPICS_MAX} are searched"));
        }
        topics
    }

    fn topic(&mut self, topic: &str, route: &SearchRoute) -> Result<(), Unreachable> {
        let before = self.records;
        let searched = self.search_topic(topic, route);
        let records = self.records - before;
        let why = match searched {
            Ok((what, None)) => {
                self.report.searched.push(format!("{what}: {records} records"));
                return Ok(());
            }
            Ok((what, Some(limit))) => {
                format!("the rest of {what}, behind {records} records: {limit}")
            }
            Err(KafkaError::MetadataFetch(Code::UnknownTopicOrPartition)) => {
                self.report.searched.push(format!("topic {topic}: it does not exist"));
                return Ok(());
            }
            Err(error) if self.scope.limits.left().is_zero() => {
                tracing::debug!(%error, topic, "searching a topic");
                format!(
                    "the rest of topic {topic}, behind {records} records: the time limit was reached"
                )
            }
            Err(error) => {
                if let Some(why) = self.reader.why_unreachable(&error) {
                    self.leave_out(format!("topics: no Kafka broker answers ({why})"));
                    return Err(Unreachable);
                }
                format!("topic {topic}: {}", reason(&error, topic))
            }
        };
        self.leave_out(why);
        Ok(())
    }

    /// What was searched, and what has ended it early.
    fn search_topic(
        &mut self,
        topic: &str,
        route: &SearchRoute,
    ) -> Result<(String, Option<&'static str>), KafkaError> {
        let SearchScope { from_unix_us, limits, .. } = *self.scope;
        let count = self.reader.partition_count(topic, self.patience())?;
        if self.reader.has_lost_records(topic, from_unix_us, limits.deadline)? {
            self.leave_out(format!(
                "older records of topic {topic}: they have been removed by retention"
            ));
        }
        let own = self.own_partition(route, count);
        let parts = match own {
            Some(own) => vec![TailPartitions::Only(own), TailPartitions::AllBut(own)],
            None => vec![TailPartitions::All],
        };
        for partitions in parts {
            let tail = TopicTail { topic, from_unix_us, partitions };
            let (found, ended) = self.read(&tail, limits)?;
            let what = match own {
                Some(own) if found && partitions == TailPartitions::Only(own) => {
                    format!("partition {own} of topic {topic}, to which the key leads")
                }
                _ => format!("topic {topic}"),
            };
            if found || ended.is_some() {
                return Ok((what, ended));
            }
        }
        Ok((format!("topic {topic}"), None))
    }

    /// The partition that the row names, or to which the producer sends the key.
    fn own_partition(&self, route: &SearchRoute, count: i32) -> Option<i32> {
        let of_key = || {
            // Some partitioners spread records whose key is empty.
            let key = route.key.as_deref().filter(|key| !key.is_empty())?;
            Some(key_partition(&self.settings.properties_at_start(), key, count))
        };
        route.partition.or_else(of_key).filter(|own| (0..count).contains(own) && count > 1)
    }

    /// Whether anything was found, and what has ended the reading early.
    fn read(
        &mut self,
        tail: &TopicTail<'_>,
        limits: SearchLimits<'_>,
    ) -> Result<(bool, Option<&'static str>), KafkaError> {
        let TopicSearch { reader, take, records, .. } = self;
        let (mut found, mut ended) = (false, None);
        reader.read_tail(tail, limits.deadline, &mut |message| {
            *records += 1;
            found |= take_record(message, *take);
            ended = limits.reached(*records);
            ended.is_none()
        })?;
        Ok((found, ended))
    }
}

fn take_record(message: &BorrowedMessage<'_>, take: &mut TakeRecord<'_>) -> bool {
    take(&StoredRecord {
        topic: message.topic(),
        partition: message.partition(),
        offset: message.offset(),
        written_unix_us: message.timestamp().to_millis().unwrap_or_default().saturating_mul(1000),
        key: message.key(),
        headers: &headers_of_read(message),
    })
}
