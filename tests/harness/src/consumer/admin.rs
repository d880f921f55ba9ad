//! Topics and their ends, without reading a record.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use crate::kit::{block_on, wait_at_most, wait_for};
use crate::{HarnessError, Result};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// As many as the cluster's default says: one, or three in a cluster of three.
const REPLICAS_DEFAULT: i32 = -1;

/// Creates a topic with topic configs such as `message.timestamp.type`, and waits
/// until it is usable. An existing one is an error.
pub fn create_topic(
    brokers: &str,
    topic: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Result<()> {
    create_replicated_topic(brokers, topic, (partitions, REPLICAS_DEFAULT), configs)
}

/// The same with so many partitions, and replicas of each.
pub fn create_replicated_topic(
    brokers: &str,
    topic: &str,
    (partitions, replicas): (i32, i32),
    configs: &[(&str, &str)],
) -> Result<()> {
    let admin = client(brokers)?;
    let mut wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(replicas));
    for (name, value) in configs {
        wanted = wanted.set(name, value);
    }
    let results = block_on(async {
        let options = AdminOptions::new().operation_timeout(Some(REQUEST_TIMEOUT));
        Ok(admin.create_topics([&wanted], &options).await?)
    })?;
    check(results)?;
    // It waits until the partitions have leaders.
    DrainWatch::new(brokers, topic).map(drop)
}

/// Deletes a topic; a missing one is fine. The broker forgets it shortly after.
pub fn delete_topic(brokers: &str, topic: &str) -> Result<()> {
    let admin = client(brokers)?;
    let results = block_on(async {
        let options = AdminOptions::new().operation_timeout(Some(REQUEST_TIMEOUT));
        Ok(admin.delete_topics(&[topic], &options).await?)
    })?;
    match check(results) {
        Err(HarnessError::Kafka(KafkaError::AdminOp(
            RDKafkaErrorCode::UnknownTopicOrPartition,
        ))) => Ok(()),
        other => other,
    }
}

/// Sets one config of a topic, forgetting what others were set, and waits until the broker says so.
pub fn alter_topic(brokers: &str, topic: &str, name: &str, value: &str) -> Result<()> {
    let admin = client(brokers)?;
    let config = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
    let options = AdminOptions::new().operation_timeout(Some(REQUEST_TIMEOUT));
    let results = block_on(async { Ok(admin.alter_configs([&config], &options).await?) })?;
    for result in results {
        result.map_err(|(_, code)| KafkaError::AdminOp(code))?;
    }
    let what = format!("{name} = {value} of topic {topic}");
    wait_for(what, REQUEST_TIMEOUT, PAUSE, || {
        let asked = [ResourceSpecifier::Topic(topic)];
        let told = block_on(async { Ok(admin.describe_configs(&asked, &options).await?) })?;
        let entry = told.iter().flatten().find_map(|resource| resource.get(name));
        Ok(entry.is_some_and(|entry| entry.value.as_deref() == Some(value)).then_some(()))
    })
}

fn check(results: Vec<rdkafka::admin::TopicResult>) -> Result<()> {
    results.into_iter().try_for_each(|result| match result {
        Ok(_) => Ok(()),
        Err((_, code)) => Err(KafkaError::AdminOp(code).into()),
    })
}

fn client(brokers: &str) -> Result<AdminClient<DefaultClientContext>> {
    let mut config = rdkafka::ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("log_level", "0");
    Ok(config.create()?)
}

pub fn end_offsets(brokers: &str, topic: &str) -> Result<BTreeMap<i32, i64>> {
    DrainWatch::new(brokers, topic)?.ends()
}

/// Returns the leader of every partition, if it has one, and how many of its replicas are in
/// sync.
pub fn leaders(brokers: &str, topic: &str) -> Result<Vec<(Option<i32>, usize)>> {
    let consumer: BaseConsumer = super::config(brokers).create()?;
    let metadata = consumer.fetch_metadata(Some(topic), REQUEST_TIMEOUT)?;
    let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
    let state = |partition: &rdkafka::metadata::MetadataPartition| {
        let leader = Some(partition.leader()).filter(|leader| *leader >= 0);
        (leader, partition.isr().len())
    };
    Ok(partitions.map(state).collect())
}

/// Waits until a topic holds `n` records in all, looking every 10 ms.
pub fn wait_end_offsets(brokers: &str, topic: &str, n: u64, timeout: Duration) -> Result<()> {
    DrainWatch::new(brokers, topic)?.wait(n, timeout)
}

/// Whether a group has committed the end of every partition of these topics.
pub fn is_read(brokers: &str, group: &str, topics: &[String]) -> Result<bool> {
    let mut config = super::config(brokers);
    let consumer: BaseConsumer = config.set("group.id", group).create()?;
    let mut asked = TopicPartitionList::new();
    for topic in topics {
        for partition in partitions(&consumer, topic, super::METADATA_WAIT)? {
            asked.add_partition(topic, partition);
        }
    }
    for found in consumer.committed_offsets(asked, REQUEST_TIMEOUT)?.elements() {
        let (_, end) =
            consumer.fetch_watermarks(found.topic(), found.partition(), REQUEST_TIMEOUT)?;
        // Of a partition that was always empty there is nothing to commit.
        if end != 0 && found.offset() != Offset::Offset(end) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Names of all topics that begin so.
pub fn topics_of(brokers: &str, prefix: &str) -> Result<Vec<String>> {
    let consumer: BaseConsumer = super::config(brokers).create()?;
    let metadata = consumer.fetch_metadata(None, REQUEST_TIMEOUT)?;
    let names = metadata.topics().iter().map(|topic| topic.name().to_owned());
    Ok(names.filter(|name| name.starts_with(prefix)).collect())
}

/// Watches a topic grow by its end offsets alone: far cheaper than reading it, so that a drain is
/// measured without a consumer on the same cores.
pub struct DrainWatch {
    consumer: BaseConsumer,
    topic: String,
    partitions: Vec<i32>,
}

impl DrainWatch {
    pub fn new(brokers: &str, topic: &str) -> Result<DrainWatch> {
        let consumer: BaseConsumer = super::config(brokers).create()?;
        let partitions = partitions(&consumer, topic, super::METADATA_WAIT)?;
        Ok(DrainWatch { consumer, topic: topic.into(), partitions })
    }

    pub fn records(&self) -> Result<u64> {
        Ok(self.ends()?.values().sum::<i64>().unsigned_abs())
    }

    /// Waits for `n` records. Broker outages within the timeout are waited out.
    pub fn wait(&self, n: u64, timeout: Duration) -> Result<()> {
        let mut seen = 0;
        let found = wait_at_most(timeout, Duration::from_millis(10), || {
            seen = self.records().unwrap_or(seen);
            Ok((seen >= n).then_some(()))
        })?;
        found.ok_or_else(|| {
            let what = format!("{n} records in {}, {seen} came", self.topic);
            HarnessError::Late { what, limit: timeout }
        })
    }

    fn ends(&self) -> Result<BTreeMap<i32, i64>> {
        let began = Instant::now();
        let end = |partition: &i32| loop {
            match self.consumer.fetch_watermarks(&self.topic, *partition, REQUEST_TIMEOUT) {
                // The metadata of a new topic is there before its leader knows that it is.
                Err(error)
                    if error.rdkafka_error_code()
                        == Some(RDKafkaErrorCode::NotLeaderForPartition)
                        && began.elapsed() < REQUEST_TIMEOUT =>
                {
                    std::thread::sleep(PAUSE);
                }
                found => return Ok((*partition, found?.1)),
            }
        };
        self.partitions.iter().map(end).collect()
    }
}

/// The partitions of a topic, once every one of them has a leader.
pub(super) fn partitions(
    consumer: &BaseConsumer,
    topic: &str,
    timeout: Duration,
) -> Result<Vec<i32>> {
    wait_for(format!("topic {topic} with a leader on every partition"), timeout, PAUSE, || {
        let asked = consumer.fetch_metadata(Some(topic), Duration::from_secs(2));
        let Ok(metadata) = asked else { return Ok(None) };
        let found = metadata.topics().iter().flat_map(|topic| topic.partitions());
        let led = found.map(|partition| (partition.leader() >= 0).then_some(partition.id()));
        Ok(led.collect::<Option<Vec<i32>>>().filter(|led| !led.is_empty()))
    })
}
