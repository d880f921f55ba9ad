//! Producers with nothing before them, at a steady rate: the second leg of a latency.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use walrelay_harness::kit::now_us;
use walrelay_harness::{HarnessError, Result};

use crate::amqp::{Publisher, Shape};

const LIMIT: Duration = Duration::from_secs(60);
const KEYS: u64 = 1_000;
const PAYLOAD_BYTES: usize = 230;

/// The payload of event number `event`, as the load's rows have it.
pub(crate) fn payload(event: u64) -> String {
    // What the names, the stamp and a number of six digits take.
    const FRAME_BYTES: usize = 49;
    let pad = "x".repeat(PAYLOAD_BYTES - FRAME_BYTES);
    format!("{{\"t\": {}, \"pad\": \"{pad}\", \"seq\": {event}}}", now_us())
}

/// Sends, and knows what is confirmed.
pub(crate) trait Bare {
    /// Sends an event at once.
    fn send(&mut self, key: &str, payload: &str) -> Result<()>;
    /// Waits until all are confirmed.
    fn settle(&mut self) -> Result<()>;
}

/// Sends at a rate, and returns the number of events once all are confirmed.
pub(crate) fn pace(bare: &mut dyn Bare, rate: u64, duration: Duration) -> Result<u64> {
    let events = rate * duration.as_secs();
    let began = Instant::now();
    for event in 0..events {
        let due = began + Duration::from_secs_f64(event as f64 / rate as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        bare.send(&format!("key-{}", event % KEYS), &payload(event))?;
    }
    bare.settle()?;
    Ok(events)
}

/// To Kafka, set as the relay sets its own.
pub(crate) struct KafkaBare {
    producer: BaseProducer,
    topic: String,
}

impl KafkaBare {
    pub(crate) fn new(brokers: &str, topic: &str) -> Result<KafkaBare> {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", brokers)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "0")
            .set("socket.nagle.disable", "true")
            .set("log_level", "0");
        Ok(KafkaBare { producer: config.create()?, topic: topic.to_owned() })
    }
}

impl Bare for KafkaBare {
    fn send(&mut self, key: &str, payload: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            let record = BaseRecord::<str, str>::to(&self.topic).key(key).payload(payload);
            match self.producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _))
                    if began.elapsed() < LIMIT =>
                {
                    self.producer.poll(Duration::from_millis(1));
                }
                Err((error, _)) => return Err(HarnessError::from(error)),
            }
        }
        self.producer.poll(Duration::ZERO);
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        Ok(self.producer.flush(LIMIT)?)
    }
}

/// To RabbitMQ, with the relay's properties.
pub(crate) struct RabbitBare {
    publisher: Publisher,
    shape: Shape,
}

impl RabbitBare {
    pub(crate) fn new(publisher: Publisher, shape: Shape) -> RabbitBare {
        RabbitBare { publisher, shape }
    }
}

impl Bare for RabbitBare {
    fn send(&mut self, _key: &str, payload: &str) -> Result<()> {
        self.publisher.append(&mut self.shape, payload.as_bytes());
        self.publisher.flush()?;
        self.publisher.hear(false)
    }

    fn settle(&mut self) -> Result<()> {
        while self.publisher.unconfirmed() > 0 {
            self.publisher.hear(true)?;
        }
        Ok(())
    }
}
