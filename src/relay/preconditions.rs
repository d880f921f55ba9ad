//! The faults with which a loop would end at its start, found for `check` by the functions that the
//! loop itself calls.

use super::state_file;
use crate::base::error::Fault;
use crate::base::finding::Finding;
use crate::delivery::settings::DeliverySettings;
use crate::outbox::settings::OutboxTable;
use crate::outbox::{Outboxes, Plan};
use crate::pgoutput::relation::{Column, Relation};
use crate::source::publication::{ColumnFacts, TableFacts};
use crate::source::settings::SourceSettings;

/// Finds the preconditions of a loop that the configuration and this machine lack.
pub fn inspect(source: &SourceSettings, delivery: &DeliverySettings) -> Vec<Finding> {
    let outboxes = Outboxes::new(source.outboxes.clone(), source.messages.as_ref());
    let fault = outboxes.err();
    let state_file = state_file::inspect(delivery.state_file.as_deref(), &source.slot);
    std::iter::once(state_file).chain(fault.map(Finding::fail)).collect()
}

/// Why rows of these tables could not become events, one fault per table. `tables` are those of the
/// outboxes, in their order. That a generated column is sent, if one is needed, the doctor has seen.
pub fn unfit_routes(source: &SourceSettings, tables: &[TableFacts]) -> Vec<Fault> {
    let unfit = |(outbox, table): (&OutboxTable, &TableFacts)| {
        let column = |it: &ColumnFacts| Column { name: it.name.clone(), type_oid: 0 };
        let relation = Relation {
            oid: 0,
            namespace: table.schema.clone(),
            name: table.name.clone(),
            columns: table.columns.iter().map(column).collect(),
        };
        unfit_route(outbox, &relation)
    };
    source.outboxes.iter().zip(tables).filter_map(unfit).collect()
}

pub fn unfit_route(outbox: &OutboxTable, relation: &Relation) -> Option<Fault> {
    Plan::compile(outbox, 0, relation, false).err()
}
