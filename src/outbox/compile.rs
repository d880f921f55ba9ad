//! Compiles a route against the columns there are: names become slots once, so that a row costs no
//! look-up, and whatever is missing is found before a row moves.

use super::cell::{COLUMNS_MAX, Cell, Cells};
use super::route::Routing;
use super::settings::{Columns, Preset, Route};
use super::template::{Part, Template};
use crate::base::event::HEADERS_MAX;

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
pub(super) enum Compiled {
    Constant(Vec<u8>),
    Column(usize),
    Mixed(Vec<Piece>),
}

#[derive(Debug)]
pub(super) enum Piece {
    Literal(Vec<u8>),
    Column(usize),
}

impl Compiled {
    /// `Err` is the slot that is NULL.
    #[inline]
    pub(super) fn render<'a>(
        &'a self,
        cells: &Cells<'a>,
        arena: &mut Vec<u8>,
    ) -> Result<Cell<'a>, usize> {
        match self {
            Compiled::Constant(text) => Ok(Cell::Wire(text)),
            Compiled::Column(slot) => match cells[*slot] {
                Cell::Null => Err(*slot),
                cell => Ok(cell),
            },
            Compiled::Mixed(_) => self.render_mixed(cells, arena),
        }
    }

    /// What only the arena can hold; nothing for a template that can be borrowed.
    #[inline]
    pub(super) fn render_mixed(
        &self,
        cells: &Cells<'_>,
        arena: &mut Vec<u8>,
    ) -> Result<Cell<'static>, usize> {
        let Compiled::Mixed(pieces) = self else { return Ok(Cell::Null) };
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
        let exchange = route.exchange.as_ref();
        let exchange = exchange
            .map(|template| compiler.template(template, "sink.rabbitmq.exchange"))
            .transpose()?;
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
            // A property of the message, whatever the preset says about headers.
            message_type: if exchange.is_some() && (compiler.has)(&columns.event_type) {
                Some(compiler.slot(&columns.event_type)?)
            } else {
                None
            },
            content_type: None,
            exchange,
            topic,
            key,
            extras,
            exchange_text: route.exchange.as_ref().map(text_of).unwrap_or_default(),
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
        let flags =
            [self.event_type.is_some(), self.traceparent.is_some(), self.commit_ts, self.lsn];
        1 + self.extras.len() + flags.into_iter().filter(|flag| *flag).count()
    }
}

/// The template as a person wrote it.
fn text_of(template: &Template) -> String {
    let parts = template.parts().iter().map(|part| match part {
        Part::Literal(text) => text.replace("${", "$${"),
        Part::Column(name) => format!("${{{name}}}"),
    });
    parts.collect()
}
