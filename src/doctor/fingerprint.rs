//! Detects changes of the publication since this process first connected.
//!
//! Rows that are written while a publication does not cover their table are
//! silently missing from the stream. The present state cannot show that, because
//! the change may have been undone. So the rows of the catalog are compared by
//! object id and `xmin`, which nobody can restore. The first state is kept as long
//! as the process lives, because a gap may open and close between two connections.

use std::sync::{Mutex, PoisonError};

use tokio_postgres::{Client, Error};

use super::{publication, tables};
use crate::base::error::Fault;
use crate::base::finding::faults;
use crate::source::facts::SourceFacts;
use crate::source::faults::{publication_problem, republish_sql};
use crate::source::publication::{CatalogRow, PublishedFacts, RowKind, TableFacts, published};
use crate::source::settings::SourceSettings;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicationFingerprint {
    published: PublishedFacts,
    server_version: u32,
}

impl PublicationFingerprint {
    /// One round trip.
    pub(crate) async fn take(
        client: &Client,
        settings: &SourceSettings,
        server_version: u32,
    ) -> Result<PublicationFingerprint, Error> {
        Ok(PublicationFingerprint { published: published(client, settings).await?, server_version })
    }

    pub(crate) fn of(facts: &SourceFacts) -> PublicationFingerprint {
        let (published, server_version) = (facts.published.clone(), facts.server.version);
        PublicationFingerprint { published, server_version }
    }

    /// A fault if the change from `self` to `now` could have held back an event. New tables and
    /// columns are no fault.
    fn change(&self, now: &PublicationFingerprint, settings: &SourceSettings) -> Option<Fault> {
        let mut findings = tables::judge(&now.published.tables, &settings.outboxes);
        let version = self.server_version;
        findings.extend(publication::judge(&now.published, settings, version, true));
        let held_back_now = faults(&findings).next().cloned();
        held_back_now.or_else(|| {
            let what = self.rewritten(now, &settings.publication);
            what.or_else(|| self.replaced(now, &settings.publication))
                .map(|what| recreated(&what, settings))
        })
    }

    fn rows(&self) -> &[CatalogRow] {
        self.published.publication.as_ref().map_or(&[], |publication| &publication.rows)
    }

    /// A row of the catalog was written in between: what was published meanwhile is unknown,
    /// although the present state is correct.
    fn rewritten(&self, now: &PublicationFingerprint, name: &str) -> Option<String> {
        let (before, after) = self.rows().iter().find_map(|before| {
            let after = now.rows().iter().find(|after| same_subject(before, after))?;
            ((before.oid, before.xmin) != (after.oid, after.xmin)).then_some((before, after))
        })?;
        let about = &after.name;
        Some(match after.kind {
            RowKind::Publication if before.oid != after.oid => {
                format!("publication {name} was dropped and made again")
            }
            RowKind::Publication => format!(
                "publication {name} was altered, once or more often: its operations, \
                 publish_via_partition_root, owner or name"
            ),
            RowKind::Table => format!("{about} was taken out of publication {name} and put back"),
            RowKind::Schema => {
                format!("schema {about} was taken out of publication {name} and put back")
            }
            RowKind::Location => format!(
                "{about} was moved to another schema, which publication {name} may not cover, and \
                 back"
            ),
            RowKind::Partition => {
                format!("{about} was detached as a partition, and attached again")
            }
        })
    }

    /// An outbox table was replaced by another one, which was added to the publication.
    fn replaced(&self, now: &PublicationFingerprint, name: &str) -> Option<String> {
        let mut pairs = self.published.tables.iter().zip(&now.published.tables);
        let differs = |(before, after): &(&TableFacts, &TableFacts)| {
            before.member_oid.zip(after.member_oid).is_some_and(|(before, after)| before != after)
        };
        let (_, table) = pairs.find(differs)?;
        let table = table.shown();
        Some(format!(
            "{table} is another table now, which was put into publication {name} by itself"
        ))
    }

    /// Adds the rows of new tables and schemas.
    fn add_new_rows(&mut self, now: PublicationFingerprint) {
        let Some(known) = &mut self.published.publication else { return };
        for row in now.published.publication.into_iter().flat_map(|publication| publication.rows) {
            if !known.rows.iter().any(|it| same_subject(it, &row)) {
                known.rows.push(row);
            }
        }
    }
}

fn recreated(what: &str, settings: &SourceSettings) -> Fault {
    publication_problem(
        "publication.recreated",
        format!("{what}, since this relay connected for the first time"),
        format!(
            "rows that were written while the publication did not let them through are not \
             published, and Postgres does not tell which: compare the outbox rows of that time with \
             the broker and publish by hand what is missing (docs/operations.md, \"A gap in the \
             publication\"): {}\nif it let INSERT through all the time, nothing is missing; then \
             start again: the relay takes the publication as it is then",
            republish_sql(settings)
        ),
    )
}

fn same_subject(one: &CatalogRow, other: &CatalogRow) -> bool {
    (one.kind, one.about) == (other.kind, other.about)
}

/// The publication as this process first found it, shared by all connections.
#[derive(Debug, Default)]
pub struct KnownPublication(Mutex<Option<(String, PublicationFingerprint)>>);

impl KnownPublication {
    /// Compares the publication of database system `system_id` with the one found first. Another
    /// system is not compared; the session reports it.
    pub(crate) fn compare(
        &self,
        system_id: &str,
        now: PublicationFingerprint,
        settings: &SourceSettings,
    ) -> Option<Fault> {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((known_system, known)) = first.as_mut() else {
            *first = Some((system_id.to_owned(), now));
            return None;
        };
        if known_system != system_id {
            return None;
        }
        let fault = known.change(&now, settings);
        if fault.is_none() {
            known.add_new_rows(now);
        }
        fault
    }
}

#[cfg(test)]
#[path = "fingerprint_tests.rs"]
mod tests;
