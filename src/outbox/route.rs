//! A compiled route: from the values of one row to the event that is published.
//!
//! Compiling turns names into slots once, so that a row costs no look-up. Assembling first writes
//! whatever must be made (templates, headers out of JSON) into the scratch, and then only borrows:
//! from the wire, the plan, the transaction and the scratch. Nothing is allocated once the scratch
//! has grown to the largest row.

use super::cell::Cell;
use super::event_error::EventError;
use super::row_headers::RowHeaders;
use super::settings::{Columns, Preset, Route};
use super::template::{Part, Template};
use super::transaction::Transaction;
use crate::message::{HEADERS_MAX, HeaderSlots, Outbound, TooManyHeaders};

/// Most columns of a table that a route may use.
pub(super) const COLUMNS_MAX: usize = 32;

/// The values of one row by slot.
pub(super) type Cells<'a> = [Cell<'a>; COLUMNS_MAX];

/// Memory that is kept from event to event.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) arena: Vec<u8>,
    row_headers: RowHeaders,
}

/// Why a route does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// A column that is needed is not there.
    Missing { column: String, needed_by: String },
    /// More than [`COLUMNS_MAX`].
    TooManyColumns,
    /// More than [`HEADERS_MAX`].
    TooManyHeaders,
}

/// A template with slots for columns.
#[derive(Debug)]
enum Compiled {
    Constant(Vec<u8>),
    Column(usize),
    Mixed(Vec<Piece>),
}

#[derive(Debug)]
enum Piece {
    Literal(Vec<u8>),
    Column(usize),
}

impl Compiled {
    /// `Err` is the slot that is NULL.
    #[inline]
    fn render<'a>(&'a self, cells: &Cells<'a>, arena: &mut Vec<u8>) -> Result<Cell<'a>, usize> {
        match self {
            Compiled::Constant(text) => Ok(Cell::Wire(text)),
            Compiled::Column(slot) => match cells[*slot] {
                Cell::Null => Err(*slot),
                cell => Ok(cell),
            },
            Compiled::Mixed(pieces) => {
                let start = arena.len();
                for piece in pieces {
                    match piece {
                        Piece::Literal(text) => arena.extend_from_slice(text),
                        Piece::Column(slot) => {
                            if !cells[*slot].append_to(arena) {
                                return Err(*slot);
                            }
                        }
                    }
                }
                Ok(Cell::since(start, arena))
            }
        }
    }
}

/// A route whose columns are slots.
#[derive(Debug)]
pub(super) struct Routing {
    /// Column names by slot.
    names: Vec<String>,
    id: usize,
    payload: usize,
    event_type: Option<usize>,
    traceparent: Option<usize>,
    headers: Option<usize>,
    partition: Option<usize>,
    commit_ts: bool,
    lsn: bool,
    topic: Compiled,
    key: Compiled,
    extras: Vec<(String, Compiled)>,
    topic_text: String,
    key_text: String,
}

/// What is being compiled.
struct Compiler<'a, F> {
    has: F,
    route: &'a Route,
    names: Vec<String>,
}

impl<F: Fn(&str) -> bool> Compiler<'_, F> {
    fn slot(&mut self, name: &str) -> Result<usize, Misfit> {
        if let Some(slot) = self.names.iter().position(|known| known == name) {
            return Ok(slot);
        }
        if self.names.len() == COLUMNS_MAX {
            return Err(Misfit::TooManyColumns);
        }
        self.names.push(name.to_owned());
        Ok(self.names.len() - 1)
    }

    fn required(&mut self, name: &str, needed_by: &str) -> Result<usize, Misfit> {
        if (self.has)(name) {
            return self.slot(name);
        }
        Err(Misfit::Missing { column: name.to_owned(), needed_by: needed_by.to_owned() })
    }

    /// A standard header's column. A header of that name in `route.headers` takes its place.
    fn standard(&mut self, column: &str, header: &str) -> Result<Option<usize>, Misfit> {
        let wanted = self.standard_wanted(header) && (self.has)(column);
        if wanted { self.slot(column).map(Some) } else { Ok(None) }
    }

    fn standard_wanted(&self, header: &str) -> bool {
        self.route.preset == Preset::Walrelay
            && !self.route.headers.iter().any(|(name, _)| name == header)
    }

    fn template(&mut self, template: &Template, needed_by: &str) -> Result<Compiled, Misfit> {
        if let [Part::Column(name)] = template.parts() {
            return self.required(name, needed_by).map(Compiled::Column);
        }
        if let Some(text) = template.constant() {
            return Ok(Compiled::Constant(text.as_bytes().to_vec()));
        }
        let pieces = template.parts().iter().map(|part| match part {
            Part::Literal(text) => Ok(Piece::Literal(text.as_bytes().to_vec())),
            Part::Column(name) => self.required(name, needed_by).map(Piece::Column),
        });
        pieces.collect::<Result<_, _>>().map(Compiled::Mixed)
    }
}

impl Routing {
    /// Compiles `route`; `has` says which columns there are.
    pub(super) fn compile(
        route: &Route,
        columns: &Columns,
        has: impl Fn(&str) -> bool,
    ) -> Result<Routing, Misfit> {
        let mut compiler = Compiler { has, route, names: Vec::new() };
        let id = compiler.required(&columns.id, "columns.id")?;
        let payload = compiler.required(&columns.payload, "columns.payload")?;
        let topic = compiler.template(&route.topic, "route.topic")?;
        let key = compiler.template(&route.key, "route.key")?;
        let partition = route.partition.as_deref();
        let partition =
            partition.map(|name| compiler.required(name, "route.partition")).transpose()?;
        let mut extras = Vec::with_capacity(route.headers.len());
        for (name, template) in &route.headers {
            let needed_by = format!("route.headers.{name}");
            // The event id is what consumers recognise a duplicate by: nothing takes its place.
            if name != "id" {
                extras.push((name.clone(), compiler.template(template, &needed_by)?));
            }
        }
        let headers = &columns.headers;
        let has_headers = route.preset == Preset::Walrelay && (compiler.has)(headers);
        let routing = Routing {
            id,
            payload,
            event_type: compiler.standard(&columns.event_type, "event_type")?,
            traceparent: compiler.standard(&columns.traceparent, "traceparent")?,
            headers: if has_headers { Some(compiler.slot(headers)?) } else { None },
            partition,
            commit_ts: compiler.standard_wanted("commit_ts"),
            lsn: compiler.standard_wanted("lsn"),
            topic,
            key,
            extras,
            topic_text: text_of(&route.topic),
            key_text: text_of(&route.key),
            names: compiler.names,
        };
        if routing.static_headers() > HEADERS_MAX {
            return Err(Misfit::TooManyHeaders);
        }
        Ok(routing)
    }

    fn static_headers(&self) -> usize {
        let flags = [self.event_type.is_some(), self.traceparent.is_some(), self.commit_ts, self.lsn];
        1 + self.extras.len() + flags.into_iter().filter(|flag| *flag).count()
    }

    /// Column names by slot.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The slot of the payload.
    pub(super) const fn payload_slot(&self) -> usize {
        self.payload
    }

    /// The slot of the headers column.
    pub(super) const fn headers_slot(&self) -> Option<usize> {
        self.headers
    }

    /// The event's name in an error.
    #[cold]
    pub(super) fn event_name(&self, cells: &Cells<'_>, scratch: &Scratch) -> String {
        let id = cells[self.id].bytes(&scratch.arena);
        id.map_or_else(|| "(unknown)".to_owned(), |id| String::from_utf8_lossy(id).into_owned())
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
        let partition = self.partition(cells, arena, id)?;
        self.push_headers(id, cells, &made, transaction, scratch, slots)
            .map_err(|TooManyHeaders| EventError::TooManyHeaders { event: id.to_owned() })?;
        Ok(Outbound {
            topic,
            key: made.key.bytes(arena),
            value: cells[self.payload].bytes(arena),
            id,
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
            Err(slot) => return Err(self.null_in_template(cells, scratch, slot, true)),
        };
        let key = match (self.key.render(cells, &mut scratch.arena), &self.key) {
            (Ok(key), _) => key,
            (Err(_), Compiled::Column(_)) => Cell::Null,
            (Err(slot), _) => return Err(self.null_in_template(cells, scratch, slot, false)),
        };
        let mut extras = [Cell::Null; HEADERS_MAX];
        for (made, (_, template)) in extras.iter_mut().zip(&self.extras) {
            *made = template.render(cells, &mut scratch.arena).unwrap_or(Cell::Null);
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
        Ok(Made { topic, key, extras })
    }

    #[cold]
    fn null_in_template(
        &self,
        cells: &Cells<'_>,
        scratch: &Scratch,
        slot: usize,
        topic: bool,
    ) -> EventError {
        let (template, text) =
            if topic { ("route.topic", &self.topic_text) } else { ("route.key", &self.key_text) };
        EventError::NullInTemplate {
            event: self.event_name(cells, scratch),
            column: self.names[slot].clone(),
            template,
            text: text.clone(),
        }
    }

    #[inline]
    fn checked_topic<'a>(&self, topic: &'a [u8], id: &str) -> Result<&'a str, EventError> {
        let fits = (1..=TOPIC_BYTES_MAX).contains(&topic.len());
        match std::str::from_utf8(topic) {
            Ok(text) if fits && topic.iter().all(|byte| TOPIC_BYTES[usize::from(*byte)]) => Ok(text),
            _ => Err(EventError::BadTopic {
                event: id.to_owned(),
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
                event: id.to_owned(),
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
        made: &Made<'a>,
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
        for ((name, _), cell) in self.extras.iter().zip(&made.extras) {
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
        let arena = scratch.arena.as_slice();
        let text = |cell: Cell<'a>| {
            cell.bytes(arena).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
        };
        let id = text(cells[self.id]);
        // One header always fits.
        slots.push("id", id.as_bytes()).ok();
        Outbound {
            topic: text(topic),
            key: key.bytes(arena),
            value: cells[self.payload].bytes(arena),
            id,
            headers: slots.as_slice(),
            commit_unix_us: transaction.commit_unix_us(),
            partition: None,
        }
    }
}

/// What had to be rendered.
struct Made<'a> {
    topic: Cell<'a>,
    key: Cell<'a>,
    extras: [Cell<'a>; HEADERS_MAX],
}

/// Kafka's limit; AMQP's is 255.
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

/// The template as a person wrote it.
fn text_of(template: &Template) -> String {
    let parts = template.parts().iter().map(|part| match part {
        Part::Literal(text) => text.replace("${", "$${"),
        Part::Column(name) => format!("${{{name}}}"),
    });
    parts.collect()
}
