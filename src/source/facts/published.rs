//! What a publication is, which of the outboxes it covers, and what shows that it was altered.
//!
//! Only the outboxes, their partitions and the tables that they are partitions of are looked at, by
//! their catalog rows: `pg_publication_tables` opens every table of the publication for each look.

use serde::Deserialize;

/// One row of `pg_publication` and what it covers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PublicationFacts {
    /// `FOR ALL TABLES`.
    pub all_tables: bool,
    /// Publishes INSERT.
    pub insert: bool,
    /// Publishes UPDATE.
    pub update: bool,
    /// Publishes DELETE.
    pub delete: bool,
    /// Publishes TRUNCATE.
    pub truncate: bool,
    /// `publish_via_partition_root`.
    pub via_root: bool,
    /// Who may alter it.
    pub owner: String,
    /// The outboxes and their partitions, as far as rows are sent under their names.
    #[serde(default)]
    pub tables: Vec<PublishedTable>,
    /// The catalog rows by which it covers the outboxes; its own row comes first.
    #[serde(default)]
    pub rows: Vec<CatalogRow>,
}

impl PublicationFacts {
    /// Its own row in `pg_publication`.
    #[must_use]
    pub fn own_row(&self) -> Option<&CatalogRow> {
        self.rows.iter().find(|row| row.kind == RowKind::Publication)
    }
}

/// A table that the publication covers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PublishedTable {
    /// Schema.
    pub schema: String,
    /// Table or leaf partition.
    pub name: String,
    /// Row filter.
    pub row_filter: Option<String>,
    /// Columns that are sent.
    pub columns: Option<Vec<String>>,
    /// Schema of the partition root, for a leaf.
    pub root_schema: Option<String>,
    /// Name of the partition root, for a leaf.
    pub root_name: Option<String>,
}

/// A catalog row. `xmin` is the transaction that wrote its present version, and survives freezing:
/// a row that was removed and made again has another oid, one that was changed and changed back
/// another `xmin`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CatalogRow {
    /// What it says.
    pub kind: RowKind,
    /// Object id of the table or schema that it is about; 0 for the publication's own row.
    pub about: u32,
    /// The name of that, for people.
    pub name: String,
    /// Object id of the row, or of what it refers to where rows have no object id.
    pub oid: u32,
    /// The transaction that wrote it.
    pub xmin: u32,
}

/// What a [`CatalogRow`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// The publication is there.
    Publication,
    /// It covers a table.
    Table,
    /// It covers a schema.
    Schema,
    /// A table is in a schema that it covers.
    Location,
    /// A table is a partition of another.
    Partition,
}

/// `$1` publication, `$2` schemas and `$3` names of the outboxes.
///
/// `pg_publication_namespace` (6237) is not there before 15, so it is read by way of its rows in
/// `pg_depend`, which are written with it. Columns that only newer servers have are reached
/// through `to_jsonb`.
pub(super) const SQL: &str = "
WITH publication AS MATERIALIZED (
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
), own AS MATERIALIZED (
  SELECT oid FROM outbox UNION
  SELECT t.relid::pg_catalog.oid FROM outbox, pg_catalog.pg_partition_tree(outbox.oid) t
), named AS MATERIALIZED (
  SELECT c.oid AS about, n.nspname || '.' || c.relname AS name, c.relnamespace, r.oid, r.xmin,
         pg_catalog.to_jsonb(r) -> 'prattrs' AS columns,
         pg_catalog.to_jsonb(r) ->> 'prqual' IS NOT NULL AS filtered
  FROM publication p
  CROSS JOIN (SELECT oid FROM ancestor UNION SELECT oid FROM own) family
  JOIN pg_catalog.pg_class c ON c.oid = family.oid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_publication_rel r ON r.prrelid = c.oid AND r.prpubid = p.oid
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
FROM publication p";
