//! Exchanges, queues and what lies in them: the administrator's and the reader's side of RabbitMQ.
//!
//! A queue is read into the same [`Record`]s as a topic, so that one oracle judges both: the topic
//! is the routing key, the offset the place in the queue, the key a header. AMQP has no broker
//! time; a [`Tap`] on the relay's connection supplies it.

mod consumer;
mod tap;

use std::time::{Duration, Instant};

use amq_protocol::protocol::basic::{Ack, Cancel, Consume, Qos};
use amq_protocol::protocol::queue::{Bind, Declare, Delete, Purge};
use amq_protocol::protocol::{AMQPClass, basic, confirm, exchange, queue};
use amq_protocol::types::FieldTable;

pub use self::tap::{Passed, Tap};
pub use crate::amqp::{Delivery, Properties, Value};

pub(crate) use self::consumer::read;

use crate::amqp::{Client, Event};
use crate::consumer::{Record, parse_lsn};
use crate::kit::{now_us, payload_hash};
use crate::{HarnessError, Result};

/// Deliveries on their way while a queue is drained.
const PREFETCH: u16 = 4_096;
/// Less than are on their way, or nothing would move.
const ACK_EVERY: u64 = 1_024;
const DRAIN_PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// Replicated.
    Quorum,
    Classic,
}

/// Exchange of the relay's dead letters, when nothing else is configured.
pub const DEAD_LETTER_EXCHANGE: &str = "outbox.dlx";
/// Their stream queue, and its binding key.
pub const DEAD_LETTER_QUEUE: &str = "outbox.dlq";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Taken, under this tag; with true all before it too.
    Acked(u64, bool),
    Nacked(u64, bool),
    /// Came back, by message id; its confirm follows.
    Returned(String),
}

pub struct Rabbit {
    client: Client,
}

impl Rabbit {
    pub fn open(url: &str) -> Result<Rabbit> {
        Ok(Rabbit { client: Client::open(url)? })
    }

    pub fn close(self) {
        self.client.close();
    }

    pub fn declare_exchange(&mut self, name: &str, kind: &str) -> Result<()> {
        let (exchange, kind) = (name.into(), kind.into());
        let durable = true;
        let declare = exchange::Declare { exchange, kind, durable, ..Default::default() };
        self.call(AMQPClass::Exchange(exchange::AMQPMethod::Declare(declare)))
    }

    /// Deletes an exchange; a missing one is fine.
    pub fn delete_exchange(&mut self, name: &str) -> Result<()> {
        let delete = exchange::Delete { exchange: name.into(), ..Default::default() };
        self.call(AMQPClass::Exchange(exchange::AMQPMethod::Delete(delete)))
    }

    fn call(&mut self, method: AMQPClass) -> Result<()> {
        self.client.call(method).map(drop)
    }

    fn queue(&mut self, method: queue::AMQPMethod) -> Result<()> {
        self.call(AMQPClass::Queue(method))
    }

    fn basic(&mut self, method: basic::AMQPMethod) -> Result<()> {
        self.call(AMQPClass::Basic(method))
    }

    pub fn declare_queue(&mut self, name: &str, kind: Queue) -> Result<()> {
        self.declare_queue_with(name, kind, &[])
    }

    /// The same with arguments: `x-max-length` with `x-overflow`, a dead-letter exchange, …
    pub fn declare_queue_with(
        &mut self,
        name: &str,
        kind: Queue,
        arguments: &[(&str, Value)],
    ) -> Result<()> {
        let kind = match kind {
            Queue::Quorum => "quorum",
            Queue::Classic => "classic",
        };
        let mut all = vec![("x-queue-type", Value::from(kind))];
        all.extend(arguments.iter().cloned());
        self.queue_declare(name, true, &all).map(drop)
    }

    pub fn declare_stream(&mut self, name: &str) -> Result<()> {
        self.queue_declare(name, true, &[("x-queue-type", Value::from("stream"))]).map(drop)
    }

    /// Exchange, queue and binding that dead letters go by.
    pub fn declare_dead_letters(&mut self) -> Result<()> {
        self.declare_exchange(DEAD_LETTER_EXCHANGE, "direct")?;
        self.declare_stream(DEAD_LETTER_QUEUE)?;
        self.bind(DEAD_LETTER_QUEUE, DEAD_LETTER_EXCHANGE, DEAD_LETTER_QUEUE)
    }

    /// Messages in the queue that are not with a consumer. A missing queue is a refusal with 404.
    pub fn message_count(&mut self, queue: &str) -> Result<u64> {
        self.queue_declare(queue, false, &[])
    }

    /// Declares a durable queue, or only asks for it.
    fn queue_declare(
        &mut self,
        name: &str,
        durable: bool,
        arguments: &[(&str, Value)],
    ) -> Result<u64> {
        let (queue, arguments, passive) = (name.into(), table(arguments), !durable);
        let declare = Declare { queue, passive, durable, arguments, ..Default::default() };
        let asked = AMQPClass::Queue(queue::AMQPMethod::Declare(declare));
        match self.client.call(asked)? {
            AMQPClass::Queue(queue::AMQPMethod::DeclareOk(ok)) => Ok(ok.message_count.into()),
            other => Err(HarnessError::Other(format!("RabbitMQ said {other:?}"))),
        }
    }

    pub fn bind(&mut self, queue: &str, exchange: &str, key: &str) -> Result<()> {
        let (queue, exchange, routing_key) = (queue.into(), exchange.into(), key.into());
        let bind = Bind { queue, exchange, routing_key, ..Default::default() };
        self.queue(queue::AMQPMethod::Bind(bind))
    }

    pub fn purge(&mut self, queue: &str) -> Result<()> {
        let purge = Purge { queue: queue.into(), nowait: false };
        self.queue(queue::AMQPMethod::Purge(purge))
    }

    /// Deletes a queue with what is in it; a missing one is fine.
    pub fn delete_queue(&mut self, queue: &str) -> Result<()> {
        let delete = Delete { queue: queue.into(), ..Default::default() };
        self.queue(queue::AMQPMethod::Delete(delete))
    }

    /// Takes everything out of a queue, first message first. Nobody else may be consuming.
    pub fn drain(&mut self, queue: &str) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        self.drain_into(queue, |delivery| {
            records.push(record(&delivery, 0, records.len() as i64, now_us()));
        })?;
        Ok(records)
    }

    pub fn take(&mut self, queue: &str) -> Result<Vec<Delivery>> {
        let mut taken = Vec::new();
        self.drain_into(queue, |delivery| taken.push(delivery))?;
        Ok(taken)
    }

    fn drain_into(&mut self, queue: &str, mut take: impl FnMut(Delivery)) -> Result<()> {
        const CONSUMER: &str = "drain";
        self.prefetch(PREFETCH)?;
        let mut left = self.message_count(queue)?;
        self.consume(queue, CONSUMER)?;
        let (mut last, mut acked, mut empty) = (0, 0, 0);
        // What the broker was about to send when it said that nothing is left comes before it says
        // so again.
        while left > 0 || empty < 2 {
            let patience = if left > 0 { DRAIN_PATIENCE } else { Duration::ZERO };
            match self.client.event(patience)? {
                Some(Event::Delivery(delivery)) => {
                    last = delivery.tag;
                    take(*delivery);
                    (left, empty) = (left.saturating_sub(1), 0);
                    if last >= acked + ACK_EVERY {
                        self.ack(last)?;
                        acked = last;
                    }
                }
                Some(_) => {}
                None if left == 0 => {
                    left = self.message_count(queue)?;
                    empty += 1;
                }
                None => {
                    let what = format!("{left} more messages of {queue}");
                    return Err(HarnessError::Late { what, limit: DRAIN_PATIENCE });
                }
            }
        }
        if last > acked {
            self.ack(last)?;
        }
        let cancel = Cancel { consumer_tag: CONSUMER.into(), nowait: false };
        self.basic(basic::AMQPMethod::Cancel(cancel))
    }

    fn prefetch(&mut self, prefetch_count: u16) -> Result<()> {
        self.basic(basic::AMQPMethod::Qos(Qos { prefetch_count, global: false }))
    }

    fn consume(&mut self, queue: &str, consumer: &str) -> Result<()> {
        let (queue, consumer_tag) = (queue.into(), consumer.into());
        let consume = Consume { queue, consumer_tag, ..Default::default() };
        self.basic(basic::AMQPMethod::Consume(consume))
    }

    /// Gives up a delivery and all before it.
    fn ack(&mut self, delivery_tag: u64) -> Result<()> {
        self.client.tell(basic::AMQPMethod::Ack(Ack { delivery_tag, multiple: true }))
    }

    /// From here on publishes are confirmed, tags counting from 1.
    pub fn confirm(&mut self) -> Result<()> {
        let select = confirm::Select { nowait: false };
        self.call(AMQPClass::Confirm(confirm::AMQPMethod::Select(select)))
    }

    /// Appends a message to what the next [`Rabbit::flush`] sends.
    pub fn publish(
        &mut self,
        (exchange, routing_key): (&str, &str),
        properties: &Properties,
        body: &[u8],
        mandatory: bool,
    ) {
        self.client.publish((exchange, routing_key), properties, body, mandatory);
    }

    pub fn flush(&mut self) -> Result<()> {
        self.client.flush()
    }

    /// The next outcome of a publish, within `patience`.
    pub fn outcome(&mut self, patience: Duration) -> Result<Option<Outcome>> {
        let began = Instant::now();
        loop {
            let left = patience.saturating_sub(began.elapsed());
            return Ok(Some(match self.client.event(left)? {
                None => return Ok(None),
                Some(Event::Delivery(_)) => continue,
                Some(Event::Returned(id)) => Outcome::Returned(id),
                Some(Event::Confirm(tag, multiple, true)) => Outcome::Acked(tag, multiple),
                Some(Event::Confirm(tag, multiple, false)) => Outcome::Nacked(tag, multiple),
            }));
        }
    }
}

fn table(arguments: &[(&str, Value)]) -> FieldTable {
    crate::amqp::table(arguments.iter().map(|(name, value)| ((*name).to_owned(), value.clone())))
}

/// A message as the oracle sees it.
fn record(delivery: &Delivery, partition: i32, offset: i64, arrived_us: i64) -> Record {
    let Delivery { properties, routing_key, body, .. } = delivery;
    let key = properties.header("key").unwrap_or_default();
    let seconds = properties.timestamp_s.and_then(|seconds| i64::try_from(seconds).ok());
    Record {
        topic: routing_key.as_str().into(),
        partition,
        offset,
        key: String::from_utf8_lossy(key).into_owned(),
        id: properties.message_id.clone().unwrap_or_default(),
        lsn: properties.header("lsn").and_then(parse_lsn),
        hash: payload_hash(body),
        timestamp_ms: seconds.map_or(-1, |seconds| seconds * 1_000),
        arrived_us,
    }
}
