//! The messages, as the relay would write them.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use walrelay_harness::consumer::create_topic;
use walrelay_harness::kit::Rng;
use walrelay_harness::rabbit::{Outcome, Properties, Queue, Rabbit};
use walrelay_harness::{Broker, HarnessError, RabbitMq, Result};

/// A topic of Kafka, or a routing key of RabbitMQ.
pub(crate) const TOPIC: &str = "outbox.event.order";
pub(crate) const EXCHANGE: &str = "outbox.events";
const PARTITIONS: i32 = 8;
const VALUE_BYTES: usize = 330;
const UNCONFIRMED_MAX: u64 = 1_000;
const LIMIT: Duration = Duration::from_secs(120);

/// The exchange and its queues, one for each consumer that is to read all messages. Those of the inbox are
/// made by its `init`, once there is the exchange.
pub(crate) fn declare(rabbitmq: &RabbitMq, bare: &[String]) -> Result<()> {
    let mut rabbit = Rabbit::open(&rabbitmq.amqp_url())?;
    rabbit.declare_exchange(EXCHANGE, "topic")?;
    for queue in bare {
        rabbit.declare_queue(queue, Queue::Quorum)?;
        rabbit.bind(queue, EXCHANGE, TOPIC)?;
    }
    rabbit.close();
    Ok(())
}

pub(crate) fn fill(broker: &Broker, messages: u64, keys: u64) -> Result<()> {
    match broker {
        Broker::Kafka(kafka) => fill_kafka(&kafka.bootstrap(), messages, keys),
        Broker::RabbitMq(rabbitmq) => fill_rabbitmq(&rabbitmq.amqp_url(), messages, keys),
    }
}

/// Id and key of each message.
fn names(messages: u64, keys: u64) -> impl Iterator<Item = (String, String)> {
    let mut rng = Rng::new(7);
    (0..messages).map(move |_| (rng.uuid(), format!("k{}", rng.below(keys))))
}

fn fill_rabbitmq(url: &str, messages: u64, keys: u64) -> Result<()> {
    let mut rabbit = Rabbit::open(url)?;
    rabbit.confirm()?;
    let value = "x".repeat(VALUE_BYTES);
    let (mut sent, mut confirmed) = (0, 0);
    for (id, key) in names(messages, keys) {
        let properties = Properties {
            headers: vec![("key".into(), key.as_str().into())],
            delivery_mode: Some(2),
            message_id: Some(id),
            kind: Some("x".into()),
            ..Properties::default()
        };
        rabbit.publish((EXCHANGE, TOPIC), &properties, value.as_bytes(), false);
        sent += 1;
        if sent % UNCONFIRMED_MAX != 0 && sent != messages {
            continue;
        }
        rabbit.flush()?;
        while confirmed < sent {
            match rabbit.outcome(LIMIT)? {
                Some(Outcome::Acked(tag, true)) => confirmed = tag,
                Some(Outcome::Acked(..)) => confirmed += 1,
                other => return Err(HarnessError::Other(format!("a publish: {other:?}"))),
            }
        }
    }
    rabbit.close();
    Ok(())
}

fn fill_kafka(brokers: &str, messages: u64, keys: u64) -> Result<()> {
    create_topic(brokers, TOPIC, PARTITIONS, &[])?;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("partitioner", "murmur2_random");
    let producer: BaseProducer = config.create()?;
    let value = "x".repeat(VALUE_BYTES);
    for (id, key) in names(messages, keys) {
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
