//! An event as an AMQP message.
//!
//! What a message needs until it is confirmed is kept in one compact piece; the properties that
//! lapin wants are built when it is sent, and again when it is sent again.

use std::hash::{BuildHasher, RandomState};

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};

use crate::message::Outbound;
use crate::sink::{Disposition, Failure};

/// Most bytes of a name in AMQP.
pub(super) const NAME_BYTES_MAX: usize = 255;
const PERSISTENT: u8 = 2;
const APP_ID: &str = "walrelay";
/// AMQP has no record key: it travels as a header of this name.
const KEY_HEADER: &str = "key";
/// A header of this name is the message's content type.
const CONTENT_TYPE: &str = "content-type";

/// An owned event.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) exchange: String,
    pub(super) routing_key: String,
    pub(super) id: String,
    event_type: Option<String>,
    content_type: Option<String>,
    headers: Vec<(String, Vec<u8>)>,
    commit_unix_us: i64,
    pub(super) body: Vec<u8>,
    /// Messages of one lane are sent one after the other.
    pub(super) lane: Option<u64>,
}

/// Which lane a key belongs to. Two keys may share one: they only wait for each other.
#[derive(Debug, Default)]
pub(super) struct Lanes(RandomState);

impl Lanes {
    fn of(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key)
    }
}

impl Message {
    /// A copy of an event, or why AMQP cannot carry it.
    pub(super) fn copy(event: &Outbound<'_>, lanes: &Lanes) -> Result<Message, Failure> {
        let name = |what: &'static str, text: &str| name(what, text, event.id);
        let mut content_type = event.content_type.map(|it| name("content type", it)).transpose()?;
        let mut headers = Vec::with_capacity(event.headers.len() + 1);
        let key = event.key.map(|key| (KEY_HEADER, key));
        for (header, value) in event.headers.iter().copied().chain(key) {
            if header == CONTENT_TYPE {
                content_type = Some(name("content type", &String::from_utf8_lossy(value))?);
            } else {
                headers.push((name("header name", header)?, value.to_vec()));
            }
        }
        Ok(Message {
            exchange: name("exchange", event.exchange)?,
            routing_key: name("routing key", event.topic)?,
            id: name("event id", event.id)?,
            event_type: event.event_type.map(|it| name("event type", it)).transpose()?,
            content_type,
            headers,
            commit_unix_us: event.commit_unix_us,
            body: event.value.unwrap_or_default().to_vec(),
            lane: event.key.map(|key| lanes.of(key)),
        })
    }

    /// The properties of the message.
    pub(super) fn properties(&self) -> BasicProperties {
        let mut table = FieldTable::default();
        for (name, value) in &self.headers {
            let value = AMQPValue::LongString(LongString::from(value.as_slice()));
            table.insert(short(name), value);
        }
        let seconds = u64::try_from(self.commit_unix_us / 1_000_000).unwrap_or_default();
        let mut properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_message_id(short(&self.id))
            .with_app_id(short(APP_ID))
            .with_timestamp(seconds)
            .with_headers(table);
        if let Some(event_type) = &self.event_type {
            properties = properties.with_type(short(event_type));
        }
        if let Some(content_type) = &self.content_type {
            properties = properties.with_content_type(short(content_type));
        }
        properties
    }
}

/// A name whose length was checked.
pub(super) fn short(name: &str) -> ShortString {
    ShortString::try_new(name).unwrap_or_default()
}

fn name(what: &'static str, text: &str, id: &str) -> Result<String, Failure> {
    if text.len() <= NAME_BYTES_MAX {
        return Ok(text.to_owned());
    }
    let shown = |text: &str| text.chars().take(60).collect::<String>();
    Err(Failure {
        disposition: Disposition::Terminal,
        class: "rabbitmq.name-too-long".to_owned(),
        subject: format!("event {}", shown(id)),
        reason: format!(
            "the {what} has {} bytes, and AMQP carries {NAME_BYTES_MAX}: {}…",
            text.len(),
            shown(text)
        ),
        mend: "correct the column or template that it comes from".to_owned(),
    })
}
