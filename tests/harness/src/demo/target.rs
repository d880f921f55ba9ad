//! Where the demo's events go.

use crate::consumer::{Consumer, Mode};
use crate::relay::{RabbitTarget, RelayConfig};
use crate::{Broker, Result};

const EXCHANGE: &str = "outbox.events";
/// One for each of the demo's consumers: what one takes out of a queue the other never sees.
const RECORDS: &str = "demo.records";
const LATENCY: &str = "demo.latency";
const BINDING: &str = "outbox.event.#";

pub(super) fn config(broker: &Broker, url: &str, topics: &[&str]) -> RelayConfig {
    match broker {
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

pub(super) fn consumer(broker: &Broker, topics: &[&str], mode: Mode) -> Result<Consumer> {
    match broker {
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
