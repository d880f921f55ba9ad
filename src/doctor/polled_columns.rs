//! Judges whether the columns that polling writes exist and can hold
//! what it writes. A value that the table refuses would be refused
//! only after the row was published, and again after each restart.

use crate::base::error::{Exit, Fault};
use crate::base::finding::Finding;
use crate::base::template::Part;
use crate::outbox::settings::OutboxTable;
use crate::polling::settings::PollingSettings;
use crate::polling::statements::TESTS_INPUT;
use crate::polling::table_facts::{PolledColumn, PolledTableFacts};
use crate::source::quote::{quote_ident, quote_literal, quote_table};

/// The table and its configuration.
pub(super) struct PolledTable<'a> {
    pub(super) facts: &'a PolledTableFacts,
    pub(super) outbox: &'a OutboxTable,
    pub(super) polling: &'a PollingSettings,
}

impl PolledTable<'_> {
    pub(super) fn quoted(&self) -> String {
        quote_table(&self.outbox.schema, &self.outbox.table)
    }
}

/// A column that polling reads and writes.
struct WorkColumn<'a> {
    name: &'a str,
    /// Its SQL type in `sql/polling.sql`.
    wanted: &'static str,
    /// The part of the definition that follows the type.
    rest: &'static str,
    use_: ColumnUse,
}

#[derive(PartialEq, Eq)]
enum ColumnUse {
    Written,
    /// Set to NULL when a row is settled.
    Emptied,
    /// Who has claimed the row; NULL until then, on which the handover to a slot relies.
    Claim,
    /// Its values are checked in `status_values`.
    Status,
}

fn work_columns(polling: &PollingSettings) -> [WorkColumn<'_>; 9] {
    let names = &polling.columns;
    [
        (&names.order, "bigint", " GENERATED ALWAYS AS IDENTITY", ColumnUse::Written),
        (&names.status, "text", " NOT NULL", ColumnUse::Status),
        (&names.retry_count, "integer", " NOT NULL DEFAULT 0", ColumnUse::Written),
        (&names.next_retry_at, "timestamptz", "", ColumnUse::Emptied),
        (&names.locked_at, "timestamptz", "", ColumnUse::Emptied),
        (&names.locked_by, "text", "", ColumnUse::Claim),
        (&names.failure_reason, "text", "", ColumnUse::Written),
        (&names.failed_at, "timestamptz", "", ColumnUse::Written),
        (
            &names.created_at,
            "timestamptz",
            " NOT NULL DEFAULT pg_catalog.now()",
            ColumnUse::Written,
        ),
    ]
    .map(|(name, wanted, rest, use_)| WorkColumn { name, wanted, rest, use_ })
}

fn column_problem(code: &'static str, what: String, mend: String) -> Finding {
    Finding::fail(Fault::new(Exit::Source, code, what, "source.polling.columns", mend))
}

/// The SQL of the fault adds the columns, with existing rows as published.
pub(super) fn absent_columns(table: &PolledTable<'_>) -> Option<Finding> {
    let PolledTable { facts, outbox, polling } = table;
    let work = work_columns(polling);
    let missing: Vec<_> = work.iter().filter(|it| facts.column(it.name).is_none()).collect();
    if missing.is_empty() {
        return None;
    }
    let listed: Vec<&str> = missing.iter().map(|it| it.name).collect();
    let quoted = table.quoted();
    let (mut adds, mut begin, mut then) = (Vec::new(), "", String::new());
    for WorkColumn { name, wanted, rest, use_ } in missing {
        let column = quote_ident(name);
        let mut add = format!("ADD COLUMN {column} {wanted}{rest}");
        if *use_ == ColumnUse::Status {
            let values = &polling.status_values;
            add.push_str(&format!(" DEFAULT {}", quote_literal(&values.published)));
            // In one transaction: a row written between the two would count as published.
            begin = "BEGIN; ";
            then = format!(
                " ALTER TABLE {quoted} ALTER COLUMN {column} SET DEFAULT {}; COMMIT; (rows that are there count as published)",
                quote_literal(&values.pending)
            );
        }
        adds.push(add);
    }
    Some(column_problem(
        "table.column-missing",
        format!(
            "{}.{} lacks columns that polling writes: {}",
            outbox.schema,
            outbox.table,
            listed.join(", ")
        ),
        format!(
            "map them in [source.polling.columns], or: {begin}ALTER TABLE {quoted} {};{then}",
            adds.join(", ")
        ),
    ))
}

pub(super) fn unfit_columns(table: &PolledTable<'_>) -> Vec<Finding> {
    let work = work_columns(table.polling);
    let there = work.iter().filter_map(|it| Some((it, table.facts.column(it.name)?)));
    there.filter_map(|(work, column)| unfit_column(table, work, column)).collect()
}

fn unfit_column(
    table: &PolledTable<'_>,
    work: &WorkColumn<'_>,
    found: &PolledColumn,
) -> Option<Finding> {
    let WorkColumn { name, wanted, use_, .. } = work;
    let fits = match *wanted {
        // Postgres puts date and time into the same category.
        "timestamptz" => {
            found.category == "D"
                && found.type_sql != "date"
                && !found.type_sql.starts_with("time ")
        }
        "integer" => found.category == "N",
        "text" if *use_ != ColumnUse::Status => found.category == "S",
        _ => true,
    };
    let has_default = found.default.as_ref().is_some_and(|default| !default.starts_with("NULL::"));
    let column = quote_ident(name);
    let (code, what, change) = if !fits {
        let what =
            format!("{name} is of type {}: polling writes what fits {wanted}", found.type_sql);
        ("table.column-type", what, format!("TYPE {wanted} USING {column}::{wanted}"))
    } else if *use_ == ColumnUse::Claim && (found.not_null || has_default) {
        let what = format!("{name} must be NULL in a new row: nobody has claimed it");
        ("table.column-default", what, format!("DROP DEFAULT, ALTER COLUMN {column} DROP NOT NULL"))
    } else if *use_ == ColumnUse::Emptied && found.not_null {
        let what = format!("{name} takes no NULL: polling empties it when a row is settled");
        ("table.column-null", what, "DROP NOT NULL".to_owned())
    } else {
        return None;
    };
    let mend = format!(
        "name another column in [source.polling.columns], or: ALTER TABLE {} ALTER COLUMN {column} {change};",
        table.quoted()
    );
    Some(column_problem(code, what, mend))
}

/// A key that claims cannot compute: they read a member of JSON with SQL, and one row whose JSON is unreadable must
/// not stop them.
pub(super) fn unreadable_key(table: &PolledTable<'_>) -> Option<Finding> {
    let PolledTable { facts, outbox, .. } = table;
    let is_unreadable = |column: &PolledColumn| match column.type_sql.as_str() {
        "json" | "jsonb" => false,
        _ => column.category != "S" || facts.major_version() < TESTS_INPUT,
    };
    let key = outbox.route.key(&outbox.columns);
    key.parts().iter().find_map(|part| {
        let Part::Member { column: name, .. } = part else { return None };
        let column = facts.column(name).filter(|column| is_unreadable(column))?;
        let quoted = quote_ident(name);
        Some(Finding::fail(Fault::new(
            Exit::Source,
            "table.column-type",
            format!(
                "the ordering key has {part}, and {name} is of type {}: claims read it with SQL, which needs json or \
                 jsonb, or text on PostgreSQL {TESTS_INPUT} and later",
                column.type_sql
            ),
            "route.key",
            format!(
                "ALTER TABLE {} ALTER COLUMN {quoted} TYPE jsonb USING {quoted}::pg_catalog.jsonb;, or write the key into a \
                 column of its own",
                table.quoted()
            ),
        )))
    })
}
