//! Looks for published events in the partition to which the producer sends their key.

use std::collections::BTreeMap;

use rdkafka::Offset;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};

use super::producer_ffi::key_partition;
use super::reachability::{ANSWER_WITHIN, why_unreachable};
use super::record_ffi::headers_of_read;
use super::scan::{TopicScan, time};
use super::settings::KafkaSettings;
use super::topic_reader::{self, reason};
use walrelay_base::figures::counted;
use walrelay_sink::search::{SearchReport, SearchRoute, SearchScope, StoredRecord, TakeRecord};

const NO_ROUTE: &str =
    "topics: no row says with which key the event was published: walrelay find --key KEY";

pub(super) fn search(
    settings: &KafkaSettings,
    scope: &SearchScope<'_>,
    take: &mut TakeRecord<'_>,
) -> SearchReport {
    if scope.routes.is_empty() {
        return SearchReport::not_possible(NO_ROUTE);
    }
    let mut report = SearchReport::default();
    let mut places = Vec::new();
    for route in scope.routes {
        let others = format!("other topics of {}: they come from rows", route.topic);
        if route.topic.constant().is_none() && !report.not_searched.contains(&others) {
            report.not_searched.push(others);
        }
        places.extend(topics(settings, route).into_iter().map(|topic| (topic, route)));
    }
    if places.is_empty() {
        return report;
    }
    // Routes with a known partition first: then it is known which topics have only other partitions left.
    let has_key = |route: &SearchRoute| route.key.as_ref().is_some_and(|key| !key.is_empty());
    places.sort_by_key(|(_, route)| route.partition.is_none() && !has_key(route));
    let scan = match topic_reader::uncommitted_scan(settings) {
        Ok(scan) => scan,
        Err(fault) => return SearchReport::not_possible(fault.what),
    };
    let mut search = PartitionSearch { settings, scope, take, scan, report, read: BTreeMap::new() };
    for (topic, route) in places {
        if let Some(limit) = scope.limits.reached() {
            search.report.not_searched.push(format!("topic {topic}: {limit}"));
            continue;
        }
        match search.topic(topic, route) {
            Ok(true) if route.topic.constant().is_some() => {
                search.report.complete.push(route.clone());
            }
            Ok(_) => {}
            // Without a broker every topic would wait for it.
            Err(Unreachable) => break,
        }
    }
    search.report
}

/// The topic of a route, or the configured topics that its template could become.
fn topics<'a>(settings: &'a KafkaSettings, route: &'a SearchRoute) -> Vec<&'a str> {
    match route.topic.constant() {
        Some(topic) => vec![topic],
        None => {
            let configured = settings.topics.iter().map(String::as_str);
            configured.filter(|topic| route.topic.could_become(topic)).collect()
        }
    }
}

struct PartitionSearch<'s, 't> {
    settings: &'s KafkaSettings,
    scope: &'s SearchScope<'s>,
    take: &'t mut TakeRecord<'t>,
    scan: TopicScan,
    report: SearchReport,
    /// Topics and partitions that were searched, and whether every record of each was read.
    read: BTreeMap<(String, i32), bool>,
}

/// No broker answers.
struct Unreachable;

impl PartitionSearch<'_, '_> {
    /// Searches the topic, and returns whether every record of the route there was read.
    fn topic(&mut self, topic: &str, route: &SearchRoute) -> Result<bool, Unreachable> {
        let why = match self.search(topic, route) {
            Ok(is_read) => return Ok(is_read),
            Err(KafkaError::MetadataFetch(Code::UnknownTopicOrPartition)) => {
                self.report.searched.push(format!("topic {topic}: it does not exist"));
                return Ok(true);
            }
            Err(error) => {
                if let Some(why) = why_unreachable(self.scan.consumer(), &error) {
                    let why = format!("topics: no Kafka broker answers ({why})");
                    self.report.not_searched.push(why);
                    return Err(Unreachable);
                }
                let limit = self.scope.limits.reached().map(str::to_owned);
                let why = limit.unwrap_or_else(|| reason(&error, topic, self.scan.brokers()));
                format!("topic {topic}: {why}")
            }
        };
        self.report.not_searched.push(why);
        Ok(false)
    }

    fn search(&mut self, topic: &str, route: &SearchRoute) -> Result<bool, KafkaError> {
        let PartitionSearch { settings, scope, take, scan, report, read } = self;
        let limits = scope.limits;
        let found = scan.partitions(topic, limits.left().min(ANSWER_WITHIN))?;
        let count = i32::try_from(found.len()).unwrap_or(i32::MAX);
        let of_key = || {
            // Some partitioners spread records whose key is empty.
            let key = route.key.as_deref().filter(|key| !key.is_empty() || count == 1)?;
            Some(key_partition(&settings.properties_at_start(), key, count))
        };
        let Some(partition) = route.partition.or_else(of_key).filter(|it| (0..count).contains(it))
        else {
            let is_read = read.keys().any(|(known, _)| known == topic);
            let rest = if is_read { "other partitions of " } else { "" };
            let unknown = format!("{rest}topic {topic}: the partition is not known");
            if !report.not_searched.contains(&unknown) {
                report.not_searched.push(unknown);
            }
            return Ok(false);
        };
        let known = (topic.to_owned(), partition);
        if let Some(is_read) = read.get(&known) {
            return Ok(*is_read);
        }
        read.insert(known.clone(), false);
        let place = format!("partition {partition} of topic {topic}");
        if found.iter().any(|found| found.id == partition && found.leader < 0) {
            report.not_searched.push(format!("{place}: it has no leader"));
            return Ok(false);
        }
        let from = time(scope.from_unix_us);
        let ranges = scan.ranges(topic, &[partition], from, limits.deadline)?;
        // So it may be where a partition has lost its beginning, and what is left of it begins later.
        let first = scan.offsets(topic, &[partition], Offset::Beginning, limits.deadline)?;
        let first = first.get(&partition).copied().unwrap_or_default();
        let is_cut = first > 0 && ranges.iter().all(|range| range.start <= first);
        if is_cut {
            report
                .not_searched
                .push(format!("older records of {place}: retention has removed them"));
        }
        let (mut records, mut limit) = (0, None);
        scan.start(topic, &ranges)?;
        scan.read(limits.deadline, &mut |message| {
            records += 1;
            take_record(message, *take);
            limit = limits.reached();
            limit.is_none()
        })?;
        let records = counted(records, "record");
        match limit {
            None => report.searched.push(format!("{place}: {records}")),
            Some(limit) => {
                report.not_searched.push(format!("the rest of {place}, after {records}: {limit}"));
            }
        }
        let is_read = limit.is_none() && !is_cut;
        read.insert(known, is_read);
        Ok(is_read)
    }
}

fn take_record(message: &BorrowedMessage<'_>, take: &mut TakeRecord<'_>) {
    take(&StoredRecord {
        topic: message.topic(),
        partition: message.partition(),
        offset: message.offset(),
        written_unix_us: message.timestamp().to_millis().unwrap_or_default().saturating_mul(1000),
        key: message.key(),
        headers: &headers_of_read(message),
    });
}
