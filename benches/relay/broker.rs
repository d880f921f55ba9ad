//! The broker that is measured, and the topic or queue that each measurement gets afresh.

use std::time::Duration;

use walrelay_harness::consumer::{Consumer, DrainWatch, Mode, create_topic, delete_topic};
use walrelay_harness::kit::wait_at_most;
pub(crate) use walrelay_harness::rabbit::Queue;
use walrelay_harness::rabbit::Rabbit;
use walrelay_harness::relay::RelayConfig;
use walrelay_harness::{Broker, HarnessError, Result};

use crate::amqp::{Publisher, Shape};
use crate::bare::{Bare, RabbitBare};
use crate::kafka_ffi::Producer;

/// Partitions of every topic, as the peers were measured.
const PARTITIONS: i32 = 8;
/// A queue may count what it has confirmed a little later.
const COUNT_LIMIT: Duration = Duration::from_secs(10);

/// Name and version.
pub(crate) fn version(broker: &Broker) -> Result<String> {
    Ok(match broker {
        Broker::Kafka(kafka) => format!("Kafka {}", kafka.version()),
        Broker::RabbitMq(server) => {
            format!("RabbitMQ {}", server.eval("rabbit_misc:version()")?.trim_matches('"'))
        }
    })
}

enum At {
    Kafka(String),
    RabbitMq { url: String, port: u16 },
}

/// A topic, or a queue behind an exchange. It goes with its measurement: the broker's disk is
/// bounded too.
pub(crate) struct Target {
    at: At,
    prefix: String,
    /// The name of the topic; that of the queue and of the routing key that leads to it.
    name: String,
}

impl Target {
    /// A new place for events; `number` was not given before.
    pub(crate) fn new(broker: &Broker, queue: Queue, number: u64) -> Result<Target> {
        let prefix = format!("bench{number}");
        let name = format!("{prefix}.order");
        let at = match broker {
            Broker::Kafka(kafka) => {
                let brokers = kafka.bootstrap();
                create_topic(&brokers, &name, PARTITIONS, &[])?;
                At::Kafka(brokers)
            }
            Broker::RabbitMq(server) => {
                let url = server.amqp_url();
                let mut rabbit = Rabbit::open(&url)?;
                rabbit.declare_exchange(&prefix, "topic")?;
                rabbit.declare_queue(&name, queue)?;
                rabbit.bind(&name, &prefix, &name)?;
                rabbit.close();
                At::RabbitMq { url, port: server.port() }
            }
        };
        Ok(Target { at, prefix, name })
    }

    /// A relay that publishes here.
    pub(crate) fn relay_config(&self, postgres_url: String) -> RelayConfig {
        let mut config = match &self.at {
            At::Kafka(brokers) => RelayConfig::new(postgres_url, brokers),
            At::RabbitMq { url, .. } => RelayConfig::rabbitmq(postgres_url, url, &self.prefix),
        };
        config.topic = format!("{}.${{aggregatetype}}", self.prefix);
        config
    }

    /// Times what arrives.
    pub(crate) fn consumer(&self) -> Result<Consumer> {
        match &self.at {
            At::Kafka(brokers) => Consumer::start(brokers, &[&self.name], Mode::Latency),
            At::RabbitMq { url, .. } => Consumer::of_queues(url, &[&self.name], Mode::Latency),
        }
    }

    /// A producer with nothing before it.
    pub(crate) fn bare(&self) -> Result<Box<dyn Bare>> {
        Ok(match &self.at {
            At::Kafka(brokers) => Box::new(Producer::new(brokers, &self.name)?),
            At::RabbitMq { .. } => {
                let (publisher, shape) = self.publisher()?;
                Box::new(RabbitBare::new(publisher, shape))
            }
        })
    }

    /// Brokers and topic.
    pub(crate) fn topic(&self) -> Result<(&str, &str)> {
        match &self.at {
            At::Kafka(brokers) => Ok((brokers, &self.name)),
            At::RabbitMq { .. } => Err(HarnessError::Other("RabbitMQ has no topics".into())),
        }
    }

    /// A raw publisher into the queue, and what it publishes.
    pub(crate) fn publisher(&self) -> Result<(Publisher, Shape)> {
        match &self.at {
            At::Kafka(_) => {
                Err(HarnessError::Other("Kafka has no bare pipelined publisher".into()))
            }
            At::RabbitMq { port, .. } => {
                Ok((Publisher::open(*port)?, Shape::new(&self.prefix, &self.name)))
            }
        }
    }

    /// Expects that the broker holds exactly `events`.
    pub(crate) fn expect(&self, events: u64) -> Result<()> {
        let mut held = 0;
        wait_at_most(COUNT_LIMIT, Duration::from_millis(20), || {
            held = self.held()?;
            Ok((held >= events).then_some(()))
        })?;
        if held == events {
            return Ok(());
        }
        Err(HarnessError::Other(format!("{events} events gave {held} messages")))
    }

    fn held(&self) -> Result<u64> {
        match &self.at {
            At::Kafka(brokers) => DrainWatch::new(brokers, &self.name)?.records(),
            At::RabbitMq { url, .. } => {
                let mut rabbit = Rabbit::open(url)?;
                let held = rabbit.message_count(&self.name);
                rabbit.close();
                held
            }
        }
    }

    /// Takes all messages out of the queue and compares the first with what the bare publisher
    /// sends: the two must be the same load for the broker.
    pub(crate) fn compare_with_bare(&self) -> Result<()> {
        let At::RabbitMq { url, .. } = &self.at else { return Ok(()) };
        let mut rabbit = Rabbit::open(url)?;
        let taken = rabbit.take(&self.name)?;
        rabbit.close();
        match taken.first() {
            Some(delivery) => Shape::compare(delivery),
            None => Err(HarnessError::Other("the relay published nothing".into())),
        }
    }

    /// Watches a topic grow.
    pub(crate) fn watch(&self) -> Result<DrainWatch> {
        match &self.at {
            At::Kafka(brokers) => DrainWatch::new(brokers, &self.name),
            At::RabbitMq { .. } => Err(HarnessError::Other("growth goes through Kafka".into())),
        }
    }

    fn remove(&self) -> Result<()> {
        match &self.at {
            At::Kafka(brokers) => delete_topic(brokers, &self.name),
            At::RabbitMq { url, .. } => {
                let mut rabbit = Rabbit::open(url)?;
                rabbit.delete_queue(&self.name)?;
                rabbit.delete_exchange(&self.prefix)?;
                rabbit.close();
                Ok(())
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.remove());
    }
}
