//! The columns that polling writes: are they there, and can they hold it?
//!
//! What a table refuses when a row is settled is refused after the row was published, and again after
//! each restart: it has to be known before.

use crate::base::error::{Exit, Fault};
use crate::doctor::finding::Finding;
use crate::outbox::settings::OutboxTable;
use crate::polling::settings::PollingSettings;
use crate::source::quote::{quote_ident, quote_literal, quote_table};

/// The longest name of a claim: host (64), process, start and number.
const CLAIM_CHARS: i32 = 110;

/// A column as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Name.
    pub name: String,
    /// Type.
    pub type_oid: u32,
    /// Type, as SQL.
    pub type_sql: String,
    /// What Postgres counts its type among (`pg_type.typcategory`).
    pub category: String,
    /// It takes no NULL.
    pub not_null: bool,
    /// What a new row has there that nobody has written, as SQL.
    pub default: Option<String>,
    /// The operator that compares its values, as SQL, where it is none of Postgres' own.
    pub own_equality: Option<String>,
    /// Most characters.
    pub length_max: Option<i32>,
}

impl Found {
    fn has_default(&self) -> bool {
        self.default.as_ref().is_some_and(|default| !default.starts_with("NULL::"))
    }
}

/// A column that polling reads and writes.
struct Work<'a> {
    name: &'a str,
    /// The type in the shipped table, as SQL.
    wanted: &'static str,
    /// And what follows it there.
    rest: &'static str,
    /// NULL is written there when a row is settled.
    is_emptied: bool,
}

fn work_columns(polling: &PollingSettings) -> [Work<'_>; 9] {
    let names = &polling.columns;
    let work = |name, wanted, rest| Work { name, wanted, rest, is_emptied: false };
    let emptied = |name, wanted| Work { name, wanted, rest: "", is_emptied: true };
    [
        work(&names.order, "bigint", " GENERATED ALWAYS AS IDENTITY"),
        work(&names.status, "text", " NOT NULL"),
        work(&names.retry_count, "integer", " NOT NULL DEFAULT 0"),
        emptied(&names.next_retry_at, "timestamptz"),
        emptied(&names.locked_at, "timestamptz"),
        work(&names.locked_by, "text", ""),
        work(&names.failure_reason, "text", ""),
        work(&names.failed_at, "timestamptz", ""),
        work(&names.created_at, "timestamptz", " NOT NULL DEFAULT pg_catalog.now()"),
    ]
}

pub(crate) fn find<'a>(columns: &'a [Found], name: &str) -> Option<&'a Found> {
    columns.iter().find(|found| found.name == name)
}

fn table(outbox: &OutboxTable) -> String {
    quote_table(&outbox.schema, &outbox.table)
}

/// Those that are not there, with the SQL that adds them. Rows from before count as published.
pub(crate) fn absent(
    columns: &[Found],
    outbox: &OutboxTable,
    polling: &PollingSettings,
) -> Option<Finding> {
    let work = work_columns(polling);
    let missing: Vec<&Work<'_>> =
        work.iter().filter(|it| find(columns, it.name).is_none()).collect();
    if missing.is_empty() {
        return None;
    }
    let listed: Vec<&str> = missing.iter().map(|it| it.name).collect();
    let (table, status) = (table(outbox), &polling.columns.status);
    let (mut adds, mut begin, mut then) = (Vec::new(), "", String::new());
    for Work { name, wanted, rest, .. } in missing {
        let mut add = format!("ADD COLUMN {} {wanted}{rest}", quote_ident(name));
        if name == status {
            let words = &polling.words;
            add.push_str(&format!(" DEFAULT {}", quote_literal(&words.published)));
            // In one transaction: a row that is written between the two would never be polled.
            begin = "BEGIN; ";
            then = format!(
                " ALTER TABLE {table} ALTER COLUMN {} SET DEFAULT {}; COMMIT; (rows that are there count as published)",
                quote_ident(name),
                quote_literal(&words.pending)
            );
        }
        adds.push(add);
    }
    let mend = format!(
        "map them in [source.polling.columns], or: {begin}ALTER TABLE {table} {};{then}",
        adds.join(", ")
    );
    Some(Finding::fail(Fault::new(
        Exit::Source,
        "table.column-missing",
        format!(
            "{}.{} lacks columns that polling writes: {}",
            outbox.schema,
            outbox.table,
            listed.join(", ")
        ),
        "source.polling.columns",
        mend,
    )))
}

/// Those that cannot hold what is written there. Which words a status takes is another question.
pub(crate) fn misfits(
    columns: &[Found],
    outbox: &OutboxTable,
    polling: &PollingSettings,
) -> Vec<Finding> {
    let work = work_columns(polling);
    let there = work.iter().filter_map(|it| Some((it, find(columns, it.name)?)));
    there.filter_map(|(work, found)| misfit(work, found, outbox, polling)).collect()
}

fn misfit(
    work: &Work<'_>,
    found: &Found,
    outbox: &OutboxTable,
    polling: &PollingSettings,
) -> Option<Finding> {
    let Work { name, wanted, is_emptied, .. } = *work;
    let is = |part: &str| name == part;
    let fits = match wanted {
        "timestamptz" => found.category == "D" && is_a_moment(&found.type_sql),
        "integer" => found.category == "N",
        "text" if !is(&polling.columns.status) => found.category == "S",
        _ => true,
    };
    let marks = is(&polling.columns.locked_by);
    let (table, column) = (table(outbox), quote_ident(name));
    let (code, what, change) = if !fits {
        let what =
            format!("{name} is of type {}: polling writes what fits {wanted}", found.type_sql);
        ("table.column-type", what, format!("TYPE {wanted} USING {column}::{wanted}"))
    } else if marks && (found.not_null || found.has_default()) {
        // Who has claimed a row says whether a slot carries it.
        let what = format!("{name} must be NULL in a new row: nobody has claimed it");
        ("table.column-default", what, format!("DROP DEFAULT, ALTER COLUMN {column} DROP NOT NULL"))
    } else if is_emptied && found.not_null {
        let what = format!("{name} takes no NULL: polling empties it when a row is settled");
        ("table.column-null", what, "DROP NOT NULL".to_owned())
    } else {
        return None;
    };
    let mend = format!(
        "name another column in [source.polling.columns], or: ALTER TABLE {table} ALTER COLUMN {column} {change};"
    );
    Some(Finding::fail(Fault::new(Exit::Source, code, what, "source.polling.columns", mend)))
}

/// Postgres counts days and times of day among the same.
fn is_a_moment(type_sql: &str) -> bool {
    type_sql != "date" && !type_sql.starts_with("time ")
}

/// The name of a claim may not fit: it ends the relay before a row moves, perhaps after days.
pub(crate) fn short(
    columns: &[Found],
    outbox: &OutboxTable,
    polling: &PollingSettings,
) -> Option<Finding> {
    let name = &polling.columns.locked_by;
    let length = find(columns, name)?.length_max.filter(|length| *length < CLAIM_CHARS)?;
    Some(Finding::warn(
        "table.column-type",
        format!(
            "{name} takes {length} characters: the name of a claim (host, process, number) may have {CLAIM_CHARS}; ALTER TABLE {} ALTER COLUMN {} TYPE text;",
            table(outbox),
            quote_ident(name)
        ),
    ))
}

/// New rows that nobody polls: their status is another word, unless who writes them says it.
pub(crate) fn unborn(
    columns: &[Found],
    outbox: &OutboxTable,
    polling: &PollingSettings,
) -> Option<Finding> {
    let (name, pending) = (&polling.columns.status, &polling.words.pending);
    let default = find(columns, name)?.default.as_deref();
    let word = quote_literal(pending);
    if default.is_some_and(|default| default == pending || default.starts_with(&word)) {
        return None;
    }
    let is = default.map_or("no default".to_owned(), |default| format!("the default {default}"));
    Some(Finding::warn(
        "table.status-default",
        format!(
            "{name} has {is}: a row is published only if who writes it says {word}; ALTER TABLE {} ALTER COLUMN {} SET DEFAULT {word};",
            table(outbox),
            quote_ident(name)
        ),
    ))
}
