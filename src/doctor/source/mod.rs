//! Every fault of the environment, found before the first event moves.
//!
//! [`inspect`] asks Postgres once ([`facts`](crate::source::facts)), then judges purely. It collects all
//! findings and never stops at the first, because a person mends faster with the whole list. A
//! finding that fails carries a [`Fault`] with the exact command or SQL that mends it. Nothing is
//! changed here.

pub(crate) mod server;
pub(crate) mod slot;

pub(crate) use server::WAL_SENDERS;
pub(crate) use slot::missing as slot_missing;

use tokio_postgres::Client;

use crate::base::error::{Exit, Fault};
use crate::doctor::finding::{Finding, faults};
use crate::source::facts::{self, Published};
pub use crate::source::facts::{
    Facts, PublicationFacts, RoleFacts, ServerFacts, SlotFacts, TableFacts,
};
use crate::source::settings::SourceSettings;
use crate::source::{publication, table};

/// What was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The facts it rests on.
    pub facts: Facts,
    /// All findings: server, role, tables, publication, slot.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The fault that matters most: what makes others follow comes first, and the slot comes
    /// after the publication because it must be made after it. A lost slot outranks all: events are
    /// missing already, and mending the rest would hide that.
    #[must_use]
    pub fn first_fault(&self) -> Option<&Fault> {
        let lost = faults(&self.findings).find(|fault| fault.code == "slot.lost");
        lost.or_else(|| faults(&self.findings).next())
    }
}

/// Looks at everything the relay needs from Postgres: one round trip, read only.
pub async fn inspect(
    client: &Client,
    settings: &SourceSettings,
) -> Result<Report, tokio_postgres::Error> {
    let facts = facts::gather(client, settings).await?;
    let findings = judge(&facts, settings);
    Ok(Report { facts, findings })
}

/// What the facts mean, in order of importance.
fn judge(facts: &Facts, settings: &SourceSettings) -> Vec<Finding> {
    let published =
        Published { publication: facts.publication.clone(), tables: facts.tables.clone() };
    let mut findings = server::judge(facts);
    findings.extend(server::messages(facts, settings));
    findings.extend(table::judge(&facts.tables, settings));
    findings.extend(publication::judge(
        &published,
        settings,
        facts.server_version,
        facts.slot.is_some(),
    ));
    findings.extend(slot::judge(facts, settings));
    findings
}

/// The fault of a preflight query that failed itself.
#[must_use]
pub fn query_fault(error: &tokio_postgres::Error, doing: &str) -> Fault {
    let detail = error.as_db_error().map_or_else(
        || error.to_string(),
        |e| format!("{} (SQLSTATE {})", e.message(), e.code().code()),
    );
    Fault::new(
        Exit::Source,
        "source.query",
        format!("Postgres refused a query while {doing}: {detail}"),
        "",
        "try the statement with psql as the same role; a connection pooler in between does not \
         carry replication, so source.url must name Postgres itself",
    )
}

#[cfg(test)]
mod tests;
