//! A consumer of all that a broker holds: Kafka's topics, all partitions from their beginning and
//! without a group, or RabbitMQ's queues; or of a stream that holds the stamps of payloads.
//!
//! The consumer adds as little as it can: the broker answers at once, one thread polls, and in
//! [`Mode::Latency`] a record costs a byte scan and a histogram bump. Kafka's restarts are
//! librdkafka's business, unless it has lost all brokers; only its fatal errors end the thread.

mod admin;

use std::collections::HashMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

pub use admin::{
    DrainWatch, alter_topic, create_replicated_topic, create_topic, delete_topic, end_offsets,
    is_read, leaders, topics_of, wait_end_offsets,
};

use crate::kit::{lock, now_us, payload_hash, wait_at_most};
use crate::rabbit::{self, Rabbit};
use crate::{HarnessError, Result};
use walrelay_measure::latency::Latencies;

const METADATA_WAIT: Duration = Duration::from_secs(15);
/// How long a client that says that all brokers are down may be silent.
const LOST_LIMIT: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// A [`Record`] each, for the oracle.
    Records,
    /// A [`Record`] each, id and hash as this function reads them from key and value: for relays
    /// that know no header `id`, or write the same JSON in another way.
    Content(fn(&str, &[u8]) -> (String, u128)),
    /// Counts, and latency from the payload's `t`, for benchmarks.
    Latency,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    /// Record key as text, or header `key`; empty when there is none.
    pub key: String,
    /// Header `id`, or message id; empty when absent.
    pub id: String,
    /// Header `lsn`, if there is one that parses (`16/B374D848`).
    pub lsn: Option<u64>,
    /// [`payload_hash`] of the value; that of nothing when null.
    pub hash: u128,
    /// Broker or producer time, whichever the topic says, in milliseconds; in RabbitMQ the
    /// producer's, in whole seconds.
    pub timestamp_ms: i64,
    /// When the consumer had it, in microseconds of the wall clock.
    pub arrived_us: i64,
}

/// The records that a consumer has seen since its start or its last [`Consumer::reset`].
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Records, in order per partition; empty in [`Mode::Latency`].
    pub records: Vec<Record>,
    /// Arrival minus the payload's `t`; empty in [`Mode::Records`].
    pub latencies: Latencies,
    pub count: u64,
    pub value_bytes: u64,
    pub first_us: Option<i64>,
    pub last_us: Option<i64>,
}

impl Seen {
    pub fn rate_per_second(&self) -> f64 {
        let span_us = self.last_us.zip(self.first_us).map_or(0, |(last, first)| last - first);
        if span_us <= 0 { 0.0 } else { (self.count - 1) as f64 * 1e6 / span_us as f64 }
    }
}

#[derive(Default)]
pub(crate) struct Shared {
    stop: AtomicBool,
    count: AtomicU64,
    seen: Mutex<Seen>,
    fatal: Mutex<Option<HarnessError>>,
}

impl Shared {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Takes in what arrived; `record` is only made when it is kept.
    pub(crate) fn take(
        &self,
        payload: &[u8],
        mode: Mode,
        arrived_us: i64,
        record: impl FnOnce() -> Record,
    ) {
        self.add(payload.len(), arrived_us, |seen| match mode {
            Mode::Latency => {
                if let Some((stamped_us, _)) = stamp_us(payload) {
                    seen.latencies.record_us(arrived_us - stamped_us);
                }
            }
            Mode::Records => seen.records.push(record()),
            Mode::Content(read) => {
                let record = record();
                let (id, hash) = read(&record.key, payload);
                seen.records.push(Record { id, hash, ..record });
            }
        });
    }

    fn add(&self, value_bytes: usize, arrived_us: i64, keep: impl FnOnce(&mut Seen)) {
        let mut seen = lock(&self.seen);
        seen.count += 1;
        seen.value_bytes += value_bytes as u64;
        seen.first_us.get_or_insert(arrived_us);
        seen.last_us = Some(arrived_us);
        keep(&mut seen);
        drop(seen);
        self.count.fetch_add(1, Ordering::Release);
    }
}

pub struct Consumer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Consumer {
    /// Assigns all partitions of existing topics from the beginning and starts to read.
    pub fn start(brokers: &str, topics: &[&str], mode: Mode) -> Result<Consumer> {
        let consumer: BaseConsumer = config(brokers).create()?;
        let mut assignment = TopicPartitionList::new();
        for topic in topics {
            for partition in admin::partitions(&consumer, topic, METADATA_WAIT)? {
                assignment.add_partition_offset(topic, partition, Offset::Beginning)?;
            }
        }
        consumer.assign(&assignment)?;
        let brokers = brokers.to_owned();
        Ok(Consumer::spawn(move |shared| read(consumer, &brokers, shared, mode)))
    }

    /// Consumes existing queues of RabbitMQ; what is read leaves them.
    pub fn of_queues(url: &str, queues: &[&str], mode: Mode) -> Result<Consumer> {
        let mut rabbit = Rabbit::open(url)?;
        queues.iter().try_for_each(|queue| rabbit.message_count(queue).map(drop))?;
        let url = url.to_owned();
        let queues: Vec<String> = queues.iter().map(|queue| (*queue).to_owned()).collect();
        Ok(Consumer::spawn(move |shared| rabbit::read(&url, &queues, rabbit, shared, mode)))
    }

    /// Times the stamps in what a process writes. End the process before this consumer is dropped: its thread
    /// reads until the stream ends.
    pub fn of_stream(stream: impl Read + Send + 'static) -> Consumer {
        Consumer::spawn(move |shared| read_stamps(stream, shared))
    }

    fn spawn(read: impl FnOnce(&Shared) + Send + 'static) -> Consumer {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = std::thread::spawn(move || read(&own));
        Consumer { shared, thread: Some(thread) }
    }

    pub fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Acquire)
    }

    pub fn wait_until(&self, n: u64, timeout: Duration) -> Result<()> {
        let found = wait_at_most(timeout, Duration::from_millis(2), || {
            if self.count() >= n {
                return Ok(Some(()));
            }
            lock(&self.shared.fatal).take().map_or(Ok(None), Err)
        })?;
        found.ok_or_else(|| {
            let what = format!("{n} records, {} came", self.count());
            HarnessError::Late { what, limit: timeout }
        })
    }

    /// Waits until nothing has come for `quiet`, for what should not come at all.
    pub fn wait_quiet(&self, quiet: Duration, timeout: Duration) -> Result<()> {
        let began = Instant::now();
        let (mut last, mut since) = (self.count(), Instant::now());
        while since.elapsed() < quiet {
            if began.elapsed() > timeout {
                let what = format!("a quiet {quiet:?} after {last} records");
                return Err(HarnessError::Late { what, limit: timeout });
            }
            std::thread::sleep(Duration::from_millis(5));
            if self.count() != last {
                (last, since) = (self.count(), Instant::now());
            }
        }
        Ok(())
    }

    /// Takes what was seen so far and begins anew, e.g. after a warm-up; the count goes on.
    pub fn reset(&self) -> Seen {
        std::mem::take(&mut *lock(&self.shared.seen))
    }

    pub fn snapshot(&self) -> Seen {
        lock(&self.shared.seen).clone()
    }

    pub fn stop(mut self) -> Seen {
        self.end();
        self.reset()
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.end();
    }
}

fn config(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers)
        // librdkafka insists on a group for any consumer; none is ever joined or committed to.
        .set("group.id", "walrelay-kit")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("enable.partition.eof", "false")
        .set("fetch.wait.max.ms", "10")
        .set("fetch.min.bytes", "1")
        .set("fetch.error.backoff.ms", "50")
        .set("queued.min.messages", "100000")
        // A full queue would otherwise stop its partition's fetches for a whole second.
        .set("fetch.queue.backoff.ms", "5")
        .set("topic.metadata.refresh.interval.ms", "1000")
        .set("reconnect.backoff.ms", "20")
        .set("reconnect.backoff.max.ms", "200")
        .set("log_level", "0");
    config
}

fn read(mut consumer: BaseConsumer, brokers: &str, shared: &Shared, mode: Mode) {
    let mut topics: Vec<Arc<str>> = Vec::new();
    let mut read_before = ReadBefore::default();
    let mut lost_at: Option<Instant> = None;
    while !shared.is_stopped() {
        if lost_at.take_if(|at| at.elapsed() > LOST_LIMIT).is_some()
            && let Ok(successor) = successor(&consumer, brokers)
        {
            consumer = successor;
        }
        match consumer.poll(Duration::from_millis(20)) {
            None => {}
            Some(Ok(message)) => {
                lost_at = None;
                let arrived_us = now_us();
                let payload = message.payload().unwrap_or_default();
                let mut record = || record(&message, payload, &mut topics, arrived_us);
                // A benchmark kills no broker, and makes no record.
                if matches!(mode, Mode::Latency) {
                    shared.take(payload, mode, arrived_us, record);
                    continue;
                }
                let record = record();
                if !read_before.contains(&record) {
                    shared.take(payload, mode, arrived_us, || record);
                }
            }
            Some(Err(error)) => {
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
                    *lock(&shared.fatal) = Some(error.into());
                    return;
                }
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
                    lost_at = Some(Instant::now());
                }
                // A dead broker is reported again at once: do not spin while it is away.
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// The records that were read: librdkafka may begin a partition again when its broker was killed. In a topic
/// that was created again the same place has another record.
#[derive(Default)]
struct ReadBefore(HashMap<(i32, i64), Vec<ReadRecord>>);

/// Topic, time and hash.
type ReadRecord = (Arc<str>, i64, u128);

impl ReadBefore {
    fn contains(&mut self, record: &Record) -> bool {
        let content = (Arc::clone(&record.topic), record.timestamp_ms, record.hash);
        let there = self.0.entry((record.partition, record.offset)).or_default();
        let is_known = there.contains(&content);
        if !is_known {
            there.push(content);
        }
        is_known
    }
}

/// A client that goes on where the other stands. librdkafka may forget all brokers when one answers
/// while it is fenced, as after a long freeze, and then stands still for ever (its issue 5301).
fn successor(consumer: &BaseConsumer, brokers: &str) -> Result<BaseConsumer> {
    // A list of its own: that of the positions refers to partitions of the other client.
    let mut assignment = TopicPartitionList::new();
    for at in consumer.position()?.elements() {
        let from = if at.offset() == Offset::Invalid { Offset::Beginning } else { at.offset() };
        assignment.add_partition_offset(at.topic(), at.partition(), from)?;
    }
    let successor: BaseConsumer = config(brokers).create()?;
    successor.assign(&assignment)?;
    Ok(successor)
}

fn record(
    message: &BorrowedMessage<'_>,
    payload: &[u8],
    topics: &mut Vec<Arc<str>>,
    arrived_us: i64,
) -> Record {
    Record {
        topic: shared_name(topics, message.topic()),
        partition: message.partition(),
        offset: message.offset(),
        key: text(message.key()),
        id: text(header(message, "id")),
        lsn: header(message, "lsn").and_then(parse_lsn),
        hash: payload_hash(payload),
        timestamp_ms: message.timestamp().to_millis().unwrap_or(-1),
        arrived_us,
    }
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

fn header<'a>(message: &'a BorrowedMessage<'_>, name: &str) -> Option<&'a [u8]> {
    let headers = message.headers()?;
    headers.iter().find(|header| header.key == name).and_then(|header| header.value)
}

fn shared_name(topics: &mut Vec<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(known) = topics.iter().find(|known| &***known == name) {
        return known.clone();
    }
    topics.push(name.into());
    name.into()
}

/// Postgres' text form of an LSN: two hexadecimal halves.
pub(crate) fn parse_lsn(text: &[u8]) -> Option<u64> {
    let (high, low) = std::str::from_utf8(text).ok()?.split_once('/')?;
    let high = u32::from_str_radix(high, 16).ok()?;
    Some(u64::from(high) << 32 | u64::from(u32::from_str_radix(low, 16).ok()?))
}

/// The number after `"t":`, found by scanning, and what follows it: a parser would cost more than
/// the rest together.
///
/// `t` is the shortest name of the load's payloads, so jsonb puts it first; blanks vary by relay.
fn stamp_us(payload: &[u8]) -> Option<(i64, &[u8])> {
    let at = payload.windows(4).position(|window| window == b"\"t\":")?;
    let rest = payload.get(at + 4..)?.trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = rest.split_at(digits);
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

fn read_stamps(mut stream: impl Read, shared: &Shared) {
    // A stamp may be cut by the end of what was read, never by more than this.
    const STAMP_BYTES_MAX: usize = 32;
    let mut buffer = vec![0; 64 * 1024];
    let mut kept = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer[kept..]) {
        let (arrived_us, end) = (now_us(), kept + read);
        let mut rest = &buffer[..end];
        while let Some((stamped_us, behind @ [_, ..])) = stamp_us(rest) {
            let latency_us = arrived_us - stamped_us;
            shared.add(rest.len() - behind.len(), arrived_us, |seen| {
                seen.latencies.record_us(latency_us);
            });
            rest = behind;
        }
        kept = rest.len().min(STAMP_BYTES_MAX);
        buffer.copy_within(end - kept..end, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_over_the_gaps_between_records() {
        let seen =
            Seen { count: 11, first_us: Some(0), last_us: Some(1_000_000), ..Seen::default() };
        assert_eq!(seen.rate_per_second(), 10.0);
        assert_eq!(Seen::default().rate_per_second(), 0.0);
    }
}
