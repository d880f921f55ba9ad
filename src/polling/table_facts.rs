//! Reads the polled table's columns and indexes, and what this role may do with it.

use serde::Deserialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use crate::base::error::{Exit, Fault};
use crate::outbox::settings::OutboxTable;
use crate::pgoutput::relation::{Column, Relation};
use crate::source::faults::{query_fault, table_missing};
use crate::source::json_row::document_opt;
use crate::source::settings::SourceSettings;

const SQL: &str = "
SELECT pg_catalog.json_build_object('oid', c.oid::bigint, 'kind', c.relkind,
  'standby', pg_catalog.pg_is_in_recovery(), 'role', current_user,
  'may_use_schema', pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE'),
  'may_select', pg_catalog.has_table_privilege(c.oid, 'SELECT'),
  'may_update', pg_catalog.has_table_privilege(c.oid, 'UPDATE'),
  'may_delete', pg_catalog.has_table_privilege(c.oid, 'DELETE'),
  'row_policies', CASE WHEN pg_catalog.row_security_active(c.oid)
    THEN (SELECT pg_catalog.count(*) FROM pg_catalog.pg_policy WHERE polrelid = c.oid AND polpermissive
      AND polcmd IN ('*', 'r') AND (0 = ANY (polroles) OR EXISTS (SELECT FROM pg_catalog.unnest(polroles) r (oid)
        WHERE pg_catalog.pg_has_role(r.oid, 'USAGE')))) END,
  'version', pg_catalog.current_setting('server_version'),
  'encoding', pg_catalog.current_setting('server_encoding'),
  'columns', (SELECT coalesce(pg_catalog.json_agg(f ORDER BY f.attnum), '[]') FROM (
    SELECT attnum, attname AS name, atttypid::bigint AS type_oid, base.oid::bigint AS base_oid,
           pg_catalog.format_type(atttypid, atttypmod) AS type_sql, typcategory AS category,
           attnotnull AS not_null, pg_catalog.pg_get_expr(adbin, adrelid) AS default,
           (SELECT pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname) FROM pg_catalog.pg_opclass k
            JOIN pg_catalog.pg_am m ON m.oid = k.opcmethod AND m.amname = 'btree'
            JOIN pg_catalog.pg_amop e ON e.amopfamily = k.opcfamily AND e.amopstrategy = 3
                AND e.amoplefttype = k.opcintype AND e.amoprighttype = k.opcintype
            JOIN pg_catalog.pg_operator o ON o.oid = e.amopopr
            JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace AND n.nspname <> 'pg_catalog'
            WHERE k.opcintype = base.oid AND k.opcdefault) AS own_equality,
           CASE WHEN atttypid IN ('varchar'::pg_catalog.regtype, 'bpchar'::pg_catalog.regtype) AND atttypmod > 4
                THEN atttypmod - 4 END AS length_max
    FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_type t ON t.oid = atttypid
         CROSS JOIN LATERAL (
           WITH RECURSIVE types AS (
             SELECT t.oid, t.typbasetype UNION ALL
             SELECT below.oid, below.typbasetype FROM types JOIN pg_catalog.pg_type below ON below.oid = types.typbasetype)
           SELECT oid FROM types WHERE typbasetype = 0) base
         LEFT JOIN pg_catalog.pg_attrdef d ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) f),
  'indexes', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'condition', pg_catalog.pg_get_expr(indpred, indrelid), 'leads', attname)), '[]')
    FROM pg_catalog.pg_index
    LEFT JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
    WHERE indrelid = c.oid AND indisvalid))::pg_catalog.text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = $1 AND c.relname = $2";

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct PolledTableFacts {
    pub(crate) oid: u32,
    /// `pg_class.relkind`.
    pub(crate) kind: String,
    pub(crate) standby: bool,
    pub(crate) role: String,
    pub(crate) may_use_schema: bool,
    pub(crate) may_select: bool,
    pub(crate) may_update: bool,
    pub(crate) may_delete: bool,
    /// How many policies show rows of the table to this role, if row-level security applies to the role.
    pub(crate) row_policies: Option<u32>,
    /// The version of the server, as text.
    pub(crate) version: String,
    /// The encoding of the database.
    pub(crate) encoding: String,
    pub(crate) columns: Vec<PolledColumn>,
    pub(crate) indexes: Vec<PolledIndex>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct PolledColumn {
    pub(crate) name: String,
    pub(crate) type_oid: u32,
    /// The type that a domain is over, or the type itself.
    base_oid: u32,
    /// The type as SQL.
    pub(crate) type_sql: String,
    /// `pg_type.typcategory`.
    pub(crate) category: String,
    pub(crate) not_null: bool,
    /// As SQL.
    pub(crate) default: Option<String>,
    /// The operator that compares its values, as SQL, if it is not in pg_catalog.
    own_equality: Option<String>,
    pub(crate) length_max: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct PolledIndex {
    /// The condition of a partial index.
    pub(crate) condition: Option<String>,
    /// Its first column, if that is one.
    pub(crate) leads: Option<String>,
}

/// The polled table. The configuration makes sure that there is one.
pub(crate) fn polled_outbox(source: &SourceSettings) -> Result<&OutboxTable, Fault> {
    source.outboxes.first().ok_or_else(|| {
        let (what, mend) = ("polling needs a table", "write [[source.outbox]]");
        Fault::new(Exit::Usage, "config.missing-key", what, "source.outbox", mend)
    })
}

/// None if there is no such table.
pub(crate) async fn gather(
    client: &Client,
    outbox: &OutboxTable,
) -> Result<Option<PolledTableFacts>, Error> {
    let OutboxTable { schema, table, .. } = outbox;
    document_opt(client, SQL, &[(schema, Type::TEXT), (table, Type::TEXT)]).await
}

/// The facts; a table that does not exist is a fault.
pub(crate) async fn require(
    client: &Client,
    outbox: &OutboxTable,
) -> Result<PolledTableFacts, Fault> {
    let facts = gather(client, outbox).await;
    let facts = facts.map_err(|error| query_fault(&error, "looking at the outbox table"))?;
    facts.ok_or_else(|| table_missing(outbox, "walrelay check"))
}

impl PolledTableFacts {
    /// The major version of the server; 0 if it cannot be read.
    pub(crate) fn major_version(&self) -> u32 {
        let digits = self.version.split(|it: char| !it.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn column(&self, name: &str) -> Option<&PolledColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub(crate) fn type_of(&self, column: &str) -> Option<&str> {
        self.column(column).map(|column| column.type_sql.as_str())
    }

    /// The operator that compares values of a column, as SQL.
    pub(crate) fn equality_of(&self, column: &str) -> &str {
        self.column(column).and_then(|column| column.own_equality.as_deref()).unwrap_or("=")
    }

    /// The existing columns that an event may use, as pgoutput would describe them.
    pub(crate) fn relation(&self, outbox: &OutboxTable) -> Relation {
        let names = &outbox.columns;
        let mut wanted = outbox.needed_columns();
        wanted.extend([&*names.event_type, &*names.traceparent, &*names.headers]);
        let used = self.columns.iter().filter(|column| wanted.contains(&&*column.name));
        let column = |it: &PolledColumn| Column { name: it.name.clone(), type_oid: it.base_oid };
        Relation {
            oid: self.oid,
            namespace: outbox.schema.clone(),
            name: outbox.table.clone(),
            columns: used.map(column).collect(),
        }
    }
}
