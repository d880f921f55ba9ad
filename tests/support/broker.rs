//! Kafka or RabbitMQ, so that one test body serves both.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use walrelay_harness::consumer::{self, Consumer, Mode, Record};
use walrelay_harness::rabbit::{Queue, Rabbit, Tap, Value};
use walrelay_harness::relay::RelayConfig;
use walrelay_harness::{Broker, BrokerKind, Kafka, RabbitMq};

use super::{LIMIT, shared_kafka, shared_rabbitmq, until};

pub(crate) enum Destination {
    Kafka {
        brokers: String,
    },
    RabbitMq {
        url: String,
        /// The URL that the relay gets instead: the same broker through a [`Tap`].
        relay_url: String,
        /// A queue of each kind, all bound to the fixture's exchange.
        queues: Vec<Queue>,
    },
}

impl From<&Kafka> for Destination {
    fn from(kafka: &Kafka) -> Destination {
        Destination::Kafka { brokers: kafka.bootstrap() }
    }
}

impl From<&RabbitMq> for Destination {
    fn from(rabbitmq: &RabbitMq) -> Destination {
        let url = rabbitmq.amqp_url();
        Destination::RabbitMq { relay_url: url.clone(), url, queues: vec![Queue::Quorum] }
    }
}

impl From<&Broker> for Destination {
    fn from(broker: &Broker) -> Destination {
        match broker {
            Broker::Kafka(kafka) => kafka.into(),
            Broker::RabbitMq(rabbitmq) => rabbitmq.into(),
        }
    }
}

impl From<BrokerKind> for Destination {
    /// On the broker that all tests share.
    fn from(kind: BrokerKind) -> Destination {
        match kind {
            BrokerKind::Kafka => shared_kafka().into(),
            BrokerKind::RabbitMq => shared_rabbitmq().into(),
        }
    }
}

impl Destination {
    pub(crate) fn kind(&self) -> BrokerKind {
        match self {
            Destination::Kafka { .. } => BrokerKind::Kafka,
            Destination::RabbitMq { .. } => BrokerKind::RabbitMq,
        }
    }

    /// Both kinds of durable queues, and a tap between the relay and its broker.
    pub(crate) fn tapped(rabbitmq: &RabbitMq, tap: &Tap) -> Destination {
        Destination::RabbitMq {
            url: rabbitmq.amqp_url(),
            relay_url: tap.amqp_url(),
            queues: vec![Queue::Quorum, Queue::Classic],
        }
    }

    /// A virtual host of its own.
    pub(crate) fn vhost(name: &str) -> Destination {
        let broker = super::rabbitmq::shared();
        broker.tenant(name, [".*"; 3]);
        let url = format!("amqp://{name}:{name}@127.0.0.1:{}/{name}", broker.node.port());
        Destination::RabbitMq { relay_url: url.clone(), url, queues: vec![Queue::Quorum] }
    }

    /// A topic, or exchange and queues.
    pub(super) fn prepare(&self, name: &str) {
        match self {
            Destination::Kafka { brokers } => {
                consumer::create_topic(brokers, name, 4, &[]).unwrap();
            }
            Destination::RabbitMq { url, queues, .. } => {
                let mut rabbit = Rabbit::open(url).unwrap();
                rabbit.declare_exchange(name, "topic").unwrap();
                for kind in queues {
                    let queue = queue(name, *kind);
                    rabbit.declare_queue(&queue, *kind).unwrap();
                    rabbit.bind(&queue, name, name).unwrap();
                }
                rabbit.close();
            }
        }
    }

    /// Has a topic carry the broker's time, for an oracle that asks when it was stored. Messages of
    /// RabbitMQ are timed by a [`Tap`].
    pub(super) fn stamp_by_broker(&self, name: &str) {
        if let Destination::Kafka { brokers } = self {
            consumer::alter_topic(brokers, name, "message.timestamp.type", "LogAppendTime")
                .unwrap();
        }
    }

    /// Makes a destination for `topic`: a topic, or a queue of that name bound to the exchange.
    pub(super) fn open_route(&self, exchange: &str, topic: &str) {
        match self {
            Destination::Kafka { brokers } => {
                consumer::create_topic(brokers, topic, 4, &[]).unwrap()
            }
            Destination::RabbitMq { url, .. } => {
                let mut rabbit = Rabbit::open(url).unwrap();
                rabbit.declare_queue(topic, Queue::Quorum).unwrap();
                rabbit.bind(topic, exchange, topic).unwrap();
                rabbit.close();
            }
        }
    }

    /// Limits what a destination takes: a topic by the size of a record, a queue, which is declared
    /// anew, by its size in all.
    pub(super) fn limit_route(&self, exchange: &str, topic: &str, bytes_max: u64) {
        match self {
            Destination::Kafka { brokers } => {
                consumer::alter_topic(brokers, topic, "max.message.bytes", &bytes_max.to_string())
                    .unwrap();
            }
            Destination::RabbitMq { url, .. } => {
                let bytes_max = Value::from(i64::try_from(bytes_max).unwrap());
                let limit = [
                    ("x-max-length-bytes", bytes_max),
                    ("x-overflow", Value::from("reject-publish")),
                ];
                let mut rabbit = Rabbit::open(url).unwrap();
                rabbit.delete_queue(topic).unwrap();
                rabbit.declare_queue_with(topic, Queue::Classic, &limit).unwrap();
                rabbit.bind(topic, exchange, topic).unwrap();
                rabbit.close();
            }
        }
    }

    /// Deletes the dead-letter topic of a fixture, or its exchange and queue.
    pub(super) fn remove_dead_letters(&self, name: &str) {
        let topic = format!("{name}.dlq");
        match self {
            Destination::Kafka { brokers } => consumer::delete_topic(brokers, &topic).unwrap(),
            Destination::RabbitMq { url, .. } => {
                let mut rabbit = Rabbit::open(url).unwrap();
                rabbit.delete_exchange(&format!("{name}.dlx")).unwrap();
                rabbit.delete_queue(&topic).unwrap();
                rabbit.close();
            }
        }
    }

    pub(super) fn config(&self, url: &str, name: &str) -> RelayConfig {
        match self {
            Destination::Kafka { brokers } => RelayConfig::new(url, brokers),
            Destination::RabbitMq { relay_url, .. } => RelayConfig::rabbitmq(url, relay_url, name),
        }
    }

    pub(super) fn reader(&self, name: &str) -> Reader {
        match self {
            Destination::Kafka { brokers } => Reader::Topic {
                consumer: Consumer::start(brokers, &[name], Mode::Records).unwrap(),
                brokers: brokers.clone(),
                topic: name.into(),
            },
            Destination::RabbitMq { url, queues, .. } => Reader::Queues(Box::new(Queues {
                url: url.clone(),
                names: queues.iter().map(|kind| queue(name, *kind)).collect(),
                rabbit: Mutex::new(None),
                last: AtomicU64::new(0),
            })),
        }
    }
}

fn queue(name: &str, kind: Queue) -> String {
    match kind {
        Queue::Quorum => name.to_owned(),
        Queue::Classic => format!("{name}.classic"),
    }
}

pub(crate) enum Reader {
    Topic {
        consumer: Consumer,
        brokers: String,
        topic: String,
    },
    /// Read only at the end: what a consumer had at a broker's kill would come again.
    Queues(Box<Queues>),
}

pub(crate) struct Queues {
    url: String,
    names: Vec<String>,
    rabbit: Mutex<Option<Rabbit>>,
    last: AtomicU64,
}

impl Reader {
    /// How much has arrived; while the broker is away, what was last known.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Reader::Topic { consumer, .. } => consumer.count(),
            Reader::Queues(queues) => queues.count(),
        }
    }

    #[track_caller]
    pub(crate) fn wait_until(&self, wanted: u64, limit: Duration) {
        match self {
            Reader::Topic { consumer, .. } => consumer.wait_until(wanted, limit).unwrap(),
            Reader::Queues(queues) => {
                let what = format!("{wanted} messages");
                until(&what, limit, || (queues.count() >= wanted).then_some(()));
            }
        }
    }

    /// Everything that the broker holds, by queue; a topic is one.
    pub(crate) fn finish(self) -> Vec<Vec<Record>> {
        match self {
            Reader::Topic { consumer, brokers, topic } => {
                let ends = consumer::end_offsets(&brokers, &topic).unwrap();
                let held = u64::try_from(ends.values().sum::<i64>()).unwrap();
                consumer.wait_until(held, LIMIT).unwrap();
                vec![consumer.stop().records]
            }
            Reader::Queues(queues) => {
                let mut rabbit = Rabbit::open(&queues.url).unwrap();
                queues.names.iter().map(|name| rabbit.drain(name).unwrap()).collect()
            }
        }
    }
}

impl Queues {
    fn count(&self) -> u64 {
        let mut rabbit = self.rabbit.lock().unwrap_or_else(PoisonError::into_inner);
        let counted =
            rabbit.take().map_or_else(|| Rabbit::open(&self.url), Ok).and_then(|mut it| {
                let count = it.message_count(&self.names[0])?;
                *rabbit = Some(it);
                Ok(count)
            });
        if let Ok(count) = counted {
            self.last.store(count, Ordering::Relaxed);
        }
        self.last.load(Ordering::Relaxed)
    }
}
