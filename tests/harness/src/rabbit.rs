//! Exchanges, queues and what lies in them: the administrator's and the reader's side of RabbitMQ.
//!
//! A queue is read into the same [`Record`]s as a topic, so that one oracle judges both: the topic
//! is the routing key, the offset the place in the queue, the key a header. AMQP has no broker time;
//! a [`Tap`] on the relay's connection supplies it.

mod consumer;
mod tap;

use std::time::{Duration, Instant};

pub use self::tap::{Passed, Tap};
pub use crate::amqp::{Delivery, Properties, Value};

pub(crate) use self::consumer::read;

use crate::amqp::wire::{put_short, put_table};
use crate::amqp::{ACK, CONFIRM_SELECT, Client, Word};
use crate::consumer::{Record, parse_lsn};
use crate::kit::{KitError, KitResult, now_us, payload_hash};

/// Deliveries on their way while a queue is drained.
const PREFETCH: u16 = 4_096;
/// Less than are on their way, or nothing would move.
const ACK_EVERY: u64 = 1_024;
/// The longest pause inside a drain.
const DRAIN_PATIENCE: Duration = Duration::from_secs(20);
const DURABLE: u8 = 0b10;
const PASSIVE: u8 = 0b01;

/// What kind of queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Replicated. One that is killed within seconds of its declaration may be forgotten.
    Quorum,
    /// Durable, on one node.
    Classic,
}

/// Exchange of the relay's dead letters, when nothing else is configured.
pub const DEAD_LETTER_EXCHANGE: &str = "outbox.dlx";
/// Their stream queue, and its binding key.
pub const DEAD_LETTER_QUEUE: &str = "outbox.dlq";

/// An outcome of a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Taken, under this tag; with true all before it too.
    Acked(u64, bool),
    /// Not taken.
    Nacked(u64, bool),
    /// Came back, by message id; its confirm follows.
    Returned(String),
}

/// A connection that makes, removes, looks, reads and publishes. After a refusal it can go on.
pub struct Rabbit {
    client: Client,
}

impl Rabbit {
    /// Logs in.
    pub fn open(url: &str) -> KitResult<Rabbit> {
        Ok(Rabbit { client: Client::open(url)? })
    }

    /// Says goodbye.
    pub fn close(self) {
        self.client.close();
    }

    /// Declares a durable exchange: `topic`, `fanout`, …
    pub fn declare_exchange(&mut self, name: &str, kind: &str) -> KitResult<()> {
        self.declare_exchange_with(name, kind, &[])
    }

    /// The same with arguments, such as `alternate-exchange`.
    pub fn declare_exchange_with(
        &mut self,
        name: &str,
        kind: &str,
        arguments: &[(&str, Value)],
    ) -> KitResult<()> {
        let mut asked = vec![0, 0];
        put_short(&mut asked, name);
        put_short(&mut asked, kind);
        asked.push(DURABLE);
        put_arguments(&mut asked, arguments);
        self.client.call((40, 10), &asked, (40, 11)).map(drop)
    }

    /// Deletes an exchange; a missing one is fine.
    pub fn delete_exchange(&mut self, name: &str) -> KitResult<()> {
        let mut asked = vec![0, 0];
        put_short(&mut asked, name);
        asked.push(0);
        self.client.call((40, 20), &asked, (40, 21)).map(drop)
    }

    /// Declares a durable queue.
    pub fn declare_queue(&mut self, name: &str, kind: Queue) -> KitResult<()> {
        self.declare_queue_with(name, kind, &[])
    }

    /// The same with arguments: `x-max-length` with `x-overflow`, a dead-letter exchange, …
    pub fn declare_queue_with(
        &mut self,
        name: &str,
        kind: Queue,
        arguments: &[(&str, Value)],
    ) -> KitResult<()> {
        let kind = match kind {
            Queue::Quorum => "quorum",
            Queue::Classic => "classic",
        };
        let mut all = vec![("x-queue-type", Value::from(kind))];
        all.extend(arguments.iter().cloned());
        self.queue_declare(name, DURABLE, &all).map(drop)
    }

    /// Declares a stream: a log, which reading does not empty.
    pub fn declare_stream(&mut self, name: &str) -> KitResult<()> {
        self.queue_declare(name, DURABLE, &[("x-queue-type", Value::from("stream"))]).map(drop)
    }

    /// Exchange, queue and binding that dead letters go by.
    pub fn declare_dead_letters(&mut self) -> KitResult<()> {
        self.declare_exchange(DEAD_LETTER_EXCHANGE, "direct")?;
        self.declare_stream(DEAD_LETTER_QUEUE)?;
        self.bind(DEAD_LETTER_QUEUE, DEAD_LETTER_EXCHANGE, DEAD_LETTER_QUEUE)
    }

    /// Messages in the queue that are not with a consumer. A missing queue is a refusal with 404.
    pub fn message_count(&mut self, queue: &str) -> KitResult<u64> {
        self.queue_declare(queue, PASSIVE, &[])
    }

    fn queue_declare(
        &mut self,
        name: &str,
        bits: u8,
        arguments: &[(&str, Value)],
    ) -> KitResult<u64> {
        let mut asked = vec![0, 0];
        put_short(&mut asked, name);
        asked.push(bits);
        put_arguments(&mut asked, arguments);
        let answer = self.client.call((50, 10), &asked, (50, 11))?;
        // The name, then messages, then consumers.
        let count = answer.len().checked_sub(8).and_then(|at| answer.get(at..at + 4));
        let count = count.and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
        count.map(u64::from).ok_or_else(|| KitError::Other("half an answer".into()))
    }

    /// Lets the exchange route what `key` matches into the queue.
    pub fn bind(&mut self, queue: &str, exchange: &str, key: &str) -> KitResult<()> {
        let mut asked = binding(queue, exchange, key);
        asked.push(0);
        put_arguments(&mut asked, &[]);
        self.client.call((50, 20), &asked, (50, 21)).map(drop)
    }

    /// Ends that.
    pub fn unbind(&mut self, queue: &str, exchange: &str, key: &str) -> KitResult<()> {
        let mut asked = binding(queue, exchange, key);
        put_arguments(&mut asked, &[]);
        self.client.call((50, 50), &asked, (50, 51)).map(drop)
    }

    /// Empties a queue.
    pub fn purge(&mut self, queue: &str) -> KitResult<()> {
        let mut asked = vec![0, 0];
        put_short(&mut asked, queue);
        asked.push(0);
        self.client.call((50, 30), &asked, (50, 31)).map(drop)
    }

    /// Deletes a queue with what is in it; a missing one is fine.
    pub fn delete_queue(&mut self, queue: &str) -> KitResult<()> {
        let mut asked = vec![0, 0];
        put_short(&mut asked, queue);
        asked.push(0);
        self.client.call((50, 40), &asked, (50, 41)).map(drop)
    }

    /// Takes everything out of a queue, first message first. Nobody else may be consuming.
    pub fn drain(&mut self, queue: &str) -> KitResult<Vec<Record>> {
        let mut records = Vec::new();
        self.drain_into(queue, |delivery| {
            records.push(record(&delivery, 0, records.len() as i64, now_us()));
        })?;
        Ok(records)
    }

    /// The same, with the messages whole.
    pub fn take(&mut self, queue: &str) -> KitResult<Vec<Delivery>> {
        let mut taken = Vec::new();
        self.drain_into(queue, |delivery| taken.push(delivery))?;
        Ok(taken)
    }

    fn drain_into(&mut self, queue: &str, mut take: impl FnMut(Delivery)) -> KitResult<()> {
        const CONSUMER: &str = "drain";
        self.prefetch(PREFETCH)?;
        let mut left = self.message_count(queue)?;
        self.consume(queue, CONSUMER)?;
        let (mut last, mut acked, mut empty) = (0, 0, 0);
        // What the broker was about to send when it said that nothing is left comes before it says
        // so again.
        while left > 0 || empty < 2 {
            let patience = if left > 0 { DRAIN_PATIENCE } else { Duration::ZERO };
            match self.client.word(patience)? {
                Some(Word::Delivery(delivery)) => {
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
                    return Err(KitError::Timeout { what, waited: DRAIN_PATIENCE });
                }
            }
        }
        if last > acked {
            self.ack(last)?;
        }
        let mut asked = Vec::new();
        put_short(&mut asked, CONSUMER);
        asked.push(0);
        self.client.call((60, 30), &asked, (60, 31)).map(drop)
    }

    fn prefetch(&mut self, count: u16) -> KitResult<()> {
        let mut asked = vec![0; 4];
        asked.extend(count.to_be_bytes());
        asked.push(0);
        self.client.call((60, 10), &asked, (60, 11)).map(drop)
    }

    fn consume(&mut self, queue: &str, consumer: &str) -> KitResult<()> {
        let mut asked = vec![0, 0];
        put_short(&mut asked, queue);
        put_short(&mut asked, consumer);
        asked.push(0);
        put_arguments(&mut asked, &[]);
        self.client.call((60, 20), &asked, (60, 21)).map(drop)
    }

    /// Gives up a delivery and all before it.
    fn ack(&mut self, tag: u64) -> KitResult<()> {
        let mut told = tag.to_be_bytes().to_vec();
        told.push(1);
        self.client.tell(ACK, &told)
    }

    /// From here on publishes are confirmed, tags counting from 1.
    pub fn confirm(&mut self) -> KitResult<()> {
        self.client.call(CONFIRM_SELECT, &[0], (85, 11)).map(drop)
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

    /// Sends what was appended. A broker with an alarm lets this wait.
    pub fn flush(&mut self) -> KitResult<()> {
        self.client.flush()
    }

    /// The next outcome of a publish, within `patience`.
    pub fn outcome(&mut self, patience: Duration) -> KitResult<Option<Outcome>> {
        let began = Instant::now();
        loop {
            let left = patience.saturating_sub(began.elapsed());
            return Ok(Some(match self.client.word(left)? {
                None => return Ok(None),
                Some(Word::Delivery(_)) => continue,
                Some(Word::Returned(id)) => Outcome::Returned(id),
                Some(Word::Confirm(tag, multiple, true)) => Outcome::Acked(tag, multiple),
                Some(Word::Confirm(tag, multiple, false)) => Outcome::Nacked(tag, multiple),
            }));
        }
    }
}

fn binding(queue: &str, exchange: &str, key: &str) -> Vec<u8> {
    let mut asked = vec![0, 0];
    for name in [queue, exchange, key] {
        put_short(&mut asked, name);
    }
    asked
}

fn put_arguments(asked: &mut Vec<u8>, arguments: &[(&str, Value)]) {
    put_table(asked, arguments.iter().map(|(name, value)| (*name, value)));
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
