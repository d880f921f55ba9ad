//! The publication and the outbox tables: what the catalog says of them, which of its rows show
//! that either was altered, and the statements that create and extend a publication.
//!
//! Only the catalog rows of the outboxes, their partitions and the tables that they are partitions
//! of are read: `pg_publication_tables` would open every table of the publication each time.

use serde::de::DeserializeOwned;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};
pub use walrelay_core::source::publication::*;

use super::json_row::{Parameter, document_opt};
use super::row_filter;
use super::settings::SourceSettings;
use walrelay_core::outbox::settings::OutboxTable;

pub async fn published(
    client: &Client,
    settings: &SourceSettings,
) -> Result<PublishedFacts, Error> {
    look(client, settings, "10s").await
}

/// None while another session holds an outbox with an ACCESS EXCLUSIVE lock, where that has to be
/// waited for: nobody writes to it then.
pub async fn published_unless_locked(
    client: &Client,
    settings: &SourceSettings,
) -> Result<Option<PublishedFacts>, Error> {
    match look(client, settings, "1s").await {
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(None),
        found => found.map(Some),
    }
}

async fn look(
    client: &Client,
    settings: &SourceSettings,
    lock_limit: &str,
) -> Result<PublishedFacts, Error> {
    if settings.outboxes.iter().all(|outbox| outbox.filter.is_none()) {
        return read(client, settings, lock_limit).await;
    }
    // A time is printed with a name of its zone otherwise, which may be read as another zone. The view that
    // shows a filter waits for the lock of its table.
    let begin =
        format!("{FILTER_ZONE_SQL} SET DateStyle = 'ISO'; SET lock_timeout = '{lock_limit}'");
    client.batch_execute(&begin).await?;
    let facts = async {
        let mut facts = read(client, settings, lock_limit).await?;
        row_filter::compare(client, &settings.outboxes, &mut facts).await?;
        Ok(facts)
    };
    let facts = facts.await;
    client.batch_execute("RESET TimeZone; RESET DateStyle; RESET lock_timeout").await?;
    facts
}

async fn read(
    client: &Client,
    settings: &SourceSettings,
    lock_limit: &str,
) -> Result<PublishedFacts, Error> {
    let SourceSettings { publication, outboxes, .. } = settings;
    let (mut found, tables) = tokio::try_join!(
        ask::<PublicationFacts>(client, PUBLICATION_SQL, publication, outboxes),
        ask(client, TABLES_SQL, publication, outboxes),
    )?;
    if let Some(found) = found.as_mut().filter(|found| !found.excepted.is_empty()) {
        let sql = format!(
            "WITH RECURSIVE waits AS MATERIALIZED (
               SELECT pg_catalog.set_config('lock_timeout', '{lock_limit}', true)
             ), {ENTRIES_BESIDE_EXCEPT_SQL}"
        );
        let entries = ask(client, &sql, publication, outboxes).await?;
        found.tables = entries.unwrap_or_default();
    }
    Ok(PublishedFacts { publication: found, tables: tables.unwrap_or_default() })
}

/// The tables alone, for a source without a publication.
pub async fn tables(client: &Client, outboxes: &[OutboxTable]) -> Result<Vec<TableFacts>, Error> {
    Ok(ask(client, TABLES_SQL, "", outboxes).await?.unwrap_or_default())
}

async fn ask<T: DeserializeOwned>(
    client: &Client,
    sql: &str,
    publication: &str,
    outboxes: &[OutboxTable],
) -> Result<Option<T>, Error> {
    let schemas: Vec<&str> = outboxes.iter().map(|outbox| outbox.schema.as_str()).collect();
    let names: Vec<&str> = outboxes.iter().map(|outbox| outbox.table.as_str()).collect();
    let parameters: [Parameter<'_>; 3] =
        [(&publication, Type::TEXT), (&schemas, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY)];
    document_opt(client, sql, &parameters).await
}

/// The outboxes and their partitions, by the rows of the catalog: `pg_partition_tree` would wait for the
/// lock of each partition.
macro_rules! partitions {
    () => {
        "own AS MATERIALIZED (
  SELECT oid FROM outbox UNION
  SELECT c.oid FROM own JOIN pg_catalog.pg_inherits i ON i.inhparent = own.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
  WHERE (pg_catalog.to_jsonb(i) ->> 'inhdetachpending')::pg_catalog.bool IS NOT TRUE
)"
    };
}

/// `$1` publication, `$2` schemas and `$3` names of the outboxes.
///
/// `pg_publication_namespace` (6237) does not exist before 15, so its rows in `pg_depend` are read,
/// which are written with it. `to_jsonb` includes the columns that only newer servers have.
const PUBLICATION_SQL: &str = concat!(
    "
WITH RECURSIVE publication AS MATERIALIZED (
  SELECT p.*, p.xmin FROM pg_catalog.pg_publication p WHERE pubname = $1
), schema AS MATERIALIZED (
  SELECT n.oid AS about, n.nspname AS name, member.objid AS oid, member.xmin
  FROM publication p
  JOIN pg_catalog.pg_depend member ON member.refclassid = 'pg_catalog.pg_publication'::pg_catalog.regclass
    AND member.refobjid = p.oid AND member.classid = 6237
  JOIN pg_catalog.pg_depend covered ON covered.classid = 6237 AND covered.objid = member.objid
    AND covered.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
  JOIN pg_catalog.pg_namespace n ON n.oid = covered.refobjid
), outbox AS MATERIALIZED (
  SELECT DISTINCT c.oid
  FROM ROWS FROM (pg_catalog.unnest($2::pg_catalog.text[]), pg_catalog.unnest($3::pg_catalog.text[])) AS w (schema, name)
  JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
), ancestor AS MATERIALIZED (
  SELECT oid FROM outbox UNION
  SELECT a.relid::pg_catalog.oid FROM outbox, pg_catalog.pg_partition_ancestors(outbox.oid) a
), ",
    partitions!(),
    ", named AS MATERIALIZED (
  SELECT c.oid AS about, n.nspname || '.' || c.relname AS name, c.relnamespace, r.oid, r.xmin,
         pg_catalog.to_jsonb(r) -> 'prattrs' AS columns,
         pg_catalog.to_jsonb(r) ->> 'prqual' IS NOT NULL AS filtered
  FROM publication p
  CROSS JOIN (SELECT oid FROM ancestor UNION SELECT oid FROM own) family
  JOIN pg_catalog.pg_class c ON c.oid = family.oid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_publication_rel r ON r.prrelid = c.oid AND r.prpubid = p.oid
    AND (pg_catalog.to_jsonb(r) ->> 'prexcept')::pg_catalog.bool IS NOT TRUE
  WHERE r.oid IS NOT NULL OR c.relnamespace IN (SELECT about FROM schema)
)
SELECT pg_catalog.json_build_object('all_tables', p.puballtables,
  'insert', p.pubinsert, 'update', p.pubupdate, 'delete', p.pubdelete,
  'truncate', p.pubtruncate, 'via_root', p.pubviaroot,
  'owner', pg_catalog.pg_get_userbyid(p.pubowner),
  'tables', (SELECT coalesce(pg_catalog.json_agg(t), '[]') FROM (
    SELECT n.nspname AS schema, c.relname AS name,
           CASE WHEN named.filtered THEN (SELECT pg_catalog.to_jsonb(v) ->> 'rowfilter'
             FROM pg_catalog.pg_publication_tables v WHERE v.pubname = p.pubname
             AND v.schemaname = n.nspname AND v.tablename = c.relname) END AS row_filter,
           (SELECT pg_catalog.json_agg(a.attname) FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             AND CASE WHEN pg_catalog.jsonb_typeof(named.columns) = 'array'
               THEN named.columns @> pg_catalog.to_jsonb(a.attnum)
               ELSE a.attgenerated = '' OR (a.attgenerated = 's'
                 AND pg_catalog.to_jsonb(p) ->> 'pubgencols' = 's') END) AS columns,
           rn.nspname AS root_schema, rc.relname AS root_name
    FROM own
    JOIN pg_catalog.pg_class c ON c.oid = own.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN named ON named.about = c.oid
    LEFT JOIN pg_catalog.pg_class rc ON c.relispartition AND rc.oid = pg_catalog.pg_partition_root(c.oid)
    LEFT JOIN pg_catalog.pg_namespace rn ON rn.oid = rc.relnamespace
    WHERE c.relpersistence = 'p' AND c.relkind IN ('r', 'p') AND CASE
      WHEN p.puballtables AND p.pubviaroot THEN NOT c.relispartition
      WHEN p.puballtables THEN c.relkind = 'r'
      WHEN p.pubviaroot THEN named.about IS NOT NULL AND NOT EXISTS (SELECT FROM named above
        JOIN pg_catalog.pg_partition_ancestors(c.oid) a ON a.relid = above.about
        WHERE above.about <> c.oid)
      ELSE c.relkind = 'r' AND (named.about IS NOT NULL OR EXISTS (SELECT FROM named above
        JOIN pg_catalog.pg_partition_ancestors(c.oid) a ON a.relid = above.about)) END
    ORDER BY 1, 2) t),
  'renamed', (SELECT coalesce(pg_catalog.json_agg(e), '[]') FROM (
    SELECT n.nspname AS schema, c.relname AS name, sent.name AS sent_as
    FROM outbox
    JOIN pg_catalog.pg_class c ON c.oid = outbox.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (SELECT an.nspname || '.' || ac.relname AS name
      FROM pg_catalog.pg_partition_ancestors(c.oid) WITH ORDINALITY a (relid, level)
      JOIN pg_catalog.pg_class ac ON ac.oid = a.relid
      JOIN pg_catalog.pg_namespace an ON an.oid = ac.relnamespace
      WHERE a.relid <> c.oid AND CASE WHEN p.puballtables
        THEN NOT ac.relispartition AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r
          WHERE r.prpubid = p.oid AND r.prrelid = a.relid)
        ELSE a.relid IN (SELECT about FROM named) END
      ORDER BY a.level DESC LIMIT 1) sent
    WHERE p.pubviaroot
    ORDER BY 1, 2) e),
  'excepted', (SELECT coalesce(pg_catalog.json_agg(e), '[]') FROM (
    SELECT n.nspname AS schema, c.relname AS name, c.oid IN (SELECT oid FROM ancestor) AS is_outbox
    FROM pg_catalog.pg_publication_rel r
    JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE r.prpubid = p.oid AND (pg_catalog.to_jsonb(r) ->> 'prexcept')::pg_catalog.bool
    ORDER BY 3 DESC, 1, 2 LIMIT 100) e),
  'others', (SELECT coalesce(pg_catalog.json_agg(o.name), '[]') FROM (
    SELECT n.nspname || '.' || c.relname AS name
    FROM pg_catalog.pg_publication_rel r
    JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE r.prpubid = p.oid AND (pg_catalog.to_jsonb(r) ->> 'prexcept')::pg_catalog.bool IS NOT TRUE
      AND c.oid NOT IN (SELECT oid FROM ancestor UNION SELECT oid FROM own)
    ORDER BY 1 LIMIT 10) o),
  'rows', (SELECT pg_catalog.json_agg(r) FROM (
    SELECT 'publication' AS kind, 0::bigint AS about, p.pubname AS name, p.oid::bigint AS oid,
           p.xmin::pg_catalog.text::bigint AS xmin
    UNION ALL
    SELECT 'table', named.about::bigint, named.name, named.oid::bigint, named.xmin::pg_catalog.text::bigint
    FROM named WHERE named.oid IS NOT NULL
    UNION ALL
    SELECT 'schema', s.about::bigint, s.name, s.oid::bigint, s.xmin::pg_catalog.text::bigint
    FROM schema s WHERE s.about IN (SELECT relnamespace FROM named)
    UNION ALL
    SELECT 'location', d.objid::bigint, named.name, d.refobjid::bigint, d.xmin::pg_catalog.text::bigint
    FROM named JOIN schema s ON s.about = named.relnamespace
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
      AND d.objid = named.about AND d.objsubid = 0
      AND d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
    UNION ALL
    SELECT 'partition', i.inhrelid::bigint, n.nspname || '.' || c.relname, i.inhparent::bigint,
           i.xmin::pg_catalog.text::bigint
    FROM ancestor
    JOIN pg_catalog.pg_inherits i ON i.inhrelid = ancestor.oid
    JOIN pg_catalog.pg_class c ON c.oid = ancestor.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace) r))::pg_catalog.text
FROM publication p"
);

/// Asks what a publication with an EXCEPT clause publishes of the outboxes and their partitions, as
/// the server itself says. Sent only to a server that has such a publication (19 and later); it
/// waits for an ACCESS EXCLUSIVE lock on them, so no other publication is asked for in this way.
/// `waits` is evaluated before there is a table to be locked.
const ENTRIES_BESIDE_EXCEPT_SQL: &str = concat!(
    "outbox AS MATERIALIZED (
  SELECT DISTINCT c.oid
  FROM waits CROSS JOIN ROWS FROM (pg_catalog.unnest($2::pg_catalog.text[]), pg_catalog.unnest($3::pg_catalog.text[])) AS w (schema, name)
  JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
), ",
    partitions!(),
    "
SELECT coalesce(pg_catalog.json_agg(t), '[]')::pg_catalog.text FROM (
  SELECT n.nspname AS schema, c.relname AS name, pg_catalog.pg_get_expr(g.qual, g.relid) AS row_filter,
         (SELECT pg_catalog.json_agg(a.attname) FROM pg_catalog.pg_attribute a
           WHERE a.attrelid = c.oid AND a.attnum = ANY (g.attrs::pg_catalog.int2[])) AS columns,
         rn.nspname AS root_schema, rc.relname AS root_name
  FROM own
  CROSS JOIN LATERAL pg_catalog.pg_get_publication_tables(ARRAY[$1::pg_catalog.text], own.oid) g
  JOIN pg_catalog.pg_class c ON c.oid = g.relid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_class rc ON c.relispartition AND rc.oid = pg_catalog.pg_partition_root(c.oid)
  LEFT JOIN pg_catalog.pg_namespace rn ON rn.oid = rc.relnamespace
  ORDER BY 1, 2) t"
);

/// In `tgtype` 1 is FOR EACH ROW, 2 is BEFORE, 16 is UPDATE.
const TABLES_SQL: &str = concat!(
    "
SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('schema', w.schema, 'name', w.name,
  'schema_exists', n.oid IS NOT NULL, 'kind', c.relkind,
  'unlogged', (WITH RECURSIVE outbox AS (SELECT c.oid), ",
    partitions!(),
    "
      SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(un.nspname, u.relname)
        ORDER BY un.nspname, u.relname), '[]')
      FROM own JOIN pg_catalog.pg_class u ON u.oid = own.oid AND u.relpersistence = 'u'
        AND (u.relkind = 'r' OR u.oid = c.oid)
      JOIN pg_catalog.pg_namespace un ON un.oid = u.relnamespace),
  'identifies_rows', CASE WHEN c.relreplident = 'f' THEN true WHEN c.relreplident = 'n' THEN false
      WHEN c.oid IS NOT NULL THEN EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisvalid
        AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END) END,
  'inheriting', (SELECT coalesce(pg_catalog.json_agg(k.name), '[]') FROM (
      SELECT hn.nspname || '.' || h.relname AS name FROM pg_catalog.pg_inherits i
      JOIN pg_catalog.pg_class h ON h.oid = i.inhrelid AND NOT h.relispartition
      JOIN pg_catalog.pg_namespace hn ON hn.oid = h.relnamespace
      WHERE i.inhparent = c.oid ORDER BY 1 LIMIT 10) k),
  'has_update_trigger', EXISTS (SELECT FROM pg_catalog.pg_trigger t
      WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
      AND t.tgtype & 19 = 19),
  'member_oid', (SELECT r.oid::bigint FROM pg_catalog.pg_publication_rel r
      JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
      WHERE r.prrelid = c.oid AND p.pubname = $1
      AND (pg_catalog.to_jsonb(r) ->> 'prexcept')::pg_catalog.bool IS NOT TRUE),
  'columns', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('name', a.attname,
        'generated', a.attgenerated <> '', 'builtin_type', CASE WHEN a.atttypid < 16384
          THEN pg_catalog.format_type(a.atttypid, a.atttypmod) END) ORDER BY a.attnum), '[]')
      FROM pg_catalog.pg_attribute a
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  'similar', CASE WHEN c.oid IS NOT NULL THEN '[]'::pg_catalog.json ELSE
      (SELECT coalesce(pg_catalog.json_agg(s.q), '[]') FROM (
        SELECT sn.nspname || '.' || sc.relname AS q FROM pg_catalog.pg_class sc
        JOIN pg_catalog.pg_namespace sn ON sn.oid = sc.relnamespace
        WHERE sc.relkind IN ('r', 'p') AND sn.nspname NOT LIKE 'pg\\_%'
          AND (sc.relname = w.name OR sn.nspname = w.schema)
        ORDER BY sc.relname = w.name DESC, 1 LIMIT 200) s) END
  ) ORDER BY w.ord), '[]')::pg_catalog.text
FROM ROWS FROM (pg_catalog.unnest($2::pg_catalog.text[]), pg_catalog.unnest($3::pg_catalog.text[])) WITH ORDINALITY AS w (schema, name, ord)
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name"
);
