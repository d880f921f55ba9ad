//! Transactional logical messages as events: an outbox without a table.
//!
//! `SELECT pg_logical_emit_message(true, 'outbox', '{"id": …, "payload": …}')` travels with its
//! transaction and leaves nothing to clean up. The content is a JSON object whose fields play the
//! columns: the payload is the field's JSON text untouched, other strings are unquoted, numbers and
//! booleans are their JSON text, `null` and an absent field are NULL. Non-transactional messages
//! are never events: they come even when their transaction is rolled back.

use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::assemble::{ExtractScratch, assemble, salvage};
use super::compile::{CompiledRoute, RouteSource};
use super::error::{EventError, ExtractError};
use super::field::{FIELDS_MAX, FieldValue, Fields};
use super::settings::Messages;
use super::transaction::CommitStamp;
use crate::base::event::{HeaderSlots, Outbound};
use crate::base::lsn::Lsn;

const JSON_OID: u32 = 114;

/// How logical messages become events.
#[derive(Debug)]
pub struct MessagePlan {
    prefix: String,
    route: CompiledRoute,
}

impl MessagePlan {
    /// Compiles the plan. Fields are looked for in each message, so none can be missing yet.
    pub fn compile(settings: &Messages) -> Result<MessagePlan, ExtractError> {
        let table = format!("messages with prefix {}", settings.prefix);
        let source = RouteSource { table, columns: None };
        let mut route = CompiledRoute::compile(&settings.route, &settings.columns, &source)?;
        // The field's JSON text.
        route.set_payload_type(JSON_OID);
        Ok(MessagePlan { prefix: settings.prefix.clone(), route })
    }

    /// True when such a message is an event.
    #[must_use]
    pub fn wants(&self, transactional: bool, prefix: &str) -> bool {
        transactional && prefix == self.prefix
    }

    /// Makes the event of one message. The scratch is kept from event to event, the headers are not.
    pub fn extract<'a>(
        &'a self,
        lsn: Lsn,
        content: &'a [u8],
        transaction: &'a CommitStamp,
        scratch: &'a mut ExtractScratch,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, EventError> {
        scratch.arena.clear();
        let mut fields: Fields<'a> = [FieldValue::Null; FIELDS_MAX];
        self.read(content, &mut fields, &mut scratch.arena).map_err(|error| {
            let what = "the content is not a JSON object";
            let text = format!("logical message at {lsn}: {what}: {error}");
            EventError::new("message-not-object", text)
        })?;
        assemble(&self.route, &fields, transaction, scratch, headers)
    }

    /// What is known of a message that is no event: the fields there are, or else the content
    /// itself as the value.
    pub fn salvage<'a>(
        &'a self,
        content: &'a [u8],
        transaction: &'a CommitStamp,
        scratch: &'a mut ExtractScratch,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Outbound<'a> {
        scratch.arena.clear();
        let mut fields: Fields<'a> = [FieldValue::Null; FIELDS_MAX];
        if self.read(content, &mut fields, &mut scratch.arena).is_err() {
            fields = [FieldValue::Null; FIELDS_MAX];
            fields[self.route.payload] = FieldValue::Wire(content);
        }
        salvage(&self.route, &fields, transaction, scratch, headers)
    }

    fn read<'a>(
        &self,
        content: &'a [u8],
        fields: &mut Fields<'a>,
        arena: &mut Vec<u8>,
    ) -> Result<(), serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_slice(content);
        deserializer.deserialize_map(MessageVisitor { route: &self.route, fields, arena })?;
        deserializer.end()
    }
}

struct MessageVisitor<'f, 'a> {
    route: &'f CompiledRoute,
    fields: &'f mut Fields<'a>,
    arena: &'f mut Vec<u8>,
}

impl<'de> Visitor<'de> for MessageVisitor<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            let slot = self.route.names.iter().position(|known| *known == name);
            let Some(slot) = slot else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let raw = map.next_value::<&'de RawValue>()?.get();
            let verbatim = slot == self.route.payload || Some(slot) == self.route.headers;
            self.fields[slot] = match raw.as_bytes() {
                b"null" => FieldValue::Null,
                [b'"', text @ .., b'"'] if !verbatim && !text.contains(&b'\\') => {
                    FieldValue::Wire(text)
                }
                [b'"', ..] if !verbatim => {
                    let text: String =
                        serde_json::from_str(raw).map_err(serde::de::Error::custom)?;
                    let start = self.arena.len();
                    self.arena.extend_from_slice(text.as_bytes());
                    FieldValue::since(start, self.arena)
                }
                json => FieldValue::Wire(json),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
