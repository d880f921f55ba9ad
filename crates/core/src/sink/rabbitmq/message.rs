//! An event as an AMQP message, and the failures of one that cannot be sent or was refused.
//!
//! A message is kept in one allocation until it is confirmed.
//!
//! A dead letter must always be possible, although what AMQP cannot carry in the event it cannot
//! carry in the dead letter either. So names above 255 bytes become headers, headers that the
//! broker interprets are left out (and listed in [`HEADERS_DROPPED`]), and what does not fit into
//! the frame of the headers, or into the body, is cut ([`crate::dead_letter::fit`]).

use super::answer::ReturnedMessage;
use super::connection_loss::{AmqpAddress, ConnectionLoss};
use super::fault;
use super::limits::{Excess, Limits};
use crate::base::event::{Outbound, brief};
use crate::base::hash::fixed_hash;
use crate::base::text::quoted;
use crate::dead_letter::fit::{Room, fit, head_bytes};
use crate::dead_letter::writer::{
    AMQP_HEADER_BYTES, CLASS_PARKED, HEADERS_DROPPED, KEY_HEADER, TYPE, hash_name, listed,
};
use crate::sink::key_lanes::LaneItem;
use crate::sink::{Disposition, Failure};

/// AMQP's limit for exchange, queue, routing key, virtual host and header names.
pub const NAME_BYTES_MAX: usize = 255;
/// The bytes that the frame with the properties has beside headers, id, type and content type.
const PROPERTIES_COST_BYTES: usize = 47;
/// This header becomes the property `content_type`.
const CONTENT_TYPE_HEADER: &str = "content-type";
/// The broker puts the offset of a record of a stream into this header.
pub const OFFSET_HEADER: &str = "x-stream-offset";
/// The broker routes by the first two, and refuses them as text. It writes the others itself, and a
/// stream does not give back what a publisher has written into them.
const BROKER_HEADERS: [&str; 7] =
    ["CC", "BCC", OFFSET_HEADER, "x-cc", "x-death", "x-exchange", "x-routing-key"];
/// Ends the help about an exchange for events that does not exist. An event that one queue gets counts
/// as delivered, so the relay must not run before all queues are bound again.
pub const LOST_BINDINGS: &str = "; if it was deleted, it has lost the bindings of all queues: stop the relay first, and bind the queues of other consumers again before it starts, or they miss events";

// The parts of a message in the order of `AmqpMessage::bytes`. Names and values of headers follow.
const EXCHANGE: usize = 0;
const ROUTING_KEY: usize = 1;
const ID: usize = 2;
const EVENT_TYPE: usize = 3;
const CONTENT_TYPE: usize = 4;
const BODY: usize = 5;
const KEY: usize = 6;
const HEADERS: usize = 7;
/// Stands for the length of a part that there is not.
const ABSENT: u32 = u32::MAX;

/// An owned event in one allocation: a window full of them is most of the relay's memory.
pub struct AmqpMessage {
    /// Each part behind its length (4 bytes).
    bytes: Box<[u8]>,
    commit_unix_us: i64,
    /// The most bytes of the frame with its properties.
    pub properties_bytes: usize,
    /// Messages of one lane are sent one after the other.
    lane: Option<u64>,
    /// A dead letter, or what resolves one, may be cut.
    is_dead_letter: bool,
}

impl AmqpMessage {
    /// Copies an event, or says why AMQP, or this broker, cannot carry it.
    pub fn event(
        event: &Outbound<'_>,
        limits: &Limits,
        lane: Option<u64>,
    ) -> Result<AmqpMessage, Failure> {
        let is_content_type = |(name, _): &(&str, &[u8])| *name == CONTENT_TYPE_HEADER;
        let headers = || event.headers.iter().copied().filter(|header| !is_content_type(header));
        let declared = event.headers.iter().find(|it| is_content_type(it)).map(|(_, value)| *value);
        let names = [
            ("exchange", Some(event.exchange.as_bytes())),
            ("routing key", Some(event.topic.as_bytes())),
            ("event id", Some(event.id.as_bytes())),
            ("event type", event.event_type.map(str::as_bytes)),
            ("content type", declared.or(event.content_type.map(str::as_bytes))),
        ];
        let header_names = headers().map(|(name, _)| ("header name", Some(name.as_bytes())));
        for (what, name) in names.into_iter().chain(header_names) {
            if let Some(name) = name.filter(|name| name.len() > NAME_BYTES_MAX) {
                return Err(name_too_long(what, name, event));
            }
        }
        let properties_bytes = properties_bytes(event);
        if let Some(excess) = limits.excess(properties_bytes, event.value.map_or(0, <[u8]>::len)) {
            return Err(impossible(excess, event));
        }
        let body_and_key = [Some(event.value.unwrap_or_default()), event.key];
        let names = names.into_iter().map(|(_, name)| name).chain(body_and_key);
        let headers = headers().flat_map(|(name, value)| [Some(name.as_bytes()), Some(value)]);
        let parts = || names.clone().chain(headers.clone());
        // Exact, so that boxing does not copy.
        let mut bytes = Vec::with_capacity(parts().map(|it| 4 + it.map_or(0, <[u8]>::len)).sum());
        for part in parts() {
            let length = part.map(|part| u32::try_from(part.len()).unwrap_or(ABSENT));
            bytes.extend(length.unwrap_or(ABSENT).to_ne_bytes());
            bytes.extend(part.unwrap_or_default());
        }
        Ok(AmqpMessage {
            bytes: bytes.into_boxed_slice(),
            commit_unix_us: event.commit_unix_us,
            properties_bytes,
            lane,
            is_dead_letter: false,
        })
    }

    /// Copies a dead letter, or what resolves one, cut to fit.
    pub fn dead_letter(
        letter: &Outbound<'_>,
        limits: &Limits,
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
        let (event_type, long_type) = match letter.event_type {
            Some(name) if !fits(name) => (None, Some((TYPE, name.as_bytes()))),
            name => (name, None),
        };
        headers.extend(long_type);
        let content_type = letter.content_type.filter(|name| fits(name));
        if letter.content_type.is_some() && content_type.is_none() {
            dropped.push(CONTENT_TYPE_HEADER);
        }
        let dropped = listed(&dropped);
        if !dropped.is_empty() {
            headers.push((HEADERS_DROPPED, dropped.as_bytes()));
        }
        let fitting = Outbound { id, event_type, content_type, headers: &headers, ..*letter };
        let bare = properties_bytes(&Outbound { key: None, headers: &[], ..fitting });
        let head_bytes = limits.properties_bytes().saturating_sub(bare);
        let value_bytes = Some(limits.body_bytes);
        let room = Room { header_bytes: AMQP_HEADER_BYTES, head_bytes, value_bytes };
        match fit(&fitting, &room, |fitting| AmqpMessage::event(fitting, limits, lane)) {
            Ok(message) => Ok(AmqpMessage { is_dead_letter: true, ..message }),
            // The key of what was copied may be cut.
            Err(failure) => Err(Failure { key: letter.key.map(Box::from), ..failure }),
        }
    }

    /// Why it is not sent to a broker with these limits, if it is not.
    pub fn excess(&self, limits: &Limits) -> Option<Failure> {
        let excess = limits.excess(self.properties_bytes, self.body().len())?;
        Some(self.failure(Disposition::Terminal, excess.class, excess.reason, excess.mend))
    }

    /// The same dead letter, cut to these limits; none of an event, which is never cut.
    pub fn cut_to(&self, limits: &Limits) -> Option<AmqpMessage> {
        let cut = |letter: &Outbound<'_>| AmqpMessage::dead_letter(letter, limits, self.lane);
        self.is_dead_letter.then(|| self.with_outbound(cut).ok()).flatten()
    }

    /// The same dead letter with half of its value, if it has any.
    pub fn halved(&self, limits: &Limits) -> Option<AmqpMessage> {
        let bytes = self.body().len();
        (bytes > 0).then(|| self.cut_to(&Limits { body_bytes: bytes / 2, ..*limits })).flatten()
    }

    /// Passes the event that this is a copy of.
    pub fn with_outbound<T>(&self, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
        let headers: Vec<(&str, &[u8])> = self.headers().collect();
        then(&Outbound {
            exchange: self.exchange(),
            topic: self.routing_key(),
            key: self.key(),
            value: Some(self.body()),
            id: self.id(),
            event_type: self.event_type(),
            content_type: self.content_type(),
            headers: &headers,
            commit_unix_us: self.commit_unix_us,
            partition: None,
        })
    }

    pub fn key(&self) -> Option<&[u8]> {
        self.part(KEY)
    }

    pub fn exchange(&self) -> &str {
        self.name(EXCHANGE).unwrap_or_default()
    }

    pub fn routing_key(&self) -> &str {
        self.name(ROUTING_KEY).unwrap_or_default()
    }

    /// Exchange and routing key.
    pub fn destination(&self) -> (&str, &str) {
        (self.exchange(), self.routing_key())
    }

    /// The event id.
    pub fn id(&self) -> &str {
        self.name(ID).unwrap_or_default()
    }

    pub fn body(&self) -> &[u8] {
        self.part(BODY).unwrap_or_default()
    }

    pub fn event_type(&self) -> Option<&str> {
        self.name(EVENT_TYPE)
    }

    pub fn content_type(&self) -> Option<&str> {
        self.name(CONTENT_TYPE)
    }

    /// The headers that are sent, and the key.
    pub fn headers_and_key(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers().chain(self.key().map(|key| (KEY_HEADER, key)))
    }

    fn part(&self, index: usize) -> Option<&[u8]> {
        self.parts().nth(index).flatten()
    }

    fn name(&self, index: usize) -> Option<&str> {
        self.part(index).map(text)
    }

    fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut parts = self.parts().skip(HEADERS).flatten();
        std::iter::from_fn(move || Some((text(parts.next()?), parts.next()?)))
    }

    fn parts(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk::<4>()?;
            rest = after;
            match u32::from_ne_bytes(*length) {
                ABSENT => Some(None),
                length => rest.split_off(..length as usize).map(Some),
            }
        })
    }

    fn failure(
        &self,
        disposition: Disposition,
        class: &str,
        reason: impl Into<String>,
        mend: impl Into<String>,
    ) -> Failure {
        let (id, exchange, routing_key) = (self.id(), self.exchange(), self.routing_key());
        Failure {
            disposition,
            known: true,
            key: self.key().map(Box::from),
            class: class.to_owned(),
            subject: format!("event {id}, exchange {exchange}, routing key {routing_key}"),
            reason: reason.into(),
            mend: mend.into(),
        }
    }

    pub fn unroutable(&self, returned: &ReturnedMessage, address: &AmqpAddress) -> Failure {
        let (exchange, routing_key) = (self.exchange(), self.routing_key());
        let (class, known) = fault::return_class(returned.code);
        let disposition = if known { Disposition::Transient } else { Disposition::Terminal };
        let reason = format!(
            "no queue is bound to exchange {exchange:?} for routing key {routing_key:?}: the broker returned it ({} {})",
            returned.code, returned.text
        );
        let key = quoted(routing_key);
        // The default exchange takes the routing key as the name of a queue, and has no other binding.
        let by_hand = match exchange {
            "" => {
                let command = format!("declare queue --name {key} --type quorum --durable true");
                format!("make the queue: {}", address.admin(&command))
            }
            _ => {
                let command = format!(
                    "declare binding --source {} --destination QUEUE --destination-type queue --routing-key {key}",
                    quoted(exchange)
                );
                format!("bind a queue: {}", address.admin(&command))
            }
        };
        let mend = format!("{by_hand}, or list it in sink.rabbitmq.queues and run: walrelay init");
        Failure { known, ..self.failure(disposition, &class, reason, mend) }
    }

    pub fn nacked(&self, address: &AmqpAddress) -> Failure {
        let reason = "a queue refused it: it is full (overflow = reject-publish), or it failed";
        let mend = format!(
            "consume from the full queue of those bound to {}, or raise its max-length; to see which it is: rabbitmqctl list_queues -p {} name messages arguments policy",
            quoted(self.exchange()),
            quoted(&address.vhost)
        );
        self.failure(Disposition::Transient, fault::NACK, reason, mend)
    }

    pub fn no_exchange(&self, address: &AmqpAddress) -> Failure {
        let exchange = self.exchange();
        let reason = format!("there is no exchange {exchange:?}");
        let name = quoted(exchange);
        let bindings = if self.is_dead_letter { "" } else { LOST_BINDINGS };
        let mend = format!(
            "{}, or, where the exchange is not a template: walrelay init{bindings}",
            address.admin(&format!("declare exchange --name {name} --type TYPE --durable true"))
        );
        self.failure(Disposition::Transient, fault::NO_EXCHANGE, reason, mend)
    }

    /// The failure of an event that waited behind a dead letter which parks its key.
    pub fn parked(&self) -> Failure {
        let reason = "its key is parked: an earlier event of it is a dead letter";
        let mend =
            "walrelay dlq replay or discard what is open of the key, then: walrelay dlq release";
        self.failure(Disposition::Terminal, CLASS_PARKED, reason, mend)
    }

    /// The failure of the message over which the broker closed the channel.
    pub fn closed_channel(&self, loss: &ConnectionLoss) -> Failure {
        let (class, known) = fault::close_class(loss.code.unwrap_or_default());
        let reason = format!("the broker closed the channel over it: {}", loss.text);
        let mend =
            "see the broker's log; the limit of a message is max_message_size in rabbitmq.conf";
        Failure { known, ..self.failure(Disposition::Terminal, &class, reason, mend) }
    }

    /// The failure of a message that leads to a queue which takes none.
    pub fn queue_failed(&self, text: &str, address: &AmqpAddress) -> Failure {
        let class = fault::close_class(fault::RESOURCE_ERROR).0;
        let vhost = quoted(&address.vhost);
        let mend = format!(
            "rabbitmqctl list_queues -p {vhost} name type state, for the streams bound to {}; rabbitmq-streams coordinator_status; rabbitmq-streams restart_stream --vhost {vhost} QUEUE",
            quoted(self.exchange())
        );
        self.failure(Disposition::Delayed, &class, text.to_owned(), mend)
    }

    /// The failure of a message that this login may not publish there.
    pub fn not_permitted(&self, text: &str, mend: &str) -> Failure {
        let class = fault::close_class(fault::ACCESS_REFUSED).0;
        self.failure(Disposition::Transient, &class, text.to_owned(), mend)
    }
}

impl LaneItem for AmqpMessage {
    fn lane(&self) -> Option<u64> {
        self.lane
    }

    /// A return is matched by the event id. An event whose hash is taken waits, and what is behind it, as for an
    /// equal id. Few are in flight, so a writer who chooses ids of equal hashes only makes the relay slow.
    fn unique(&self) -> Option<u64> {
        Some(fixed_hash(self.part(ID)))
    }

    fn size_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl std::fmt::Debug for AmqpMessage {
    /// Without the payload, which must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AmqpMessage").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// The size of the frame with the properties of an event, at most: of headers of one name the last is
/// sent, and all are counted.
fn properties_bytes(event: &Outbound<'_>) -> usize {
    let names = [event.event_type, event.content_type].into_iter().flatten();
    let names: usize = names.map(str::len).sum();
    PROPERTIES_COST_BYTES + event.id.len() + names + head_bytes(event, AMQP_HEADER_BYTES)
}

/// Whether the properties of the event fit.
pub fn has_room_for(event: &Outbound<'_>, limits: &Limits) -> bool {
    properties_bytes(event) <= limits.properties_bytes()
}

/// The failure of an event that AMQP, or this broker, cannot carry.
fn impossible(excess: Excess, event: &Outbound<'_>) -> Failure {
    Failure {
        disposition: Disposition::Terminal,
        known: true,
        key: event.key.map(Box::from),
        class: excess.class.to_owned(),
        subject: format!("event {}", brief(event.id)),
        reason: excess.reason,
        mend: excess.mend.to_owned(),
    }
}

fn fits(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
}

/// A content type from a header need not be text.
fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}

fn name_too_long(what: &str, name: &[u8], event: &Outbound<'_>) -> Failure {
    let (length, begins) = (name.len(), String::from_utf8_lossy(&name[..60]));
    let reason =
        format!("the {what} has {length} bytes, and AMQP carries {NAME_BYTES_MAX}: {begins}…");
    let mend = "correct the column or template that it comes from";
    impossible(Excess { class: fault::NAME_TOO_LONG, reason, mend }, event)
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
