//! From the configuration to the statements, with a look at the table.

use tokio_postgres::Client;

use super::settings::PollingSettings;
use super::statements::{Statements, Subject};
use super::table::{self, Report};
use crate::error::{Exit, Fault};
use crate::outbox::settings::OutboxTable;
use crate::pgoutput::relation::Relation;
use crate::source::preflight::Level;
use crate::source::settings::SourceSettings;

/// What is known before the first claim.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The statements for the table.
    pub statements: Statements,
    /// The event's columns.
    pub relation: Relation,
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
    let Report { facts, findings } = table::inspect(client, outbox, polling).await?;
    for finding in &findings {
        match &finding.fault {
            Some(fault) => return Err(fault.clone()),
            None if finding.level == Level::Warn => tracing::warn!("{}", finding.text),
            None => {}
        }
    }
    // Without facts there was a fault.
    let relation = facts.as_ref().map(|facts| facts.relation(outbox));
    let relation = relation.unwrap_or_else(|| Relation {
        oid: 0,
        namespace: String::new(),
        name: String::new(),
        columns: Vec::new(),
    });
    let event_columns: Vec<String> =
        relation.columns.iter().map(|column| column.name.clone()).collect();
    let id_type = facts.as_ref().and_then(|facts| facts.type_of(&outbox.columns.id));
    let reason = &polling.columns.failure_reason;
    let reason_type = facts.as_ref().and_then(|facts| facts.type_of(reason));
    let statements = Statements::of(&Subject {
        outbox,
        polling,
        slot: &source.slot,
        id_type: id_type.unwrap_or("text"),
        reason_type: reason_type.unwrap_or("text"),
        event_columns: &event_columns,
    });
    Ok(Prepared { statements, relation })
}
