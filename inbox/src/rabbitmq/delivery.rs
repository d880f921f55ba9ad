//! A message as RabbitMQ delivers it, and the token that acknowledges it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use lapin::message::Delivery as AmqpDelivery;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use walrelay_dead_letter::header::KEY_HEADER;

use super::is_retry_queue;
use crate::broker::Token;
use crate::message::{Message, Received, ReplayTrust, retry_header};

/// The broker routes by the first two, and refuses them as text; the last is Kafka's.
const UNUSED_HEADERS: [&str; 3] = ["CC", "BCC", retry_header::ORIGINAL_TOPIC];
/// Where the broker writes through which queues a message has come.
const DEATHS: &str = "x-death";
/// The prefixes of headers that the broker itself writes about the way of a message; the last from
/// RabbitMQ 4.3 on.
const BROKER_PREFIXES: [&str; 5] =
    [DEATHS, "x-first-death-", "x-last-death-", "x-delivery-", "x-acquired-"];

/// Stands behind the last tag; the broker begins with 1.
pub(super) const NO_TAG: u64 = 0;

/// A channel between its opening and its end, as tokens know it.
pub(super) struct ChannelState {
    is_open: AtomicBool,
    is_stopping: AtomicBool,
    has_settled: AtomicBool,
    /// Tokens that have begun and are not dropped.
    running: AtomicUsize,
    changed: Notify,
    /// Bounded by the prefetch. Numbers are delivery tags.
    acks: UnboundedSender<u64>,
}

impl ChannelState {
    pub(super) fn new(acks: UnboundedSender<u64>) -> Arc<ChannelState> {
        Arc::new(ChannelState {
            is_open: AtomicBool::new(true),
            is_stopping: AtomicBool::new(false),
            has_settled: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            changed: Notify::new(),
            acks,
        })
    }

    /// The broker delivers again what it has delivered on this channel.
    pub(super) fn lost(&self) {
        self.is_open.store(false, Ordering::SeqCst);
    }

    /// From now on nothing begins.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    /// A message was settled while the channel was open.
    pub(super) fn has_settled(&self) -> bool {
        self.has_settled.load(Ordering::SeqCst)
    }

    /// No further acknowledgement is sent.
    pub(super) fn end_acks(&self) {
        let _gone = self.acks.send(NO_TAG).is_err();
    }

    fn takes_on(&self) -> bool {
        self.is_open.load(Ordering::SeqCst) && !self.is_stopping.load(Ordering::SeqCst)
    }

    /// Waits until nothing runs that has begun.
    pub(super) async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            changed.await;
        }
    }
}

pub(crate) struct AckToken {
    channel: Arc<ChannelState>,
    tag: u64,
    has_begun: bool,
}

impl AckToken {
    pub(super) fn new(channel: &Arc<ChannelState>, tag: u64) -> AckToken {
        AckToken { channel: Arc::clone(channel), tag, has_begun: false }
    }
}

impl Token for AckToken {
    fn begin(&mut self) -> bool {
        // Counted first: whoever stops either sees it, or is seen here.
        self.has_begun = true;
        self.channel.running.fetch_add(1, Ordering::SeqCst);
        self.channel.takes_on()
    }

    fn is_wanted(&self) -> bool {
        self.channel.takes_on()
    }

    fn settle(self) {
        if self.channel.is_open.load(Ordering::SeqCst) {
            self.channel.has_settled.store(true, Ordering::SeqCst);
        }
        // Without a reader the channel is gone, and the message comes again.
        let _gone = self.channel.acks.send(self.tag).is_err();
    }
}

impl Drop for AckToken {
    fn drop(&mut self) {
        if self.has_begun && self.channel.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.channel.changed.notify_waiters();
        }
    }
}

pub(super) fn message(delivery: AmqpDelivery, service: &str) -> Message {
    let properties = delivery.properties;
    let text = |text: &Option<ShortString>| text.as_ref().map(ToString::to_string);
    let mut received = Received {
        topic: delivery.routing_key.to_string(),
        value: Some(Bytes::from(delivery.data)).filter(|value| !value.is_empty()),
        id: text(properties.message_id()).filter(|id| !id.is_empty()),
        event_type: text(properties.kind()),
        content_type: text(properties.content_type()),
        ..Received::default()
    };
    let headers = properties.headers().as_ref();
    // A publisher can write `x-death`, but not the exchange through which its message comes. Through
    // the default exchange comes what a person moves from the queue of a level.
    let exchange = delivery.exchange.as_str();
    let is_copy = exchange.is_empty()
        || exchange == service && headers.is_some_and(|headers| was_in_level(headers, service));
    for (name, value) in headers.into_iter().flat_map(|headers| headers.inner()) {
        let name = name.as_str();
        let of_broker = BROKER_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let Some(value) = bytes(value).filter(|_| !of_broker) else { continue };
        if name == KEY_HEADER {
            received.key = Some(value.clone());
        }
        if !UNUSED_HEADERS.contains(&name) {
            received.headers.push((name.to_owned(), value));
        }
    }
    // A replay comes through the exchange of this consumer.
    let trust = if exchange == service { ReplayTrust::Count } else { ReplayTrust::Nothing };
    if is_copy { Message::copy(received) } else { Message::original(received, trust) }
}

/// The broker says that the message comes from a retry level of this consumer.
fn was_in_level(headers: &FieldTable, service: &str) -> bool {
    let Some(AMQPValue::FieldArray(queues)) = headers.inner().get(DEATHS) else { return false };
    queues.as_slice().iter().any(|death| {
        let AMQPValue::FieldTable(death) = death else { return false };
        let Some(AMQPValue::LongString(queue)) = death.inner().get("queue") else { return false };
        std::str::from_utf8(queue.as_bytes()).is_ok_and(|queue| is_retry_queue(queue, service))
    })
}

/// The relay's headers are text; of others, what has one obvious spelling counts as text, too.
fn bytes(value: &AMQPValue) -> Option<Bytes> {
    let text = match value {
        AMQPValue::LongString(text) => return Some(Bytes::copy_from_slice(text.as_bytes())),
        AMQPValue::ByteArray(bytes) => return Some(Bytes::copy_from_slice(bytes.as_slice())),
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
    Some(text.into())
}
