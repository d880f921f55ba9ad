//! What the sinks obey: the `[sink]` section, typed.

use std::collections::BTreeMap;

use crate::secret::Secret;

/// The `[sink]` section: exactly one kind.
#[derive(Clone, Debug)]
pub enum SinkSettings {
    /// `kind = "kafka"`.
    Kafka(KafkaSettings),
    /// `kind = "null"`: confirms everything and keeps nothing; for measuring the source alone.
    Null,
}

/// The `[sink.kafka]` section.
#[derive(Clone, Debug)]
pub struct KafkaSettings {
    /// `host:port,host:port`.
    pub brokers: String,
    /// librdkafka producer properties, as given. Values may be secrets.
    pub properties: BTreeMap<String, Secret>,
    /// Topics that `init` creates and that `check` and `run` insist on (`sink.kafka.topics`).
    pub topics: Vec<String>,
    /// Partitions of a topic that `init` creates (`sink.kafka.partitions`, 8).
    pub partitions: i32,
    /// Replication factor of a topic that `init` creates (`sink.kafka.replication`, -1: the broker's default).
    pub replication: i32,
}
