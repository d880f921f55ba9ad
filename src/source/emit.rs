//! The function `outbox.emit`: for which outbox it is made, and its text for that table.
//!
//! The relay does not need it, so nothing is refused for want of it: it is made where its INSERT is known to
//! fit, and where no function of that name exists.

use serde::Deserialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::json_row::document;
use super::quote::{quote_ident, quote_literal, quote_table};
use super::settings::SourceSettings;
use crate::outbox::settings::OutboxTable;

/// For the shipped table; its other names are put in.
const EMIT_SQL: &str = include_str!("../../sql/emit.sql");
const SHIPPED_TARGET: &str =
    "public.outbox (id, aggregatetype, aggregateid, type, payload, headers, traceparent)";
const SHIPPED_COMMENT: &str =
    "'Writes an event into public.outbox, in the transaction of its caller (walrelay)'";
/// What follows is for readers of the file.
const FIRST_STATEMENT: &str = "DO $walrelay$";

/// The function is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingEmit {
    pub(crate) table: String,
    pub(crate) sql: String,
    /// The role of the connection may make it.
    pub(crate) may_make: bool,
}

#[derive(Debug, Deserialize)]
struct EmitFacts {
    exists: bool,
    may_make: bool,
    table_exists: bool,
    /// Columns of types that the INSERT fits.
    fitting: Vec<String>,
    /// Columns that every INSERT must name.
    required: Vec<String>,
}

/// `$1` schema and `$2` name of the table, `$3` its columns in the order of [`columns`].
const FACTS_SQL: &str = "
WITH a AS (
  SELECT a.*, pg_catalog.array_position($3, a.attname::pg_catalog.text) AS position
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped
)
SELECT pg_catalog.json_build_object(
  'exists', EXISTS (SELECT FROM pg_catalog.pg_proc f JOIN pg_catalog.pg_namespace n ON n.oid = f.pronamespace
      WHERE n.nspname = 'outbox' AND f.proname = 'emit'),
  'may_make', coalesce(
      (SELECT pg_catalog.has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace WHERE nspname = 'outbox'),
      pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')),
  'table_exists', EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND c.relname = $2),
  'fitting', (SELECT coalesce(pg_catalog.json_agg(a.attname), '[]') FROM a
      WHERE a.attgenerated = '' AND a.attidentity <> 'a' AND a.atttypid = ANY (CASE a.position
          WHEN 1 THEN ARRAY[2950] WHEN 5 THEN ARRAY[114, 3802] WHEN 6 THEN ARRAY[114, 3802] ELSE ARRAY[25, 1043] END::pg_catalog.oid[])),
  'required', (SELECT coalesce(pg_catalog.json_agg(a.attname), '[]') FROM a
      WHERE a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''))::pg_catalog.text";

/// The columns of the INSERT, in the order of its values.
fn columns(outbox: &OutboxTable) -> [&str; 7] {
    let names = &outbox.columns;
    let (key, kind) = (names.key.as_str(), names.event_type.as_str());
    [&names.id, "aggregatetype", key, kind, &names.payload, &names.headers, &names.traceparent]
}

/// The only outbox, or the shipped one of several. One whose columns have two uses each is none:
/// an argument of the function would have no place.
fn target(settings: &SourceSettings) -> Option<&OutboxTable> {
    let outbox = match settings.outboxes.as_slice() {
        [only] => only,
        several => several.iter().find(|outbox| outbox.is_shipped())?,
    };
    let names = columns(outbox);
    let distinct = names.iter().enumerate().all(|(at, name)| !names[..at].contains(name));
    distinct.then_some(outbox)
}

/// The function, when it is missing and there is an outbox that it fits, or that is missing too.
pub(crate) async fn missing(
    client: &Client,
    settings: &SourceSettings,
) -> Result<Option<MissingEmit>, Error> {
    let Some(outbox) = target(settings) else { return Ok(None) };
    let names = columns(outbox);
    let facts: EmitFacts = document(
        client,
        FACTS_SQL,
        &[
            (&outbox.schema.as_str(), Type::TEXT),
            (&outbox.table.as_str(), Type::TEXT),
            (&names.as_slice(), Type::TEXT_ARRAY),
        ],
    )
    .await?;
    let fits = names.iter().all(|name| facts.fitting.iter().any(|fitting| fitting == name))
        && facts.required.iter().all(|name| names.contains(&name.as_str()));
    let made = !facts.exists && (fits || !facts.table_exists);
    Ok(made.then(|| MissingEmit {
        table: format!("{}.{}", outbox.schema, outbox.table),
        sql: emit_sql(outbox),
        // A table that is made now is made by a role with such rights.
        may_make: facts.may_make || !facts.table_exists,
    }))
}

fn emit_sql(outbox: &OutboxTable) -> String {
    let table = quote_table(&outbox.schema, &outbox.table);
    let names = columns(outbox).map(quote_ident).join(", ");
    let about = format!(
        "Writes an event into {}.{}, in the transaction of its caller (walrelay)",
        outbox.schema, outbox.table
    );
    let (_, statements) = EMIT_SQL.split_once(FIRST_STATEMENT).unwrap_or_default();
    format!("{FIRST_STATEMENT}{statements}")
        .replace(SHIPPED_TARGET, &format!("{table} ({names})"))
        .replace(SHIPPED_COMMENT, quote_literal(&about).trim_start())
        .trim_end()
        .to_owned()
}

#[cfg(test)]
#[path = "emit_tests.rs"]
mod tests;
