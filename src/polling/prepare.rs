//! From the configuration to the statements, with a look at the table.

use tokio_postgres::Client;

use super::settings::PollingSettings;
use super::statements::{Statements, Subject};
use crate::base::error::{Exit, Fault};
use crate::doctor::finding::Level;
use crate::doctor::polled_table::{self, Report, TableFacts};
use crate::outbox::settings::OutboxTable;
use crate::pgoutput::relation::Relation;
use crate::source::settings::SourceSettings;

/// What is known before the first claim.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The statements for the table.
    pub statements: Statements,
    /// The event's columns.
    pub relation: Relation,
}

impl Prepared {
    /// For a table that can be polled.
    #[must_use]
    pub fn of(
        facts: &TableFacts,
        source: &SourceSettings,
        outbox: &OutboxTable,
        polling: &PollingSettings,
    ) -> Prepared {
        let relation = facts.relation(outbox);
        let event_columns: Vec<String> =
            relation.columns.iter().map(|column| column.name.clone()).collect();
        let type_of = |column| facts.type_of(column).unwrap_or("text");
        let statements = Statements::of(&Subject {
            outbox,
            polling,
            slot: &source.slot,
            publication: &source.publication,
            id_type: type_of(&outbox.columns.id),
            id_equality: facts.equality_of(&outbox.columns.id),
            reason_type: type_of(&polling.columns.failure_reason),
            event_columns: &event_columns,
        });
        Prepared { statements, relation }
    }
}

/// The polled table. The configuration has made sure that there is one.
pub fn table(source: &SourceSettings) -> Result<&OutboxTable, Fault> {
    source.outboxes.first().ok_or_else(|| {
        let (what, mend) = ("polling needs a table", "write [[source.outbox]]");
        Fault::new(Exit::Usage, "config.missing-key", what, "source.outbox", mend)
    })
}

/// Looks at the table and writes the statements; the first fault when it cannot be polled.
pub async fn prepare(
    client: &Client,
    source: &SourceSettings,
    polling: &PollingSettings,
) -> Result<Prepared, Fault> {
    let outbox = table(source)?;
    let Report { facts, findings } = polled_table::inspect(client, outbox, polling).await?;
    let facts = facts.ok_or_else(|| polled_table::missing(outbox))?;
    for finding in &findings {
        match &finding.fault {
            Some(fault) => return Err(fault.clone()),
            None if finding.level == Level::Warn => tracing::warn!("{}", finding.text),
            None => {}
        }
    }
    Ok(Prepared::of(&facts, source, outbox, polling))
}
