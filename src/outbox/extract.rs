//! INSERTs into an outbox table as events.
//!
//! A [`Plan`] is compiled whenever Postgres describes the table: names become positions there, and
//! whatever does not fit (a column that is gone, a type whose binary form is not read) stops the
//! relay before a row moves. It fails closed: a table that lost a column is not a poison event.

use super::assemble::{ExtractScratch, assemble, event_name, salvage};
use super::compile::{CompiledRoute, RouteSource};
use super::error::{EventError, ExtractError, RowError};
use super::field::{FIELDS_MAX, FieldType, FieldValue, Fields};
use super::settings::OutboxTable;
use super::transaction::CommitStamp;
use crate::base::error::{Exit, Fault};
use crate::base::event::{HeaderSlots, Outbound};
use crate::pgoutput::cursor::DecodeError;
use crate::pgoutput::message::{Tuple, Value};
use crate::pgoutput::relation::Relation;

/// A column that no part of the route uses.
const UNUSED: u8 = u8::MAX;

/// How rows of one table, as Postgres last described it, become events.
#[derive(Debug)]
pub struct Plan {
    route: CompiledRoute,
    types: Vec<FieldType>,
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
        let table = relation.qualified_name();
        let columns = relation.columns.iter().map(|column| column.name.as_str());
        let source = RouteSource { table, columns: Some(columns.collect()) };
        let mut route = CompiledRoute::compile(&outbox.route, &outbox.columns, &source)?;
        let mut slots = vec![UNUSED; relation.columns.len()];
        let mut types = Vec::with_capacity(route.names.len());
        let mut payload_type = 0;
        for (slot, name) in (0..UNUSED).zip(&route.names) {
            // Every name of the route was found in the relation above.
            let Some(at) = relation.columns.iter().position(|it| it.name == *name) else {
                continue;
            };
            let type_oid = relation.columns[at].type_oid;
            let field_type = FieldType::of(type_oid);
            if binary && field_type == FieldType::Other {
                return Err(needs_text(&source.table, name, type_oid));
            }
            types.push(field_type);
            slots[at] = slot;
            if usize::from(slot) == route.payload {
                payload_type = type_oid;
            }
        }
        route.set_payload_type(payload_type);
        Ok(Plan { route, types, slots, outbox_index })
    }

    /// The same for rows that have no place in the log: their events bear none.
    #[must_use]
    pub fn without_lsn(mut self) -> Plan {
        self.route.lsn = false;
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
        transaction: &'a CommitStamp,
        scratch: &'a mut ExtractScratch,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, RowError> {
        let mut fields: Fields<'a> = [FieldValue::Null; FIELDS_MAX];
        self.read(tuple, &mut fields, scratch)?;
        Ok(assemble(&self.route, &fields, transaction, scratch, headers)?)
    }

    #[inline]
    fn read<'a>(
        &self,
        tuple: Tuple<'a>,
        fields: &mut Fields<'a>,
        scratch: &mut ExtractScratch,
    ) -> Result<(), RowError> {
        scratch.arena.clear();
        let mut broken = None;
        self.walk(tuple, |slot, field_type, value| {
            match field_type.read(value, &mut scratch.arena) {
                Ok(field) => fields[slot] = field,
                Err(expected) => broken = Some((slot, expected)),
            }
        })?;
        let Some((slot, expected)) = broken else { return Ok(()) };
        let event = event_name(&self.route, fields, scratch);
        let problem = format_args!("does not hold {expected}");
        let column = &self.route.names[slot];
        Err(EventError::in_column("bad-value", &event, column, problem).into())
    }

    #[inline]
    fn walk<'a>(
        &self,
        tuple: Tuple<'a>,
        mut visit: impl FnMut(usize, FieldType, Value<'a>),
    ) -> Result<(), DecodeError> {
        let mut values = tuple.values()?;
        if values.left() != self.slots.len() {
            return Err(DecodeError { what: "row and relation differ in columns", offset: 0 });
        }
        for (slot, value) in self.slots.iter().zip(values.by_ref()) {
            let (slot, value) = (usize::from(*slot), value?);
            if let Some(field_type) = self.types.get(slot) {
                visit(slot, *field_type, value);
            }
        }
        values.finish()
    }

    /// What is known of a row that [`Plan::extract`] refused, for its dead letter. A value that is not
    /// of its type is taken as it lies on the wire; what is unknown is empty.
    pub fn salvage<'a>(
        &'a self,
        tuple: Tuple<'a>,
        transaction: &'a CommitStamp,
        scratch: &'a mut ExtractScratch,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, DecodeError> {
        scratch.arena.clear();
        let mut fields: Fields<'a> = [FieldValue::Null; FIELDS_MAX];
        self.walk(tuple, |slot, field_type, value| {
            let raw = match value {
                Value::Text(bytes) | Value::Binary(bytes) => FieldValue::Wire(bytes),
                Value::Null | Value::Unchanged => FieldValue::Null,
            };
            fields[slot] = field_type.read(value, &mut scratch.arena).unwrap_or(raw);
        })?;
        Ok(salvage(&self.route, &fields, transaction, scratch, headers))
    }
}

/// Not a failure where the stream may be opened in text mode.
fn needs_text(table: &str, column: &str, type_oid: u32) -> ExtractError {
    let fault = Fault::new(
        Exit::Source,
        "table.needs-text",
        format!("column {column} (type oid {type_oid}) of table {table} is read in text form only"),
        format!("table {table}"),
        "set source.binary = false",
    );
    ExtractError::NeedsText { column: column.to_owned(), fault }
}

#[cfg(test)]
#[path = "extract_tests.rs"]
pub(super) mod tests;

#[cfg(test)]
#[path = "extract_model_tests.rs"]
mod model_tests;
