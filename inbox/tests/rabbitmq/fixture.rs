//! The exchanges and queues of a consumer.

use std::sync::OnceLock;
use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer,
    ExchangeKind,
};
use tokio::runtime::Runtime;
use walrelay_harness::RabbitMq;
use walrelay_inbox::Source;

use crate::support::{LIMIT, Letter, TestBroker, runtime, until};

/// The routing key of messages, where a test has no other.
const ROUTING_KEY: &str = "order.created";
const SHARDS: u32 = 2;

/// A consumer named as its exchange, its queue and its database.
pub(super) type Fixture = crate::support::Fixture<RabbitBroker>;

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

pub(crate) struct RabbitBroker {
    url: String,
    pub(super) routing_key: String,
    runtime: Runtime,
    connection: Connection,
    channel: Channel,
}

impl TestBroker for RabbitBroker {
    const LETTER: &str = "r";
    const DUE_EARLIER_MAX: Duration = Duration::ZERO;
    // It writes them when a message is delivered again.
    const BROKER_HEADERS: &[(&str, &str)] = &[("x-delivery-count", "1"), ("x-acquired-count", "1")];
    const FORGED_REPLAY: &[(&str, &str)] =
        &[("dlq-replay-for", "another"), ("dlq-replay-count", "2147483647")];

    fn shared_url() -> String {
        shared_rabbitmq().amqp_url()
    }

    fn source(url: &str, name: &str) -> impl Into<Source> {
        source(url, name)
    }

    fn open(url: &str, name: &str) -> RabbitBroker {
        let runtime = runtime(1);
        let (connection, channel) = connect(&runtime, url);
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let (exchange, kind) = (events(name).into(), ExchangeKind::Topic);
        let declared = channel.exchange_declare(exchange, kind, options, FieldTable::default());
        runtime.block_on(declared).unwrap();
        let (url, routing_key) = (url.to_owned(), ROUTING_KEY.to_owned());
        RabbitBroker { url, routing_key, runtime, connection, channel }
    }

    fn send(&self, name: &str, headers: &[(&str, &str)], value: &str) {
        let (ids, headers): (Vec<_>, Vec<_>) =
            headers.iter().copied().partition(|(name, _)| *name == "id");
        self.publish(&events(name), &headers, ids.first().map(|(_, id)| *id), value);
    }

    fn replay(&self, name: &str, id: &str, value: &str) {
        self.publish(name, &[("key", "a"), ("dlq-replay-count", "1")], Some(id), value);
    }

    fn origin(name: &str) -> (&str, &str) {
        (ROUTING_KEY, name)
    }

    fn wait_dead_letters(&self, name: &str, count: usize) -> Vec<Letter> {
        let read = async {
            let mut arguments = FieldTable::default();
            let first = AMQPValue::LongString("first".into());
            arguments.insert("x-stream-offset".into(), first);
            let (channel, mut letters) = self.consume(&format!("{name}.dlq"), arguments).await;
            let mut read = Vec::new();
            while read.len() < count {
                let delivery = letters.next().await.unwrap().unwrap();
                delivery.ack(BasicAckOptions::default()).await.unwrap();
                let value = String::from_utf8_lossy(&delivery.data).into_owned();
                read.push(Letter { value, headers: headers_of(&delivery.properties) });
            }
            drop(channel.close(200, "".into()).await);
            read
        };
        let read = async { tokio::time::timeout(LIMIT, read).await };
        self.runtime.block_on(read).expect("there are dead letters")
    }

    /// The queue of the consumer and those of its retries are empty. What is with a consumer is not
    /// counted.
    fn assert_acknowledged(&self, name: &str, _: usize) {
        let retries = ["300ms", "600ms", "1s"].into_iter().flat_map(|level| levels(name, level));
        for queue in retries.chain([name.to_owned()]) {
            let what = format!("queue {queue} is empty");
            until(&what, || (self.ready(&queue) == 0).then_some(()));
        }
    }
}

impl RabbitBroker {
    /// Again, after the broker was away.
    pub(super) fn connect(&mut self) {
        (self.connection, self.channel) = connect(&self.runtime, &self.url);
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
                self.channel.basic_publish(exchange, key, options, value.as_bytes(), properties);
            sent.await?.await
        });
        assert_eq!(confirmed.unwrap(), Confirmation::Ack(None));
    }

    /// Begins to read a queue, on a channel of its own.
    async fn consume(&self, queue: &str, arguments: FieldTable) -> (Channel, Consumer) {
        let channel = self.connection.create_channel().await.unwrap();
        channel.basic_qos(1, BasicQosOptions::default()).await.unwrap();
        let options = BasicConsumeOptions::default();
        let consumer = channel.basic_consume(queue.into(), "test".into(), options, arguments).await;
        (channel, consumer.unwrap())
    }

    /// Takes the first message of a queue, and is gone without acknowledging it.
    pub(super) fn take_and_leave(&self, queue: &str) {
        let taken = async {
            let (channel, mut consumer) = self.consume(queue, FieldTable::default()).await;
            consumer.next().await.unwrap().unwrap();
            channel.close(200, "".into()).await.unwrap();
        };
        let taken = async { tokio::time::timeout(LIMIT, taken).await };
        self.runtime.block_on(taken).expect("there is a message");
    }

    /// Messages of a queue that are with no consumer.
    pub(super) fn ready(&self, queue: &str) -> u32 {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let asked = self.channel.queue_declare(queue.into(), options, FieldTable::default());
        self.runtime.block_on(asked).unwrap().message_count()
    }

    /// Takes the queues of a level away from their exchanges, or gives them back.
    pub(super) fn bind_level(&self, name: &str, level: &str, is_bound: bool) {
        for name in levels(name, level) {
            let (queue, exchange, any) = (name.as_str().into(), name.as_str().into(), "".into());
            let nothing = FieldTable::default();
            self.runtime.block_on(async {
                let options = QueueBindOptions::default();
                match is_bound {
                    true => self.channel.queue_bind(queue, exchange, any, options, nothing).await,
                    false => self.channel.queue_unbind(queue, exchange, any, nothing).await,
                }
                .unwrap();
            });
        }
    }
}

impl Fixture {
    pub(super) fn assert_all_acknowledged(&self) {
        self.assert_acknowledged(0);
    }

    /// Messages of the consumer's queue that are with no consumer.
    pub(super) fn ready(&self) -> u32 {
        self.broker.ready(&self.name)
    }

    /// Instances that read the queue of the consumer, or wait to read it; on the shared broker.
    pub(super) fn consumers(&self) -> String {
        let name = format!("rabbit_misc:r(<<\"/\">>, queue, <<\"{}\">>)", self.name);
        let queue = format!("element(2, rabbit_amqqueue:lookup({name}))");
        shared_rabbitmq().eval(&format!("length(rabbit_amqqueue:consumers({queue}))")).unwrap()
    }
}

fn connect(runtime: &Runtime, url: &str) -> (Connection, Channel) {
    until("a connection", || {
        runtime.block_on(async {
            let options = ConnectionProperties::default();
            let connection = Connection::connect(url, options).await.ok()?;
            let channel = connection.create_channel().await.ok()?;
            channel.confirm_select(ConfirmSelectOptions::default()).await.ok()?;
            Some((connection, channel))
        })
    })
}

/// The queues of a retry level.
fn levels(name: &str, level: &str) -> impl Iterator<Item = String> {
    (0..SHARDS).map(move |shard| format!("{name}.retry.{level}.{shard}"))
}

/// With the properties as headers.
fn headers_of(properties: &BasicProperties) -> Vec<(String, String)> {
    let text = |text: &Option<ShortString>| text.as_ref().map(ToString::to_string);
    let known = [
        ("id", text(properties.message_id())),
        ("type", text(properties.kind())),
        ("content-type", text(properties.content_type())),
        ("delivery-mode", properties.delivery_mode().map(|mode| mode.to_string())),
    ];
    let known = known.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?)));
    let headers = properties.headers().iter().flat_map(|headers| headers.inner());
    let headers = headers.map(|(name, value)| {
        let text = match value {
            AMQPValue::LongString(text) => text.to_string(),
            other => format!("{other:?}"),
        };
        (name.to_string(), text)
    });
    known.chain(headers).collect()
}
