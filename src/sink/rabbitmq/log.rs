//! The dead-letter queue as a log: a stream, read without consuming.
//!
//! A stream hands a record out as often as it is asked for; an acknowledgement only asks for more.
//! The broker reads it in the channel's own process, in these steps, and the end rests on them:
//! * a consumer begins when the stream's process has told the channel how far the stream reaches.
//!   A second consumer on the channel waits for that process behind the first. So when the second
//!   is cancelled and another question answered, the first has begun;
//! * an acknowledgement makes the channel send what it owes up to the last record, before it takes
//!   up the next question. So a question that is answered behind the last acknowledgement, with
//!   nothing in between, was answered at the end.
//!
//! Memory is bounded by [`PREFETCH`], give or take what the broker wrote as one chunk. A broker closes
//! a channel whose reader has left a record unacknowledged for half an hour, as a slow replay does with
//! what waits for its turn: then reading goes on over another channel, behind the last record.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream as _;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::runtime::Runtime;

use super::connection::{self, Connection, Link};
use super::dead_letters;
use super::fault::{self, Loss};
use super::letters;
use super::message::{KEY_HEADER, short};
use super::refused_by_system;
use super::replies::PRECONDITION_FAILED;
use super::settings::RabbitSettings;
use crate::error::Fault;
use crate::letter::Address;
use crate::sink::log::{Entry, From, Log, Place, Read};

/// Records on their way; a window's worth would be hundreds of megabytes of large ones.
const PREFETCH: u16 = 64;
/// They are asked for again in halves, so that some are always on their way.
const ACK_EVERY: u64 = PREFETCH as u64 / 2;
/// How far the broker's clock may be behind the relay's: a seek goes by the broker's.
const CLOCK_SKEW_S: i64 = 60;
/// Where a record stands in the stream; where a consumer begins.
pub(super) const OFFSET: &str = "x-stream-offset";
const READER: &str = "walrelay";
const SECOND: &str = "walrelay.second";

/// A reader of the stream, from a connection of its own.
pub(super) struct StreamLog {
    settings: RabbitSettings,
    address: Address,
    channel: Channel,
    consumer: Consumer,
    /// The tag that was taken last, and the one up to which more was asked for.
    taken: u64,
    acked: u64,
    from_the_beginning: bool,
    /// Offset of the last record.
    last: Option<i64>,
    end_told: bool,
    /// Taken when it ends.
    connection: Option<Connection>,
    /// Last: what it carries must be gone first. Its thread answers heartbeats while nobody reads.
    runtime: Runtime,
}

/// Opens the log. What is written after this returned is read by [`From::End`].
pub(super) fn open(
    settings: &RabbitSettings,
    address: &Address,
    from: &From,
) -> Result<StreamLog, Fault> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let builder = builder.worker_threads(1).thread_name("dead-letters").enable_all();
    let runtime = builder.build().map_err(|error| refused_by_system(&error))?;
    let queue = &address.topic;
    let unreadable = |loss: Loss| dead_letters::unreadable(settings, address, &loss);
    let opened: Result<_, Fault> = runtime.block_on(async {
        let connection = connection::open(settings, 0).await;
        let connection = connection.map_err(|loss| fault::unreachable(settings, &loss))?;
        let channel = connection.link.asking().await.map_err(unreadable)?;
        let begun = begin(&channel, queue, offset(from)).await;
        let consumer = begun.map_err(|error| unreadable(error.into()));
        Ok((connection, channel, consumer?))
    });
    let (connection, channel, consumer) = opened?;
    Ok(StreamLog {
        settings: settings.clone(),
        address: address.clone(),
        channel,
        consumer,
        taken: 0,
        acked: 0,
        from_the_beginning: *from == From::Beginning,
        last: None,
        end_told: false,
        connection: Some(connection),
        runtime,
    })
}

/// Can the stream be read, without taking anything from it?
pub(super) async fn probe(link: &Link, queue: &str) -> Result<(), Loss> {
    let channel = link.asking().await?;
    begin(&channel, queue, offset(&From::End)).await?;
    let _closed = channel.close(200, "".into()).await.is_ok();
    Ok(())
}

/// A consumer that has begun: what was there for it to read is in its hands, as far as it fits.
async fn begin(channel: &Channel, queue: &str, offset: AMQPValue) -> lapin::Result<Consumer> {
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let consumer = consume(channel, queue, READER, offset).await?;
    consume(channel, queue, SECOND, AMQPValue::LongString("next".into())).await?;
    channel.basic_cancel(short(SECOND), BasicCancelOptions::default()).await?;
    count(channel, queue).await?;
    Ok(consumer)
}

/// Where a consumer begins.
fn offset(from: &From) -> AMQPValue {
    match from {
        From::Beginning => AMQPValue::LongString("first".into()),
        From::End => AMQPValue::LongString("next".into()),
        From::Time(unix_us) => {
            let from_s = (unix_us / 1_000_000).saturating_sub(CLOCK_SKEW_S);
            AMQPValue::Timestamp(u64::try_from(from_s).unwrap_or_default())
        }
    }
}

async fn consume(
    channel: &Channel,
    queue: &str,
    tag: &str,
    offset: AMQPValue,
) -> lapin::Result<Consumer> {
    let mut arguments = FieldTable::default();
    arguments.insert(short(OFFSET), offset);
    let options = BasicConsumeOptions::default();
    channel.basic_consume(short(queue), short(tag), options, arguments).await
}

/// How many records the queue says it has, seconds ago; and a question whose answer comes behind
/// everything that the channel sent before it.
async fn count(channel: &Channel, queue: &str) -> lapin::Result<u32> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let answer = channel.queue_declare(short(queue), options, FieldTable::default()).await?;
    Ok(answer.message_count())
}

impl Log for StreamLog {
    fn next(&mut self, patience: Duration) -> Result<Read, Fault> {
        let runtime = self.runtime.handle().clone();
        let was_told = self.end_told;
        let read = runtime.block_on(async {
            match self.read(patience).await {
                Err(loss) if self.is_over_patience(&loss) => {
                    self.go_on().await?;
                    Ok(None)
                }
                read => read,
            }
        });
        match read.map_err(|loss| dead_letters::unreadable(&self.settings, &self.address, &loss))? {
            Some(record) => match entry(record) {
                Some(entry) => {
                    self.last = Some(entry.place.offset);
                    Ok(Read::Entry(entry))
                }
                None => Err(dead_letters::not_a_stream(&self.settings, &self.address)),
            },
            None if self.end_told && !was_told => Ok(Read::End),
            None => Ok(Read::Nothing),
        }
    }
}

impl StreamLog {
    /// The next record; none at the end, which is noted, and when the patience is over.
    async fn read(&mut self, patience: Duration) -> Result<Option<Delivery>, Loss> {
        if self.taken >= self.acked + ACK_EVERY {
            self.ask_for_more().await?;
        }
        if let Some(record) = self.arrived().await? {
            return Ok(Some(record));
        }
        self.ask_for_more().await?;
        if !self.end_told {
            let told = count(&self.channel, &self.address.topic).await?;
            if let Some(record) = self.arrived().await? {
                return Ok(Some(record));
            }
            // A second witness, where there is one: a stream that has shown nothing and says it has
            // records is still to show them.
            self.end_told = !self.from_the_beginning || self.last.is_some() || told == 0;
            if self.end_told {
                return Ok(None);
            }
        }
        let record = poll_fn(|context| self.poll_record(context));
        tokio::time::timeout(patience, record).await.map_or(Ok(None), |record| record.map(Some))
    }

    /// Has the broker closed the channel because of records that wait here?
    fn is_over_patience(&self, loss: &Loss) -> bool {
        loss.code == Some(PRECONDITION_FAILED)
            && loss.text.contains("acknowledgement")
            && self.last.is_some()
    }

    /// Reads on over another channel, behind the last record.
    async fn go_on(&mut self) -> Result<(), Loss> {
        let (Some(last), Some(connection)) = (self.last, &self.connection) else { return Ok(()) };
        self.channel = connection.link.asking().await?;
        self.consumer =
            begin(&self.channel, &self.address.topic, AMQPValue::LongLongInt(last + 1)).await?;
        // Tags are counted anew.
        (self.taken, self.acked) = (0, 0);
        Ok(())
    }

    /// A record that is here already.
    async fn arrived(&mut self) -> Result<Option<Delivery>, Loss> {
        let here = poll_fn(|context| match self.poll_record(context) {
            Poll::Ready(record) => Poll::Ready(record.map(Some)),
            Poll::Pending => Poll::Ready(Ok(None)),
        });
        here.await
    }

    fn poll_record(&mut self, context: &mut Context<'_>) -> Poll<Result<Delivery, Loss>> {
        pin!(&mut self.consumer).poll_next(context).map(|next| match next {
            Some(Ok(record)) => {
                self.taken = record.delivery_tag;
                Ok(record)
            }
            Some(Err(error)) => Err(error.into()),
            None => Err(Loss::of("the broker ended the reading")),
        })
    }

    /// Acknowledges what was taken.
    async fn ask_for_more(&mut self) -> lapin::Result<()> {
        if self.taken > self.acked {
            let all = BasicAckOptions { multiple: true };
            self.channel.basic_ack(self.taken, all).await?;
            self.acked = self.taken;
        }
        Ok(())
    }
}

impl Drop for StreamLog {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.runtime.handle().clone().block_on(connection.close());
        }
    }
}

/// A record as it was written; none without a place in a stream.
fn entry(record: Delivery) -> Option<Entry> {
    let properties = record.properties;
    let text = |text: &Option<ShortString>| text.as_ref().map(ToString::to_string);
    let mut entry = Entry {
        written_unix_us: properties.timestamp().map_or(0, microseconds),
        value: Some(record.data).filter(|value| !value.is_empty()),
        event_type: text(properties.kind()),
        content_type: text(properties.content_type()),
        ..Entry::default()
    };
    let mut offset = None;
    for (name, value) in properties.headers().as_ref()?.inner() {
        match (name.as_str(), value) {
            (OFFSET, AMQPValue::LongLongInt(found)) => offset = Some(*found),
            (KEY_HEADER, value) => entry.key = bytes(value),
            (letters::TYPE, value) => {
                let long = bytes(value).unwrap_or_default();
                entry.event_type = Some(String::from_utf8_lossy(&long).into_owned());
            }
            (name, value) => {
                entry.headers.extend(bytes(value).map(|bytes| (name.to_owned(), bytes)));
            }
        }
    }
    entry.place = Place { partition: 0, offset: offset? };
    Some(entry)
}

fn microseconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or_default().saturating_mul(1_000_000)
}

/// What we write comes back as text, and from later brokers as bytes where it is no text. Numbers
/// and tables are not ours.
fn bytes(value: &AMQPValue) -> Option<Vec<u8>> {
    match value {
        AMQPValue::LongString(text) => Some(text.as_bytes().to_vec()),
        AMQPValue::ShortString(text) => Some(text.as_str().as_bytes().to_vec()),
        AMQPValue::ByteArray(bytes) => Some(bytes.as_slice().to_vec()),
        _ => None,
    }
}
