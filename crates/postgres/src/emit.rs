//! The function `outbox.emit`, as `init` makes it: with the shipped table, and for any other table only
//! when asked (`--emit`). The relay does not need it.

use serde::Deserialize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::faults::{message_of, query_fault};
use super::json_row::{Parameter, document};
use super::quote::{quote_ident, quote_literal, quote_table};
use super::settings::SourceSettings;
use walrelay_base::error::{Exit, Fault};
use walrelay_core::outbox::settings::OutboxTable;

/// For the shipped table; its other names are put in.
const EMIT_SQL: &str = include_str!("../../../sql/emit.sql");
const SHIPPED_TARGET: &str =
    "public.outbox (id, aggregatetype, aggregateid, type, payload, headers, traceparent)";
const SHIPPED_COMMENT: &str =
    "'Writes an event into public.outbox, in the transaction of its caller (walrelay)'";
/// The first statement; what is before it is for readers of the file.
const FIRST_STATEMENT: &str = "DO $walrelay$";
/// The values of its INSERT.
const VALUES: &str = "($1::pg_catalog.uuid, $2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text, $5::pg_catalog.jsonb, $6::pg_catalog.jsonb, $7::pg_catalog.text)";

/// The function for one table, where no function of that name exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmitFunction {
    /// `schema.table`.
    pub table: String,
    pub sql: String,
}

/// `$1` and `$2` are schema and name of the table, `$3` the columns that the function writes. `to_regclass`
/// would need the right to use the schema, which the relay's role need not have.
const FACTS_SQL: &str = "
WITH outbox AS (
  SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relname = $2)
SELECT pg_catalog.json_build_object(
  'comments', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.obj_description(f.oid, 'pg_proc')), '[]')
      FROM pg_catalog.pg_proc f WHERE f.proname = 'emit' AND f.pronamespace = pg_catalog.to_regnamespace('outbox')),
  'table_exists', EXISTS (SELECT FROM outbox),
  'required', (SELECT pg_catalog.min(a.attname::pg_catalog.text) FROM pg_catalog.pg_attribute a
      WHERE a.attrelid IN (SELECT oid FROM outbox) AND a.attnum > 0 AND NOT a.attisdropped
        AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attname::pg_catalog.text <> ALL ($3)))::pg_catalog.text";

#[derive(Deserialize)]
struct EmitFacts {
    /// The comment of each function outbox.emit: several may differ in their arguments.
    comments: Vec<Option<String>>,
    table_exists: bool,
    /// A column that every INSERT must name, and the function does not.
    required: Option<String>,
}

/// Returns the function that is to be made. Unless it was asked for, that is the one of the shipped
/// table, if that table is to be made, too.
pub async fn missing(
    client: &Client,
    settings: &SourceSettings,
    is_asked: bool,
) -> Result<Option<EmitFunction>, Fault> {
    let outbox = match settings.outboxes.as_slice() {
        [only] if is_asked => Some(only),
        several => several.iter().find(|outbox| {
            outbox.is_shipped() && (is_asked || outbox.columns == OutboxTable::default().columns)
        }),
    };
    let Some(outbox) = outbox else {
        return if is_asked { Err(no_one_table(settings)) } else { Ok(None) };
    };
    let columns = columns(outbox);
    let written = columns.as_slice();
    let parameters: [Parameter<'_>; 3] =
        [(&outbox.schema, Type::TEXT), (&outbox.table, Type::TEXT), (&written, Type::TEXT_ARRAY)];
    let facts = document(client, FACTS_SQL, &parameters).await;
    let facts: EmitFacts = facts.map_err(|error| query_fault(&error, "looking for outbox.emit"))?;
    let exists = !facts.comments.is_empty();
    if exists && is_asked && !facts.comments.contains(&Some(about(outbox))) {
        return Err(not_replaced(outbox, &facts.comments));
    }
    if exists || (facts.table_exists && !is_asked) {
        return Ok(None);
    }
    if facts.table_exists {
        let insert = format!("INSERT INTO {} VALUES {VALUES}", target(outbox));
        client.prepare(&insert).await.map_err(|error| unfit(message_of(&error)))?;
    }
    if let Some(column) = facts.required {
        return Err(unfit(format!("column {column} must not be NULL, and has no default")));
    }
    if columns.iter().enumerate().any(|(at, name)| columns[..at].contains(name)) {
        return Err(unfit("one column has two uses"));
    }
    Ok(Some(EmitFunction { table: outbox.to_string(), sql: emit_sql(outbox) }))
}

/// The fault of a table that the function cannot write to.
pub fn unfit(why: impl Into<String>) -> Fault {
    Fault::new(
        Exit::Usage,
        "init.emit-unfit",
        format!("outbox.emit cannot be made: {}", why.into()),
        "--emit",
        "leave --emit out: an INSERT does the same (docs/writing-events.md)",
    )
}

/// The fault of a configuration from which it does not follow which table the function is for.
fn no_one_table(settings: &SourceSettings) -> Fault {
    if !settings.outboxes.is_empty() {
        return unfit("there are several tables");
    }
    let mend = "leave --emit out: events are written with pg_logical_emit_message (docs/outbox.md, \"Without a table\")";
    Fault { mend: mend.to_owned(), ..unfit("there is no outbox table, only [source.messages]") }
}

/// The fault of a function that exists and is not known to write into this table.
fn not_replaced(outbox: &OutboxTable, comments: &[Option<String>]) -> Fault {
    let comment = comments.iter().flatten().next();
    let told = comment.map_or_else(
        || "it has no comment".to_owned(),
        |comment| format!("its comment is {comment:?}"),
    );
    let mut mend = "use an INSERT (docs/writing-events.md), or, if nothing calls that function: DROP FUNCTION outbox.emit; then walrelay init --emit".to_owned();
    if comments.len() > 1 {
        mend += "; there are several: name each with its arguments (psql: \\df outbox.emit)";
    } else if comment.is_none() {
        let about = quote_literal(&about(outbox));
        mend += &format!(
            "; if it writes into {outbox}: COMMENT ON FUNCTION outbox.emit IS {};",
            about.trim_start()
        );
    }
    Fault {
        mend,
        ..unfit(format!("a function of that name exists and is not that of {outbox}: {told}"))
    }
}

/// The columns of the INSERT, in the order of its values.
fn columns(outbox: &OutboxTable) -> [&str; 7] {
    let names = &outbox.columns;
    let (key, kind) = (names.key.as_str(), names.event_type.as_str());
    [&names.id, "aggregatetype", key, kind, &names.payload, &names.headers, &names.traceparent]
}

fn target(outbox: &OutboxTable) -> String {
    let table = quote_table(&outbox.schema, &outbox.table);
    format!("{table} ({})", columns(outbox).map(quote_ident).join(", "))
}

/// The comment of the function, by which it is recognised later.
fn about(outbox: &OutboxTable) -> String {
    format!("Writes an event into {outbox}, in the transaction of its caller (walrelay)")
}

fn emit_sql(outbox: &OutboxTable) -> String {
    let (_, statements) = EMIT_SQL.split_once(FIRST_STATEMENT).unwrap_or_default();
    format!("{FIRST_STATEMENT}{statements}")
        .replace(SHIPPED_TARGET, &target(outbox))
        .replace(SHIPPED_COMMENT, quote_literal(&about(outbox)).trim_start())
        .trim_end()
        .to_owned()
}

#[cfg(test)]
#[path = "emit_tests.rs"]
mod tests;
