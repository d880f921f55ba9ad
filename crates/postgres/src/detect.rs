//! Finds the tables of a database that have the columns of a known outbox. Only the catalog is read.

use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::json_row::document;

/// A kind of table, which is recognised by its columns: it has all of these.
#[derive(Clone, Debug, Serialize)]
pub struct WantedColumns {
    /// The name of the kind, for [`FoundTable::name`].
    pub name: String,
    pub columns: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FoundTable {
    pub schema: String,
    pub table: String,
    /// The name of its kind; where it has the columns of several, of the one with most columns.
    pub name: String,
}

/// `$1` is an array of [`WantedColumns`]. Partitions belong to their table.
const SQL: &str = "
SELECT coalesce(pg_catalog.json_agg(f), '[]')::pg_catalog.text FROM (
  SELECT DISTINCT ON (n.nspname, c.relname) n.nspname AS schema, c.relname AS table, w.name
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  CROSS JOIN pg_catalog.json_to_recordset($1::pg_catalog.json)
    AS w (name pg_catalog.text, columns pg_catalog.text[])
  WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
    AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
    AND NOT EXISTS (SELECT FROM pg_catalog.unnest(w.columns) AS wanted (name)
      WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attname = wanted.name AND a.attnum > 0 AND NOT a.attisdropped))
  ORDER BY n.nspname, c.relname, pg_catalog.cardinality(w.columns) DESC, w.name) f";

pub async fn tables(client: &Client, wanted: &[WantedColumns]) -> Result<Vec<FoundTable>, Error> {
    // Strings in arrays have a JSON form without exception.
    let wanted = serde_json::to_string(wanted).unwrap_or_default();
    document(client, SQL, &[(&wanted, Type::TEXT)]).await
}
