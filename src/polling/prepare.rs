//! Writes the statements for a polled table from the configuration and the facts of the table.

use super::settings::PollingSettings;
use super::statements::{StatementInput, Statements};
use super::table_facts::PolledTableFacts;
use crate::base::error::{Exit, Fault};
use crate::outbox::settings::OutboxTable;
use crate::pgoutput::relation::Relation;
use crate::source::settings::SourceSettings;

#[derive(Clone, Debug)]
pub(crate) struct PreparedTable {
    pub(crate) statements: Statements,
    /// The event's columns.
    pub(crate) relation: Relation,
}

impl PreparedTable {
    pub(crate) fn of(
        facts: &PolledTableFacts,
        source: &SourceSettings,
        outbox: &OutboxTable,
        polling: &PollingSettings,
    ) -> PreparedTable {
        let relation = facts.relation(outbox);
        let event_columns: Vec<String> =
            relation.columns.iter().map(|column| column.name.clone()).collect();
        let type_of = |column| facts.type_of(column).unwrap_or("text");
        let statements = Statements::of(&StatementInput {
            outbox,
            polling,
            slot: &source.slot,
            publication: &source.publication,
            id_type: type_of(&outbox.columns.id),
            id_equality: facts.equality_of(&outbox.columns.id),
            reason_type: type_of(&polling.columns.failure_reason),
            event_columns: &event_columns,
        });
        PreparedTable { statements, relation }
    }
}

/// The polled table. The configuration has made sure that there is one.
pub(crate) fn table(source: &SourceSettings) -> Result<&OutboxTable, Fault> {
    source.outboxes.first().ok_or_else(|| {
        let (what, mend) = ("polling needs a table", "write [[source.outbox]]");
        Fault::new(Exit::Usage, "config.missing-key", what, "source.outbox", mend)
    })
}
