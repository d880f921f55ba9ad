//! Judges whether the publication publishes every row of the outbox tables.
//!
//! Rows that a publication omits are lost silently, because Postgres decodes
//! them and moves on. So everything that could omit a row is refused at the
//! start and checked again while streaming: a publication that was recreated
//! in between may have left a gap (PostgreSQL 18 skips it with a notice).

use crate::base::error::{Exit, Fault};
use crate::base::finding::{Finding, is_sound};
use crate::outbox::settings::{OutboxTable, Preset};
use crate::source::faults::{
    publication_missing, publication_problem, table_problem, without_filters,
};
use crate::source::publication::{
    ColumnFacts, PublicationFacts, PublishedFacts, PublishedTable, TableFacts, add_table_sql,
};
use crate::source::quote::{quote_ident, quote_table};
use crate::source::settings::SourceSettings;

/// The first version in which a publication of all tables can leave some out.
const KNOWS_EXCEPT: u32 = 190_000;
/// The first version that can publish generated columns.
const SENDS_GENERATED_COLUMNS: u32 = 180_000;
/// The help where the statement would have a row filter that Postgres refuses.
const FILTER_FIRST: &str = "write a row filter that Postgres allows, then: walrelay check";

/// `has_slot` says whether there is a slot of this database that a relay could read on from.
pub fn judge(
    published: &PublishedFacts,
    settings: &SourceSettings,
    server_version: u32,
    has_slot: bool,
) -> Vec<Finding> {
    let name = &settings.publication;
    // A statement that adds the table with such a filter would fail.
    let refused: Vec<Finding> =
        published.tables.iter().filter_map(refused_filter).map(Finding::fail).collect();
    let Some(publication) = &published.publication else {
        let mut missing = publication_missing(settings, has_slot);
        if !refused.is_empty() {
            missing.mend = FILTER_FIRST.to_owned();
        }
        return refused.into_iter().chain([Finding::fail(missing)]).collect();
    };
    let without_filters = without_filters(&settings.outboxes, server_version).map(Finding::fail);
    let mut findings: Vec<Finding> = without_filters.into_iter().chain(refused).collect();
    if !settings.outboxes.is_empty() {
        findings.extend(operations(publication, name));
    }
    if publication.all_tables {
        findings.push(all_tables(name, server_version));
    }
    if !publication.others.is_empty() {
        findings.push(other_tables(publication, name));
    }
    for (table, outbox) in published.tables.iter().zip(&settings.outboxes) {
        if table.kind.is_some() {
            let covered = CoveredTable { name, publication, table, outbox };
            findings.extend(covered.findings(server_version));
        }
    }
    if let (true, Some(what)) = (is_sound(&findings), let_through(published, &settings.outboxes)) {
        let text = format!("publication {name} lets {what} through");
        findings.insert(0, Finding::ok("publication", text));
    }
    findings
}

/// The tables whose rows a publication without faults publishes; `None` if none of the configured tables
/// exists.
fn let_through(published: &PublishedFacts, outboxes: &[OutboxTable]) -> Option<String> {
    let shown = |(table, outbox): (&TableFacts, &OutboxTable)| match &outbox.filter {
        Some(filter) => format!("{} where {filter}", table.shown()),
        None => table.shown(),
    };
    let tables = published.tables.iter().zip(outboxes);
    let there: Vec<String> = tables.filter(|(table, _)| table.kind.is_some()).map(shown).collect();
    match (there.as_slice(), outboxes) {
        ([], []) => Some("no table".to_owned()),
        ([], _) => None,
        (there, _) => Some(there.join(", ")),
    }
}

/// The row filter that `where` declares, if Postgres cannot plan it.
pub fn refused_filter(table: &TableFacts) -> Option<Fault> {
    let why = table.filter_refused.as_ref()?;
    Some(Fault::new(
        Exit::Source,
        "publication.row-filter",
        format!("Postgres refuses the row filter that where declares for {}: {why}", table.shown()),
        "source.outbox",
        "write a condition over the columns of the table that have built-in types, as in where = \"kind = 'event'\" \
         (docs/outbox.md, \"Rows that are no events\")",
    ))
}

fn operations(publication: &PublicationFacts, name: &str) -> Vec<Finding> {
    let mend = format!("ALTER PUBLICATION {} SET (publish = 'insert');", quote_ident(name));
    let mut findings = Vec::new();
    if !publication.insert {
        let what = format!("publication {name} does not publish INSERT");
        let fault = publication_problem("publication.insert", what, mend.clone());
        findings.push(Finding::fail(fault));
    }
    let others = [
        (publication.update, "UPDATE"),
        (publication.delete, "DELETE"),
        (publication.truncate, "TRUNCATE"),
    ];
    let others: Vec<&str> =
        others.into_iter().filter_map(|(on, operation)| on.then_some(operation)).collect();
    if !others.is_empty() {
        findings.push(Finding::warn(
            "publication.operations",
            format!(
                "publication {name} also publishes {}, which are counted and ignored; UPDATE and \
                 DELETE then fail in the application on a table without primary key, and with a row filter an UPDATE \
                 that makes a row match is published like an INSERT: {mend} (this stops a running relay once: walrelay resume)",
                others.join(", ")
            ),
        ));
    }
    findings
}

/// The first section of a configuration takes the place of the default table, which stays in the publication.
fn other_tables(publication: &PublicationFacts, name: &str) -> Finding {
    let text = format!(
        "publication {name} also has {}, for which there is no [[source.outbox]]: the slot passes the rows, and they are not published; write a section \
         for each table of these that is an outbox (public.outbox needs none only while there is no [[source.outbox]] and no \
         [source.messages]), or take the table out of the publication",
        publication.others.join(", ")
    );
    Finding::warn("publication.other-tables", text)
}

/// Taking an exception back rewrites no row of the catalog that stays.
fn all_tables(name: &str, server_version: u32) -> Finding {
    let unseen = match server_version >= KNOWS_EXCEPT {
        true => {
            "; and nobody can see later that ALTER PUBLICATION … SET ALL TABLES EXCEPT has left the \
             outbox out for a while: the rows of that time would be missing"
        }
        false => "",
    };
    Finding::warn(
        "publication.all-tables",
        format!(
            "publication {name} is FOR ALL TABLES: Postgres decodes and sends every table's \
             rows; one FOR TABLE with the outbox alone is cheaper{unseen}"
        ),
    )
}

/// An outbox table and the publication.
struct CoveredTable<'a> {
    name: &'a str,
    publication: &'a PublicationFacts,
    table: &'a TableFacts,
    outbox: &'a OutboxTable,
}

impl CoveredTable<'_> {
    fn findings(&self, server_version: u32) -> Vec<Finding> {
        let CoveredTable { name, publication, table, outbox } = self;
        if let Some(other) = publication.other_name(table) {
            return vec![Finding::fail(self.sent_as(other))];
        }
        let entries = publication.entries(table);
        if !publication.covers(table) {
            return vec![Finding::fail(self.not_contained(entries.is_empty()))];
        }
        let mut findings = Vec::new();
        if table.is_partitioned() && !publication.via_root {
            findings.push(Finding::fail(publication_problem(
                "publication.via-root",
                format!(
                    "{} is partitioned, and publication {name} sends its rows under the partitions' \
                     names",
                    table.shown()
                ),
                format!(
                    "ALTER PUBLICATION {} SET (publish_via_partition_root = true);",
                    quote_ident(name)
                ),
            )));
        }
        let filtered = entries.iter().find_map(|entry| self.wrong_filter(entry));
        findings.extend(filtered.map(Finding::fail));
        let needed = outbox.needed_columns();
        findings.extend(self.not_sent(&entries, &needed, server_version).map(Finding::fail));
        findings.extend(self.not_sent_optional(&entries, &needed, server_version));
        findings
    }

    /// A row filter that is not the declared one, or a declared one that is not there.
    fn wrong_filter(&self, entry: &PublishedTable) -> Option<Fault> {
        let CoveredTable { name, table, outbox, .. } = self;
        let shown = table.shown();
        match (outbox.filter.as_deref(), entry.row_filter.as_deref()) {
            (None, None) => None,
            _ if table.filter_refused.is_some() => None,
            (Some(_), Some(_)) if entry.has_declared_filter => None,
            (None, Some(filter)) => {
                let what = format!(
                    "publication {name} has a row filter on {shown}: rows outside of {filter} are \
                     lost silently"
                );
                let mend = format!(
                    "{}\nor, if those rows are no events, declare it in [[source.outbox]]: \
                     where = {filter:?}",
                    self.reset_sql()
                );
                Some(publication_problem("publication.row-filter", what, mend))
            }
            (Some(declared), Some(filter)) => {
                let what = format!(
                    "publication {name} has the row filter {filter} on {shown}, and where declares \
                     {declared}: rows outside of the former are lost silently"
                );
                let mend = format!(
                    "{}\nor, if the filter of the publication is the right one, write it as it stands \
                     there: where = {filter:?}",
                    self.reset_sql()
                );
                Some(publication_problem("publication.row-filter", what, mend))
            }
            (Some(declared), None) => Some(self.unfiltered(declared)),
        }
    }

    /// More rows than the declared ones would be events. No row is missing.
    fn unfiltered(&self, declared: &str) -> Fault {
        let (name, shown) = (self.name, self.table.shown());
        let what = format!(
            "publication {name} has no row filter on {shown}: rows outside of {declared} would be \
             published, too"
        );
        let mend = match self.publication.all_tables || self.table.member_oid.is_none() {
            true => format!(
                "{shown} is published with all tables, or with all of its schema, which have no row \
                 filter: name a publication of this table alone as source.publication, and run \
                 walrelay init; or remove where"
            ),
            false => self.reset_sql(),
        };
        publication_problem("table.unfiltered", what, mend)
    }

    /// Adding the partition to the publication would change nothing.
    fn sent_as(&self, other: &str) -> Fault {
        let (name, shown) = (self.name, self.table.shown());
        table_problem(
            "publication.leaf",
            format!(
                "{shown} is a partition, and publication {name} sends its rows under the name of {other} \
                 (publish_via_partition_root)"
            ),
            format!(
                "name that table in [[source.outbox]], with which the rows of all its partitions are events: \
                 table = {other:?}"
            ),
        )
    }

    fn not_contained(&self, sends_nothing: bool) -> Fault {
        let (name, table, owner) = (self.name, self.table.shown(), &self.publication.owner);
        let what = match sends_nothing {
            true => format!("publication {name} does not contain {table}"),
            false => format!(
                "publication {name} contains partitions of {table}, and not the table: rows of its other partitions, also of those that are made later, are not sent"
            ),
        };
        let (what, mend) = if self.publication.all_tables {
            (
                format!("{what}: it is FOR ALL TABLES EXCEPT, and Postgres sends none of its rows"),
                format!(
                    "as owner of the publication, {owner}: {}",
                    self.publication.except_sql(name)
                ),
            )
        } else if self.table.filter_refused.is_some() {
            (what, FILTER_FIRST.to_owned())
        } else {
            let add = add_table_sql(name, self.outbox);
            let who = format!("(as owner of the publication, {owner}, and of the table)");
            (what, format!("BEGIN; {add} COMMIT; {who}, or walrelay init"))
        };
        publication_problem("publication.table-missing", what, mend)
    }

    /// Dropping and adding the table changes no other table of the publication, and in one
    /// transaction it leaves no gap.
    fn reset_sql(&self) -> String {
        let (publication, table) =
            (quote_ident(self.name), quote_table(&self.table.schema, &self.table.name));
        let add = add_table_sql(self.name, self.outbox);
        format!("BEGIN; ALTER PUBLICATION {publication} DROP TABLE {table}; {add} COMMIT;")
    }

    fn is_sent(
        &self,
        entries: &[&PublishedTable],
        column: &ColumnFacts,
        server_version: u32,
    ) -> bool {
        let lists = |columns: &Vec<String>| columns.contains(&column.name);
        let is_listed = entries.iter().all(|entry| entry.columns.as_ref().is_none_or(lists));
        is_listed && (!column.generated || server_version >= SENDS_GENERATED_COLUMNS)
    }

    /// Warns of columns that an event can do without, if the table has them and they are not sent.
    fn not_sent_optional(
        &self,
        entries: &[&PublishedTable],
        needed: &[&str],
        server_version: u32,
    ) -> Option<Finding> {
        let CoveredTable { name, table, outbox, .. } = self;
        let columns =
            [&outbox.columns.event_type, &outbox.columns.headers, &outbox.columns.traceparent];
        let is_used = outbox.route.preset == Preset::Walrelay;
        let optional =
            columns.into_iter().filter(|name| is_used && !needed.contains(&name.as_str()));
        let present = optional.filter_map(|name| table.column(name));
        let omitted = present.filter(|column| !self.is_sent(entries, column, server_version));
        let omitted: Vec<&str> = omitted.map(|column| column.name.as_str()).collect();
        (!omitted.is_empty()).then(|| {
            let text = format!(
                "publication {name} does not send {} of {}: events are published without them",
                omitted.join(", "),
                table.shown()
            );
            Finding::warn("publication.columns", text)
        })
    }

    fn not_sent(
        &self,
        entries: &[&PublishedTable],
        needed: &[&str],
        server_version: u32,
    ) -> Option<Fault> {
        let is_omitted = |column: &&ColumnFacts| !self.is_sent(entries, column, server_version);
        let present = || needed.iter().filter_map(|name| self.table.column(name));
        if let Some(column) = present().find(|column| column.generated && is_omitted(column)) {
            return Some(publication_problem(
                "publication.generated-column",
                format!("{}.{} is generated and is not sent", self.table.shown(), column.name),
                "map an ordinary column instead (columns or route of [[source.outbox]]), or write \
                 the value from the application"
                    .to_owned(),
            ));
        }
        let omitted = present().filter(is_omitted);
        let omitted: Vec<&str> = omitted.map(|column| column.name.as_str()).collect();
        if omitted.is_empty() {
            return None;
        }
        Some(publication_problem(
            "publication.column-list",
            format!(
                "publication {} leaves out columns of {} that are needed: {}",
                self.name,
                self.table.shown(),
                omitted.join(", ")
            ),
            match self.table.filter_refused {
                Some(_) => FILTER_FIRST.to_owned(),
                None => self.reset_sql(),
            },
        ))
    }
}
