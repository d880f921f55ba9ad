//! Rows of an outbox table, and logical messages, as events.
//!
//! [`Outboxes`] knows which tables are outboxes and keeps a [`Plan`] for each that Postgres has
//! described on this connection. The plan makes an [`crate::message::Outbound`] of a row. What does
//! not fit a table stops the relay ([`ExtractError`]); what does not fit a row is a dead letter
//! ([`EventError`]).

mod cell;
mod compile;
mod event_error;
mod extract;
mod message;
mod route;
mod row_headers;
pub mod settings;
pub mod template;
mod transaction;

pub use event_error::EventError;
pub use extract::{ExtractError, Plan, RowError};
pub use message::MessagePlan;
pub use route::Scratch;
pub use transaction::Transaction;

use crate::pgoutput::relation::Relation;
use settings::{Messages, OutboxTable};

/// A row came for a table that was never described: the stream cannot be trusted any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a row of table oid {0} came before the table was described")]
pub struct UnknownRelation(pub u32);

/// The outbox tables, and the plans of those that were described.
#[derive(Debug)]
pub struct Outboxes {
    tables: Vec<OutboxTable>,
    messages: Option<MessagePlan>,
    /// Partitions of outboxes by schema and name, with the place of their root in the settings.
    partitions: Vec<(String, String, usize)>,
    /// By oid, sorted. `None` is a published table that is no outbox.
    plans: Vec<(u32, Option<Plan>)>,
}

impl Outboxes {
    /// Compiles the settings.
    pub fn new(
        tables: Vec<OutboxTable>,
        messages: Option<&Messages>,
    ) -> Result<Outboxes, ExtractError> {
        let messages = messages.map(MessagePlan::compile).transpose()?;
        Ok(Outboxes { tables, messages, partitions: Vec::new(), plans: Vec::new() })
    }

    /// A connection was opened: Postgres will describe every table anew.
    pub fn forget(&mut self) {
        self.plans.clear();
    }

    /// Which tables are partitions of outboxes. Postgres sends a row under its partition's own name
    /// when it was written while `publish_via_partition_root` was off, whatever it is now.
    pub fn set_partitions(&mut self, partitions: Vec<(String, String, usize)>) {
        self.partitions = partitions;
    }

    /// Postgres described a table. True when it is an outbox. The plan of before is gone even when
    /// the new shape does not fit.
    pub fn learn(&mut self, relation: &Relation, binary: bool) -> Result<bool, ExtractError> {
        let slot = self.plans.binary_search_by_key(&relation.oid, |(oid, _)| *oid);
        if let Ok(at) = slot {
            self.plans.remove(at);
        }
        let plan = match self.find(&relation.namespace, &relation.name) {
            None => None,
            Some((index, table)) => Some(Plan::compile(table, index, relation, binary)?),
        };
        let is_outbox = plan.is_some();
        let (Ok(at) | Err(at)) = slot;
        self.plans.insert(at, (relation.oid, plan));
        Ok(is_outbox)
    }

    /// The outbox of that name, and its place in the settings.
    #[must_use]
    pub fn find(&self, namespace: &str, name: &str) -> Option<(usize, &OutboxTable)> {
        let mut tables = self.tables.iter().enumerate();
        tables.find(|(_, table)| table.schema == namespace && table.table == name).or_else(|| {
            let mut partitions = self.partitions.iter();
            let (_, _, index) =
                partitions.find(|(schema, table, _)| schema == namespace && table == name)?;
            Some((*index, self.tables.get(*index)?))
        })
    }

    /// The plan for a row's table; `None` when the table is published but no outbox.
    #[inline]
    pub fn plan(&self, oid: u32) -> Result<Option<&Plan>, UnknownRelation> {
        match self.plans.binary_search_by_key(&oid, |(oid, _)| *oid) {
            Ok(at) => Ok(self.plans[at].1.as_ref()),
            Err(_) => Err(UnknownRelation(oid)),
        }
    }

    /// The plan for logical messages, where they are events.
    #[must_use]
    pub const fn messages(&self) -> Option<&MessagePlan> {
        self.messages.as_ref()
    }

    /// The tables, as they were set.
    #[must_use]
    pub fn tables(&self) -> &[OutboxTable] {
        &self.tables
    }
}

#[cfg(test)]
mod tests;
