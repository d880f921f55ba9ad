//! Reads the dead-letter queue, a stream, without consuming it.
//!
//! A stream delivers a record as often as it is asked for; an acknowledgement only asks for more.
//! The end of the log is found by the order in which the broker works, which is that of the
//! channel's own process:
//! * A consumer begins when the channel has learned from the stream's process how far the stream
//!   reaches. A second consumer on the channel waits for that process behind the first. So when the
//!   second has been cancelled and another question answered, the first has begun.
//! * An acknowledgement makes the channel send what it owes, up to the last record, before it takes
//!   the next request. So a question that is answered behind the last acknowledgement, with no record
//!   in between, was answered at the end.
//!
//! Memory is bounded by [`PREFETCH`], give or take what the broker wrote as one chunk.
//!
//! After two kinds of loss reading goes on over another connection. A broker closes
//! the channel of a reader that leaves a record unacknowledged for half an hour, as
//! a slow replay does: reading goes on behind the last record. And anybody can
//! write to the stream, also what lapin cannot parse, such as header names that are
//! not text, or headers that are larger than a frame: reading goes on behind the
//! last record first, because the connection itself may have been at fault, and one
//! record further each time after that.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::connection::AmqpConnection;
use super::connection_loss::{AmqpResult, ConnectionLoss};
use super::fault::PRECONDITION_FAILED;
use super::lapin_error::loss_of;
use super::message::OFFSET_HEADER;
use super::probe::{Probe, short};
use super::settings::RabbitSettings;
use super::setup_faults::SetupFaults;
use walrelay_base::clock::unix_now_us;
use walrelay_base::error::Fault;
use walrelay_base::runtime;
use walrelay_core::dead_letter::record::{CLOCK_SKEW_US, LogEntry, PartitionOffset};
use walrelay_core::dead_letter::writer::{
    DeadLetterAddress, HEADERS_DROPPED, KEY_HEADER, TYPE, listed,
};
use walrelay_sink::log::{DeadLetterLog, LogRead, ReadFrom, SILENT};

/// Records that the broker sends ahead, of up to 16 MiB each: whoever opens the log holds them at once.
const PREFETCH: u16 = 8;
/// Acknowledging halves keeps some records on their way.
const ACK_EVERY: u64 = PREFETCH as u64 / 2;
/// How many connections in a row may end over what cannot be read.
const GARBLED_MAX: i64 = 100;
/// How long the node may take to begin the reading.
const OPENED_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
/// How long an answer may take that comes behind the records of [`PREFETCH`], also over a slow link.
const RECORDS_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });
/// How long the broker's reason for a close may take.
const REASON_WITHIN: Duration = Duration::from_millis(500);
const READER: &str = "walrelay";
const SECOND_READER: &str = "walrelay.second";

pub(super) struct StreamLog {
    settings: RabbitSettings,
    address: DeadLetterAddress,
    from: ReadFrom,
    opened_unix_us: i64,
    consumer: StreamConsumer,
    /// Offset of the last record.
    last: Option<i64>,
    /// Connections that have ended since then over what cannot be read.
    garbled: i64,
    end_reported: bool,
    /// Dropped last, after the connection. Its thread answers heartbeats while nobody reads.
    runtime: Runtime,
}

struct StreamConsumer {
    deliveries: Consumer,
    channel: Channel,
    connection: AmqpConnection,
    /// The tag of the last delivery, and of the last one acknowledged.
    delivered: u64,
    acked: u64,
}

/// Opens the log. [`ReadFrom::End`] reads what is written after this has returned.
pub(super) fn open(
    settings: &RabbitSettings,
    address: &DeadLetterAddress,
    from: ReadFrom,
) -> Result<StreamLog, Fault> {
    let runtime = runtime::multi_thread(1, "dead-letters")?;
    let opened_unix_us = unix_now_us();
    let consumer = runtime.block_on(StreamConsumer::open(settings, address, offset(&from)))?;
    Ok(StreamLog {
        settings: settings.clone(),
        address: address.clone(),
        from,
        opened_unix_us,
        consumer,
        last: None,
        garbled: 0,
        end_reported: false,
        runtime,
    })
}

/// Starts a consumer and stops it again, to see whether the stream can be read.
pub(super) async fn can_read(probe: &Probe, queue: &str) -> AmqpResult<()> {
    let reading = probe.ask(async |channel| {
        let consumer = start(channel, queue, offset(&ReadFrom::End)).await?;
        // Returned, so that it lives until the channel is closed: lapin would cancel it before.
        has_begun(channel, queue).await.map(|()| consumer)
    });
    reading.await.map(drop)
}

async fn start(channel: &Channel, queue: &str, offset: AMQPValue) -> lapin::Result<Consumer> {
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    consume(channel, queue, READER, offset).await
}

/// Waits until the consumer on the channel has begun: what there was to read has been delivered, up
/// to [`PREFETCH`].
async fn has_begun(channel: &Channel, queue: &str) -> lapin::Result<()> {
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

/// Asks for the number of records, which the broker knows with a delay of seconds. The answer comes
/// behind everything that the channel sent before it.
async fn count(channel: &Channel, queue: &str) -> lapin::Result<u32> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let answer = channel.queue_declare(short(queue), options, FieldTable::default()).await?;
    Ok(answer.message_count())
}

/// The `x-stream-offset` of a consumer.
fn offset(from: &ReadFrom) -> AMQPValue {
    match from {
        ReadFrom::Beginning => AMQPValue::LongString("first".into()),
        ReadFrom::End => AMQPValue::LongString("next".into()),
        ReadFrom::Time(unix_us) => {
            AMQPValue::Timestamp(u64::try_from(unix_us / 1_000_000).unwrap_or_default())
        }
    }
}

/// The offset of the next consumer when the `garbled`-th connection in a row has ended over what
/// cannot be read, and `last` was the last record.
fn restart(last: Option<i64>, from: &ReadFrom, opened_unix_us: i64, garbled: i64) -> AMQPValue {
    match (last, from) {
        (Some(last), _) => AMQPValue::LongLongInt(last + garbled),
        // Some older records may come, too; otherwise new ones would be missed.
        (None, ReadFrom::End) if garbled == 1 => {
            offset(&ReadFrom::Time(opened_unix_us.saturating_sub(CLOCK_SKEW_US)))
        }
        (None, ReadFrom::End) => offset(&ReadFrom::End),
        // The offset where reading began is not known: from the first record on it is.
        (None, ReadFrom::Beginning | ReadFrom::Time(_)) => AMQPValue::LongLongInt(garbled - 1),
    }
}

impl StreamConsumer {
    /// Starts to read over a connection of its own.
    async fn open(
        settings: &RabbitSettings,
        address: &DeadLetterAddress,
        offset: AMQPValue,
    ) -> Result<StreamConsumer, Fault> {
        let queue = &address.topic;
        let connection = AmqpConnection::open_to_read(settings).await?;
        let starting = async {
            let channel = connection.probe.new_channel().await?;
            let deliveries = start(&channel, queue, offset).await?;
            Ok((channel, deliveries))
        };
        let unreadable = |loss| SetupFaults(settings).unreadable(address, &loss);
        let started = connection.probe.within(OPENED_WITHIN, SILENT, starting).await;
        let (channel, deliveries) = started.map_err(unreadable)?;
        let beginning = async { Ok(has_begun(&channel, queue).await) };
        let begun = connection.probe.within(RECORDS_WITHIN, SILENT, beginning).await;
        match begun.map_err(unreadable)?.map_err(loss_of) {
            Err(loss) if loss.code.is_some() => return Err(unreadable(loss)),
            // The connection may have ended over a record; reading will find out.
            Ok(()) | Err(_) => {}
        }
        Ok(StreamConsumer { deliveries, channel, connection, delivered: 0, acked: 0 })
    }

    /// Returns a record that has been delivered already.
    fn delivered(&mut self) -> AmqpResult<Option<Delivery>> {
        self.next().now_or_never().transpose()
    }

    async fn next(&mut self) -> AmqpResult<Delivery> {
        let ended = || ConnectionLoss::of("the broker ended the reading");
        let record = self.deliveries.next().await.ok_or_else(ended)?.map_err(loss_of)?;
        self.delivered = record.delivery_tag;
        Ok(record)
    }

    async fn in_time<T>(&self, asking: impl Future<Output = lapin::Result<T>>) -> AmqpResult<T> {
        self.connection.probe.within(RECORDS_WITHIN, SILENT, asking).await
    }

    /// Acknowledges what was delivered, so that the broker sends more.
    async fn acknowledge(&mut self) -> AmqpResult<()> {
        if self.delivered > self.acked {
            let options = BasicAckOptions { multiple: true };
            self.in_time(self.channel.basic_ack(self.delivered, options)).await?;
            self.acked = self.delivered;
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
                Err(loss) => self.resume(loss).await,
                Ok(read) => Ok(read),
            }
        });
        let Some(record) = read? else {
            let has_ended = self.end_reported && !was_reported;
            return Ok(if has_ended { LogRead::End } else { LogRead::Nothing });
        };
        let not_a_stream = || SetupFaults(&self.settings).not_a_stream(&self.address.topic);
        let entry = entry(record).ok_or_else(not_a_stream)?;
        (self.last, self.garbled) = (Some(entry.position.offset), 0);
        Ok(LogRead::Entry(entry))
    }
}

impl StreamLog {
    /// Returns the next record, or none at the end and when the patience is over.
    async fn read(&mut self, patience: Duration) -> AmqpResult<Option<Delivery>> {
        let consumer = &mut self.consumer;
        if consumer.delivered >= consumer.acked + ACK_EVERY {
            consumer.acknowledge().await?;
        }
        if let Some(record) = consumer.delivered()? {
            return Ok(Some(record));
        }
        consumer.acknowledge().await?;
        if !self.end_reported {
            let asking = count(&consumer.channel, &self.address.topic);
            let count = consumer.in_time(asking).await?;
            if let Some(record) = consumer.delivered()? {
                return Ok(Some(record));
            }
            // If nothing has been delivered from the beginning on, the count must agree.
            let has_delivered = self.last.is_some() || self.garbled > 1;
            self.end_reported = self.from != ReadFrom::Beginning || has_delivered || count == 0;
            if self.end_reported {
                return Ok(None);
            }
        }
        timeout(patience, consumer.next()).await.ok().transpose()
    }

    /// Goes on after a loss, where that is possible.
    async fn resume(&mut self, mut loss: ConnectionLoss) -> Result<Option<Delivery>, Fault> {
        // Records that were delivered before the loss are read first; the loss will be met again.
        match self.consumer.delivered() {
            Ok(Some(record)) => return Ok(Some(record)),
            Err(known) if known.code.is_some() || known.is_garbled => loss = known,
            Ok(None) | Err(_) => {}
        }
        let too_late =
            loss.code == Some(PRECONDITION_FAILED) && loss.text.contains("acknowledgement");
        if let Some(last) = self.last.filter(|_| too_late) {
            return self.reopen(AMQPValue::LongLongInt(last + 1)).await;
        }
        // The channel's error may only say that the connection has ended, and not why.
        if loss.code.is_none() && !loss.is_garbled {
            loss = self.consumer.connection.reason(REASON_WITHIN).await.unwrap_or(loss);
        }
        let faults = SetupFaults(&self.settings);
        if !loss.is_garbled {
            return Err(faults.unreadable(&self.address, &loss));
        }
        self.garbled += 1;
        if self.garbled > GARBLED_MAX {
            return Err(faults.garbled(&self.address, self.last.map_or(0, |last| last + 1)));
        }
        let start = restart(self.last, &self.from, self.opened_unix_us, self.garbled);
        if self.garbled > 1 {
            let (queue, offset) = (&self.address.topic, passed_over(&start));
            tracing::warn!(
                code = "dead-letter.foreign-record",
                queue,
                offset,
                "a foreign record that cannot be read is passed over"
            );
        }
        self.reopen(start).await
    }

    async fn reopen(&mut self, offset: AMQPValue) -> Result<Option<Delivery>, Fault> {
        self.consumer.connection.close().await;
        self.consumer = StreamConsumer::open(&self.settings, &self.address, offset).await?;
        Ok(None)
    }
}

impl Drop for StreamLog {
    fn drop(&mut self) {
        self.runtime.block_on(self.consumer.connection.close());
    }
}

/// The offset before the one where reading goes on.
fn passed_over(start: &AMQPValue) -> Option<i64> {
    match start {
        AMQPValue::LongLongInt(offset) => Some(offset - 1),
        _ => None,
    }
}

/// Lists and tables of the broker, which a replay does not need: the queues in which a message was
/// dead-lettered, and further routing keys of its first publisher.
const OF_BROKER: [&str; 3] = ["x-death", "CC", "BCC"];

/// Reads a record; none without an offset in a stream.
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
    let (mut offset, mut dropped) = (None, Vec::new());
    for (name, value) in properties.headers().as_ref()?.inner() {
        match (name.as_str(), value) {
            (OFFSET_HEADER, AMQPValue::LongLongInt(found)) => offset = Some(*found),
            (KEY_HEADER, value) => entry.key = bytes(value),
            (TYPE, value) => {
                let long = bytes(value).unwrap_or_default();
                entry.event_type = Some(String::from_utf8_lossy(&long).into_owned());
            }
            (name, value) => match bytes(value) {
                Some(bytes) => entry.headers.push((name.to_owned(), bytes)),
                None if OF_BROKER.contains(&name) => {}
                None => dropped.push(name),
            },
        }
    }
    if !dropped.is_empty() {
        entry.headers.push((HEADERS_DROPPED.to_owned(), listed(&dropped).into_bytes()));
    }
    entry.position = PartitionOffset { partition: 0, offset: offset? };
    Some(entry)
}

/// The relay's headers come back as text, and from later brokers as bytes where they are not text.
/// Numbers are of others, as the handler of an inbox sees them. The rest has no obvious spelling.
fn bytes(value: &AMQPValue) -> Option<Vec<u8>> {
    let text = match value {
        AMQPValue::LongString(text) => return Some(text.as_bytes().to_vec()),
        AMQPValue::ByteArray(bytes) => return Some(bytes.as_slice().to_vec()),
        AMQPValue::ShortString(text) => text.to_string(),
        AMQPValue::Boolean(it) => it.to_string(),
        AMQPValue::ShortShortInt(it) => it.to_string(),
        AMQPValue::ShortShortUInt(it) => it.to_string(),
        AMQPValue::ShortInt(it) => it.to_string(),
        AMQPValue::ShortUInt(it) => it.to_string(),
        AMQPValue::LongInt(it) => it.to_string(),
        AMQPValue::LongUInt(it) => it.to_string(),
        AMQPValue::LongLongInt(it) => it.to_string(),
        _ => return None,
    };
    Some(text.into_bytes())
}

#[cfg(test)]
#[path = "dead_letters_tests.rs"]
mod tests;
