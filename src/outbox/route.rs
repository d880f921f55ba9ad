//! A compiled route: from the values of one row to the event that is published.
//!
//! Assembling first writes
//! whatever must be made (templates, headers out of JSON) into the scratch, and then only borrows:
//! from the wire, the plan, the transaction and the scratch. Nothing is allocated once the scratch
//! has grown to the largest row of usual size; what a larger one needs is given back.

use super::cell::{Cell, Cells};
use super::compile::Compiled;
use super::event_error::EventError;
use super::row_headers::RowHeaders;
use super::transaction::Transaction;
use crate::base::event::{HeaderSlots, Outbound, TooManyHeaders, brief, give_back};

/// Memory that is kept from event to event.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) arena: Vec<u8>,
    row_headers: RowHeaders,
    /// Headers of the route that had to be rendered, by place in the route.
    extras: Vec<Cell<'static>>,
}

impl Scratch {
    /// Gives memory back that only an unusually large event has needed.
    #[inline]
    pub fn give_back(&mut self) {
        give_back(&mut self.arena);
        self.row_headers.give_back();
    }
}

/// A route whose columns are slots.
#[derive(Debug)]
pub(super) struct Routing {
    /// Column names by slot.
    pub(super) names: Vec<String>,
    pub(super) id: usize,
    pub(super) payload: usize,
    pub(super) event_type: Option<usize>,
    pub(super) traceparent: Option<usize>,
    pub(super) headers: Option<usize>,
    pub(super) partition: Option<usize>,
    pub(super) commit_ts: bool,
    pub(super) lsn: bool,
    /// The event type as a property of the message.
    pub(super) message_type: Option<usize>,
    /// What the payload column holds, as far as its type tells.
    pub(super) content_type: Option<&'static str>,
    /// Only RabbitMQ has exchanges.
    pub(super) exchange: Option<Compiled>,
    pub(super) topic: Compiled,
    pub(super) key: Compiled,
    pub(super) extras: Vec<(String, Compiled)>,
    pub(super) exchange_text: String,
    pub(super) topic_text: String,
    pub(super) key_text: String,
}

impl Routing {
    /// Column names by slot.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The slot of the payload.
    pub(super) const fn payload_slot(&self) -> usize {
        self.payload
    }

    /// What the payload column holds, by its type. Text may be anything.
    pub(super) const fn set_payload_type(&mut self, type_oid: u32) {
        self.content_type = match type_oid {
            // json, jsonb
            114 | 3802 => Some("application/json"),
            // bytea
            17 => Some("application/octet-stream"),
            _ => None,
        };
    }

    /// The slot of the headers column.
    pub(super) const fn headers_slot(&self) -> Option<usize> {
        self.headers
    }

    /// The event's name in an error.
    #[cold]
    pub(super) fn event_name(&self, cells: &Cells<'_>, scratch: &Scratch) -> String {
        let id = cells[self.id].bytes(&scratch.arena);
        id.map_or_else(
            || "(unknown)".to_owned(),
            |id| brief(&String::from_utf8_lossy(id)).into_owned(),
        )
    }

    /// Makes the event. `scratch` still holds what the cells point to.
    pub(super) fn assemble<'a>(
        &'a self,
        cells: &Cells<'a>,
        transaction: &'a Transaction,
        scratch: &'a mut Scratch,
        slots: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, EventError> {
        let made = self.make(cells, scratch)?;
        // From here on the scratch is only read.
        let scratch: &'a Scratch = scratch;
        let arena = scratch.arena.as_slice();
        let Some(id) = cells[self.id].bytes(arena) else {
            let column = self.names[self.id].clone();
            return Err(EventError::NullColumn { event: "(unknown)".to_owned(), column });
        };
        let id = std::str::from_utf8(id).map_err(|_| EventError::BadValue {
            event: self.event_name(cells, scratch),
            column: self.names[self.id].clone(),
            expected: "UTF-8 text",
        })?;
        let topic = self.checked_topic(made.topic.bytes(arena).unwrap_or_default(), id)?;
        let text = |cell: Cell<'a>| std::str::from_utf8(cell.bytes(arena)?).ok();
        let partition = self.partition(cells, arena, id)?;
        self.push_headers(id, cells, transaction, scratch, slots).map_err(|TooManyHeaders| {
            EventError::TooManyHeaders { event: brief(id).into_owned() }
        })?;
        Ok(Outbound {
            exchange: text(made.exchange).unwrap_or_default(),
            topic,
            key: made.key.bytes(arena),
            value: cells[self.payload].bytes(arena),
            id,
            event_type: self.message_type.and_then(|slot| text(cells[slot])),
            content_type: self.content_type,
            headers: slots.as_slice(),
            commit_unix_us: transaction.commit_unix_us(),
            partition,
        })
    }

    fn make<'a>(
        &'a self,
        cells: &Cells<'a>,
        scratch: &mut Scratch,
    ) -> Result<Made<'a>, EventError> {
        let topic = match self.topic.render(cells, &mut scratch.arena) {
            Ok(topic) => topic,
            Err(slot) => {
                return Err(self.null_in_template(cells, scratch, slot, "route.topic"));
            }
        };
        let exchange = match &self.exchange {
            None => Cell::Null,
            Some(exchange) => match exchange.render(cells, &mut scratch.arena) {
                Ok(exchange) => exchange,
                Err(slot) => {
                    let template = "sink.rabbitmq.exchange";
                    return Err(self.null_in_template(cells, scratch, slot, template));
                }
            },
        };
        let key = match (self.key.render(cells, &mut scratch.arena), &self.key) {
            (Ok(key), _) => key,
            (Err(_), Compiled::Column(_)) => Cell::Null,
            (Err(slot), _) => {
                return Err(self.null_in_template(cells, scratch, slot, "route.key"));
            }
        };
        scratch.extras.clear();
        for (_, template) in &self.extras {
            let rendered = template.render_mixed(cells, &mut scratch.arena);
            scratch.extras.push(rendered.unwrap_or_default());
        }
        scratch.row_headers.clear();
        if let Some(slot) = self.headers
            && let Some(json) = cells[slot].bytes(&scratch.arena)
            && let Err(error) = scratch.row_headers.read(json)
        {
            return Err(EventError::HeadersNotObject {
                event: self.event_name(cells, scratch),
                column: self.names[slot].clone(),
                reason: error.to_string(),
            });
        }
        Ok(Made { exchange, topic, key })
    }

    #[cold]
    fn null_in_template(
        &self,
        cells: &Cells<'_>,
        scratch: &Scratch,
        slot: usize,
        template: &'static str,
    ) -> EventError {
        let text = match template {
            "route.topic" => &self.topic_text,
            "route.key" => &self.key_text,
            _ => &self.exchange_text,
        };
        EventError::NullInTemplate {
            event: self.event_name(cells, scratch),
            column: self.names[slot].clone(),
            template,
            text: text.clone(),
        }
    }

    #[inline]
    fn checked_topic<'a>(&self, topic: &'a [u8], id: &str) -> Result<&'a str, EventError> {
        // A routing key is any text; what AMQP cannot carry, its sink refuses.
        let any = self.exchange.is_some();
        let fits = (1..=TOPIC_BYTES_MAX).contains(&topic.len());
        match std::str::from_utf8(topic) {
            Ok(text) if any => Ok(text),
            Ok(text) if fits && topic.iter().all(|byte| TOPIC_BYTES[usize::from(*byte)]) => {
                Ok(text)
            }
            _ => Err(EventError::BadTopic {
                event: brief(id).into_owned(),
                topic: String::from_utf8_lossy(&topic[..topic.len().min(300)]).into_owned(),
                text: self.topic_text.clone(),
            }),
        }
    }

    fn partition(
        &self,
        cells: &Cells<'_>,
        arena: &[u8],
        id: &str,
    ) -> Result<Option<i32>, EventError> {
        let Some(slot) = self.partition else { return Ok(None) };
        let Some(text) = cells[slot].bytes(arena) else { return Ok(None) };
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i32>().ok());
        match number.filter(|number| *number >= 0) {
            Some(number) => Ok(Some(number)),
            None => Err(EventError::BadPartition {
                event: brief(id).into_owned(),
                column: self.names[slot].clone(),
                value: String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned(),
            }),
        }
    }

    /// In order: `id`, the standard headers, those of the row, those of the route. One name comes
    /// once: the route's own before the standard ones, and both before the row's.
    #[inline]
    fn push_headers<'a>(
        &'a self,
        id: &'a str,
        cells: &Cells<'a>,
        transaction: &'a Transaction,
        scratch: &'a Scratch,
        slots: &mut HeaderSlots<'a>,
    ) -> Result<(), TooManyHeaders> {
        let arena = scratch.arena.as_slice();
        let column = |slot: Option<usize>| slot.and_then(|slot| cells[slot].bytes(arena));
        slots.push("id", id.as_bytes())?;
        if let Some(event_type) = column(self.event_type) {
            slots.push("event_type", event_type)?;
        }
        if let Some(traceparent) = column(self.traceparent).filter(|text| !text.is_empty()) {
            slots.push("traceparent", traceparent)?;
        }
        if self.commit_ts {
            slots.push("commit_ts", transaction.time_text())?;
        }
        if self.lsn {
            slots.push("lsn", transaction.lsn_text())?;
        }
        for (name, value) in scratch.row_headers.iter() {
            let taken = slots.as_slice().iter().any(|(taken, _)| *taken == name)
                || self.extras.iter().any(|(taken, _)| taken == name);
            if !taken {
                slots.push(name, value)?;
            }
        }
        for ((name, template), rendered) in self.extras.iter().zip(&scratch.extras) {
            let cell = match template {
                Compiled::Constant(text) => Cell::Wire(text),
                Compiled::Column(slot) => cells[*slot],
                Compiled::Mixed(_) => *rendered,
            };
            if let Some(value) = cell.bytes(arena) {
                slots.push(name, value)?;
            }
        }
        Ok(())
    }

    /// What can be told of a row that is not an event, for its dead letter: nothing is checked.
    pub(super) fn salvage<'a>(
        &'a self,
        cells: &Cells<'a>,
        transaction: &'a Transaction,
        scratch: &'a mut Scratch,
        slots: &'a mut HeaderSlots<'a>,
    ) -> Outbound<'a> {
        let topic = self.topic.render(cells, &mut scratch.arena).unwrap_or_default();
        let key = self.key.render(cells, &mut scratch.arena).unwrap_or_default();
        let exchange = self.exchange.as_ref();
        let exchange = exchange.map(|it| it.render(cells, &mut scratch.arena).unwrap_or_default());
        let arena = scratch.arena.as_slice();
        let text = |cell: Cell<'a>| {
            cell.bytes(arena).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
        };
        let id = text(cells[self.id]);
        // One header always fits.
        slots.push("id", id.as_bytes()).ok();
        Outbound {
            exchange: exchange.map(text).unwrap_or_default(),
            topic: text(topic),
            key: key.bytes(arena),
            value: cells[self.payload].bytes(arena),
            id,
            event_type: None,
            content_type: self.content_type,
            headers: slots.as_slice(),
            commit_unix_us: transaction.commit_unix_us(),
            partition: None,
        }
    }
}

/// What had to be rendered.
struct Made<'a> {
    exchange: Cell<'a>,
    topic: Cell<'a>,
    key: Cell<'a>,
}

/// Kafka's limit.
const TOPIC_BYTES_MAX: usize = 249;

/// Letters, digits, `.`, `_` and `-`.
const TOPIC_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let it = byte as u8;
        allowed[byte] = it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b'-');
        byte += 1;
    }
    allowed
};
