//! The consumer without the inbox: reads, hands each message to the lane of its key, and tells the broker
//! what is done: on Kafka by its offsets at the end, on RabbitMQ by acknowledging each message. It would do
//! a message twice after a crash.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Acker, Connection, ConnectionProperties};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;
use walrelay_harness::{Broker, HarnessError, Result, other};

use crate::Options;
use crate::handler::{Counted, wait};
use crate::topic::TOPIC;

const POLL: Duration = Duration::from_millis(100);
/// As many as wait in front of a lane of the inbox.
const WAITING: usize = 64;
/// As many as RabbitMQ sends ahead to the inbox.
const PREFETCH: u16 = 64;
const LANE_HAS_ENDED: &str = "a lane has ended";

pub(crate) fn consume(
    broker: &Broker,
    url: &str,
    name: &str,
    options: &Options,
) -> Result<Duration> {
    let runtime = Runtime::new().map_err(HarnessError::io("start a runtime"))?;
    let counted = Arc::new(Counted::new(options.messages));
    let lanes = runtime.block_on(Lanes::start(url, options.lanes, &counted))?;
    match broker {
        Broker::Kafka(kafka) => read_kafka(&kafka.bootstrap(), name, &counted, lanes, &runtime)?,
        Broker::RabbitMq(rabbitmq) => {
            runtime.block_on(read_rabbitmq(&rabbitmq.amqp_url(), name, &counted, lanes))?;
        }
    }
    Ok(runtime.block_on(wait(counted.done())))
}

fn read_kafka(
    brokers: &str,
    group: &str,
    counted: &Counted,
    lanes: Lanes,
    runtime: &Runtime,
) -> Result<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", group).set("log_level", "0");
    config.set("auto.offset.reset", "earliest").set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create()?;
    consumer.subscribe(&[TOPIC])?;
    let done = counted.done();
    while done.borrow().is_none() {
        let Some(message) = consumer.poll(POLL) else { continue };
        let message = message?;
        let lane = lanes.of(message.key().unwrap_or_default());
        lane.blocking_send(of_kafka(&message)).map_err(|_| other(LANE_HAS_ENDED))?;
    }
    runtime.block_on(lanes.end())?;
    Ok(consumer.commit_consumer_state(CommitMode::Sync)?)
}

async fn read_rabbitmq(url: &str, queue: &str, counted: &Counted, lanes: Lanes) -> Result<()> {
    let connection = Connection::connect(url, ConnectionProperties::default());
    let connection = connection.await.map_err(other)?;
    let channel = connection.create_channel().await.map_err(other)?;
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await.map_err(other)?;
    let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
    let consuming = channel.basic_consume(queue.into(), "bare".into(), options, arguments);
    let mut deliveries = consuming.await.map_err(other)?;
    let mut done = counted.done();
    loop {
        let delivery = tokio::select! {
            delivery = deliveries.next() => delivery.ok_or_else(|| other("the queue has ended"))?,
            _ = done.wait_for(Option::is_some) => break,
        };
        let delivery = delivery.map_err(other)?;
        let headers = delivery.properties.headers().as_ref();
        let key = headers.and_then(|headers| headers.inner().get("key"));
        let key = key.and_then(|value| value.as_long_string()).map(|text| text.as_bytes());
        let lane = lanes.of(key.unwrap_or_default());
        let id = delivery.properties.message_id().as_ref();
        let work = Work {
            id: id.map(ToString::to_string).unwrap_or_default(),
            bytes: delivery.data.len(),
            acker: Some(delivery.acker),
        };
        lane.send(work).await.map_err(|_| other(LANE_HAS_ENDED))?;
    }
    lanes.end().await?;
    connection.close(200, "".into()).await.map_err(other)
}

/// A message as its lane needs it.
struct Work {
    id: String,
    bytes: usize,
    acker: Option<Acker>,
}

fn of_kafka(message: &BorrowedMessage<'_>) -> Work {
    let id = message.headers().and_then(|headers| {
        let header = headers.iter().find(|header| header.key == "id")?;
        std::str::from_utf8(header.value?).ok()
    });
    let bytes = message.payload().unwrap_or_default().len();
    Work { id: id.unwrap_or_default().to_owned(), bytes, acker: None }
}

struct Lanes {
    senders: Vec<mpsc::Sender<Work>>,
    tasks: JoinSet<Result<()>>,
}

impl Lanes {
    async fn start(url: &str, count: usize, counted: &Arc<Counted>) -> Result<Lanes> {
        let mut lanes = Lanes { senders: Vec::new(), tasks: JoinSet::new() };
        for _ in 0..count {
            let (sender, receiver) = mpsc::channel(WAITING);
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(async move { drop(connection.await) });
            lanes.senders.push(sender);
            lanes.tasks.spawn(lane(client, receiver, counted.clone()));
        }
        Ok(lanes)
    }

    fn of(&self, key: &[u8]) -> &mpsc::Sender<Work> {
        &self.senders[(hash(key) % self.senders.len() as u64) as usize]
    }

    /// Waits for the commit of all that the lanes were given.
    async fn end(mut self) -> Result<()> {
        self.senders.clear();
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(other)??;
        }
        Ok(())
    }
}

async fn lane(
    mut client: tokio_postgres::Client,
    mut messages: mpsc::Receiver<Work>,
    counted: Arc<Counted>,
) -> Result<()> {
    while let Some(Work { id, bytes, acker }) = messages.recv().await {
        let transaction = client.transaction().await?;
        counted.write(&transaction, &id, bytes).await?;
        transaction.commit().await?;
        if let Some(acker) = acker {
            acker.ack(BasicAckOptions::default()).await.map_err(other)?;
        }
    }
    Ok(())
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
