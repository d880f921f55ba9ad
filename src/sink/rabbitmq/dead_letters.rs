//! The dead-letter queue as a log: a stream, read without consuming.
//!
//! A stream hands a record out as often as it is asked for; an acknowledgement only asks for more.
//! The broker reads it in the channel's own process, in these steps, and the end rests on them:
//! * a consumer begins when the channel knows from the stream's process how far the stream reaches.
//!   A second consumer on the channel waits for that process behind the first. So when the second
//!   is cancelled and another question answered, the first has begun;
//! * an acknowledgement makes the channel send what it owes up to the last record, before it takes
//!   up the next question. So a question that is answered behind the last acknowledgement, with
//!   nothing in between, was answered at the end.
//!
//! Memory is bounded by [`PREFETCH`], give or take what the broker wrote as one chunk.
//!
//! Two things end a reader's connection or channel, and reading goes on over another connection. A
//! broker closes the channel of a reader that has left a record unacknowledged for half an hour, as
//! a slow replay does with what waits for its turn: it goes on behind the last record. And anybody
//! may write to the stream, also what the client cannot read: header names that are no text end its
//! connection. Then it goes on first behind the last record (it was perhaps the line), then one
//! further each time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::runtime::Runtime;

use super::connection::AmqpConnection;
use super::fault::{AmqpResult, ConnectionLoss, PRECONDITION_FAILED};
use super::mend_hints::MendHints;
use super::message::{KEY_HEADER, OFFSET_HEADER, short};
use super::probe::Probe;
use super::settings::RabbitSettings;
use crate::base::error::Fault;
use crate::base::runtime;
use crate::dead_letter::record::{LogEntry, PartitionOffset};
use crate::dead_letter::writer::{DeadLetterAddress, TYPE};
use crate::sink::log::{DeadLetterLog, LogRead, ReadFrom};

/// Records on their way; a window's worth would be hundreds of megabytes of large ones.
const PREFETCH: u16 = 64;
/// They are asked for again in halves, so that some are always on their way.
const ACK_EVERY: u64 = PREFETCH as u64 / 2;
/// How far the broker's clock may be behind the relay's: a seek goes by the broker's.
const CLOCK_SKEW_S: i64 = 60;
/// Most connections in a row that may end over what cannot be read.
const GARBLED_MAX: i64 = 100;
/// How long a connection that has ended may take to say why.
const REASON_WITHIN: Duration = Duration::from_millis(500);
const READER: &str = "walrelay";
const SECOND_READER: &str = "walrelay.second";

/// A reader of the stream, from a connection of its own.
pub(super) struct StreamLog {
    settings: RabbitSettings,
    address: DeadLetterAddress,
    from: ReadFrom,
    opened_unix_us: i64,
    reading: StreamConsumer,
    /// Offset of the last record.
    last: Option<i64>,
    /// Connections that have ended since over what cannot be read.
    garbled: i64,
    end_reported: bool,
    /// Last: what it carries must be gone first. Its thread answers heartbeats while nobody reads.
    runtime: Runtime,
}

/// One consumer, and how far it has got.
struct StreamConsumer {
    consumer: Consumer,
    channel: Channel,
    connection: AmqpConnection,
    /// The tag that was taken last, and the one up to which more was asked for.
    taken: u64,
    acked: u64,
}

/// Opens the log. What is written after this returned is read by [`ReadFrom::End`].
pub(super) fn open(
    settings: &RabbitSettings,
    address: &DeadLetterAddress,
    from: ReadFrom,
) -> Result<StreamLog, Fault> {
    let runtime = runtime::multi_thread(1, "dead-letters")?;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let reading = runtime.block_on(StreamConsumer::open(settings, address, offset(&from)))?;
    Ok(StreamLog {
        settings: settings.clone(),
        address: address.clone(),
        from,
        opened_unix_us: i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX),
        reading,
        last: None,
        garbled: 0,
        end_reported: false,
        runtime,
    })
}

/// Can the stream be read, without taking anything from it?
pub(super) async fn can_read(probe: &Probe, queue: &str) -> AmqpResult<()> {
    let channel = probe.new_channel().await?;
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
    consume(channel, queue, SECOND_READER, offset(&ReadFrom::End)).await?;
    channel.basic_cancel(short(SECOND_READER), BasicCancelOptions::default()).await?;
    count(channel, queue).await.map(drop)
}

async fn consume(
    channel: &Channel,
    queue: &str,
    tag: &str,
    offset: AMQPValue,
) -> lapin::Result<Consumer> {
    let mut arguments = FieldTable::default();
    arguments.insert(short(OFFSET_HEADER), offset);
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

impl StreamConsumer {
    /// Begins to read over a connection of its own.
    async fn open(
        settings: &RabbitSettings,
        address: &DeadLetterAddress,
        offset: AMQPValue,
    ) -> Result<StreamConsumer, Fault> {
        let queue = &address.topic;
        let connection = AmqpConnection::open_once(settings).await?;
        let started = async {
            let channel = connection.probe.new_channel().await?;
            let consumer = start(&channel, queue, offset).await?;
            match begun(&channel, queue).await.map_err(ConnectionLoss::from) {
                Err(loss) if loss.code.is_some() => Err(loss),
                // Its connection has ended, perhaps over what it was sent: reading finds out.
                Ok(()) | Err(_) => Ok((channel, consumer)),
            }
        };
        let started = started.await;
        let (channel, consumer) =
            started.map_err(|loss| MendHints(settings).unreadable(address, &loss))?;
        Ok(StreamConsumer { consumer, channel, connection, taken: 0, acked: 0 })
    }

    /// A record that is here already.
    fn arrived(&mut self) -> AmqpResult<Option<Delivery>> {
        self.next().now_or_never().transpose()
    }

    async fn next(&mut self) -> AmqpResult<Delivery> {
        let ended = || ConnectionLoss::of("the broker ended the reading");
        let record = self.consumer.next().await.ok_or_else(ended)??;
        self.taken = record.delivery_tag;
        Ok(record)
    }

    /// Acknowledges what was taken.
    async fn ask_for_more(&mut self) -> lapin::Result<()> {
        if self.taken > self.acked {
            self.channel.basic_ack(self.taken, BasicAckOptions { multiple: true }).await?;
            self.acked = self.taken;
        }
        Ok(())
    }
}

impl DeadLetterLog for StreamLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        let runtime = self.runtime.handle().clone();
        let was_reported = self.end_reported;
        let read = runtime.block_on(async {
            match self.read(patience).await {
                Err(loss) => self.after(loss).await,
                Ok(read) => Ok(read),
            }
        });
        match read? {
            Some(record) => {
                let entry = entry(record);
                let entry = entry
                    .ok_or_else(|| MendHints(&self.settings).not_a_stream(&self.address.topic))?;
                (self.last, self.garbled) = (Some(entry.position.offset), 0);
                Ok(LogRead::Entry(entry))
            }
            None if self.end_reported && !was_reported => Ok(LogRead::End),
            None => Ok(LogRead::Nothing),
        }
    }
}

impl StreamLog {
    /// The next record; none at the end, which is noted, and when the patience is over.
    async fn read(&mut self, patience: Duration) -> AmqpResult<Option<Delivery>> {
        let reading = &mut self.reading;
        if reading.taken >= reading.acked + ACK_EVERY {
            reading.ask_for_more().await?;
        }
        if let Some(record) = reading.arrived()? {
            return Ok(Some(record));
        }
        reading.ask_for_more().await?;
        if !self.end_reported {
            let count = count(&reading.channel, &self.address.topic).await?;
            if let Some(record) = reading.arrived()? {
                return Ok(Some(record));
            }
            // A second witness, where there is one: a stream that has shown nothing and says it has
            // records is still to show them.
            let shown = self.last.is_some() || self.garbled > 1;
            self.end_reported = self.from != ReadFrom::Beginning || shown || count == 0;
            if self.end_reported {
                return Ok(None);
            }
        }
        tokio::time::timeout(patience, reading.next()).await.ok().transpose()
    }

    /// Goes on after a loss, where that is possible.
    async fn after(&mut self, mut loss: ConnectionLoss) -> Result<Option<Delivery>, Fault> {
        // What came before it is read first: the loss will be met again.
        match self.reading.arrived() {
            Ok(Some(record)) => return Ok(Some(record)),
            Err(known) if known.code.is_some() || known.is_garbled => loss = known,
            Ok(None) | Err(_) => {}
        }
        // Has the broker closed the channel because of records that wait here?
        let waited_long =
            loss.code == Some(PRECONDITION_FAILED) && loss.text.contains("acknowledgement");
        if let Some(last) = self.last.filter(|_| waited_long) {
            return self.read_on(AMQPValue::LongLongInt(last + 1)).await;
        }
        // An error of a connection that has ended says that it has, and not why.
        if loss.code.is_none() && !loss.is_garbled {
            loss = self.reading.connection.reason(REASON_WITHIN).await.unwrap_or(loss);
        }
        let hints = MendHints(&self.settings);
        if !loss.is_garbled {
            return Err(hints.unreadable(&self.address, &loss));
        }
        self.garbled += 1;
        if self.garbled > GARBLED_MAX {
            return Err(hints.garbled(&self.address, self.last.map_or(0, |last| last + 1)));
        }
        let start = restart(self.last, &self.from, self.opened_unix_us, self.garbled);
        if self.garbled > 1 {
            let (queue, offset) = (&self.address.topic, passed_over(&start));
            tracing::warn!(queue, offset, "a foreign record that cannot be read is passed over");
        }
        self.read_on(start).await
    }

    async fn read_on(&mut self, offset: AMQPValue) -> Result<Option<Delivery>, Fault> {
        self.reading.connection.close().await;
        self.reading = StreamConsumer::open(&self.settings, &self.address, offset).await?;
        Ok(None)
    }
}

impl Drop for StreamLog {
    fn drop(&mut self) {
        self.runtime.block_on(self.reading.connection.close());
    }
}

/// What stands before the place where reading goes on.
fn passed_over(start: &AMQPValue) -> Option<i64> {
    match start {
        AMQPValue::LongLongInt(offset) => Some(offset - 1),
        _ => None,
    }
}

/// A record as it was written; none without a place in a stream.
fn entry(record: Delivery) -> Option<LogEntry> {
    let properties = record.properties;
    let text = |text: &Option<ShortString>| text.as_ref().map(ToString::to_string);
    let written_s = properties.timestamp().unwrap_or_default();
    let mut entry = LogEntry {
        written_unix_us: i64::try_from(written_s).unwrap_or_default().saturating_mul(1_000_000),
        value: Some(record.data).filter(|value| !value.is_empty()),
        event_type: text(properties.kind()),
        content_type: text(properties.content_type()),
        ..LogEntry::default()
    };
    let mut offset = None;
    for (name, value) in properties.headers().as_ref()?.inner() {
        match (name.as_str(), value) {
            (OFFSET_HEADER, AMQPValue::LongLongInt(found)) => offset = Some(*found),
            (KEY_HEADER, value) => entry.key = bytes(value),
            (TYPE, value) => {
                let long = bytes(value).unwrap_or_default();
                entry.event_type = Some(String::from_utf8_lossy(&long).into_owned());
            }
            (name, value) => {
                entry.headers.extend(bytes(value).map(|bytes| (name.to_owned(), bytes)));
            }
        }
    }
    entry.position = PartitionOffset { partition: 0, offset: offset? };
    Some(entry)
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

#[cfg(test)]
#[path = "dead_letters_tests.rs"]
mod tests;
