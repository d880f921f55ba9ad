//! Which tables of the stream are outboxes: what the catalog says, and for which transactions.
//!
//! The stream names a table by the name that it had when the row was written, and by its object id.
//! A partition's rows come under its own name when they were written while
//! `publish_via_partition_root` was off, and an outbox's rows under another name while it was
//! renamed.

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::settings::SourceSettings;

/// Tables that the stream may describe.
#[derive(Debug, Default)]
pub struct Catalog {
    /// The outboxes and their partitions: object id, schema, name, place of the outbox in the
    /// settings.
    pub outboxes: Vec<(u32, String, String, usize)>,
    /// Object ids of all tables of the database, ascending.
    tables: Vec<u32>,
    /// An outbox is partitioned.
    pub has_partitions: bool,
    /// Every transaction before this one had ended when the catalog was read.
    oldest_running_xid: u32,
}

impl Catalog {
    #[cfg(test)]
    pub(crate) fn read_before(xid: u32, tables: Vec<u32>) -> Catalog {
        Catalog { oldest_running_xid: xid, tables, ..Catalog::default() }
    }

    /// Was it read after transaction `xid` had ended?
    pub(crate) fn is_after(&self, xid: u32) -> bool {
        // Transaction ids wrap around.
        (xid.wrapping_sub(self.oldest_running_xid) as i32) < 0
    }

    /// Was there a table with this object id?
    pub(crate) fn has_table(&self, oid: u32) -> bool {
        self.tables.binary_search(&oid).is_ok()
    }
}

const SNAPSHOT_SQL: &str = "SELECT (pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())\
    ::pg_catalog.text::numeric % 4294967296)::bigint";

const OUTBOXES_SQL: &str = "
SELECT o.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, o.place, o.partitioned
FROM (
  SELECT c.oid, w.place, c.relkind = 'p' AS partitioned
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]))
    WITH ORDINALITY AS w (schema, name, place)
  JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
) AS root, LATERAL (
  SELECT root.oid, root.place, root.partitioned UNION
  SELECT t.relid::pg_catalog.oid, root.place, root.partitioned FROM pg_catalog.pg_partition_tree(root.oid) t
) AS o
JOIN pg_catalog.pg_class c ON c.oid = o.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace";

/// Object ids below 16384 are those of the system's own tables.
const TABLES_SQL: &str = "
SELECT coalesce(pg_catalog.array_agg(oid ORDER BY oid), '{}')
FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') AND oid >= 16384";

/// Reads the catalog: one round trip.
pub(crate) async fn read(
    client: &Client,
    settings: &SourceSettings,
) -> Result<Catalog, tokio_postgres::Error> {
    let schemas: Vec<&str> = settings.outboxes.iter().map(|o| o.schema.as_str()).collect();
    let names: Vec<&str> = settings.outboxes.iter().map(|o| o.table.as_str()).collect();
    // The snapshot first: what is older than it is in the answers that follow.
    let asked: [(&(dyn ToSql + Sync), Type); 2] =
        [(&schemas, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY)];
    let (snapshot, outboxes, tables) = tokio::try_join!(
        client.query_typed_one(SNAPSHOT_SQL, &[]),
        client.query_typed(OUTBOXES_SQL, &asked),
        client.query_typed_one(TABLES_SQL, &[]),
    )?;
    let mut catalog = Catalog {
        oldest_running_xid: u32::try_from(snapshot.try_get::<_, i64>(0)?).unwrap_or(0),
        tables: tables.try_get(0)?,
        ..Catalog::default()
    };
    for row in outboxes {
        let place = usize::try_from(row.try_get::<_, i64>(3)?).unwrap_or(1) - 1;
        catalog.outboxes.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, place));
        catalog.has_partitions |= row.try_get::<_, bool>(4)?;
    }
    Ok(catalog)
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
