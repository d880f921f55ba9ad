//! An event as an AMQP message.
//!
//! What a message needs until it is confirmed is kept in one compact piece; the properties that
//! lapin wants are built when it is sent, and again when it is sent again.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};

use super::connection::FRAME_BYTES_MAX;
use super::replies;
use crate::base::event::Outbound;
use crate::sink::key_lanes::Item;
use crate::sink::rabbitmq::dead_letter_fit;
use crate::sink::{Disposition, Failure};

/// Most bytes of a name in AMQP.
pub(super) const NAME_BYTES_MAX: usize = 255;
const PERSISTENT: u8 = 2;
const APP_ID: &str = "walrelay";
/// AMQP has no record key: it travels as a header of this name.
pub(super) const KEY_HEADER: &str = "key";
/// What the lengths of a header take.
const HEADER_LENGTHS_BYTES: usize = 1 + 4;
/// AMQP sends all headers in one frame. This is what is left of it beside the longest names that
/// travel with them.
pub(super) const HEADERS_BYTES_MAX: usize = FRAME_BYTES_MAX as usize - 1024;
/// A header of this name is the message's content type.
pub(super) const CONTENT_TYPE: &str = "content-type";

/// An owned event, in one allocation: a window full of them is most of the relay's memory.
pub(super) struct Message {
    /// Exchange, routing key, id, type, content type, headers, body.
    bytes: Box<[u8]>,
    exchange: u8,
    routing_key: u8,
    id: u8,
    event_type: Option<u8>,
    content_type: Option<u8>,
    /// Each: length of the name (1 byte), name, length of the value (4 bytes), value.
    headers: usize,
    commit_unix_us: i64,
    /// The last header is the key.
    has_key: bool,
    /// Messages of one lane are sent one after the other.
    lane: Option<u64>,
    /// Is it a dead letter, or what resolves one? Then it may be cut.
    is_letter: bool,
}

impl Message {
    /// A copy of an event, or why AMQP cannot carry it.
    pub(super) fn copy(event: &Outbound<'_>, lane: Option<u64>) -> Result<Message, Failure> {
        let copied = Message::exact(event, lane);
        copied.map_err(|failure| Failure { key: event.key.map(Box::from), ..failure })
    }

    /// A copy of a dead letter, or of what resolves one, cut to fit.
    pub(super) fn letter(letter: &Outbound<'_>, lane: Option<u64>) -> Result<Message, Failure> {
        Message::letter_within(letter, usize::MAX, lane)
    }

    fn letter_within(
        letter: &Outbound<'_>,
        value_bytes_max: usize,
        lane: Option<u64>,
    ) -> Result<Message, Failure> {
        let copied = dead_letter_fit::fitted(letter, value_bytes_max, |fitted| {
            Message::exact(fitted, lane).map(|message| Message { is_letter: true, ..message })
        });
        copied.map_err(|failure| Failure { key: letter.key.map(Box::from), ..failure })
    }

    /// The same letter with less of its value, when it is one that has any: as much as the broker
    /// takes, or half, where that is not known.
    pub(super) fn with_less(&self, limit: Option<usize>) -> Option<Message> {
        let bytes = self.body().len();
        if !self.is_letter || bytes == 0 {
            return None;
        }
        let most = limit.filter(|limit| *limit < bytes).unwrap_or(bytes / 2);
        self.with_outbound(|letter| Message::letter_within(letter, most, self.lane)).ok()
    }

    fn exact(event: &Outbound<'_>, lane: Option<u64>) -> Result<Message, Failure> {
        let key = event.key.map(|key| (KEY_HEADER, key));
        let all = || event.headers.iter().copied().chain(key);
        let declared = all().find(|(name, _)| *name == CONTENT_TYPE).map(|(_, value)| value);
        let content_type = declared.or(event.content_type.map(str::as_bytes));
        let lengths = HEADER_LENGTHS_BYTES * (event.headers.len() + 1) + KEY_HEADER.len();
        let names = [Some(event.id), event.event_type, event.content_type];
        let names: usize = names.into_iter().flatten().map(str::len).sum();
        // Exact in the usual case, so that nothing is moved when it is boxed.
        let mut bytes = Vec::with_capacity(event.size_bytes() + lengths + names);
        let mut put = |what, text: &[u8]| put_name(&mut bytes, what, text, event.id);
        let exchange = put("exchange", event.exchange.as_bytes())?;
        let routing_key = put("routing key", event.topic.as_bytes())?;
        let id = put("event id", event.id.as_bytes())?;
        let event_type = event.event_type.map(|it| put("event type", it.as_bytes())).transpose()?;
        let content_type = content_type.map(|it| put("content type", it)).transpose()?;
        let start = bytes.len();
        for (name, value) in all().filter(|(name, _)| *name != CONTENT_TYPE) {
            let length = bytes.len();
            bytes.push(0);
            bytes[length] = put_name(&mut bytes, "header name", name.as_bytes(), event.id)?;
            bytes.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend(value);
        }
        let headers = bytes.len() - start;
        // On the wire each has a byte that says what it is.
        let framed = headers + event.headers.len() + 1;
        if framed > HEADERS_BYTES_MAX {
            return Err(headers_too_large(framed, event.id));
        }
        bytes.extend(event.value.unwrap_or_default());
        Ok(Message {
            bytes: bytes.into_boxed_slice(),
            exchange,
            routing_key,
            id,
            event_type,
            content_type,
            headers,
            commit_unix_us: event.commit_unix_us,
            has_key: event.key.is_some(),
            lane,
            is_letter: false,
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
            event_type: self.event_type.map(|length| self.text(self.event_type_at(), length)),
            content_type: self.content_type.map(|length| self.text(self.content_type_at(), length)),
            headers: &headers,
            commit_unix_us: self.commit_unix_us,
            partition: None,
        })
    }

    /// The ordering key.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.headers().last().filter(|_| self.has_key).map(|(_, key)| key)
    }

    /// The exchange.
    pub(super) fn exchange(&self) -> &str {
        self.text(0, self.exchange)
    }

    /// The routing key.
    pub(super) fn routing_key(&self) -> &str {
        self.text(usize::from(self.exchange), self.routing_key)
    }

    /// The event id.
    pub(super) fn id(&self) -> &str {
        self.text(usize::from(self.exchange) + usize::from(self.routing_key), self.id)
    }

    /// The value.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[self.headers_at() + self.headers..]
    }

    fn text(&self, start: usize, length: u8) -> &str {
        // Ids and routing keys were text; a content type from a header need not be.
        std::str::from_utf8(&self.bytes[start..start + usize::from(length)]).unwrap_or_default()
    }

    fn event_type_at(&self) -> usize {
        usize::from(self.exchange) + usize::from(self.routing_key) + usize::from(self.id)
    }

    fn content_type_at(&self) -> usize {
        self.event_type_at() + usize::from(self.event_type.unwrap_or_default())
    }

    fn headers_at(&self) -> usize {
        self.content_type_at() + usize::from(self.content_type.unwrap_or_default())
    }

    fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut rest = &self.bytes[self.headers_at()..][..self.headers];
        std::iter::from_fn(move || {
            let (name, value, after) = header(rest)?;
            rest = after;
            Some((std::str::from_utf8(name).unwrap_or_default(), value))
        })
    }

    /// The properties of the message.
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
        if let Some(length) = self.event_type {
            properties = properties.with_type(short(self.text(self.event_type_at(), length)));
        }
        if let Some(length) = self.content_type {
            let content_type = self.text(self.content_type_at(), length);
            properties = properties.with_content_type(short(content_type));
        }
        properties
    }
}

impl Item for Message {
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

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Payloads do not belong in logs.
        f.debug_struct("Message").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// The first header, and what follows it.
fn header(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((name, value, rest))
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
    Err(Failure {
        disposition: Disposition::Terminal,
        known: true,
        key: None,
        class: replies::NAME_TOO_LONG.to_owned(),
        subject: format!("event {}", shown(id.as_bytes())),
        reason: format!(
            "the {what} has {} bytes, and AMQP carries {NAME_BYTES_MAX}: {}…",
            name.len(),
            shown(name)
        ),
        mend: "correct the column or template that it comes from".to_owned(),
    })
}

fn headers_too_large(bytes: usize, id: &str) -> Failure {
    Failure {
        disposition: Disposition::Terminal,
        known: true,
        key: None,
        class: replies::HEADERS_TOO_LARGE.to_owned(),
        subject: format!("event {id}"),
        reason: format!(
            "the headers have {bytes} bytes, and one frame carries {HEADERS_BYTES_MAX}"
        ),
        mend: "carry less in headers: correct [route], or the row's own headers".to_owned(),
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
