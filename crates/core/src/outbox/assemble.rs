//! Makes the event that is published from the values of one row.
//!
//! Values that must be rendered (templates, headers out of JSON) are written into the buffers
//! first; the event then only borrows: from the wire, the route, the transaction and the buffers.
//! Nothing is allocated once the buffers have grown to the largest row of usual size; memory that
//! only a larger one needs is given back.

use std::borrow::Cow;
use std::fmt;

use super::compile::{CompiledRoute, CompiledTemplate};
use super::envelope;
use super::error::EventError;
use super::field::{FIELDS_MAX, FieldValue};
use super::json_object::NotAnObject;
use super::row_headers::RowHeaders;
use super::transaction::CommitStamp;
use crate::base::event::{HeaderSlots, Outbound, TRACEPARENT, TooManyHeaders, brief, give_back};
use crate::base::json_path;

/// Kafka's limit.
const TOPIC_BYTES_MAX: usize = 249;

/// Buffers that are kept from event to event.
#[derive(Debug, Default)]
pub struct ExtractScratch {
    pub(super) arena: Vec<u8>,
    row_headers: RowHeaders,
    /// The value, where it is more than the payload.
    envelope: Vec<u8>,
    /// Headers of the route that had to be rendered, by place in the route.
    extras: Vec<FieldValue<'static>>,
}

impl ExtractScratch {
    /// Gives memory back that only an unusually large event has needed.
    #[inline]
    pub fn give_back(&mut self) {
        give_back(&mut self.arena);
        give_back(&mut self.envelope);
        self.row_headers.give_back();
    }

    /// How many headers of reserved names the last row had, which are not published. Asked once.
    #[inline]
    pub fn take_reserved_headers(&mut self) -> u32 {
        self.row_headers.take_reserved()
    }
}

/// The values of one row, by slot. Some of them are in the arena of the scratch.
pub(super) struct RowValues<'a> {
    pub(super) route: &'a CompiledRoute,
    pub(super) fields: [FieldValue<'a>; FIELDS_MAX],
}

/// The destination, where it had to be rendered in the arena of the scratch.
struct Destination<'a> {
    exchange: FieldValue<'a>,
    topic: FieldValue<'a>,
    key: FieldValue<'a>,
}

impl<'a> RowValues<'a> {
    #[inline]
    pub(super) fn new(route: &'a CompiledRoute) -> RowValues<'a> {
        RowValues { route, fields: [FieldValue::Null; FIELDS_MAX] }
    }

    /// Makes the event.
    pub(super) fn assemble(
        &mut self,
        transaction: &'a CommitStamp,
        scratch: &'a mut ExtractScratch,
        slots: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, EventError> {
        let route = self.route;
        self.find_members(&mut scratch.arena)?;
        let destination = self.render(scratch)?;
        // From here on the scratch is only read.
        let scratch: &'a ExtractScratch = scratch;
        let arena = scratch.arena.as_slice();
        let Some(id) = self.fields[route.id].bytes(arena) else {
            let problem = "is NULL, and every event needs it";
            return Err(self.error("null-column", route.id, arena, problem));
        };
        let id = std::str::from_utf8(id)
            .map_err(|_| self.error("bad-value", route.id, arena, "does not hold UTF-8 text"))?;
        let topic = self.checked_topic(destination.topic.bytes(arena).unwrap_or_default(), id)?;
        let partition = self.partition(arena)?;
        self.push_headers(id, transaction, scratch, slots)
            .map_err(|TooManyHeaders| EventError::too_many_headers(id))?;
        let event_type = self.column(route.message_type, arena);
        let value = match route.envelope.is_empty() {
            true => self.column(Some(route.payload), arena),
            false => Some(scratch.envelope.as_slice()),
        };
        Ok(Outbound {
            value,
            topic,
            event_type: event_type.and_then(|text| std::str::from_utf8(text).ok()),
            headers: slots.as_slice(),
            partition,
            ..self.unchecked(&destination, transaction, arena)
        })
    }

    /// Takes the fields that are known of a row that is not an event, for its dead letter, and
    /// checks none of them.
    pub(super) fn salvage(
        &mut self,
        transaction: &'a CommitStamp,
        scratch: &'a mut ExtractScratch,
        slots: &'a mut HeaderSlots<'a>,
    ) -> Outbound<'a> {
        self.find_members(&mut scratch.arena).ok();
        let mut value = |template: &'a CompiledTemplate| {
            template.value(&self.fields, &mut scratch.arena).unwrap_or_default()
        };
        let (topic, key) = (value(&self.route.topic), value(&self.route.key));
        let exchange = self.route.exchange.as_ref().map(value).unwrap_or_default();
        let destination = Destination { exchange, topic, key };
        let event = self.unchecked(&destination, transaction, &scratch.arena);
        // One header always fits.
        slots.push("id", event.id.as_bytes()).ok();
        Outbound { headers: slots.as_slice(), ..event }
    }

    fn unchecked(
        &self,
        Destination { exchange, topic, key }: &Destination<'a>,
        transaction: &CommitStamp,
        arena: &'a [u8],
    ) -> Outbound<'a> {
        let text = |field: &FieldValue<'a>| {
            field.bytes(arena).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
        };
        Outbound {
            exchange: text(exchange),
            topic: text(topic),
            key: key.bytes(arena),
            value: self.fields[self.route.payload].bytes(arena),
            id: text(&self.fields[self.route.id]),
            event_type: None,
            content_type: self.route.content_type,
            headers: &[],
            commit_unix_us: transaction.commit_unix_us(),
            partition: None,
        }
    }

    /// Fills the slots of members from the JSON in their columns. Members of a column that cannot be read
    /// are NULL; the first of those is the error.
    fn find_members(&mut self, arena: &mut Vec<u8>) -> Result<(), EventError> {
        let route = self.route;
        let mut outcome = Ok(());
        for member in &route.members {
            let found = match self.fields[member.source] {
                FieldValue::Null => Ok(FieldValue::Null),
                FieldValue::Wire(json) => find_member(json, &member.path, arena),
                // A copy: what is found in it is written into the arena, too.
                FieldValue::Arena { start, end } => {
                    let json = arena[start..end].to_vec();
                    let found = find_member(&json, &member.path, arena);
                    found.map(|found| found.copied_to(arena))
                }
            };
            self.fields[member.slot] = found.unwrap_or_else(|error| {
                let problem = format_args!("is not JSON: {}", NotAnObject::of(&error));
                if outcome.is_ok() {
                    outcome = Err(self.error("not-json", member.source, arena, problem));
                }
                FieldValue::Null
            });
        }
        outcome
    }

    fn render(&self, scratch: &mut ExtractScratch) -> Result<Destination<'a>, EventError> {
        let RowValues { route, fields } = self;
        scratch.row_headers.clear();
        let arena = &mut scratch.arena;
        let mut value = |template: &'a CompiledTemplate| {
            template.value(fields, arena).map_err(|slot| (slot, template))
        };
        let destination = value(&route.topic).and_then(|topic| {
            let exchange = route.exchange.as_ref().map_or(Ok(FieldValue::Null), &mut value)?;
            // A key that is exactly one column may be NULL.
            let key = route.key.borrow(fields).map_or_else(|| value(&route.key), Ok)?;
            Ok(Destination { exchange, topic, key })
        });
        let destination =
            destination.map_err(|(slot, CompiledTemplate { setting, text, .. })| {
                let problem = format_args!("is NULL, and {setting} = {text:?} needs it");
                self.error("null-in-template", slot, &scratch.arena, problem)
            })?;
        scratch.extras.clear();
        for (_, template) in &route.extras {
            let rendered = match template.borrow(fields) {
                Some(_) => FieldValue::Null,
                None => template.render(fields, &mut scratch.arena).unwrap_or_default(),
            };
            scratch.extras.push(rendered);
        }
        if let Some(slot) = route.headers
            && let Some(json) = fields[slot].bytes(&scratch.arena)
            && let Err(error) = scratch.row_headers.read(json)
        {
            let (class, problem) = match error {
                NotAnObject::TooLong(_) => ("too-many-headers", error.to_string()),
                NotAnObject::HasNul => ("headers-not-object", error.to_string()),
                _ => ("headers-not-object", format!("is not a JSON object: {error}")),
            };
            return Err(self.error(class, slot, &scratch.arena, problem));
        }
        if !route.envelope.is_empty() {
            let ExtractScratch { arena, envelope, .. } = scratch;
            envelope::write(route, fields, arena, envelope)
                .map_err(|slot| self.error("bad-value", slot, arena, "does not hold UTF-8 text"))?;
        }
        Ok(destination)
    }

    /// An error in one column.
    #[cold]
    pub(super) fn error(
        &self,
        class: &'static str,
        slot: usize,
        arena: &[u8],
        problem: impl fmt::Display,
    ) -> EventError {
        let id = self.column(Some(self.route.id), arena).map(String::from_utf8_lossy);
        let event = id.as_deref().map_or("(unknown)".into(), brief);
        let column = &self.route.names[slot];
        EventError::new(class, format!("event {event}: column {column} {problem}"))
    }

    fn column<'b>(&self, slot: Option<usize>, arena: &'b [u8]) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        self.fields[slot?].bytes(arena)
    }

    #[inline]
    fn checked_topic(&self, topic: &'a [u8], id: &str) -> Result<&'a str, EventError> {
        // A routing key is any text; what AMQP cannot carry, its sink refuses.
        let is_routing_key = self.route.exchange.is_some();
        let allowed =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let fits = || (1..=TOPIC_BYTES_MAX).contains(&topic.len()) && topic.iter().all(allowed);
        match std::str::from_utf8(topic) {
            Ok(text) if is_routing_key || fits() => Ok(text),
            _ => Err(self.bad_topic(topic, id)),
        }
    }

    #[cold]
    fn bad_topic(&self, topic: &[u8], id: &str) -> EventError {
        let event = brief(id);
        let topic = String::from_utf8_lossy(&topic[..topic.len().min(300)]);
        let text = &self.route.topic.text;
        EventError::new(
            "bad-topic",
            format!(
                "event {event}: {topic:?} is not a topic (1 to 249 of letters, digits, \".\", \"_\" \
                 and \"-\"); it comes from route.topic = {text:?}"
            ),
        )
    }

    fn partition(&self, arena: &[u8]) -> Result<Option<i32>, EventError> {
        let Some(slot) = self.route.partition else { return Ok(None) };
        let Some(text) = self.fields[slot].bytes(arena) else { return Ok(None) };
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i32>().ok());
        number.filter(|number| *number >= 0).map(Some).ok_or_else(|| {
            let value = String::from_utf8_lossy(&text[..text.len().min(40)]);
            let problem = format_args!("= {value:?} is not a partition (0 to 2147483647)");
            self.error("bad-partition", slot, arena, problem)
        })
    }

    /// In order: `id`, the standard headers, those of the row, those of the route. Of one name
    /// there is one header: that of the route rather than the standard one, and either rather than
    /// that of the row.
    #[inline]
    fn push_headers(
        &self,
        id: &'a str,
        transaction: &'a CommitStamp,
        scratch: &'a ExtractScratch,
        slots: &mut HeaderSlots<'a>,
    ) -> Result<(), TooManyHeaders> {
        let RowValues { route, fields } = self;
        let arena = scratch.arena.as_slice();
        slots.push("id", id.as_bytes())?;
        if let Some(event_type) = self.column(route.event_type, arena) {
            slots.push("event_type", event_type)?;
        }
        let traceparent = self.column(route.traceparent, arena);
        if let Some(traceparent) = traceparent.filter(|text| !text.is_empty()) {
            slots.push(TRACEPARENT, traceparent)?;
        }
        // A polled row may have no time.
        if route.commit_ts && transaction.commit_unix_us() != 0 {
            slots.push("commit_ts", transaction.time_text())?;
        }
        if route.lsn {
            slots.push("lsn", transaction.lsn_text())?;
        }
        for (name, value) in scratch.row_headers.iter() {
            let taken = slots.as_slice().iter().any(|(taken, _)| *taken == name)
                || route.extras.iter().any(|(taken, _)| taken == name);
            if !taken {
                slots.push(name, value)?;
            }
        }
        for ((name, template), rendered) in route.extras.iter().zip(&scratch.extras) {
            if let Some(value) = template.borrow(fields).unwrap_or(*rendered).bytes(arena) {
                slots.push(name, value)?;
            }
        }
        Ok(())
    }
}

/// A member of the JSON in a column, as text. It is borrowed from the column unless it has escapes.
fn find_member<'a>(
    json: &'a [u8],
    path: &[String],
    arena: &mut Vec<u8>,
) -> Result<FieldValue<'a>, serde_json::Error> {
    let Some(found) = json_path::member(json, path)? else { return Ok(FieldValue::Null) };
    Ok(match json_path::text_of(found)? {
        Cow::Borrowed(text) => FieldValue::Wire(text.as_bytes()),
        Cow::Owned(text) => {
            let start = arena.len();
            arena.extend_from_slice(text.as_bytes());
            FieldValue::since(start, arena)
        }
    })
}
