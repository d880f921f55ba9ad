//! An event as an AMQP message, and why one cannot be carried or was refused.
//!
//! What a message needs until it is confirmed is kept in one compact piece; the properties that
//! lapin wants are built each time it is sent.
//!
//! A dead letter must never be impossible, and what was too much for AMQP in the event is too much
//! in its letter. So names above 255 bytes stand in headers instead, headers that the broker takes
//! for its own are left out (and named in [`HEADERS_DROPPED`]), and what does not fit into the one
//! frame of the headers, or into the body, is cut ([`crate::dead_letter::fit`]).

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};

use super::fault::{self, ConnectionLoss};
use super::returns::ReturnedMessage;
use super::uri::NAME_BYTES_MAX;
use crate::base::event::Outbound;
use crate::dead_letter::fit::{Room, fit, listed};
use crate::dead_letter::writer::{CLASS_PARKED, HEADERS_DROPPED, TYPE, hash_name};
use crate::sink::key_lanes::LaneItem;
use crate::sink::{Disposition, Failure};

/// lapin keeps 32 frames of room in each direction: with the broker's own 128 KiB that would be
/// 8 MiB per connection.
pub(super) const FRAME_BYTES_MAX: u32 = 32 * 1024;
/// AMQP sends all headers in one frame. This is what is left of it beside the longest names that
/// travel with them.
const HEADERS_BYTES_MAX: usize = FRAME_BYTES_MAX as usize - 1024;
/// What the lengths of a header take.
const HEADER_LENGTHS_BYTES: usize = 1 + 4;
const PERSISTENT: u8 = 2;
const APP_ID: &str = "walrelay";
/// AMQP has no record key: it travels as a header of this name.
pub(super) const KEY_HEADER: &str = "key";
/// A header of this name is the message's content type.
const CONTENT_TYPE_HEADER: &str = "content-type";
/// Where a record stands in a stream.
pub(super) const OFFSET_HEADER: &str = "x-stream-offset";
/// The broker routes by the first two, and refuses them as text; it writes the third itself.
const BROKER_HEADERS: [&str; 3] = ["CC", "BCC", OFFSET_HEADER];

/// The names of a message, by their place in [`AmqpMessage::names`].
const EXCHANGE: usize = 0;
const ROUTING_KEY: usize = 1;
const ID: usize = 2;
const EVENT_TYPE: usize = 3;
const CONTENT_TYPE: usize = 4;

/// An owned event, in one allocation: a window full of them is most of the relay's memory.
pub(super) struct AmqpMessage {
    /// Names, headers, body.
    bytes: Box<[u8]>,
    /// Length of each name that there is.
    names: [Option<u8>; 5],
    /// Each: length of the name (1 byte), name, length of the value (4 bytes), value.
    headers_bytes: usize,
    commit_unix_us: i64,
    /// The last header is the key.
    has_key: bool,
    /// Messages of one lane are sent one after the other.
    lane: Option<u64>,
    /// Is it a dead letter, or what resolves one? Then it may be cut.
    is_dead_letter: bool,
}

impl AmqpMessage {
    /// A copy of an event, or why AMQP cannot carry it.
    pub(super) fn event(event: &Outbound<'_>, lane: Option<u64>) -> Result<AmqpMessage, Failure> {
        let copied = AmqpMessage::copy(event, lane);
        copied.map_err(|failure| Failure { key: event.key.map(Box::from), ..failure })
    }

    /// A copy of a dead letter, or of what resolves one, cut to fit.
    pub(super) fn dead_letter(
        letter: &Outbound<'_>,
        lane: Option<u64>,
    ) -> Result<AmqpMessage, Failure> {
        AmqpMessage::dead_letter_within(letter, usize::MAX, lane)
    }

    fn dead_letter_within(
        letter: &Outbound<'_>,
        value_bytes: usize,
        lane: Option<u64>,
    ) -> Result<AmqpMessage, Failure> {
        let carried = |(name, value): &(&str, &[u8])| {
            let is_long_type = *name == CONTENT_TYPE_HEADER && value.len() > NAME_BYTES_MAX;
            fits(name) && !is_long_type && !BROKER_HEADERS.contains(name)
        };
        let (mut headers, dropped): (Vec<_>, Vec<_>) =
            letter.headers.iter().copied().partition(carried);
        let mut dropped: Vec<&str> = dropped.into_iter().map(|(name, _)| name).collect();
        let hash = (!fits(letter.id)).then(|| hash_name(letter.id.as_bytes()));
        let id = hash.as_deref().unwrap_or(letter.id);
        let long_type = letter.event_type.filter(|name| !fits(name));
        headers.extend(long_type.map(|name| (TYPE, name.as_bytes())));
        let event_type = letter.event_type.filter(|name| fits(name));
        let content_type = letter.content_type.filter(|name| fits(name));
        if letter.content_type.is_some() && content_type.is_none() {
            dropped.push(CONTENT_TYPE_HEADER);
        }
        let dropped = listed(&dropped);
        if !dropped.is_empty() {
            headers.push((HEADERS_DROPPED, dropped.as_bytes()));
        }
        let fitting = Outbound { id, event_type, content_type, headers: &headers, ..*letter };
        let room = Room { head_bytes: HEADERS_BYTES_MAX, value_bytes: Some(value_bytes) };
        let copied = fit(&fitting, &room, |fitting| AmqpMessage::copy(fitting, lane));
        let copied = copied.map(|message| AmqpMessage { is_dead_letter: true, ..message });
        copied.map_err(|failure| Failure { key: letter.key.map(Box::from), ..failure })
    }

    /// The same dead letter with less of its value, when it is one that has any: as much as the
    /// broker takes, or half, where that is not known.
    pub(super) fn with_less(&self, limit: Option<usize>) -> Option<AmqpMessage> {
        let bytes = self.body().len();
        if !self.is_dead_letter || bytes == 0 {
            return None;
        }
        let most = limit.filter(|limit| *limit < bytes).unwrap_or(bytes / 2);
        let less = |letter: &Outbound<'_>| AmqpMessage::dead_letter_within(letter, most, self.lane);
        self.with_outbound(less).ok()
    }

    fn copy(event: &Outbound<'_>, lane: Option<u64>) -> Result<AmqpMessage, Failure> {
        let key = event.key.map(|key| (KEY_HEADER, key));
        let all = || event.headers.iter().copied().chain(key);
        let declared = all().find(|(name, _)| *name == CONTENT_TYPE_HEADER);
        let content_type =
            declared.map(|(_, value)| value).or(event.content_type.map(str::as_bytes));
        let lengths = HEADER_LENGTHS_BYTES * (event.headers.len() + 1) + KEY_HEADER.len();
        let names = [Some(event.id), event.event_type, event.content_type];
        let names: usize = names.into_iter().flatten().map(str::len).sum();
        // Exact in the usual case, so that nothing is moved when it is boxed.
        let mut bytes = Vec::with_capacity(event.size_bytes() + lengths + names);
        let mut put = |what, name: Option<&[u8]>| {
            name.map(|name| put_name(&mut bytes, what, name, event.id)).transpose()
        };
        let names = [
            put("exchange", Some(event.exchange.as_bytes()))?,
            put("routing key", Some(event.topic.as_bytes()))?,
            put("event id", Some(event.id.as_bytes()))?,
            put("event type", event.event_type.map(str::as_bytes))?,
            put("content type", content_type)?,
        ];
        let start = bytes.len();
        for (name, value) in all().filter(|(name, _)| *name != CONTENT_TYPE_HEADER) {
            let length = bytes.len();
            bytes.push(0);
            bytes[length] = put_name(&mut bytes, "header name", name.as_bytes(), event.id)?;
            bytes.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend(value);
        }
        let headers_bytes = bytes.len() - start;
        // On the wire each has a byte that says what it is.
        let framed = headers_bytes + event.headers.len() + 1;
        if framed > HEADERS_BYTES_MAX {
            let reason = format!(
                "the headers have {framed} bytes, and one frame carries {HEADERS_BYTES_MAX}"
            );
            let mend = "carry less in headers: correct [route], or the row's own headers";
            return Err(impossible(fault::HEADERS_TOO_LARGE, event.id, reason, mend));
        }
        bytes.extend(event.value.unwrap_or_default());
        Ok(AmqpMessage {
            bytes: bytes.into_boxed_slice(),
            names,
            headers_bytes,
            commit_unix_us: event.commit_unix_us,
            has_key: event.key.is_some(),
            lane,
            is_dead_letter: false,
        })
    }

    /// The event that it is a copy of.
    pub(super) fn with_outbound<T>(&self, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
        let mut headers: Vec<(&str, &[u8])> = self.headers().collect();
        let key = self.has_key.then(|| headers.pop()).flatten().map(|(_, key)| key);
        then(&Outbound {
            exchange: self.exchange(),
            topic: self.routing_key(),
            key,
            value: Some(self.body()),
            id: self.id(),
            event_type: self.name(EVENT_TYPE),
            content_type: self.name(CONTENT_TYPE),
            headers: &headers,
            commit_unix_us: self.commit_unix_us,
            partition: None,
        })
    }

    /// The ordering key.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.headers().last().filter(|_| self.has_key).map(|(_, key)| key)
    }

    pub(super) fn exchange(&self) -> &str {
        self.name(EXCHANGE).unwrap_or_default()
    }

    pub(super) fn routing_key(&self) -> &str {
        self.name(ROUTING_KEY).unwrap_or_default()
    }

    /// The event id.
    pub(super) fn id(&self) -> &str {
        self.name(ID).unwrap_or_default()
    }

    /// The value.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[self.end_of(&self.names) + self.headers_bytes..]
    }

    fn name(&self, which: usize) -> Option<&str> {
        let (before, length) = (self.end_of(&self.names[..which]), self.names[which]?);
        // Ids and routing keys were text; a content type from a header need not be.
        let name = std::str::from_utf8(&self.bytes[before..before + usize::from(length)]);
        Some(name.unwrap_or_default())
    }

    fn end_of(&self, names: &[Option<u8>]) -> usize {
        names.iter().flatten().map(|length| usize::from(*length)).sum()
    }

    fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut rest = &self.bytes[self.end_of(&self.names)..][..self.headers_bytes];
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first()?;
            let (name, after) = after.split_at_checked(usize::from(*length))?;
            let (length, after) = after.split_first_chunk::<4>()?;
            let (value, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            rest = after;
            Some((std::str::from_utf8(name).unwrap_or_default(), value))
        })
    }

    pub(super) fn properties(&self) -> BasicProperties {
        let mut table = FieldTable::default();
        for (name, value) in self.headers() {
            table.insert(short(name), AMQPValue::LongString(LongString::from(value)));
        }
        let seconds = u64::try_from(self.commit_unix_us / 1_000_000).unwrap_or_default();
        let mut properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_message_id(short(self.id()))
            .with_app_id(short(APP_ID))
            .with_timestamp(seconds)
            .with_headers(table);
        if let Some(event_type) = self.name(EVENT_TYPE) {
            properties = properties.with_type(short(event_type));
        }
        if let Some(content_type) = self.name(CONTENT_TYPE) {
            properties = properties.with_content_type(short(content_type));
        }
        properties
    }

    fn failure(
        &self,
        disposition: Disposition,
        class: &str,
        reason: String,
        mend: impl Into<String>,
    ) -> Failure {
        let (id, exchange, routing_key) = (self.id(), self.exchange(), self.routing_key());
        Failure {
            disposition,
            known: true,
            key: self.key().map(Box::from),
            class: class.to_owned(),
            subject: format!("event {id}, exchange {exchange}, routing key {routing_key}"),
            reason,
            mend: mend.into(),
        }
    }

    /// The broker could not route it.
    pub(super) fn unroutable(&self, returned: &ReturnedMessage) -> Failure {
        let (exchange, routing_key) = (self.exchange(), self.routing_key());
        let (class, disposition) = fault::return_class(returned.code);
        let reason = format!(
            "no queue is bound to exchange {exchange:?} for routing key {routing_key:?}: the broker returned it ({} {})",
            returned.code, returned.text
        );
        let mend = format!(
            "bind a queue: rabbitmqadmin declare binding source={exchange:?} destination=QUEUE routing_key={routing_key:?}, or list it in sink.rabbitmq.queues and run: walrelay init"
        );
        let known = disposition.is_some();
        let disposition = disposition.unwrap_or(Disposition::Terminal);
        Failure { known, ..self.failure(disposition, &class, reason, mend) }
    }

    /// A queue did not keep it.
    pub(super) fn nacked(&self) -> Failure {
        let reason = "a queue refused it: it is full (overflow = reject-publish), or it failed";
        let mend = format!(
            "rabbitmqctl list_queues name messages arguments policy, for those bound to {:?}: consume from the full one, or raise its max-length",
            self.exchange()
        );
        self.failure(Disposition::Transient, fault::NACK, reason.to_owned(), mend)
    }

    pub(super) fn no_exchange(&self) -> Failure {
        let exchange = self.exchange();
        let reason = format!("there is no exchange {exchange:?}");
        let mend = format!(
            "rabbitmqadmin declare exchange name={exchange:?} type=… durable=true, or, where the exchange is not a template: walrelay init"
        );
        self.failure(Disposition::Transient, fault::NO_EXCHANGE, reason, mend)
    }

    /// It waited behind the dead letter that parks its key.
    pub(super) fn parked(&self) -> Failure {
        let reason = "its key is parked: an earlier event of it is a dead letter".to_owned();
        let mend =
            "walrelay dlq replay or discard what is open of the key, then: walrelay dlq release";
        self.failure(Disposition::Terminal, CLASS_PARKED, reason, mend)
    }

    /// The broker closed the channel over it.
    pub(super) fn poison(&self, loss: &ConnectionLoss) -> Failure {
        let (class, known) = fault::close_class(loss.code.unwrap_or_default());
        let reason = format!("the broker closed the channel over it: {}", loss.text);
        let mend =
            "see the broker's log; the limit of a message is max_message_size in rabbitmq.conf";
        Failure { known, ..self.failure(Disposition::Terminal, &class, reason, mend) }
    }
}

impl LaneItem for AmqpMessage {
    fn lane(&self) -> Option<u64> {
        self.lane
    }

    /// A return names the id.
    fn unique(&self) -> Option<&str> {
        Some(self.id())
    }

    fn size_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl std::fmt::Debug for AmqpMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Payloads do not belong in logs.
        f.debug_struct("AmqpMessage").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// AMQP cannot carry the event.
fn impossible(class: &str, id: &str, reason: String, mend: &str) -> Failure {
    Failure {
        disposition: Disposition::Terminal,
        known: true,
        key: None,
        class: class.to_owned(),
        subject: format!("event {id}"),
        reason,
        mend: mend.to_owned(),
    }
}

fn fits(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
}

/// A name whose length was checked.
pub(super) fn short(name: &str) -> ShortString {
    ShortString::try_new(name).unwrap_or_default()
}

/// Appends a name; returns its length.
fn put_name(bytes: &mut Vec<u8>, what: &'static str, name: &[u8], id: &str) -> Result<u8, Failure> {
    if let Ok(length) = u8::try_from(name.len()) {
        bytes.extend(name);
        return Ok(length);
    }
    let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
    let (length, begins) = (name.len(), shown(name));
    let reason =
        format!("the {what} has {length} bytes, and AMQP carries {NAME_BYTES_MAX}: {begins}…");
    let mend = "correct the column or template that it comes from";
    Err(impossible(fault::NAME_TOO_LONG, &shown(id.as_bytes()), reason, mend))
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
