//! Rows of an outbox table, and logical messages, as events.
//!
//! [`Outboxes`] knows which tables are outboxes and keeps a [`Plan`] for each that Postgres has
//! described on this connection. The plan makes an [`crate::base::event::Outbound`] of a row. A
//! table that does not fit stops the relay ([`Fault`]); a row that does not fit is a dead letter
//! ([`EventError`]).

mod assemble;
mod compile;
mod envelope;
mod error;
mod extract;
mod field;
mod json_object;
pub mod libraries;
mod message;
mod row_headers;
pub mod settings;
mod transaction;

pub use assemble::ExtractScratch;
pub use envelope::PAYLOAD_MEMBER;
pub use error::{EventError, RowError};
pub use extract::NEEDS_TEXT;
pub use extract::Plan;
pub use message::MessagePlan;
pub use transaction::CommitStamp;

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::Fault;
use crate::pgoutput::relation::Relation;
use compile::COLUMN_MISSING;
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
    /// Outboxes and their partitions as the catalog has them: object id, schema, name, and the
    /// place of the outbox in the settings.
    known: Vec<(u32, String, String, usize)>,
    /// The plans by oid, sorted. `None` is a published table that is no outbox: there may be any number of them.
    plans: Vec<(u32, Option<Box<Plan>>)>,
    /// Partitions whose description lacks columns. Postgres describes them with the column numbers of their root also
    /// where their rows come under the root's name, so only a row shows that it is a fault.
    unfit: BTreeMap<u32, Fault>,
    /// Object ids of domains, and of the built-in types that they are over.
    domains: BTreeMap<u32, u32>,
    /// Object ids of tables whose rows were no events, since the last [`Outboxes::forget_ignored`].
    ignored: BTreeSet<u32>,
}

impl Outboxes {
    pub fn new(tables: Vec<OutboxTable>, messages: Option<&Messages>) -> Result<Outboxes, Fault> {
        let messages = messages.map(MessagePlan::compile).transpose()?;
        Ok(Outboxes {
            tables,
            messages,
            known: Vec::new(),
            plans: Vec::new(),
            unfit: BTreeMap::new(),
            domains: BTreeMap::new(),
            ignored: BTreeSet::new(),
        })
    }

    /// For a new connection, on which Postgres describes every table again.
    pub fn forget(&mut self) {
        self.plans.clear();
        self.unfit.clear();
        self.domains.clear();
    }

    /// Takes the description of a type.
    pub fn learn_type(&mut self, oid: u32, schema: &str, name: &str) {
        self.domains.extend(field::built_in(schema, name).map(|base| (oid, base)));
    }

    /// The table, with columns of the types that its domains are over: their values are sent as those of
    /// these types.
    pub fn resolve(&self, mut relation: Relation) -> Relation {
        for column in &mut relation.columns {
            column.type_oid = *self.domains.get(&column.type_oid).unwrap_or(&column.type_oid);
        }
        relation
    }

    /// Which tables are outboxes or partitions of them. Postgres sends a row under its partition's
    /// own name when it was written while `publish_via_partition_root` was off, whatever it is now,
    /// and under the name that its table had when it was written.
    pub fn set_known(&mut self, known: Vec<(u32, String, String, usize)>) {
        self.known = known;
    }

    /// Takes the description of a table; true when it is an outbox. The earlier plan is removed
    /// even when the new description does not fit.
    pub fn learn(&mut self, relation: &Relation, binary: bool) -> Result<bool, Fault> {
        let slot = self.plans.binary_search_by_key(&relation.oid, |(oid, _)| *oid);
        let earlier = slot.ok().and_then(|at| self.plans.remove(at).1);
        self.unfit.remove(&relation.oid);
        let found = self.find(relation);
        let is_outbox = found.is_some();
        let is_configured =
            found.is_some_and(|(_, table)| table.is_named(&relation.namespace, &relation.name));
        let compiled = found.map(|(index, table)| Plan::compile(table, index, relation, binary));
        let plan = match compiled.transpose() {
            Err(fault) if fault.code == COLUMN_MISSING && !is_configured => {
                self.unfit.insert(relation.oid, fault);
                None
            }
            compiled => compiled?,
        };
        if let (Some(plan), Some(earlier)) = (&plan, &earlier) {
            plan.warn_of_lost_columns(earlier, relation);
        }
        let (Ok(at) | Err(at)) = slot;
        self.plans.insert(at, (relation.oid, plan.map(Box::new)));
        Ok(is_outbox)
    }

    /// The fault of a row under the name of a table that has no plan.
    pub fn unfit(&self, oid: u32) -> Option<&Fault> {
        self.unfit.get(&oid)
    }

    /// The outbox that a table is by its name or object id, and its place in the settings.
    fn find(&self, relation: &Relation) -> Option<(usize, &OutboxTable)> {
        let Relation { oid, namespace, name, .. } = relation;
        let mut tables = self.tables.iter().enumerate();
        tables.find(|(_, table)| table.is_named(namespace, name)).or_else(|| {
            let mut known = self.known.iter();
            let (.., index) = known.find(|(known_oid, schema, table, _)| {
                known_oid == oid || (schema == namespace && table == name)
            })?;
            Some((*index, self.tables.get(*index)?))
        })
    }

    /// Could a table that is no outbox by name be one all the same, because it has the columns that
    /// an outbox needs?
    pub fn resembles_outbox(&self, relation: &Relation, binary: bool) -> bool {
        self.tables.iter().enumerate().any(|(index, table)| {
            let plan = Plan::compile(table, index, relation, binary);
            plan.map_or_else(|fault| fault.code != COLUMN_MISSING, |_| true)
        })
    }

    /// The rows of this table are no events.
    pub fn note_ignored(&mut self, oid: u32) {
        self.ignored.insert(oid);
    }

    /// Whether rows of this table were no events.
    pub fn was_ignored(&self, oid: u32) -> bool {
        self.ignored.contains(&oid)
    }

    /// Earlier transactions are not known any more.
    pub fn forget_ignored(&mut self) {
        self.ignored.clear();
    }

    /// The plan for a row's table; `None` when the table is published but no outbox.
    #[inline]
    pub fn plan(&self, oid: u32) -> Result<Option<&Plan>, UnknownRelation> {
        match self.plans.binary_search_by_key(&oid, |(oid, _)| *oid) {
            Ok(at) => Ok(self.plans[at].1.as_deref()),
            Err(_) => Err(UnknownRelation(oid)),
        }
    }

    /// The plan for logical messages, where they are events.
    pub const fn messages(&self) -> Option<&MessagePlan> {
        self.messages.as_ref()
    }

    pub fn tables(&self) -> &[OutboxTable] {
        &self.tables
    }
}

#[cfg(test)]
mod tests;
