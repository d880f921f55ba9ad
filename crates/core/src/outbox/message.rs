//! Transactional logical messages as events: an outbox without a table.
//!
//! `SELECT pg_logical_emit_message(true, 'outbox', '{"id": …, "payload": …}')` travels with its
//! transaction and leaves nothing to clean up. The content is a JSON object whose fields take the
//! place of columns: the payload is the field's JSON text unchanged, other strings are unquoted,
//! numbers and booleans are their JSON text, `null` and an absent field are NULL. Messages that are
//! not transactional are never events: they come even when their transaction is rolled back.

use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::assemble::{ExtractScratch, RowValues};
use super::compile::{CompiledRoute, content_type};
use super::error::EventError;
use super::field::{FieldValue, JsonForm};
use super::json_object::{NotAnObject, opened};
use super::settings::Messages;
use super::transaction::CommitStamp;
use crate::base::error::Fault;
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
    /// Fields are looked for in each message, so none can be missing yet.
    pub fn compile(settings: &Messages) -> Result<MessagePlan, Fault> {
        let Messages { prefix, columns, route } = settings;
        let table = format!("messages with prefix {prefix}");
        let mut route = CompiledRoute::compile(route, columns, &table, None)?;
        route.content_type = content_type(JSON_OID);
        for slot in [Some(route.payload), route.headers].into_iter().flatten() {
            route.json_forms[slot] = JsonForm::Json;
        }
        Ok(MessagePlan { prefix: prefix.clone(), route })
    }

    /// True when such a message is an event.
    pub fn wants(&self, transactional: bool, prefix: &str) -> bool {
        transactional && prefix == self.prefix
    }

    /// Makes the event of one message. The scratch is
    /// kept from event to event; the headers are new.
    pub fn extract<'a>(
        &'a self,
        lsn: Lsn,
        content: &'a [u8],
        transaction: &'a CommitStamp,
        scratch: &'a mut ExtractScratch,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, EventError> {
        let mut row = self.read(content, scratch).map_err(|error| {
            let what = "the content is not a JSON object";
            let text = format!("logical message at {lsn}: {what}: {error}");
            EventError::new("message-not-object", text)
        })?;
        row.assemble(transaction, scratch, headers)
    }

    /// Takes the fields that are known of a message that is no event: the fields there are, or else
    /// the content itself as the value.
    pub fn salvage<'a>(
        &'a self,
        content: &'a [u8],
        transaction: &'a CommitStamp,
        scratch: &'a mut ExtractScratch,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Outbound<'a> {
        let mut row = self.read(content, scratch).unwrap_or_else(|_| {
            let mut row = RowValues::new(&self.route);
            row.fields[self.route.payload] = FieldValue::Wire(content);
            row
        });
        row.salvage(transaction, scratch, headers)
    }

    fn read<'a>(
        &'a self,
        content: &'a [u8],
        ExtractScratch { arena, .. }: &mut ExtractScratch,
    ) -> Result<RowValues<'a>, NotAnObject> {
        arena.clear();
        let row = RowValues::new(&self.route);
        let mut deserializer = opened(content)?;
        let row = deserializer.deserialize_map(MessageVisitor { row, arena });
        let read = row.and_then(|row| deserializer.end().map(|()| row));
        read.map_err(|error| NotAnObject::of(&error))
    }
}

struct MessageVisitor<'f, 'a> {
    row: RowValues<'a>,
    arena: &'f mut Vec<u8>,
}

impl<'de> Visitor<'de> for MessageVisitor<'_, 'de> {
    type Value = RowValues<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RowValues<'de>, A::Error> {
        let MessageVisitor { mut row, arena } = self;
        let route = row.route;
        while let Some(name) = map.next_key::<String>()? {
            let Some(slot) = route.slot_of(&name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let raw = map.next_value::<&'de RawValue>()?.get();
            let verbatim = slot == route.payload || Some(slot) == route.headers;
            row.fields[slot] = match raw.as_bytes() {
                b"null" => FieldValue::Null,
                [b'"', text @ .., b'"'] if !verbatim && !text.contains(&b'\\') => {
                    FieldValue::Wire(text)
                }
                [b'"', ..] if !verbatim => {
                    let text: String =
                        serde_json::from_str(raw).map_err(serde::de::Error::custom)?;
                    let start = arena.len();
                    arena.extend_from_slice(text.as_bytes());
                    FieldValue::since(start, arena)
                }
                json => FieldValue::Wire(json),
            };
        }
        Ok(row)
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
