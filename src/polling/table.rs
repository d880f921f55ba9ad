//! The polled table: is it there, has it the columns that polling needs, may we write them, and will
//! a claim find an index?

use tokio_postgres::Client;

use super::settings::{OnPublished, PollingSettings};
use crate::error::{Exit, Fault};
use crate::outbox::settings::OutboxTable;
use crate::pgoutput::relation::{Column, Relation};
use crate::source::preflight::{Finding, query_fault};
use crate::source::quote::{nearest, quote_ident, quote_literal, quote_table};
use crate::source::table::needed_columns;

const TABLE_SQL: &str = "
    SELECT c.oid, c.relkind::text, pg_is_in_recovery(), current_user::text,
           has_table_privilege(c.oid, 'SELECT'), has_table_privilege(c.oid, 'UPDATE'),
           has_table_privilege(c.oid, 'DELETE'), current_setting('server_version')
    FROM pg_class c WHERE c.oid = to_regclass($1)";
const COLUMNS_SQL: &str = "
    SELECT attname::text, atttypid, format_type(atttypid, atttypmod), attnotnull OR atthasdef,
           typcategory::text
    FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
    WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
const INDEXES_SQL: &str = "
    SELECT pg_get_expr(indpred, indrelid) FROM pg_index
    WHERE indrelid = $1 AND indisvalid AND indpred IS NOT NULL";

/// A column as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Name.
    pub name: String,
    /// Type.
    pub type_oid: u32,
    /// Type, as SQL.
    pub type_sql: String,
    /// A new row may have something there that nobody has written.
    filled: bool,
    /// What Postgres counts its type among (`pg_type.typcategory`).
    category: String,
}

/// The table as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    oid: u32,
    kind: String,
    standby: bool,
    role: String,
    may_select: bool,
    may_update: bool,
    may_delete: bool,
    version: String,
    columns: Vec<Found>,
    /// Conditions of its partial indexes.
    conditions: Vec<String>,
}

/// What was found; without a table only the fault.
#[derive(Clone, Debug)]
pub struct Report {
    /// The facts, where there is a table.
    pub facts: Option<TableFacts>,
    /// All findings.
    pub findings: Vec<Finding>,
}

/// Looks at the table; changes nothing.
pub async fn inspect(
    client: &Client,
    outbox: &OutboxTable,
    polling: &PollingSettings,
) -> Result<Report, Fault> {
    let asked = gather(client, outbox).await;
    let facts = asked.map_err(|error| query_fault(&error, "looking at the outbox table"))?;
    let findings = match &facts {
        None => vec![Finding::fail(missing(outbox))],
        Some(facts) => facts.judge(outbox, polling),
    };
    Ok(Report { facts, findings })
}

async fn gather(
    client: &Client,
    outbox: &OutboxTable,
) -> Result<Option<TableFacts>, tokio_postgres::Error> {
    let name = quote_table(&outbox.schema, &outbox.table);
    let Some(row) = client.query_opt(TABLE_SQL, &[&name]).await? else { return Ok(None) };
    let oid: u32 = row.try_get(0)?;
    let columns = client.query(COLUMNS_SQL, &[&oid]).await?;
    let indexes = client.query(INDEXES_SQL, &[&oid]).await?;
    let column = |row: &tokio_postgres::Row| {
        Ok(Found {
            name: row.try_get(0)?,
            type_oid: row.try_get(1)?,
            type_sql: row.try_get(2)?,
            filled: row.try_get(3)?,
            category: row.try_get(4)?,
        })
    };
    Ok(Some(TableFacts {
        oid,
        kind: row.try_get(1)?,
        standby: row.try_get(2)?,
        role: row.try_get(3)?,
        may_select: row.try_get(4)?,
        may_update: row.try_get(5)?,
        may_delete: row.try_get(6)?,
        version: row.try_get(7)?,
        columns: columns.iter().map(column).collect::<Result<_, tokio_postgres::Error>>()?,
        conditions: indexes
            .iter()
            .map(|row| Ok(row.try_get::<_, Option<String>>(0)?.unwrap_or_default()))
            .collect::<Result<_, tokio_postgres::Error>>()?,
    }))
}

impl TableFacts {
    /// The type of a column, as SQL.
    #[must_use]
    pub fn type_of(&self, column: &str) -> Option<&str> {
        self.columns.iter().find(|found| found.name == column).map(|found| found.type_sql.as_str())
    }

    /// The columns that an event may use and that are there, as the stream would describe them.
    #[must_use]
    pub fn relation(&self, outbox: &OutboxTable) -> Relation {
        let names = &outbox.columns;
        let mut wanted = needed_columns(outbox);
        wanted.extend([&*names.event_type, &*names.traceparent, &*names.headers]);
        let used = self.columns.iter().filter(|found| wanted.contains(&&*found.name));
        Relation {
            oid: self.oid,
            namespace: outbox.schema.clone(),
            name: outbox.table.clone(),
            columns: used
                .map(|found| Column { name: found.name.clone(), type_oid: found.type_oid })
                .collect(),
        }
    }

    fn judge(&self, outbox: &OutboxTable, polling: &PollingSettings) -> Vec<Finding> {
        let shown = format!("{}.{}", outbox.schema, outbox.table);
        let mut findings =
            vec![Finding::ok("source.version", format!("PostgreSQL {}", self.version))];
        let before = findings.len();
        if self.standby {
            findings.push(Finding::fail(Fault::new(
                Exit::Source,
                "source.standby",
                "this server is a standby: rows cannot be claimed there",
                "source.url",
                "name the primary, or several hosts and target_session_attrs=read-write",
            )));
        }
        if !matches!(self.kind.as_str(), "r" | "p") {
            findings.push(Finding::fail(Fault::new(
                Exit::Source,
                "table.kind",
                format!("{shown} is not a table"),
                "source.outbox",
                "name the table that is written to as table = \"schema.table\" in [[source.outbox]]",
            )));
        }
        findings.extend(self.rights(outbox, polling));
        findings.extend(self.absent(outbox, polling));
        findings.extend(self.marked_from_birth(outbox, polling));
        findings.extend(self.misfits(outbox, polling));
        if findings.len() == before {
            findings.push(Finding::ok("table", format!("table {shown} can be polled")));
            findings.extend(self.doubts(outbox, polling));
        }
        findings
    }

    fn rights(&self, outbox: &OutboxTable, polling: &PollingSettings) -> Option<Finding> {
        let deletes = polling.on_published == OnPublished::Delete || polling.cleanup.enabled;
        let needed =
            [("SELECT", self.may_select), ("UPDATE", self.may_update), ("DELETE", self.may_delete)];
        let lacks: Vec<&str> = needed
            .into_iter()
            .filter(|(right, has)| !has && (*right != "DELETE" || deletes))
            .map(|(right, _)| right)
            .collect();
        if lacks.is_empty() {
            return None;
        }
        let (table, rights) = (quote_table(&outbox.schema, &outbox.table), lacks.join(", "));
        Some(Finding::fail(Fault::new(
            Exit::Source,
            "table.rights",
            format!("role {} may not {rights} on {}.{}", self.role, outbox.schema, outbox.table),
            "source.outbox",
            format!("GRANT {rights} ON {table} TO {};", quote_ident(&self.role)),
        )))
    }

    /// Who has claimed a row says whether a slot carries it: a new row was claimed by nobody.
    fn marked_from_birth(
        &self,
        outbox: &OutboxTable,
        polling: &PollingSettings,
    ) -> Option<Finding> {
        let name = &polling.columns.locked_by;
        self.columns.iter().find(|found| found.name == *name && found.filled)?;
        let (table, column) = (quote_table(&outbox.schema, &outbox.table), quote_ident(name));
        Some(Finding::fail(Fault::new(
            Exit::Source,
            "table.column-default",
            format!("{name} must be NULL in a new row: nobody has claimed it"),
            "source.polling.columns",
            format!(
                "ALTER TABLE {table} ALTER COLUMN {column} DROP DEFAULT, ALTER COLUMN {column} DROP NOT NULL;"
            ),
        )))
    }

    /// Columns that are not there: an event's are to be mapped, those of polling may be added.
    fn absent(&self, outbox: &OutboxTable, polling: &PollingSettings) -> Vec<Finding> {
        let shown = format!("{}.{}", outbox.schema, outbox.table);
        let is_there = |name: &str| self.columns.iter().any(|found| found.name == name);
        let names = || self.columns.iter().map(|found| found.name.as_str());
        let mut findings = Vec::new();
        for name in needed_columns(outbox).into_iter().filter(|name| !is_there(name)) {
            let near = nearest(name, names());
            let near = near.map_or(String::new(), |near| format!("; is {near:?} meant?"));
            findings.push(Finding::fail(Fault::new(
                Exit::Source,
                "table.column-missing",
                format!("{shown} has no column {name}{near}"),
                "source.outbox",
                "map the part to a column that exists: columns = { … } or route = { … } of [[source.outbox]]",
            )));
        }
        let missing: Vec<(&str, &str)> =
            (work_columns(polling).into_iter()).filter(|(name, _)| !is_there(name)).collect();
        if !missing.is_empty() {
            let listed: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
            let adds: Vec<String> = missing
                .iter()
                .map(|(name, definition)| format!("ADD COLUMN {} {definition}", quote_ident(name)))
                .collect();
            findings.push(Finding::fail(Fault::new(
                Exit::Source,
                "table.column-missing",
                format!("{shown} lacks columns that polling writes: {}", listed.join(", ")),
                "source.polling.columns",
                format!(
                    "map them in [source.polling.columns], or: ALTER TABLE {} {};",
                    quote_table(&outbox.schema, &outbox.table),
                    adds.join(", ")
                ),
            )));
        }
        findings
    }

    /// Work columns that cannot hold what polling writes there. Which words a status takes, only
    /// the table's own CHECK or type knows.
    fn misfits(&self, outbox: &OutboxTable, polling: &PollingSettings) -> Vec<Finding> {
        let table = quote_table(&outbox.schema, &outbox.table);
        let mut findings = Vec::new();
        for (name, definition) in work_columns(polling) {
            let Some(found) = self.columns.iter().find(|found| found.name == name) else {
                continue;
            };
            let wanted = definition.split(' ').next().unwrap_or(definition);
            let fits = match wanted {
                "timestamptz" => found.category == "D" && is_a_moment(&found.type_sql),
                "integer" => found.category == "N",
                "text" if name != polling.columns.status => found.category == "S",
                _ => true,
            };
            if !fits {
                findings.push(Finding::fail(Fault::new(
                    Exit::Source,
                    "table.column-type",
                    format!(
                        "{name} is of type {}: polling writes what fits {wanted}",
                        found.type_sql
                    ),
                    "source.polling.columns",
                    format!(
                        "name another column in [source.polling.columns], or: ALTER TABLE {table} ALTER COLUMN {0} TYPE {wanted} USING {0}::{wanted};",
                        quote_ident(name),
                    ),
                )));
            }
        }
        findings
    }

    /// What works, and will be slow or out of order.
    fn doubts(&self, outbox: &OutboxTable, polling: &PollingSettings) -> Vec<Finding> {
        let mut findings = Vec::new();
        let (columns, words) = (&polling.columns, &polling.words);
        let table = quote_table(&outbox.schema, &outbox.table);
        let indexed = |word: &str| {
            let word = format!("'{word}'");
            self.conditions.iter().any(|text| {
                text.contains(&columns.status) && text.contains(&word) && !text.contains(" AND ")
            })
        };
        let status = quote_ident(&columns.status);
        for (word, by) in
            [(&words.pending, &columns.order), (&words.in_progress, &columns.locked_by)]
        {
            if !indexed(word) {
                findings.push(Finding::warn(
                    "table.index",
                    format!(
                        "no partial index for {status} = {0}: every claim reads the whole table; CREATE INDEX CONCURRENTLY ON {table} ({1}) WHERE {status} = {0};",
                        quote_literal(word),
                        quote_ident(by)
                    ),
                ));
            }
        }
        if self.type_of(&columns.order) == Some("uuid") {
            findings.push(Finding::warn(
                "table.order",
                format!(
                    "{} is a uuid: rows of a key keep their order only if it rises with time (version 7); name a column that does as source.polling.columns.order",
                    columns.order
                ),
            ));
        }
        findings
    }
}

/// Postgres counts days and times of day among the same.
fn is_a_moment(type_sql: &str) -> bool {
    type_sql != "date" && !type_sql.starts_with("time ")
}

/// Columns that polling reads and writes, and how one that is missing may be made.
fn work_columns(polling: &PollingSettings) -> Vec<(&str, &'static str)> {
    let names = &polling.columns;
    vec![
        (&names.order, "bigint GENERATED ALWAYS AS IDENTITY"),
        (&names.status, "text NOT NULL DEFAULT 'pending'"),
        (&names.retry_count, "integer NOT NULL DEFAULT 0"),
        (&names.next_retry_at, "timestamptz"),
        (&names.locked_at, "timestamptz"),
        (&names.locked_by, "text"),
        (&names.failure_reason, "text"),
        (&names.failed_at, "timestamptz"),
        (&names.created_at, "timestamptz NOT NULL DEFAULT now()"),
    ]
}

/// There is no such table.
pub(super) fn missing(outbox: &OutboxTable) -> Fault {
    Fault::new(
        Exit::Source,
        "table.missing",
        format!("outbox table {}.{} does not exist", outbox.schema, outbox.table),
        "source.outbox",
        "name the table as table = \"schema.table\" in [[source.outbox]]; sql/polling.sql makes the shipped one",
    )
}
