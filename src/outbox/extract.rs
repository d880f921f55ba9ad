//! INSERTs into an outbox table as events.
//!
//! A [`Plan`] is compiled whenever Postgres describes the table: names become positions there, and
//! whatever does not fit (a column that is gone, a type whose binary form is not read) stops the
//! relay before a row moves. It fails closed: a table that lost a column is not a poison event.

use super::compile::Misfit;
use super::event_error::EventError;
use super::route::{Routing, Scratch};
use super::settings::OutboxTable;
use super::transaction::Transaction;
use crate::base::error::{Exit, Fault};
use crate::base::event::{HeaderSlots, Outbound};
use crate::outbox::cell::{COLUMNS_MAX, Cell, Cells, Kind};
use crate::pgoutput::cursor::DecodeError;
use crate::pgoutput::message::{Tuple, Value};
use crate::pgoutput::relation::Relation;

/// Why rows of a table cannot become events at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    /// The table lacks a column.
    #[error("table {table} has no column {column}, which {needed_by} needs; it has: {present}")]
    MissingColumn {
        /// Table.
        table: String,
        /// The column that is not there.
        column: String,
        /// The setting that names it.
        needed_by: String,
        /// The columns there are.
        present: String,
    },
    /// The stream must be opened in text mode: not a fault, the relay does it by itself.
    #[error("column {column} (type oid {type_oid}) of table {table} is read in text form only")]
    NeedsText {
        /// Table.
        table: String,
        /// Column.
        column: String,
        /// Its type.
        type_oid: u32,
    },
    /// The route uses too many columns.
    #[error("the route of {table} uses more than {COLUMNS_MAX} columns")]
    TooManyColumns {
        /// Table.
        table: String,
    },
    /// The route sets too many headers.
    #[error("the route of {table} sets more than {} headers", crate::base::event::HEADERS_MAX)]
    TooManyHeaders {
        /// Table.
        table: String,
    },
}

impl ExtractError {
    pub(super) fn from_misfit(misfit: Misfit, table: String, present: String) -> ExtractError {
        match misfit {
            Misfit::Missing { column, needed_by } => {
                ExtractError::MissingColumn { table, column, needed_by, present }
            }
            Misfit::TooManyColumns => ExtractError::TooManyColumns { table },
            Misfit::TooManyHeaders => ExtractError::TooManyHeaders { table },
        }
    }
}

impl From<ExtractError> for Fault {
    fn from(error: ExtractError) -> Fault {
        let what = error.to_string();
        match error {
            ExtractError::MissingColumn { table, column, needed_by, .. } => Fault::new(
                Exit::Source,
                "table.column-missing",
                what,
                format!("table {table}"),
                format!(
                    "set {needed_by} to a column the table has, or: \
                     ALTER TABLE {table} ADD COLUMN {column} text; \
                     a publication with a column list must name it, too"
                ),
            ),
            ExtractError::NeedsText { table, .. } => Fault::new(
                Exit::Source,
                "table.needs-text",
                what,
                format!("table {table}"),
                "set source.binary = false",
            ),
            ExtractError::TooManyColumns { table } | ExtractError::TooManyHeaders { table } => {
                Fault::new(
                    Exit::Usage,
                    "table.route-too-large",
                    what,
                    format!("route of {table}"),
                    "name fewer columns in [route], and put the rest into the headers column",
                )
            }
        }
    }
}

/// Why a row did not become an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The bytes are not a row: the stream cannot be trusted any further.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The row is not an event: a dead letter.
    #[error(transparent)]
    Event(#[from] EventError),
}

/// A column that no part of the route uses.
const UNUSED: u8 = u8::MAX;

/// How rows of one table, as Postgres last described it, become events.
#[derive(Debug)]
pub struct Plan {
    routing: Routing,
    kinds: Vec<Kind>,
    /// Slot by position in the row.
    slots: Vec<u8>,
    outbox_index: usize,
}

impl Plan {
    /// Compiles the plan for `relation`. `binary` says how the stream was opened. `outbox_index`
    /// is handed back by [`Plan::outbox_index`].
    pub fn compile(
        outbox: &OutboxTable,
        outbox_index: usize,
        relation: &Relation,
        binary: bool,
    ) -> Result<Plan, ExtractError> {
        let position = |name: &str| relation.columns.iter().position(|column| column.name == name);
        let has = |name: &str| position(name).is_some();
        let mut routing =
            Routing::compile(&outbox.route, &outbox.columns, has).map_err(|misfit| {
                let present: Vec<_> = relation.columns.iter().map(|it| it.name.as_str()).collect();
                ExtractError::from_misfit(misfit, relation.qualified_name(), present.join(", "))
            })?;
        let mut slots = vec![UNUSED; relation.columns.len()];
        let mut kinds = Vec::with_capacity(routing.names().len());
        let mut payload_type = 0;
        for (slot, name) in (0..UNUSED).zip(routing.names().to_vec()) {
            // Every name of the routing was found in the relation above.
            let Some(at) = position(&name) else { continue };
            let type_oid = relation.columns[at].type_oid;
            let kind = Kind::of(type_oid);
            if binary && kind == Kind::Other {
                let (table, column) = (relation.qualified_name(), name);
                return Err(ExtractError::NeedsText { table, column, type_oid });
            }
            kinds.push(kind);
            slots[at] = slot;
            if usize::from(slot) == routing.payload_slot() {
                payload_type = type_oid;
            }
        }
        routing.set_payload_type(payload_type);
        Ok(Plan { routing, kinds, slots, outbox_index })
    }

    /// The same for rows that have no place in the log: their events bear none.
    #[must_use]
    pub fn without_lsn(mut self) -> Plan {
        self.routing.lsn = false;
        self
    }

    /// Which outbox this is, counted from 0 in the order of the settings.
    #[must_use]
    pub const fn outbox_index(&self) -> usize {
        self.outbox_index
    }

    /// Makes the event of one row. The scratch is kept from row to row, the headers are not.
    #[inline]
    pub fn extract<'a>(
        &'a self,
        tuple: Tuple<'a>,
        transaction: &'a Transaction,
        scratch: &'a mut Scratch,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, RowError> {
        let mut cells: Cells<'a> = [Cell::Null; COLUMNS_MAX];
        self.read(tuple, &mut cells, scratch)?;
        Ok(self.routing.assemble(&cells, transaction, scratch, headers)?)
    }

    #[inline]
    fn read<'a>(
        &self,
        tuple: Tuple<'a>,
        cells: &mut Cells<'a>,
        scratch: &mut Scratch,
    ) -> Result<(), RowError> {
        scratch.arena.clear();
        let mut broken = None;
        self.walk(tuple, |slot, kind, value| match kind.read(value, &mut scratch.arena) {
            Ok(cell) => cells[slot] = cell,
            Err(expected) => broken = Some((slot, expected)),
        })?;
        let Some((slot, expected)) = broken else { return Ok(()) };
        Err(RowError::Event(EventError::BadValue {
            event: self.routing.event_name(cells, scratch),
            column: self.routing.names()[slot].clone(),
            expected,
        }))
    }

    #[inline]
    fn walk<'a>(
        &self,
        tuple: Tuple<'a>,
        mut visit: impl FnMut(usize, Kind, Value<'a>),
    ) -> Result<(), DecodeError> {
        let mut values = tuple.values()?;
        if values.left() != self.slots.len() {
            return Err(DecodeError { what: "row and relation differ in columns", offset: 0 });
        }
        for (slot, value) in self.slots.iter().zip(values.by_ref()) {
            let (slot, value) = (usize::from(*slot), value?);
            if let Some(kind) = self.kinds.get(slot) {
                visit(slot, *kind, value);
            }
        }
        values.finish()
    }

    /// What can be told of a row that [`Plan::extract`] refused, for its dead letter. A value that
    /// is not of its type is taken as it lies on the wire; what cannot be told is empty.
    pub fn salvage<'a>(
        &'a self,
        tuple: Tuple<'a>,
        transaction: &'a Transaction,
        scratch: &'a mut Scratch,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, DecodeError> {
        scratch.arena.clear();
        let mut cells: Cells<'a> = [Cell::Null; COLUMNS_MAX];
        self.walk(tuple, |slot, kind, value| {
            let raw = match value {
                Value::Text(bytes) | Value::Binary(bytes) => Cell::Wire(bytes),
                Value::Null | Value::Unchanged => Cell::Null,
            };
            cells[slot] = kind.read(value, &mut scratch.arena).unwrap_or(raw);
        })?;
        Ok(self.routing.salvage(&cells, transaction, scratch, headers))
    }
}

#[cfg(test)]
#[path = "extract_tests.rs"]
pub(super) mod tests;

#[cfg(test)]
#[path = "extract_model_tests.rs"]
mod model_tests;
