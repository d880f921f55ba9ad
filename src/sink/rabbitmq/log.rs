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
//!
//! Anybody may write to the stream, also what the client cannot read: header names that are no text
//! end its connection. Then reading goes on over another connection, first behind the last record
//! (it was perhaps the line), then one further each time.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_core::Stream as _;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Consumer};
use tokio::runtime::Runtime;

use super::connection::{self, Connection, Link};
use super::dead_letters;
use super::entry::entry;
use super::fault::{self, Loss};
use super::message::short;
use super::replies::PRECONDITION_FAILED;
use super::settings::RabbitSettings;
use crate::base::error::Fault;
use crate::base::runtime;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::log::{DeadLetterLog, LogRead, ReadFrom};

/// Records on their way; a window's worth would be hundreds of megabytes of large ones.
const PREFETCH: u16 = 64;
/// They are asked for again in halves, so that some are always on their way.
const ACK_EVERY: u64 = PREFETCH as u64 / 2;
/// How far the broker's clock may be behind the relay's: a seek goes by the broker's.
const CLOCK_SKEW_S: i64 = 60;
/// Where a record stands in the stream; where a consumer begins.
pub(super) const OFFSET: &str = "x-stream-offset";
/// Most connections in a row that may end over what cannot be read.
const GARBLED_MAX: i64 = 100;
/// How long a connection that has ended may take to say why.
const REASON_WITHIN: Duration = Duration::from_millis(500);
const READER: &str = "walrelay";
const SECOND: &str = "walrelay.second";

/// A reader of the stream, from a connection of its own.
pub(super) struct StreamLog {
    settings: RabbitSettings,
    address: DeadLetterAddress,
    channel: Channel,
    consumer: Consumer,
    /// The tag that was taken last, and the one up to which more was asked for.
    taken: u64,
    acked: u64,
    from: ReadFrom,
    opened_unix_us: i64,
    /// Offset of the last record.
    last: Option<i64>,
    /// Connections that have ended since over what cannot be read.
    garbled: i64,
    end_told: bool,
    /// Taken when it ends.
    connection: Option<Connection>,
    /// Last: what it carries must be gone first. Its thread answers heartbeats while nobody reads.
    runtime: Runtime,
}

/// Opens the log. What is written after this returned is read by [`ReadFrom::End`].
pub(super) fn open(
    settings: &RabbitSettings,
    address: &DeadLetterAddress,
    from: &ReadFrom,
) -> Result<StreamLog, Fault> {
    let runtime = runtime::multi_thread(1, "dead-letters")?;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let attached = runtime.block_on(attach(settings, address, offset(from)));
    let Attached { connection, channel, consumer } = attached?;
    Ok(StreamLog {
        settings: settings.clone(),
        address: address.clone(),
        channel,
        consumer,
        taken: 0,
        acked: 0,
        from: from.clone(),
        opened_unix_us: i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX),
        last: None,
        garbled: 0,
        end_told: false,
        connection: Some(connection),
        runtime,
    })
}

struct Attached {
    connection: Connection,
    channel: Channel,
    consumer: Consumer,
}

/// Begins to read over a connection of its own.
async fn attach(
    settings: &RabbitSettings,
    address: &DeadLetterAddress,
    offset: AMQPValue,
) -> Result<Attached, Fault> {
    let queue = &address.topic;
    let unreadable = |loss: Loss| dead_letters::unreadable(settings, address, &loss);
    let connection = connection::open(settings, 0).await;
    let connection = connection.map_err(|loss| fault::unreachable(settings, &loss))?;
    let channel = connection.link.asking().await.map_err(unreadable)?;
    let started = start(&channel, queue, offset).await;
    let consumer = started.map_err(|error| unreadable(error.into()))?;
    reaches(&channel, queue).await.map_err(unreadable)?;
    Ok(Attached { connection, channel, consumer })
}

/// The consumer on the channel has begun, or its connection has ended: perhaps over what it was
/// sent, which reading finds out.
async fn reaches(channel: &Channel, queue: &str) -> Result<(), Loss> {
    match begun(channel, queue).await.map_err(Loss::from) {
        Err(loss) if loss.code.is_some() => Err(loss),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Can the stream be read, without taking anything from it?
pub(super) async fn probe(link: &Link, queue: &str) -> Result<(), Loss> {
    let channel = link.asking().await?;
    let _consumer = start(&channel, queue, offset(&ReadFrom::End)).await?;
    begun(&channel, queue).await?;
    let _closed = channel.close(200, "".into()).await.is_ok();
    Ok(())
}

async fn start(channel: &Channel, queue: &str, offset: AMQPValue) -> lapin::Result<Consumer> {
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    consume(channel, queue, READER, offset).await
}

/// The consumer on the channel has begun: what was there for it to read is in its hands, as far as
/// it fits.
async fn begun(channel: &Channel, queue: &str) -> lapin::Result<()> {
    consume(channel, queue, SECOND, AMQPValue::LongString("next".into())).await?;
    channel.basic_cancel(short(SECOND), BasicCancelOptions::default()).await?;
    count(channel, queue).await.map(drop)
}

/// Where a consumer begins.
fn offset(from: &ReadFrom) -> AMQPValue {
    match from {
        ReadFrom::Beginning => AMQPValue::LongString("first".into()),
        ReadFrom::End => AMQPValue::LongString("next".into()),
        ReadFrom::Time(unix_us) => {
            let from_s = (unix_us / 1_000_000).saturating_sub(CLOCK_SKEW_S);
            AMQPValue::Timestamp(u64::try_from(from_s).unwrap_or_default())
        }
    }
}

/// Where a consumer begins after the `garbled`-th connection in a row has ended over what it cannot
/// read, when it has read up to `last`.
fn restart(last: Option<i64>, from: &ReadFrom, opened_unix_us: i64, garbled: i64) -> AMQPValue {
    match (last, from) {
        (Some(last), _) => AMQPValue::LongLongInt(last + garbled),
        // News: some of what is older comes, too, or else some of it is missed.
        (None, ReadFrom::End) if garbled == 1 => offset(&ReadFrom::Time(opened_unix_us)),
        (None, ReadFrom::End) => offset(&ReadFrom::End),
        // It is not known where it began: from the first record on they have numbers.
        (None, ReadFrom::Beginning | ReadFrom::Time(_)) => AMQPValue::LongLongInt(garbled - 1),
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

impl DeadLetterLog for StreamLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        let runtime = self.runtime.handle().clone();
        let was_told = self.end_told;
        let read = runtime.block_on(async {
            match self.read(patience).await {
                Err(loss) => self.after(loss).await,
                Ok(read) => Ok(read),
            }
        });
        match read? {
            Some(record) => match entry(record) {
                Some(entry) => {
                    (self.last, self.garbled) = (Some(entry.position.offset), 0);
                    Ok(LogRead::Entry(entry))
                }
                None => Err(dead_letters::not_a_stream(&self.settings, &self.address)),
            },
            None if self.end_told && !was_told => Ok(LogRead::End),
            None => Ok(LogRead::Nothing),
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
            let shown = self.last.is_some() || self.garbled > 1;
            self.end_told = self.from != ReadFrom::Beginning || shown || told == 0;
            if self.end_told {
                return Ok(None);
            }
        }
        let record = poll_fn(|context| self.poll_record(context));
        tokio::time::timeout(patience, record).await.map_or(Ok(None), |record| record.map(Some))
    }

    /// Goes on after a loss, where that is possible.
    async fn after(&mut self, mut loss: Loss) -> Result<Option<Delivery>, Fault> {
        // What came before it is read first: the loss will be met again.
        match self.arrived().await {
            Ok(Some(record)) => return Ok(Some(record)),
            Err(told) if told.code.is_some() || told.is_garbled => loss = told,
            Ok(None) | Err(_) => {}
        }
        if self.is_over_patience(&loss) {
            let gone_on = self.go_on().await;
            let unreadable = |loss| dead_letters::unreadable(&self.settings, &self.address, &loss);
            return gone_on.map(|()| None).map_err(unreadable);
        }
        // Who asks over a connection that has ended hears that it has, and not why.
        let is_told = loss.code.is_some() || loss.is_garbled;
        if let Some(connection) = self.connection.as_mut().filter(|_| !is_told) {
            loss = connection.reason(REASON_WITHIN).await.unwrap_or(loss);
        }
        if loss.is_garbled {
            return self.pass_over().await.map(|()| None);
        }
        Err(dead_letters::unreadable(&self.settings, &self.address, &loss))
    }

    /// Reads on over another connection: behind the last record, and what stands there and ends that
    /// one, too, is passed over.
    async fn pass_over(&mut self) -> Result<(), Fault> {
        self.garbled += 1;
        let start = restart(self.last, &self.from, self.opened_unix_us, self.garbled);
        if self.garbled > GARBLED_MAX {
            return Err(dead_letters::garbled(&self.settings, &self.address, self.last));
        }
        if self.garbled > 1 {
            let (queue, offset) = (&self.address.topic, passed_over(&start));
            tracing::warn!(queue, offset, "a foreign record that cannot be read is passed over");
        }
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
        let attached = attach(&self.settings, &self.address, start).await?;
        (self.channel, self.consumer) = (attached.channel, attached.consumer);
        self.connection = Some(attached.connection);
        // Tags are counted anew.
        (self.taken, self.acked) = (0, 0);
        Ok(())
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
        let (queue, behind) = (&self.address.topic, AMQPValue::LongLongInt(last + 1));
        self.channel = connection.link.asking().await?;
        self.consumer = start(&self.channel, queue, behind).await?;
        reaches(&self.channel, queue).await?;
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

/// What stands before the place where reading goes on.
fn passed_over(start: &AMQPValue) -> Option<i64> {
    match start {
        AMQPValue::LongLongInt(offset) => Some(offset - 1),
        _ => None,
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
