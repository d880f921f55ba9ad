//! INSERTs into an outbox table as events.
//!
//! A [`Plan`] is compiled whenever Postgres describes the table. There names become positions, and
//! whatever does not fit (a column that is gone, a type whose binary form is not read) is a fault
//! that stops the relay before the next row: no row of such a table becomes a dead letter.

use super::assemble::{ExtractScratch, RowValues};
use super::compile::{CompiledRoute, content_type};
use super::error::RowError;
use super::field::{FieldType, FieldValue, forms_of};
use super::settings::OutboxTable;
use super::transaction::CommitStamp;
use crate::base::error::{Exit, Fault};
use crate::base::event::{HeaderSlots, Outbound};
use crate::pgoutput::cursor::DecodeError;
use crate::pgoutput::message::{Tuple, Value};
use crate::pgoutput::relation::Relation;

/// The code of the fault for a column whose binary form is not read: the stream has to be opened in
/// text mode.
pub const NEEDS_TEXT: &str = "table.needs-text";

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
    /// `binary` says how the stream was opened. `outbox_index` is the place of the outbox in the
    /// settings.
    pub fn compile(
        outbox: &OutboxTable,
        outbox_index: usize,
        relation: &Relation,
        binary: bool,
    ) -> Result<Plan, Fault> {
        let table = relation.qualified_name();
        let columns: Vec<&str> = relation.columns.iter().map(|it| it.name.as_str()).collect();
        let mut route =
            CompiledRoute::compile(&outbox.route, &outbox.columns, &table, Some(&columns))?;
        let mut slots = vec![UNUSED; columns.len()];
        let mut types = vec![FieldType::Other; route.names.len()];
        for (at, name) in columns.iter().enumerate() {
            let Some(slot) = route.slot_of(name) else { continue };
            let type_oid = relation.columns[at].type_oid;
            let (field_type, json_form) = forms_of(type_oid);
            if binary && field_type == FieldType::Other {
                return Err(text_only(&table, name, type_oid));
            }
            types[slot] = field_type;
            route.json_forms[slot] = json_form;
            // There are fewer than `UNUSED` slots.
            slots[at] = slot as u8;
            if slot == route.payload {
                route.content_type = match route.envelope.is_empty() {
                    true => content_type(type_oid),
                    false => Some("application/json"),
                };
            }
        }
        Ok(Plan { route, types, slots, outbox_index })
    }

    /// For claimed rows, which have no position in the WAL: their events have no `lsn` header.
    pub fn without_lsn(mut self) -> Plan {
        self.route.lsn = false;
        self
    }

    pub const fn outbox_index(&self) -> usize {
        self.outbox_index
    }

    /// Warns of the optional columns that an earlier plan of the table has and this one has not.
    pub fn warn_of_lost_columns(&self, earlier: &Plan, relation: &Relation) {
        let lost = self.lost_columns(earlier);
        if !lost.is_empty() {
            tracing::warn!(
                code = "outbox.column-gone",
                table = relation.qualified_name(),
                columns = lost.join(", "),
                help = "if the column was renamed: docs/postgres.md, \"Renaming a column\"",
                "rows of an outbox come without a column that they had before: their events are published without it"
            );
        }
    }

    fn lost_columns<'a>(&self, earlier: &'a Plan) -> Vec<&'a str> {
        let optional = |route: &CompiledRoute| {
            [route.event_type.or(route.message_type), route.traceparent, route.headers]
        };
        let pairs = optional(&earlier.route).into_iter().zip(optional(&self.route));
        let lost = pairs.filter(|(_, now)| now.is_none()).filter_map(|(before, _)| before);
        lost.map(|slot| earlier.route.names[slot].as_str()).collect()
    }

    /// Makes the event of one row. The scratch is kept from row to row; the headers are new.
    #[inline]
    pub fn extract<'a>(
        &'a self,
        tuple: Tuple<'a>,
        transaction: &'a CommitStamp,
        scratch: &'a mut ExtractScratch,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, RowError> {
        scratch.arena.clear();
        let mut row = RowValues::new(&self.route);
        let mut broken = None;
        self.walk(tuple, |slot, field_type, value| {
            match field_type.read(value, &mut scratch.arena) {
                Ok(field) => row.fields[slot] = field,
                Err(expected) => broken = Some((slot, expected)),
            }
        })?;
        if let Some((slot, expected)) = broken {
            let problem = format_args!("does not hold {expected}");
            return Err(row.error("bad-value", slot, &scratch.arena, problem).into());
        }
        Ok(row.assemble(transaction, scratch, headers)?)
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

    /// Takes the fields that are known of a row that [`Plan::extract`] refused, for its dead
    /// letter. A value that is not of its type is taken as Postgres sent it; what is unknown is
    /// empty.
    pub fn salvage<'a>(
        &'a self,
        tuple: Tuple<'a>,
        transaction: &'a CommitStamp,
        scratch: &'a mut ExtractScratch,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, DecodeError> {
        scratch.arena.clear();
        let mut row = RowValues::new(&self.route);
        self.walk(tuple, |slot, field_type, value| {
            let raw = match value {
                Value::Text(bytes) | Value::Binary(bytes) => FieldValue::Wire(bytes),
                Value::Null | Value::Unchanged => FieldValue::Null,
            };
            row.fields[slot] = field_type.read(value, &mut scratch.arena).unwrap_or(raw);
        })?;
        Ok(row.salvage(transaction, scratch, headers))
    }
}

fn text_only(table: &str, column: &str, type_oid: u32) -> Fault {
    Fault::new(
        Exit::Source,
        NEEDS_TEXT,
        format!("column {column} (type oid {type_oid}) of table {table} is read in text form only"),
        format!("table {table}"),
        "set source.binary = false",
    )
}

#[cfg(test)]
#[path = "extract_tests.rs"]
pub(super) mod tests;

#[cfg(test)]
#[path = "extract_model_tests.rs"]
mod model_tests;
