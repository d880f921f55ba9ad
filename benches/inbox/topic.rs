//! The messages, as the relay would write them.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use walrelay_harness::consumer::create_topic;
use walrelay_harness::kit::Rng;
use walrelay_harness::{HarnessError, Result};

pub(crate) const TOPIC: &str = "outbox.event.order";
const PARTITIONS: i32 = 8;
const VALUE_BYTES: usize = 330;
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn fill(brokers: &str, messages: u64, keys: u64) -> Result<()> {
    create_topic(brokers, TOPIC, PARTITIONS, &[])?;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("partitioner", "murmur2_random");
    let producer: BaseProducer = config.create()?;
    let (mut rng, value) = (Rng::new(7), "x".repeat(VALUE_BYTES));
    for _ in 0..messages {
        let (id, key) = (rng.uuid(), format!("k{}", rng.below(keys)));
        let header = |key, value| Header { key, value: Some(value) };
        let headers =
            OwnedHeaders::new().insert(header("id", id.as_str())).insert(header("event_type", "x"));
        let mut record = BaseRecord::to(TOPIC).key(&key).payload(&value).headers(headers);
        while let Err((error, refused)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(HarnessError::Kafka(error));
            }
            producer.poll(Duration::from_millis(10));
            record = refused;
        }
    }
    Ok(producer.flush(LIMIT)?)
}
