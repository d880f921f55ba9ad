//! An exchange, a database, and the consumer between them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ExchangeKind, Queue,
};
use tokio::runtime::Runtime;
use walrelay_harness::{Postgres, RabbitMq};
use walrelay_inbox::{Inbox, Settings};

use crate::support::{
    Calls, Database, LEVELS, LIMIT, Running, log, runtime, shared_postgres, until,
};

/// The routing key of messages, where a fixture has no other.
pub(super) const ROUTING_KEY: &str = "order.created";
const SHARDS: u32 = 2;

pub(super) fn shared_rabbitmq() -> &'static RabbitMq {
    static RABBITMQ: OnceLock<RabbitMq> = OnceLock::new();
    RABBITMQ.get_or_init(|| RabbitMq::start().unwrap())
}

pub(super) fn source(url: &str, name: &str) -> walrelay_inbox::RabbitMq {
    walrelay_inbox::RabbitMq::new(url, ["order.*"]).exchange(events(name)).shards(SHARDS)
}

fn events(name: &str) -> String {
    format!("{name}.events")
}

pub(super) fn settings(service: &str, url: &str) -> Settings {
    Settings::new(service, url).lanes(3).levels(LEVELS).stop_within(Duration::from_secs(5))
}

/// A consumer named as its database.
pub(super) struct Fixture {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) database: Database,
    pub(super) routing_key: String,
    runtime: Runtime,
    connection: Option<Connection>,
    channel: Option<Channel>,
}

/// A dead letter as it was read back.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) value: String,
    pub(super) properties: BasicProperties,
}

impl Letter {
    pub(super) fn header(&self, name: &str) -> String {
        let headers = self.properties.headers().as_ref();
        match headers.and_then(|headers| headers.inner().get(name)) {
            Some(AMQPValue::LongString(text)) => text.to_string(),
            Some(other) => format!("{other:?}"),
            None => String::new(),
        }
    }
}

impl Fixture {
    /// On the shared services, with all that `init` makes.
    pub(super) fn new(name: &str) -> Fixture {
        let fixture = Fixture::bare(name, shared_postgres(), &shared_rabbitmq().amqp_url());
        fixture.init();
        fixture
    }

    /// With the relay's exchange and a database only.
    pub(super) fn bare(name: &str, postgres: &Postgres, url: &str) -> Fixture {
        log();
        let mut fixture = Fixture {
            name: name.to_owned(),
            url: url.to_owned(),
            database: Database::new(postgres, name),
            routing_key: ROUTING_KEY.to_owned(),
            runtime: runtime(1),
            connection: None,
            channel: None,
        };
        fixture.connect();
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let (exchange, kind) = (events(name).into(), ExchangeKind::Topic);
        let declared =
            fixture.channel().exchange_declare(exchange, kind, options, FieldTable::default());
        fixture.runtime.block_on(declared).unwrap();
        fixture
    }

    /// Again, after the broker was away.
    pub(super) fn connect(&mut self) {
        let url = self.url.clone();
        let (connection, channel) = until("a connection", || {
            self.runtime.block_on(async {
                let options = ConnectionProperties::default();
                let connection = Connection::connect(&url, options).await.ok()?;
                let channel = connection.create_channel().await.ok()?;
                channel.confirm_select(ConfirmSelectOptions::default()).await.ok()?;
                Some((connection, channel))
            })
        });
        (self.connection, self.channel) = (Some(connection), Some(channel));
    }

    fn channel(&self) -> &Channel {
        self.channel.as_ref().unwrap()
    }

    pub(super) fn settings(&self) -> Settings {
        settings(&self.name, &self.database.url)
    }

    pub(super) fn init(&self) {
        let inbox = Inbox::new(self.settings(), source(&self.url, &self.name));
        runtime(1).block_on(inbox.init()).unwrap();
    }

    pub(super) fn start(&self) -> Running {
        self.start_with(source(&self.url, &self.name), &Calls::new())
    }

    pub(super) fn start_with(
        &self,
        source: walrelay_inbox::RabbitMq,
        calls: &Arc<Calls>,
    ) -> Running {
        Running::start(self.settings(), source, calls)
    }

    /// A message as the relay publishes it.
    pub(super) fn send(&self, key: &str, id: &str, value: &str) {
        self.send_with(&[("key", key)], Some(id), value);
    }

    pub(super) fn send_with(&self, headers: &[(&str, &str)], id: Option<&str>, value: &str) {
        self.publish(&events(&self.name), headers, id, value);
    }

    pub(super) fn publish(
        &self,
        exchange: &str,
        headers: &[(&str, &str)],
        id: Option<&str>,
        value: &str,
    ) {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), AMQPValue::LongString((*value).into()));
        }
        let mut properties = BasicProperties::default().with_headers(table).with_delivery_mode(2);
        properties = properties.with_type("OrderCreated".into());
        properties = properties.with_content_type("application/json".into());
        if let Some(id) = id {
            properties = properties.with_message_id(id.into());
        }
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let (exchange, key) = (exchange.into(), self.routing_key.as_str().into());
        let confirmed = self.runtime.block_on(async {
            let sent =
                self.channel().basic_publish(exchange, key, options, value.as_bytes(), properties);
            sent.await?.await
        });
        assert_eq!(confirmed.unwrap(), Confirmation::Ack(None));
    }

    /// Takes the first message of the consumer's queue, and is gone without acknowledging it.
    pub(super) fn take_and_leave(&self) {
        let taken = async {
            let channel = self.connection.as_ref().unwrap().create_channel().await.unwrap();
            channel.basic_qos(1, BasicQosOptions::default()).await.unwrap();
            let (queue, options) = (self.name.as_str().into(), BasicConsumeOptions::default());
            let consumer =
                channel.basic_consume(queue, "lost".into(), options, FieldTable::default()).await;
            consumer.unwrap().next().await.unwrap().unwrap();
            channel.close(200, "".into()).await.unwrap();
        };
        let taken = async { tokio::time::timeout(LIMIT, taken).await };
        self.runtime.block_on(taken).expect("there is a message");
    }

    /// Messages of a queue that are with no consumer.
    pub(super) fn ready(&self, queue: &str) -> u32 {
        self.ask(queue).message_count()
    }

    /// Instances that read the queue of the consumer, or wait to read it; on the shared broker.
    pub(super) fn consumers(&self) -> String {
        let name = format!("rabbit_misc:r(<<\"/\">>, queue, <<\"{}\">>)", self.name);
        let queue = format!("element(2, rabbit_amqqueue:lookup({name}))");
        shared_rabbitmq().eval(&format!("length(rabbit_amqqueue:consumers({queue}))")).unwrap()
    }

    fn ask(&self, queue: &str) -> Queue {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let asked = self.channel().queue_declare(queue.into(), options, FieldTable::default());
        self.runtime.block_on(asked).unwrap()
    }

    /// The queue of the consumer and those of its retries are empty. To be asked when no inbox
    /// runs, because what is with a consumer is not counted.
    pub(super) fn assert_all_acknowledged(&self) {
        let levels = ["300ms", "600ms", "1s"];
        let retries = levels.iter().flat_map(|level| {
            (0..SHARDS).map(move |shard| format!("{}.retry.{level}.{shard}", self.name))
        });
        for queue in retries.chain([self.name.clone()]) {
            let what = format!("queue {queue} is empty");
            until(&what, || (self.ready(&queue) == 0).then_some(()));
        }
    }

    /// Takes the queues of a level away from their exchanges, or gives them back.
    pub(super) fn bind_level(&self, level: &str, is_bound: bool) {
        for shard in 0..SHARDS {
            let name = format!("{}.retry.{level}.{shard}", self.name);
            let (queue, exchange, any) = (name.as_str().into(), name.as_str().into(), "".into());
            let nothing = FieldTable::default();
            self.runtime.block_on(async {
                let channel = self.channel();
                let options = QueueBindOptions::default();
                match is_bound {
                    true => channel.queue_bind(queue, exchange, any, options, nothing).await,
                    false => channel.queue_unbind(queue, exchange, any, nothing).await,
                }
                .unwrap();
            });
        }
    }

    /// Waits for so many dead letters, and returns them.
    pub(super) fn wait_dead_letters(&self, count: usize) -> Vec<Letter> {
        let queue = format!("{}.dlq", self.name);
        let read = async {
            let channel = self.connection.as_ref().unwrap().create_channel().await.unwrap();
            channel.basic_qos(100, BasicQosOptions::default()).await.unwrap();
            let mut arguments = FieldTable::default();
            let first = AMQPValue::LongString("first".into());
            arguments.insert("x-stream-offset".into(), first);
            let options = BasicConsumeOptions::default();
            let consumer =
                channel.basic_consume(queue.into(), "letters".into(), options, arguments).await;
            let mut consumer = consumer.unwrap();
            let mut letters = Vec::new();
            while letters.len() < count {
                let delivery = consumer.next().await.unwrap().unwrap();
                delivery.ack(BasicAckOptions::default()).await.unwrap();
                letters.push(Letter {
                    value: String::from_utf8_lossy(&delivery.data).into_owned(),
                    properties: delivery.properties,
                });
            }
            drop(channel.close(200, "".into()).await);
            letters
        };
        let read = async { tokio::time::timeout(LIMIT, read).await };
        self.runtime.block_on(read).expect("there are dead letters")
    }
}
