//! The statement that creates the shipped outbox table.

use super::faults::table_problem;
use super::publication::ORDER_DEFINITION;
use super::quote::{quote_ident, quote_table};
use crate::base::error::Fault;
use crate::outbox::settings::{OutboxTable, SHIPPED_ORDER};

/// The shipped outbox table under the configured names.
pub fn table_sql(outbox: &OutboxTable) -> Result<String, Fault> {
    if let Some(library) = &outbox.library {
        let what = format!("outbox table {outbox} does not exist, and {library} makes it");
        let mend =
            format!("let {library} make its table, or name the one that it has made as table");
        return Err(table_problem("table.missing", what, mend));
    }
    let names = &outbox.columns;
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for (name, definition) in [
        (&*names.id, "uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid()"),
        ("aggregatetype", "text NOT NULL"),
        (&*names.key, "text NOT NULL"),
        (&*names.event_type, "text NOT NULL"),
        (&*names.payload, "jsonb"),
        (&*names.headers, "jsonb"),
        (&*names.traceparent, "text"),
        ("created_at", "timestamptz NOT NULL DEFAULT pg_catalog.now()"),
        (outbox.order.as_deref().unwrap_or(SHIPPED_ORDER), ORDER_DEFINITION),
    ] {
        // One column may have two uses, e.g. the id as the ordering key.
        if columns.iter().all(|(taken, _)| *taken != name) {
            let is_payload = name == names.payload && name != names.id;
            columns.push((name, if is_payload { "jsonb" } else { definition }));
        }
    }
    let unknown = outbox.needed_columns().into_iter();
    let unknown: Vec<&str> =
        unknown.filter(|name| columns.iter().all(|(known, _)| known != name)).collect();
    let table = quote_table(&outbox.schema, &outbox.table);
    if !unknown.is_empty() {
        return Err(table_problem(
            "table.missing",
            format!(
                "outbox table {outbox} does not exist, and the configuration names columns that the \
                 shipped table has not: {}",
                unknown.join(", ")
            ),
            format!(
                "make the table yourself, starting from sql/outbox.sql (CREATE TABLE {table} …), \
                 then walrelay init"
            ),
        ));
    }
    let line =
        |(name, definition): &(&str, &str)| format!("    {} {definition}", quote_ident(name));
    let lines: Vec<String> = columns.iter().map(line).collect();
    Ok(format!("CREATE TABLE IF NOT EXISTS {table} (\n{}\n);", lines.join(",\n")))
}

#[cfg(test)]
#[path = "shipped_table_tests.rs"]
mod tests;
