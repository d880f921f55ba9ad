//! Everything that could keep the slot from being read, found before the first event moves.
//!
//! [`inspect`] asks Postgres once ([`facts`](crate::source::facts)), then judges purely. A finding that
//! fails carries a fault with the exact command or SQL that mends it. Nothing is changed here.

use tokio_postgres::{Client, Error};

use super::{publication, server, slot, tables};
use crate::base::error::Fault;
use crate::base::finding::{Finding, faults};
use crate::source::facts::{self, SourceFacts};
use crate::source::faults::query_fault;
use crate::source::settings::SourceSettings;

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct SourceReport {
    /// The facts it rests on.
    pub(crate) facts: SourceFacts,
    /// Server, role, tables, publication, slot.
    pub(crate) findings: Vec<Finding>,
}

impl SourceReport {
    /// The fault that matters most: what makes others follow comes first, and the slot comes
    /// after the publication because it must be made after it. A lost slot outranks all: events are
    /// missing already, and mending the rest would hide that.
    pub(crate) fn first_fault(&self) -> Option<&Fault> {
        let lost = faults(&self.findings).find(|fault| fault.code == "slot.lost");
        lost.or_else(|| faults(&self.findings).next())
    }
}

/// Looks at everything the relay needs from Postgres: one round trip, read only.
pub(crate) async fn inspect(
    client: &Client,
    settings: &SourceSettings,
) -> Result<SourceReport, Error> {
    // Boxed: all statements are under way at once, once per connection.
    let facts = Box::pin(facts::gather(client, settings)).await?;
    let findings = judge(&facts, settings);
    Ok(SourceReport { facts, findings })
}

/// The same for a command.
pub(crate) async fn report(
    client: &Client,
    settings: &SourceSettings,
) -> Result<SourceReport, Fault> {
    let report = inspect(client, settings).await;
    report.map_err(|error| query_fault(&error, "looking for what is missing"))
}

/// What the facts mean, in order of importance.
fn judge(facts: &SourceFacts, settings: &SourceSettings) -> Vec<Finding> {
    let (version, slot_exists) = (facts.server.version, facts.slot.is_some());
    let mut findings = server::judge(facts, settings);
    findings.extend(tables::judge(&facts.published.tables, &settings.outboxes));
    findings.extend(publication::judge(&facts.published, settings, version, slot_exists));
    findings.extend(slot::judge(facts, settings));
    findings
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
