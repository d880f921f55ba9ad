//! Apache Kafka: one consumer of the group SERVICE reads the user's topics and the retry topics.
//!
//! | File | What |
//! |---|---|
//! | `config` | properties of the clients |
//! | `init` | makes the topics of retries and dead letters |
//! | `reader` | the thread that owns the consumer |
//! | `partition` | what one assigned partition has under way, and which offset may be committed |
//! | `copies` | the producer of copies |
//! | `client_ffi` | what the safe API of librdkafka lacks |

mod client_ffi;
mod config;
mod copies;
mod init;
mod lost_brokers;
mod partition;
mod reader;
mod rebalance_events;

use std::time::Duration;

use rdkafka::error::KafkaError;

use crate::broker::{Broker, Stop};
use crate::lanes::Lanes;
use crate::time::short;
use crate::{InboxError, Settings};
use copies::KafkaCopies;
use partition::RecordMark;

/// A Kafka cluster, and the topics that are read.
#[derive(Clone)]
#[must_use]
pub struct Kafka {
    brokers: String,
    topics: Vec<String>,
    properties: Vec<(String, String)>,
    replication: i32,
}

impl Kafka {
    /// `brokers` is `host:port,host:port`.
    pub fn new(
        brokers: impl Into<String>,
        topics: impl IntoIterator<Item = impl Into<String>>,
    ) -> Kafka {
        Kafka {
            brokers: brokers.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            properties: Vec::new(),
            // What the cluster's own default is.
            replication: -1,
        }
    }

    /// A property of librdkafka for all clients, such as `security.protocol` or `sasl.password`.
    /// Properties that decide on offsets, order and confirmation cannot be changed: a new consumer
    /// begins with the oldest messages of its topics.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Kafka {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// How many replicas the topics of `init` have (default: as the cluster says).
    pub fn replication(mut self, replicas: i32) -> Kafka {
        self.replication = replicas;
        self
    }

    fn check(&self) -> Result<(), InboxError> {
        if self.topics.is_empty() {
            return Err(InboxError::Settings("there is no topic to read".to_owned()));
        }
        if self.properties.iter().any(|(name, _)| name == "transactional.id") {
            let refusal = "transactional.id cannot be set: copies are sent without transactions";
            return Err(InboxError::Settings(refusal.to_owned()));
        }
        Ok(())
    }
}

/// The topic of a retry level.
fn retry_topic(service: &str, level: Duration) -> String {
    format!("{service}.retry.{}", short(level))
}

fn dead_letter_topic(service: &str) -> String {
    format!("{service}.dlq")
}

/// A client could not be made. The error's own text tells the value of a property, which may be a
/// secret whose name is misspelt.
fn client_error(what: &str, error: KafkaError) -> InboxError {
    match error {
        KafkaError::ClientConfig(_, description, name, _) => {
            InboxError::broker(what, format!("property {name}: {description}"))
        }
        error => InboxError::broker(what, error),
    }
}

impl Broker for Kafka {
    type Mark = RecordMark;
    type Copies = KafkaCopies;
    const SYSTEM: &'static str = "kafka";
    const HAS_EXCHANGES: bool = false;

    async fn init(&self, settings: &Settings) -> Result<(), InboxError> {
        self.check()?;
        init::create_topics(self, settings).await
    }

    fn copies(&self, settings: &Settings) -> Result<KafkaCopies, InboxError> {
        self.check()?;
        KafkaCopies::new(self, settings)
    }

    async fn consume(
        &self,
        settings: &Settings,
        lanes: Lanes<RecordMark>,
        stop: Stop,
    ) -> Result<(), InboxError> {
        reader::consume(self, settings, lanes, stop).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_source_without_a_topic_or_with_transactions_is_refused() {
        let settings = Settings::new("billing", "");
        let refused = |told: Result<(), InboxError>| matches!(told, Err(InboxError::Settings(_)));
        let without = Kafka::new("a:1", [] as [&str; 0]);
        let transactional = Kafka::new("a:1", ["orders"]).property("transactional.id", "billing");
        for kafka in [without, transactional] {
            assert!(refused(kafka.init(&settings).await));
            assert!(refused(kafka.copies(&settings).map(drop)), "when it runs");
        }
    }

    #[test]
    fn a_misspelt_property_is_told_without_its_value() {
        let kafka = Kafka::new("a:1", ["orders"]).property("sasl.pasword", "s3cret");
        let settings = Settings::new("billing", "");
        let error = kafka.copies(&settings).err().unwrap().to_string();
        assert!(error.contains("sasl.pasword") && !error.contains("s3cret"), "{error}");
    }
}
