//! Reads which tables of the stream are outboxes.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

pub use walrelay_core::source::catalog::Catalog;

use super::json_row::document;
use super::settings::SourceSettings;

/// `$1` schemas and `$2` names of the outboxes. All is read with one snapshot, whose `xmin` says which
/// transactions it includes. Object ids below 16384 are those of the system's own tables. `pg_partition_tree`
/// would wait for the lock of each partition.
const SQL: &str = "
WITH RECURSIVE root AS (
  SELECT c.oid, w.place - 1 AS place, c.relkind = 'p' AS partitioned
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]))
    WITH ORDINALITY AS w (schema, name, place)
  JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
), outbox AS (
  SELECT oid, place FROM root UNION
  SELECT c.oid, o.place FROM outbox o JOIN pg_catalog.pg_inherits i ON i.inhparent = o.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
  WHERE (pg_catalog.to_jsonb(i) ->> 'inhdetachpending')::pg_catalog.bool IS NOT TRUE
)
SELECT pg_catalog.json_build_object(
  'outboxes', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(
        c.oid::bigint, n.nspname, c.relname, o.place)), '[]')
      FROM outbox o JOIN pg_catalog.pg_class c ON c.oid = o.oid
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace),
  'tables', (SELECT coalesce(pg_catalog.json_agg(oid::bigint ORDER BY oid), '[]')
      FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') AND oid >= 16384),
  'has_partitions', EXISTS (SELECT FROM root WHERE partitioned),
  'oldest_running_xid', (pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())
      ::pg_catalog.text::numeric % 4294967296)::bigint)::pg_catalog.text";

/// Takes one round trip.
pub async fn read(
    client: &Client,
    settings: &SourceSettings,
) -> Result<Catalog, tokio_postgres::Error> {
    let schemas: Vec<&str> = settings.outboxes.iter().map(|o| o.schema.as_str()).collect();
    let names: Vec<&str> = settings.outboxes.iter().map(|o| o.table.as_str()).collect();
    document(client, SQL, &[(&schemas, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY)]).await
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
