//! Where the demo's events go.

use std::path::Path;

use crate::consumer::{Consumer, Mode};
use crate::kit::KitResult;
use crate::relay::{RabbitTarget, RelayConfig};
use crate::{Kafka, RabbitMq};

const EXCHANGE: &str = "outbox.events";
/// One for each of the demo's consumers: what one takes out of a queue the other never sees.
const RECORDS: &str = "demo.records";
const LATENCY: &str = "demo.latency";
const BINDING: &str = "outbox.event.#";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    Kafka,
    RabbitMq,
}

pub(super) enum Broker {
    Kafka(Kafka),
    RabbitMq(RabbitMq),
}

impl Broker {
    pub(super) fn start(sink: Sink) -> KitResult<Broker> {
        match sink {
            Sink::Kafka => Ok(Broker::Kafka(Kafka::start()?)),
            Sink::RabbitMq => Ok(Broker::RabbitMq(RabbitMq::start()?)),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Broker::Kafka(_) => "Kafka",
            Broker::RabbitMq(_) => "RabbitMQ",
        }
    }

    pub(super) fn port(&self) -> u16 {
        match self {
            Broker::Kafka(kafka) => kafka.port(),
            Broker::RabbitMq(rabbitmq) => rabbitmq.port(),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        match self {
            Broker::Kafka(kafka) => kafka.folder(),
            Broker::RabbitMq(rabbitmq) => rabbitmq.folder(),
        }
    }

    pub(super) fn config(&self, url: &str, topics: &[&str]) -> RelayConfig {
        match self {
            Broker::Kafka(kafka) => RelayConfig {
                kafka_extra: format!("topics = {topics:?}"),
                ..RelayConfig::new(url, kafka.bootstrap())
            },
            Broker::RabbitMq(rabbitmq) => {
                let queues = [RECORDS, LATENCY].map(|queue| format!("{queue:?} = {BINDING:?}"));
                let target = RabbitTarget {
                    url: rabbitmq.amqp_url(),
                    exchange: EXCHANGE.into(),
                    extra: format!("queues = {{ {} }}", queues.join(", ")),
                };
                RelayConfig { rabbitmq: Some(target), ..RelayConfig::new(url, "") }
            }
        }
    }

    pub(super) fn consumer(&self, topics: &[&str], mode: Mode) -> KitResult<Consumer> {
        match self {
            Broker::Kafka(kafka) => Consumer::start(&kafka.bootstrap(), topics, mode),
            Broker::RabbitMq(rabbitmq) => {
                let queue = match mode {
                    Mode::Records | Mode::Content(_) => RECORDS,
                    Mode::Latency => LATENCY,
                };
                Consumer::of_queues(&rabbitmq.amqp_url(), &[queue], mode)
            }
        }
    }
}
