//! A route compiled against the columns there are: names become slots once, so that a row costs no
//! look-up, and whatever is missing is found before a row moves.

use super::error::ExtractError;
use super::field::{FIELDS_MAX, FieldValue, Fields};
use super::settings::{Columns, Preset, Route};
use crate::base::error::{Exit, Fault};
use crate::base::event::HEADERS_MAX;
use crate::base::template::{Part, Template};

/// A template with slots for columns.
#[derive(Debug)]
pub(super) struct CompiledTemplate {
    /// The setting it comes from, and its text there.
    pub(super) setting: String,
    pub(super) text: String,
    pub(super) form: TemplateForm,
}

#[derive(Debug)]
pub(super) enum TemplateForm {
    Constant(Vec<u8>),
    Column(usize),
    Mixed(Vec<Piece>),
}

#[derive(Debug)]
pub(super) enum Piece {
    Literal(Vec<u8>),
    Column(usize),
}

impl CompiledTemplate {
    /// Returns the slot that is NULL as the error.
    #[inline]
    pub(super) fn render<'a>(
        &'a self,
        fields: &Fields<'a>,
        arena: &mut Vec<u8>,
    ) -> Result<FieldValue<'a>, usize> {
        match &self.form {
            TemplateForm::Constant(text) => Ok(FieldValue::Wire(text)),
            TemplateForm::Column(slot) => match fields[*slot] {
                FieldValue::Null => Err(*slot),
                field => Ok(field),
            },
            TemplateForm::Mixed(_) => self.render_mixed(fields, arena),
        }
    }

    /// Renders what only the arena can hold; NULL for a template that can be borrowed.
    #[inline]
    pub(super) fn render_mixed(
        &self,
        fields: &Fields<'_>,
        arena: &mut Vec<u8>,
    ) -> Result<FieldValue<'static>, usize> {
        let TemplateForm::Mixed(pieces) = &self.form else { return Ok(FieldValue::Null) };
        let start = arena.len();
        for piece in pieces {
            match piece {
                Piece::Literal(text) => arena.extend_from_slice(text),
                Piece::Column(slot) => {
                    if !fields[*slot].append_to(arena) {
                        return Err(*slot);
                    }
                }
            }
        }
        Ok(FieldValue::since(start, arena))
    }
}

/// A route whose columns are slots.
#[derive(Debug)]
pub(super) struct CompiledRoute {
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
    /// What the payload column holds, as far as its type says.
    pub(super) content_type: Option<&'static str>,
    /// Only RabbitMQ has exchanges.
    pub(super) exchange: Option<CompiledTemplate>,
    pub(super) topic: CompiledTemplate,
    pub(super) key: CompiledTemplate,
    pub(super) extras: Vec<(String, CompiledTemplate)>,
}

/// What a route is compiled for.
pub(super) struct RouteSource<'a> {
    /// The table as errors name it.
    pub(super) table: String,
    /// Its columns; `None` where any name may occur.
    pub(super) columns: Option<Vec<&'a str>>,
}

impl CompiledRoute {
    pub(super) fn compile(
        route: &Route,
        columns: &Columns,
        source: &RouteSource<'_>,
    ) -> Result<CompiledRoute, ExtractError> {
        let mut compiler = Compiler { source, route, names: Vec::new() };
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
        let with_standard = route.preset == Preset::Walrelay;
        let compiled = CompiledRoute {
            id,
            payload,
            event_type: compiler.standard(&columns.event_type, "event_type")?,
            traceparent: compiler.standard(&columns.traceparent, "traceparent")?,
            headers: compiler.optional(&columns.headers, with_standard)?,
            partition,
            commit_ts: compiler.wants_standard("commit_ts"),
            lsn: compiler.wants_standard("lsn"),
            // A property of the message, whatever the preset says about headers.
            message_type: compiler.optional(&columns.event_type, exchange.is_some())?,
            content_type: None,
            exchange,
            topic,
            key,
            extras,
            names: compiler.names,
        };
        if compiled.fixed_headers() > HEADERS_MAX {
            return Err(source.too_large(&format!("sets more than {HEADERS_MAX} headers")));
        }
        Ok(compiled)
    }

    /// Notes what the payload column holds, by its type. Text may be anything.
    pub(super) const fn set_payload_type(&mut self, type_oid: u32) {
        self.content_type = match type_oid {
            // json, jsonb
            114 | 3802 => Some("application/json"),
            // bytea
            17 => Some("application/octet-stream"),
            _ => None,
        };
    }

    fn fixed_headers(&self) -> usize {
        let flags =
            [self.event_type.is_some(), self.traceparent.is_some(), self.commit_ts, self.lsn];
        1 + self.extras.len() + flags.into_iter().filter(|flag| *flag).count()
    }
}

impl RouteSource<'_> {
    fn has(&self, name: &str) -> bool {
        self.columns.as_ref().is_none_or(|columns| columns.contains(&name))
    }

    fn missing(&self, column: &str, setting: &str) -> ExtractError {
        let RouteSource { table, columns } = self;
        let present = columns.as_deref().unwrap_or_default().join(", ");
        ExtractError::MissingColumn(Fault::new(
            Exit::Source,
            "table.column-missing",
            format!(
                "table {table} has no column {column}, which {setting} needs; it has: {present}"
            ),
            format!("table {table}"),
            format!(
                "set {setting} to a column the table has, or: \
                 ALTER TABLE {table} ADD COLUMN {column} text; \
                 a publication with a column list must name it, too"
            ),
        ))
    }

    fn too_large(&self, problem: &str) -> ExtractError {
        let table = &self.table;
        ExtractError::RouteTooLarge(Fault::new(
            Exit::Usage,
            "table.route-too-large",
            format!("the route of {table} {problem}"),
            format!("route of {table}"),
            "name fewer columns in [route], and put the rest into the headers column",
        ))
    }
}

struct Compiler<'a> {
    source: &'a RouteSource<'a>,
    route: &'a Route,
    names: Vec<String>,
}

impl Compiler<'_> {
    fn slot(&mut self, name: &str) -> Result<usize, ExtractError> {
        if let Some(slot) = self.names.iter().position(|known| known == name) {
            return Ok(slot);
        }
        if self.names.len() == FIELDS_MAX {
            return Err(self.source.too_large(&format!("uses more than {FIELDS_MAX} columns")));
        }
        self.names.push(name.to_owned());
        Ok(self.names.len() - 1)
    }

    fn required(&mut self, name: &str, setting: &str) -> Result<usize, ExtractError> {
        if self.source.has(name) {
            self.slot(name)
        } else {
            Err(self.source.missing(name, setting))
        }
    }

    fn optional(&mut self, name: &str, wanted: bool) -> Result<Option<usize>, ExtractError> {
        if wanted && self.source.has(name) { self.slot(name).map(Some) } else { Ok(None) }
    }

    fn standard(&mut self, column: &str, header: &str) -> Result<Option<usize>, ExtractError> {
        self.optional(column, self.wants_standard(header))
    }

    /// A header of that name in `route.headers` takes the place of the standard one.
    fn wants_standard(&self, header: &str) -> bool {
        self.route.preset == Preset::Walrelay
            && !self.route.headers.iter().any(|(name, _)| name == header)
    }

    fn template(
        &mut self,
        template: &Template,
        setting: &str,
    ) -> Result<CompiledTemplate, ExtractError> {
        let form = match (template.parts(), template.constant()) {
            ([Part::Column(name)], _) => TemplateForm::Column(self.required(name, setting)?),
            (_, Some(text)) => TemplateForm::Constant(text.as_bytes().to_vec()),
            (parts, None) => {
                let pieces = parts.iter().map(|part| match part {
                    Part::Literal(text) => Ok(Piece::Literal(text.as_bytes().to_vec())),
                    Part::Column(name) => self.required(name, setting).map(Piece::Column),
                });
                TemplateForm::Mixed(pieces.collect::<Result<_, _>>()?)
            }
        };
        Ok(CompiledTemplate { setting: setting.to_owned(), text: template.to_string(), form })
    }
}
