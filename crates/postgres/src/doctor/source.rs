//! Finds everything that could keep the slot from being read: queries Postgres once
//! ([`facts`](crate::facts)), then judges the answers without side effects.

use tokio_postgres::{Client, Error};

use super::fingerprint::PublicationFingerprint;
use super::{publication, server, slot, tables};
use crate::facts::{self, SourceFacts};
use crate::faults::query_fault;
use crate::settings::SourceSettings;
use walrelay_base::error::Fault;
use walrelay_base::finding::{Finding, faults};

#[derive(Clone, Debug)]
pub struct SourceReport {
    pub facts: SourceFacts,
    /// The findings about server, role, tables, publication and slot, in this order.
    pub findings: Vec<Finding>,
}

impl SourceReport {
    /// The fault to mend first. Causes come before their consequences, and the publication before
    /// the slot, because the slot must be created after it. A lost slot comes before everything
    /// else: events are missing already, and mending the rest would hide that.
    pub fn first_fault(&self) -> Option<&Fault> {
        let lost = faults(&self.findings).find(|fault| fault.code == "slot.lost");
        lost.or_else(|| faults(&self.findings).next())
    }
}

/// The publication as it is now, to be compared with earlier ones.
pub fn fingerprint(facts: &SourceFacts) -> PublicationFingerprint {
    PublicationFingerprint::new(facts.published.clone(), facts.server.version)
}

/// One round trip, read only.
pub async fn inspect(client: &Client, settings: &SourceSettings) -> Result<SourceReport, Error> {
    // Boxed, because the future of all concurrent statements is large.
    let facts = Box::pin(facts::gather(client, settings)).await?;
    let findings = judge(&facts, settings);
    Ok(SourceReport { facts, findings })
}

/// Like [`inspect`], for commands.
pub async fn report(client: &Client, settings: &SourceSettings) -> Result<SourceReport, Fault> {
    let report = inspect(client, settings).await;
    report.map_err(|error| query_fault(&error, "looking for what is missing"))
}

fn judge(facts: &SourceFacts, settings: &SourceSettings) -> Vec<Finding> {
    let (version, has_slot) = (facts.server.version, slot::is_usable(facts));
    let mut findings = server::judge(facts, settings);
    findings.extend(tables::judge(&facts.published.tables, &settings.outboxes));
    findings.extend(publication::judge(&facts.published, settings, version, has_slot));
    findings.extend(slot::judge(facts, settings));
    findings
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
