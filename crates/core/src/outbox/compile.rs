//! Compiles a route against the columns of its table: names become slots once, so that a row needs
//! no look-up, and a column that is missing is found before the first row.

use super::field::{FIELDS_MAX, FieldValue, JsonForm};
use super::settings::{Columns, PayloadFormat, Preset, Route};
use crate::base::error::{Exit, Fault};
use crate::base::event::HEADERS_MAX;
use crate::base::template::{Part, Template};

/// The code of the fault for a column that the route needs and the table does not have.
pub(super) const COLUMN_MISSING: &str = "table.column-missing";

/// A template whose columns are slots.
#[derive(Debug)]
pub(super) struct CompiledTemplate {
    /// The setting it comes from, and its text there.
    pub(super) setting: String,
    pub(super) text: String,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Literal(Vec<u8>),
    Column(usize),
}

impl CompiledTemplate {
    /// The slot of a template that is exactly one column, or one member of a column.
    pub(super) fn slot(&self) -> Option<usize> {
        match self.pieces.as_slice() {
            [Piece::Column(slot)] => Some(*slot),
            _ => None,
        }
    }

    /// The value of a template that is a constant or exactly one column, which may be NULL.
    #[inline]
    pub(super) fn borrow<'a>(&'a self, fields: &[FieldValue<'a>]) -> Option<FieldValue<'a>> {
        match self.pieces.as_slice() {
            [Piece::Literal(text)] => Some(FieldValue::Wire(text)),
            [Piece::Column(slot)] => Some(fields[*slot]),
            _ => None,
        }
    }

    /// Renders the template into the arena. The error is the slot that is NULL.
    pub(super) fn render(
        &self,
        fields: &[FieldValue<'_>],
        arena: &mut Vec<u8>,
    ) -> Result<FieldValue<'static>, usize> {
        let start = arena.len();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => arena.extend_from_slice(text),
                Piece::Column(slot) if fields[*slot].append_to(arena) => {}
                Piece::Column(slot) => return Err(*slot),
            }
        }
        Ok(FieldValue::since(start, arena))
    }

    /// Borrows what can be borrowed, and renders the rest. The error is the slot that is NULL.
    #[inline]
    pub(super) fn value<'a>(
        &'a self,
        fields: &[FieldValue<'a>],
        arena: &mut Vec<u8>,
    ) -> Result<FieldValue<'a>, usize> {
        match (self.borrow(fields), self.pieces.as_slice()) {
            (Some(FieldValue::Null), [Piece::Column(slot)]) => Err(*slot),
            (Some(value), _) => Ok(value),
            (None, _) => self.render(fields, arena),
        }
    }
}

/// A slot that is filled with a member of the JSON in another one.
#[derive(Debug)]
pub(super) struct MemberSlot {
    pub(super) slot: usize,
    pub(super) source: usize,
    pub(super) path: Vec<String>,
}

/// A route whose columns are slots.
#[derive(Debug)]
pub(super) struct CompiledRoute {
    /// The name of each slot: that of a column, or that of a member as the template has
    /// it.
    pub(super) names: Vec<String>,
    /// How each slot is written in an envelope.
    pub(super) json_forms: Vec<JsonForm>,
    pub(super) members: Vec<MemberSlot>,
    pub(super) id: usize,
    pub(super) payload: usize,
    pub(super) event_type: Option<usize>,
    pub(super) traceparent: Option<usize>,
    pub(super) headers: Option<usize>,
    pub(super) partition: Option<usize>,
    pub(super) commit_ts: bool,
    pub(super) lsn: bool,
    /// The event type as a property of an AMQP message.
    pub(super) message_type: Option<usize>,
    /// The content type of the payload, where the type of its column determines it.
    pub(super) content_type: Option<&'static str>,
    /// Only RabbitMQ has exchanges.
    pub(super) exchange: Option<CompiledTemplate>,
    pub(super) topic: CompiledTemplate,
    pub(super) key: CompiledTemplate,
    /// The headers of the route, by name.
    pub(super) extras: Vec<(String, CompiledTemplate)>,
    /// The members of the value beside the payload, by name. Without any the value is the payload.
    pub(super) envelope: Vec<(String, CompiledTemplate)>,
}

impl CompiledRoute {
    /// The slot that a column fills, which is none that a member fills.
    pub(super) fn slot_of(&self, column: &str) -> Option<usize> {
        let is_column = |slot: &usize| self.members.iter().all(|member| member.slot != *slot);
        let mut names = self.names.iter().enumerate();
        names.find(|(slot, name)| *name == column && is_column(slot)).map(|(slot, _)| slot)
    }

    /// `table` is the table as errors name it. `present` are its columns; `None` where any name may
    /// occur.
    pub(super) fn compile(
        route: &Route,
        columns: &Columns,
        table: &str,
        present: Option<&[&str]>,
    ) -> Result<CompiledRoute, Fault> {
        let mut compiler = Compiler { table, present, names: Vec::new(), members: Vec::new() };
        let id = compiler.required(&columns.id, "columns.id")?;
        let payload = compiler.required(&columns.payload, "columns.payload")?;
        let topic = compiler.template(&route.topic, "route.topic")?;
        let key = compiler.template(&route.key(columns), "route.key")?;
        let exchange = route.exchange.as_ref();
        let exchange = exchange
            .map(|template| compiler.template(template, &route.exchange_key))
            .transpose()?;
        let partition = route.partition.as_deref();
        let partition =
            partition.map(|name| compiler.required(name, "route.partition")).transpose()?;
        let mut extras = Vec::with_capacity(route.headers.len());
        // Consumers recognise a duplicate by the event id: nothing takes the place of that header.
        for (name, template) in route.headers.iter().filter(|(name, _)| name.as_str() != "id") {
            let setting = format!("route.headers.{name}");
            extras.push((name.clone(), compiler.template(template, &setting)?));
        }
        let mut envelope = Vec::with_capacity(route.envelope.len());
        for (name, template) in &route.envelope {
            let setting = format!("route.envelope.{name}");
            envelope.push((name.clone(), compiler.template(template, &setting)?));
        }
        // A header of the route takes the place of the standard one of that name.
        let with_standard = route.preset == Preset::Walrelay;
        let standard = |header: &str| with_standard && !route.headers.contains_key(header);
        let shapes_events = matches!(
            route.format,
            PayloadFormat::CloudEvents | PayloadFormat::CloudEventsStructured
        );
        let compiled = CompiledRoute {
            id,
            payload,
            event_type: compiler.optional(&columns.event_type, standard("event_type"))?,
            traceparent: compiler.optional(&columns.traceparent, standard("traceparent"))?,
            headers: compiler.optional(&columns.headers, with_standard)?,
            partition,
            commit_ts: standard("commit_ts"),
            lsn: standard("lsn"),
            // A property of the message or of the CloudEvent, whatever the preset says about headers.
            message_type: compiler
                .optional(&columns.event_type, exchange.is_some() || shapes_events)?,
            content_type: None,
            exchange,
            topic,
            key,
            extras,
            envelope,
            json_forms: vec![JsonForm::default(); compiler.names.len()],
            names: std::mem::take(&mut compiler.names),
            members: std::mem::take(&mut compiler.members),
        };
        let CompiledRoute { event_type, traceparent, commit_ts, lsn, extras, .. } = &compiled;
        let flags = [event_type.is_some(), traceparent.is_some(), *commit_ts, *lsn];
        let fixed = 1 + extras.len() + flags.into_iter().filter(|flag| *flag).count();
        if fixed > HEADERS_MAX {
            return Err(compiler.too_large(&format!("sets more than {HEADERS_MAX} headers")));
        }
        Ok(compiled)
    }
}

/// The content type of a payload column of this type. Text may be anything.
pub(super) const fn content_type(type_oid: u32) -> Option<&'static str> {
    match type_oid {
        // json, jsonb
        114 | 3802 => Some("application/json"),
        // bytea
        17 => Some("application/octet-stream"),
        _ => None,
    }
}

struct Compiler<'a> {
    table: &'a str,
    present: Option<&'a [&'a str]>,
    names: Vec<String>,
    members: Vec<MemberSlot>,
}

impl Compiler<'_> {
    fn has(&self, name: &str) -> bool {
        self.present.is_none_or(|columns| columns.contains(&name))
    }

    fn slot(&mut self, name: &str) -> Result<usize, Fault> {
        let is_member = |slot: usize| self.members.iter().any(|member| member.slot == slot);
        let mut names = self.names.iter().enumerate();
        match names.find(|(slot, known)| *known == name && !is_member(*slot)) {
            Some((slot, _)) => Ok(slot),
            None => self.new_slot(name),
        }
    }

    fn member(&mut self, column: &str, path: &[String], setting: &str) -> Result<usize, Fault> {
        let source = self.required(column, setting)?;
        let mut known = self.members.iter();
        if let Some(known) = known.find(|it| it.source == source && it.path == path) {
            return Ok(known.slot);
        }
        let slot = self.new_slot(&format!("{column}.{}", path.join(".")))?;
        self.members.push(MemberSlot { slot, source, path: path.to_vec() });
        Ok(slot)
    }

    fn new_slot(&mut self, name: &str) -> Result<usize, Fault> {
        if self.names.len() == FIELDS_MAX {
            return Err(self.too_large(&format!("uses more than {FIELDS_MAX} columns")));
        }
        self.names.push(name.to_owned());
        Ok(self.names.len() - 1)
    }

    fn required(&mut self, name: &str, setting: &str) -> Result<usize, Fault> {
        if self.has(name) { self.slot(name) } else { Err(self.missing(name, setting)) }
    }

    fn optional(&mut self, name: &str, wanted: bool) -> Result<Option<usize>, Fault> {
        if wanted && self.has(name) { self.slot(name).map(Some) } else { Ok(None) }
    }

    fn template(&mut self, template: &Template, setting: &str) -> Result<CompiledTemplate, Fault> {
        let pieces = template.parts().iter().map(|part| match part {
            Part::Literal(text) => Ok(Piece::Literal(text.as_bytes().to_vec())),
            Part::Column(name) => self.required(name, setting).map(Piece::Column),
            Part::Member { column, path } => self.member(column, path, setting).map(Piece::Column),
            // The configuration has put the name in; messages have none.
            Part::Table => Err(self.missing("table", setting)),
        });
        let pieces = pieces.collect::<Result<_, _>>()?;
        Ok(CompiledTemplate { setting: setting.to_owned(), text: template.to_string(), pieces })
    }

    fn missing(&self, column: &str, setting: &str) -> Fault {
        let table = self.table;
        let present = self.present.unwrap_or_default().join(", ");
        Fault::new(
            Exit::Source,
            COLUMN_MISSING,
            format!(
                "the rows that are read next are of a time when table {table} had no column {column}, which {setting} needs; it had: {present}"
            ),
            format!("table {table}"),
            format!(
                "if a column was renamed or added since, walrelay check may find nothing wrong, and these rows keep the names of \
                 their time: docs/postgres.md, \"Renaming a column\"; otherwise set {setting} to one of these columns; \
                 a publication with a column list must name it, too"
            ),
        )
    }

    fn too_large(&self, problem: &str) -> Fault {
        let table = self.table;
        Fault::new(
            Exit::Usage,
            "table.route-too-large",
            format!("the route of {table} {problem}"),
            format!("route of {table}"),
            "name fewer columns in [route], and put the rest into the headers column",
        )
    }
}
