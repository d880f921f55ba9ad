//! What the publication lets through.
//!
//! Whatever a publication holds back is lost without a trace, because Postgres decodes it and
//! moves on. So everything that could hold back a row of an outbox is refused at the start, and
//! looked for again while streaming: a publication that was made anew in between may have left a
//! gap that nothing else shows (PostgreSQL 18 skips it with a notice only).

mod fingerprint;
pub mod gap;
pub mod probe;

pub use self::fingerprint::{KnownPublication, PublicationFingerprint};
use super::facts::{ColumnFacts, PublicationFacts, Published, PublishedTable, TableFacts};
use super::quote::{quote_ident, quote_table};
use super::settings::SourceSettings;
use super::table::{needed_columns, shown};
use crate::base::error::{Exit, Fault};
use crate::doctor::finding::Finding;

/// The server sends generated columns from this version on, when asked to.
const SENDS_GENERATED_COLUMNS: u32 = 180_000;

fn fault(code: &'static str, what: String, mend: String) -> Fault {
    Fault::new(Exit::Source, code, what, "source.publication", mend)
}

/// What the publication's content means for the outboxes.
pub(crate) fn judge(
    published: &Published,
    settings: &SourceSettings,
    server_version: u32,
    slot_exists: bool,
) -> Vec<Finding> {
    let name = &settings.publication;
    let Some(publication) = &published.publication else {
        return vec![Finding::fail(missing(settings, slot_exists))];
    };
    let mut findings = Vec::new();
    if !settings.outboxes.is_empty() {
        findings.extend(operations(publication, name));
    }
    if publication.all_tables {
        findings.push(Finding::warn(
            "publication.all-tables",
            format!(
                "publication {name} is FOR ALL TABLES: Postgres decodes and sends every table's \
                 rows; one FOR TABLE with the outbox alone is cheaper"
            ),
        ));
    }
    for (table, outbox) in published.tables.iter().zip(&settings.outboxes) {
        if table.kind.is_none() {
            continue;
        }
        let needed = needed_columns(outbox);
        let judged = Covered { name, publication, table, needed: &needed, server_version };
        findings.extend(judged.findings());
    }
    if findings.iter().all(|finding| finding.fault.is_none()) {
        let tables: Vec<String> = published.tables.iter().map(shown).collect();
        let what = if tables.is_empty() { "no table".to_owned() } else { tables.join(", ") };
        findings.insert(
            0,
            Finding::ok("publication", format!("publication {name} lets {what} through")),
        );
    }
    findings
}

/// The statement that makes the publication.
#[must_use]
pub fn create_sql(settings: &SourceSettings) -> String {
    let tables: Vec<String> =
        settings.outboxes.iter().map(|o| quote_table(&o.schema, &o.table)).collect();
    let for_tables =
        if tables.is_empty() { String::new() } else { format!(" FOR TABLE {}", tables.join(", ")) };
    format!(
        "CREATE PUBLICATION {}{for_tables} WITH (publish = 'insert', publish_via_partition_root = \
         true);",
        quote_ident(&settings.publication)
    )
}

/// The statement that adds a table to the publication.
pub(super) fn add_table_sql(publication: &str, table: &TableFacts) -> String {
    format!(
        "ALTER PUBLICATION {} ADD TABLE {};",
        quote_ident(publication),
        quote_table(&table.schema, &table.name)
    )
}

pub(super) fn missing(settings: &SourceSettings, slot_exists: bool) -> Fault {
    let create = create_sql(settings);
    let mend = if slot_exists {
        format!(
            "{create}\nthe slot is older than that publication and cannot read past it\n{}",
            gap::mend(settings)
        )
    } else {
        format!("walrelay init, or as the owner of the tables: {create}")
    };
    fault(
        "publication.missing",
        format!("publication {} does not exist", settings.publication),
        mend,
    )
}

fn operations(publication: &PublicationFacts, name: &str) -> Vec<Finding> {
    let mend = format!("ALTER PUBLICATION {} SET (publish = 'insert');", quote_ident(name));
    let mut findings = Vec::new();
    if !publication.insert {
        let what = format!("publication {name} does not publish INSERT");
        findings.push(Finding::fail(fault("publication.insert", what, mend.clone())));
    }
    let besides: Vec<&str> = [
        (publication.update, "UPDATE"),
        (publication.delete, "DELETE"),
        (publication.truncate, "TRUNCATE"),
    ]
    .into_iter()
    .filter_map(|(on, operation)| on.then_some(operation))
    .collect();
    if !besides.is_empty() {
        findings.push(Finding::warn(
            "publication.operations",
            format!(
                "publication {name} also publishes {}, which are counted and ignored; UPDATE and \
                 DELETE then fail in the application on a table without primary key: {mend}",
                besides.join(", ")
            ),
        ));
    }
    findings
}

/// One outbox table as the publication covers it.
struct Covered<'a> {
    name: &'a str,
    publication: &'a PublicationFacts,
    table: &'a TableFacts,
    needed: &'a [&'a str],
    server_version: u32,
}

impl Covered<'_> {
    fn findings(&self) -> Vec<Finding> {
        let entries = self.entries();
        let is_partitioned = self.table.kind.as_deref() == Some("p");
        let member = self.publication.all_tables || self.table.member_oid.is_some();
        if entries.is_empty() && !(is_partitioned && member) {
            return vec![Finding::fail(self.not_contained())];
        }
        let mut findings = Vec::new();
        if is_partitioned && !self.publication.via_root {
            findings.push(Finding::fail(self.not_via_root()));
        }
        if self.table.is_partition && self.publication.via_root {
            findings.push(Finding::warn(
                "publication.leaf",
                format!(
                    "{} is a partition, and with publish_via_partition_root its rows may come \
                     under the parent's name: name the parent in [[source.outbox]]",
                    shown(self.table)
                ),
            ));
        }
        if let Some(filter) = entries.iter().find_map(|entry| entry.row_filter.as_deref()) {
            findings.push(Finding::fail(self.filtered(filter)));
        }
        if let Some(absent) = self.not_sent(&entries) {
            findings.push(Finding::fail(absent));
        }
        findings
    }

    /// What the publication lists for the table: itself, or its leaves.
    fn entries(&self) -> Vec<&PublishedTable> {
        let TableFacts { schema, name, .. } = self.table;
        let same = |entry: &&PublishedTable| {
            (&entry.schema == schema && &entry.name == name)
                || (entry.root_schema.as_ref() == Some(schema)
                    && entry.root_name.as_ref() == Some(name))
        };
        self.publication.tables.iter().filter(same).collect()
    }

    fn not_contained(&self) -> Fault {
        fault(
            "publication.table-missing",
            format!("publication {} does not contain {}", self.name, shown(self.table)),
            format!(
                "{} (as owner of the publication, {}, and of the table), or walrelay init",
                add_table_sql(self.name, self.table),
                self.publication.owner
            ),
        )
    }

    fn not_via_root(&self) -> Fault {
        fault(
            "publication.via-root",
            format!(
                "{} is partitioned, and publication {} sends its rows under the partitions' names",
                shown(self.table),
                self.name
            ),
            format!(
                "ALTER PUBLICATION {} SET (publish_via_partition_root = true);",
                quote_ident(self.name)
            ),
        )
    }

    fn filtered(&self, filter: &str) -> Fault {
        fault(
            "publication.row-filter",
            format!(
                "publication {} has a row filter on {}: rows outside of {filter} are lost silently",
                self.name,
                shown(self.table)
            ),
            self.reset_sql(),
        )
    }

    /// Dropping and adding the table is the only way that leaves the publication's other tables
    /// alone; in one transaction it leaves no gap.
    fn reset_sql(&self) -> String {
        let (publication, table) =
            (quote_ident(self.name), quote_table(&self.table.schema, &self.table.name));
        format!(
            "BEGIN; ALTER PUBLICATION {publication} DROP TABLE {table}; ALTER PUBLICATION \
             {publication} ADD TABLE {table}; COMMIT;"
        )
    }

    fn not_sent(&self, entries: &[&PublishedTable]) -> Option<Fault> {
        let listed = |name: &str| {
            entries.iter().all(|entry| {
                entry.columns.as_ref().is_none_or(|columns| columns.iter().any(|c| c == name))
            })
        };
        let column = |name: &str| self.table.columns.iter().find(|column| column.name == name);
        let computed = |column: &ColumnFacts| {
            column.generated
                && (self.server_version < SENDS_GENERATED_COLUMNS || !listed(&column.name))
        };
        let present = || self.needed.iter().filter_map(|name| column(name));
        if let Some(column) = present().find(|column| computed(column)) {
            return Some(fault(
                "publication.generated-column",
                format!("{}.{} is generated and is not sent", shown(self.table), column.name),
                "map an ordinary column instead (columns or route of [[source.outbox]]), or write \
                 the value from the application"
                    .to_owned(),
            ));
        }
        let omitted: Vec<&str> =
            present().map(|column| column.name.as_str()).filter(|name| !listed(name)).collect();
        if omitted.is_empty() {
            return None;
        }
        Some(fault(
            "publication.column-list",
            format!(
                "publication {} leaves out columns of {} that are needed: {}",
                self.name,
                shown(self.table),
                omitted.join(", ")
            ),
            self.reset_sql(),
        ))
    }
}

#[cfg(test)]
mod tests;
