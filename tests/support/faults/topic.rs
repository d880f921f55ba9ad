//! Records of a topic, with every byte.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::{LIMIT, brokers};

const ANSWER: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicRecord {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
    pub(crate) timestamp_ms: i64,
}

impl TopicRecord {
    /// The key as text; a null key is no text.
    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref().map(|key| std::str::from_utf8(key).unwrap())
    }

    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.value.as_deref().expect("a value")).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name)?;
        found.1.as_deref().map(|value| std::str::from_utf8(value).unwrap())
    }

    pub(crate) fn header_names(&self) -> Vec<&str> {
        self.headers.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// The keys of records that all have one.
#[track_caller]
pub(crate) fn keys(records: &[TopicRecord]) -> Vec<&str> {
    records.iter().map(|record| record.key().unwrap()).collect()
}

/// The topics there are. None is made by asking.
pub(crate) fn shared_topics() -> Vec<String> {
    let config =
        ClientConfig::new().set("bootstrap.servers", brokers()).set("log_level", "0").clone();
    let consumer: BaseConsumer = config.create().unwrap();
    let metadata = consumer.fetch_metadata(None, ANSWER).unwrap();
    metadata.topics().iter().map(|topic| topic.name().to_owned()).collect()
}

/// Everything that the topics hold now, in order per partition.
#[track_caller]
pub(crate) fn read(topics: &[&str]) -> Vec<TopicRecord> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers()).set("group.id", "walrelay-tests");
    config.set("enable.auto.commit", "false").set("fetch.wait.max.ms", "10").set("log_level", "0");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut assignment = TopicPartitionList::new();
    let mut due = 0;
    for topic in topics {
        let metadata = consumer.fetch_metadata(Some(topic), ANSWER).unwrap();
        for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
            let (low, high) = consumer.fetch_watermarks(topic, partition.id(), ANSWER).unwrap();
            due += usize::try_from(high - low).unwrap();
            assignment.add_partition_offset(topic, partition.id(), Offset::Beginning).unwrap();
        }
    }
    consumer.assign(&assignment).unwrap();
    let mut records = Vec::with_capacity(due);
    let began = Instant::now();
    while records.len() < due {
        assert!(began.elapsed() < LIMIT, "{} of {due} records of {topics:?}", records.len());
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) else { continue };
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        records.push(TopicRecord {
            topic: message.topic().to_owned(),
            partition: message.partition(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect(),
            timestamp_ms: message.timestamp().to_millis().unwrap_or(-1),
        });
    }
    records
}
