//! A cluster of librdkafka's that tests can break.

use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};

use super::reachability::ANSWER_WITHIN;
use super::settings::KafkaSettings;

pub(super) type Cluster = MockCluster<'static, DefaultProducerContext>;

/// A cluster with a topic of two partitions, of which the first one has a record.
pub(super) fn cluster_with(topic: &str) -> (Cluster, KafkaSettings) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(topic, 2, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    let settings = KafkaSettings { brokers, ..KafkaSettings::default() };
    write(&settings, topic);
    (cluster, settings)
}

/// Writes a record to the first partition.
pub(super) fn write(settings: &KafkaSettings, topic: &str) {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", &settings.brokers).create().unwrap();
    producer.send(BaseRecord::<str, str>::to(topic).partition(0).payload("one")).unwrap();
    producer.flush(ANSWER_WITHIN).unwrap();
}
