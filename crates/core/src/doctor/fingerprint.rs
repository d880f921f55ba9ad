//! Detects changes of the publication since a relay last saw it in order.
//!
//! Rows that are written while a publication does not cover their table are
//! silently missing from the stream. The present state cannot show that, because
//! the change may have been undone. So the rows of the catalog are compared by
//! object id and `xmin`, which nobody can restore. The first state is kept as long
//! as the process lives, because a gap may open and close between two connections; and
//! longer than that where there is a [`PublicationKeeper`].

use std::sync::{Arc, Mutex};

use super::publication;
use super::tables::{self, ReadBy};
use crate::base::encoding::hex;
use crate::base::error::{Doubt, Fault};
use crate::base::finding::faults;
use crate::base::lock::locked;
use crate::base::lsn::Lsn;
use crate::base::stop::{PUBLICATION_RECREATED, TABLE_UNLOGGED};
use crate::source::faults::{START_AGAIN, publication_problem, republish_sql};
use crate::source::publication::{CatalogRow, PublishedFacts, RowKind, TableFacts};
use crate::source::settings::SourceSettings;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicationFingerprint {
    #[serde(serialize_with = "write_facts", deserialize_with = "read_facts")]
    published: Arc<PublishedFacts>,
    server_version: u32,
}

fn write_facts<S: Serializer>(facts: &PublishedFacts, serializer: S) -> Result<S::Ok, S::Error> {
    facts.serialize(serializer)
}

fn read_facts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<PublishedFacts>, D::Error> {
    PublishedFacts::deserialize(deserializer).map(Arc::new)
}

impl PublicationFingerprint {
    #[must_use]
    pub fn new(
        published: impl Into<Arc<PublishedFacts>>,
        server_version: u32,
    ) -> PublicationFingerprint {
        PublicationFingerprint { published: published.into(), server_version }
    }

    /// Why the publication holds back rows now, if it does.
    pub fn withholding_fault(&self, settings: &SourceSettings) -> Option<Fault> {
        let tables = self.published.tables.iter().zip(&settings.outboxes);
        let mut unread =
            tables.flat_map(|(table, outbox)| tables::faults(table, outbox, ReadBy::Slot));
        unread.next().or_else(|| {
            let found = publication::judge(&self.published, settings, self.server_version, true);
            faults(&found).next().cloned()
        })
    }

    /// Names this state of the catalog rows.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for CatalogRow { about, oid, xmin, .. } in self.rows() {
            for number in [about, oid, xmin] {
                hash.update(number.to_be_bytes());
            }
        }
        hex(&hash.finalize()[..16])
    }

    /// The part of the publication that a comparison needs.
    fn to_keep(&self) -> PublicationFingerprint {
        let mut published = PublishedFacts::clone(&self.published);
        if let Some(publication) = &mut published.publication {
            publication.tables.clear();
            publication.renamed.clear();
            publication.excepted.clear();
            publication.others.clear();
        }
        for table in &mut published.tables {
            table.columns.clear();
            table.similar.clear();
        }
        PublicationFingerprint { published: Arc::new(published), ..*self }
    }

    /// A fault if the change from `self` to `now` could have held back an event. New tables and
    /// columns are no fault.
    pub fn change(&self, now: &PublicationFingerprint, settings: &SourceSettings) -> Option<Fault> {
        now.withholding_fault(settings).or_else(|| {
            let what = self.rewritten(now, &settings.publication);
            what.or_else(|| self.replaced(now, &settings.publication))
                .or_else(|| self.covered_anew(now, &settings.publication))
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
        let same_name = |one: &TableFacts, other: &TableFacts| {
            (&one.schema, &one.name) == (&other.schema, &other.name)
        };
        let mut pairs = self.published.tables.iter().filter_map(|before| {
            Some((before, now.published.tables.iter().find(|after| same_name(before, after))?))
        });
        let differs = |(before, after): &(&TableFacts, &TableFacts)| {
            before.member_oid.zip(after.member_oid).is_some_and(|(before, after)| before != after)
        };
        let (_, table) = pairs.find(differs)?;
        let table = table.shown();
        Some(format!(
            "{table} is another table now, which was put into publication {name} by itself"
        ))
    }

    /// The publication covers a table by other rows than before. Whether the old ones were removed after the
    /// new ones were added is unknown.
    fn covered_anew(&self, now: &PublicationFingerprint, name: &str) -> Option<String> {
        let is_known = |row: &CatalogRow| self.rows().iter().any(|it| same_subject(it, row));
        let remains = |row: &CatalogRow| now.rows().iter().any(|it| same_subject(it, row));
        let covers = |row: &&CatalogRow| matches!(row.kind, RowKind::Table | RowKind::Schema);
        if now.rows().iter().filter(covers).all(is_known) {
            return None;
        }
        let lost = now.published.tables.iter().find(|table| {
            let shown = table.shown();
            let is_about = |row: &&CatalogRow| match row.kind {
                RowKind::Table => row.name == shown,
                RowKind::Schema => row.name == table.schema,
                _ => false,
            };
            let mut known = self.rows().iter().filter(is_about).peekable();
            known.peek().is_some() && !known.any(remains)
        })?;
        let table = lost.shown();
        Some(format!(
            "publication {name} covers {table} in another way, by its name, its schema or a table that it is a partition of"
        ))
    }

    /// Adds the rows of new tables and schemas, and the tables themselves. True if there were any.
    fn add_new(&mut self, now: PublicationFingerprint) -> bool {
        let PublishedFacts { publication, tables } = Arc::unwrap_or_clone(now.published);
        let published = Arc::make_mut(&mut self.published);
        let mut added = false;
        for table in tables {
            let same =
                |it: &&mut TableFacts| (&it.schema, &it.name) == (&table.schema, &table.name);
            match published.tables.iter_mut().find(same) {
                Some(known) if known.member_oid.is_some() || table.member_oid.is_none() => {}
                Some(known) => (*known, added) = (table, true),
                None => {
                    published.tables.push(table);
                    added = true;
                }
            }
        }
        let Some(known) = &mut published.publication else { return added };
        for row in publication.into_iter().flat_map(|publication| publication.rows) {
            if !known.rows.iter().any(|it| same_subject(it, &row)) {
                known.rows.push(row);
                added = true;
            }
        }
        added
    }
}

fn recreated(what: &str, settings: &SourceSettings) -> Fault {
    publication_problem(
        PUBLICATION_RECREATED,
        format!("{what}, since a relay last saw it in order"),
        format!(
            "rows that were written while the publication did not let them through are not \
             published, and Postgres does not tell which\n{}",
            compare_and_resume(settings)
        ),
    )
}

/// How to go on after a gap.
pub fn compare_and_resume(settings: &SourceSettings) -> String {
    format!(
        "compare the outbox rows of that time with the broker and publish by hand what is missing \
         (docs/operations.md, \"A gap in the publication\"): {}\nthen acknowledge it: walrelay \
         resume. Until then every start ends with this; if INSERT was let through for all rows all \
         the time, no table was unlogged, and no partition was detached or dropped while \
         publish_via_partition_root was false, nothing is missing",
        republish_sql(settings)
    )
}

/// A gap stays until it is acknowledged. What a table lacks is no gap if its rows are in the stream.
fn gap(fault: Fault, Doubt { from, to }: Doubt, settings: &SourceSettings) -> Fault {
    if !fault.code.starts_with("publication.") && fault.code != TABLE_UNLOGGED {
        return fault;
    }
    let mend = match fault.code {
        PUBLICATION_RECREATED => fault.mend.clone(),
        // It says itself which rows are to be published by hand.
        "publication.missing" => format!(
            "{}\nthen acknowledge it: walrelay resume, and start again. Until then every start ends \
             with this",
            fault.mend.strip_suffix(START_AGAIN).unwrap_or(&fault.mend)
        ),
        TABLE_UNLOGGED => format!(
            "{}\nrows that were inserted while it was unlogged are not published\n{}",
            fault.mend,
            compare_and_resume(settings)
        ),
        _ => format!("{}\n{}", fault.mend, compare_and_resume(settings)),
    };
    Fault { mend, ..fault }.standing(from, to)
}

fn same_subject(one: &CatalogRow, other: &CatalogRow) -> bool {
    (one.kind, one.about) == (other.kind, other.about)
}

/// The publication as it was found at one moment.
#[derive(Debug)]
pub struct PublicationLook {
    pub system_id: String,
    /// End of the WAL, read not later than the publication.
    pub wal_end: Lsn,
    pub found: PublicationFingerprint,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// No earlier state of the publication was known.
    First,
    /// It has let every row through, or it is of another database system, which the session reports.
    InOrder,
    Fault(Fault),
}

/// Remembers the publication beyond the life of the process.
pub trait PublicationKeeper: std::fmt::Debug + Send + Sync {
    fn keep(&self, known: &KeptPublication);
    /// It was in order up to this end of the WAL.
    fn saw(&self, wal_end: Lsn);
}

/// The publication as it was last known to be in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPublication {
    system_id: String,
    name: String,
    #[serde(skip)]
    seen: Lsn,
    publication: PublicationFingerprint,
}

impl KeptPublication {
    pub fn of(look: &PublicationLook, settings: &SourceSettings) -> KeptPublication {
        KeptPublication {
            system_id: look.system_id.clone(),
            name: settings.publication.clone(),
            seen: look.wal_end,
            publication: look.found.to_keep(),
        }
    }
}

#[derive(Debug, Default)]
struct Known {
    kept: Option<KeptPublication>,
    /// The publication as it was found last, if it was in order then.
    in_order: Option<PublicationFingerprint>,
}

/// The publication as a relay first found it, shared by all connections.
#[derive(Debug, Default)]
pub struct KnownPublication {
    known: Mutex<Known>,
    keeper: Option<Box<dyn PublicationKeeper>>,
}

impl KnownPublication {
    /// Restores the publication as an earlier process knew it, up to the position `seen`. Another
    /// publication is not compared.
    pub fn restored(
        kept: Option<KeptPublication>,
        seen: Lsn,
        settings: &SourceSettings,
        keeper: Option<Box<dyn PublicationKeeper>>,
    ) -> KnownPublication {
        let kept = kept.filter(|kept| kept.name == settings.publication);
        let kept = kept.map(|kept| KeptPublication { seen, ..kept });
        KnownPublication { known: Mutex::new(Known { kept, in_order: None }), keeper }
    }

    /// Compares the publication with the one that is known, always with the same settings. One that
    /// is not `sound` does not become the known one.
    pub fn compare(
        &self,
        look: PublicationLook,
        settings: &SourceSettings,
        sound: bool,
    ) -> Comparison {
        let mut known = locked(&self.known);
        let keep = |kept: &KeptPublication, changed| {
            let Some(keeper) = &self.keeper else { return };
            if changed {
                keeper.keep(kept);
            }
            keeper.saw(kept.seen);
        };
        let Known { kept, in_order } = &mut *known;
        let Some(kept) = kept.as_mut() else {
            if sound {
                keep(kept.insert(KeptPublication::of(&look, settings)), true);
            }
            return Comparison::First;
        };
        let PublicationLook { system_id, wal_end, found } = look;
        if kept.system_id != system_id {
            return Comparison::InOrder;
        }
        if in_order.as_ref() == Some(&found) {
            kept.seen = wal_end;
            keep(kept, false);
            return Comparison::InOrder;
        }
        if let Some(fault) = kept.publication.change(&found, settings) {
            let doubt = Doubt { from: kept.seen, to: wal_end };
            return Comparison::Fault(gap(fault, doubt, settings));
        }
        kept.seen = wal_end;
        let added = kept.publication.add_new(found.to_keep());
        keep(kept, added);
        *in_order = Some(found);
        Comparison::InOrder
    }
}

#[cfg(test)]
#[path = "fingerprint_tests.rs"]
mod tests;
