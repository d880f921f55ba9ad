//! What Postgres says about itself, the slot, the publication and the outbox tables.
//!
//! All of it is asked in one round trip: four statements are pipelined, and each answers with one
//! JSON document, so that columns which only newer servers have are simply absent on older ones.
//! Nothing is judged here.

mod published;

use std::error::Error;
use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use tokio_postgres::Client;
use tokio_postgres::types::{FromSql, ToSql, Type};

pub use self::published::{CatalogRow, PublicationFacts, PublishedTable, RowKind};
use super::settings::SourceSettings;
use crate::base::lsn::Lsn;

/// Everything the preflight knows.
#[derive(Clone, Debug)]
pub struct Facts {
    /// System identifier, as `IDENTIFY_SYSTEM` tells it.
    pub system_id: String,
    /// Timeline.
    pub timeline: u32,
    /// `server_version_num`, e.g. 170011.
    pub server_version: u32,
    /// `wal_sender_timeout`; `None` when it is off.
    pub wal_sender_timeout: Option<Duration>,
    /// Settings and counts of the server.
    pub server: ServerFacts,
    /// The configured slot, if it is there.
    pub slot: Option<SlotFacts>,
    /// The configured publication, if it is there.
    pub publication: Option<PublicationFacts>,
    /// The configured outbox tables, in the order of the configuration.
    pub tables: Vec<TableFacts>,
}

/// Settings and counts of the server, and who we are.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerFacts {
    /// System identifier, as `IDENTIFY_SYSTEM` tells it.
    pub system_id: String,
    /// Timeline.
    pub timeline: u32,
    version: u32,
    wal_sender_timeout_ms: u64,
    /// `server_version` for people.
    pub version_text: String,
    /// `wal_level`.
    pub wal_level: String,
    /// True in recovery.
    pub standby: bool,
    /// `max_replication_slots`.
    pub max_replication_slots: u32,
    /// Names of all slots of the server, at most 100.
    pub slots: Vec<String>,
    /// Number of all slots of the server.
    pub slots_used: u32,
    /// `max_wal_senders`.
    pub max_wal_senders: u32,
    /// WAL senders that are running.
    pub wal_senders_used: u32,
    /// The role may look at every setting.
    pub sees_all_settings: bool,
    /// `output_plugin_libraries`; absent before the minor releases that know it, and for a role
    /// that may not see it: asking for it would then fail the whole statement.
    pub output_plugins: Option<String>,
    /// `max_slot_wal_keep_size`, as shown.
    pub max_slot_wal_keep_size: String,
    /// `server_encoding`.
    pub encoding: String,
    /// The database.
    pub database: String,
    /// End of WAL.
    #[serde(deserialize_with = "lsn")]
    pub current_lsn: Lsn,
    /// Argument types of each `pg_logical_emit_message` that every role may call.
    pub messages_for_all: Vec<String>,
    /// The role that is connected.
    pub role: RoleFacts,
}

/// What a role may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct RoleFacts {
    /// Its name.
    pub name: String,
    /// It is a superuser.
    pub superuser: bool,
    /// It has `REPLICATION`, or a hosting provider's equivalent.
    pub replication: bool,
}

/// One row of `pg_replication_slots`.
#[derive(Clone, Debug, Deserialize)]
pub struct SlotFacts {
    /// Name.
    #[serde(rename = "slot_name")]
    pub name: String,
    /// Output plugin; absent for a physical slot.
    pub plugin: Option<String>,
    /// Database; absent for a physical slot.
    pub database: Option<String>,
    /// It vanishes with its session.
    pub temporary: bool,
    /// Process that reads it.
    pub active_pid: Option<i32>,
    /// What was confirmed; `0/0` for a physical slot.
    #[serde(rename = "confirmed_flush_lsn", deserialize_with = "lsn")]
    pub confirmed_flush: Lsn,
    /// Oldest WAL it needs; `0/0` when that is gone.
    #[serde(deserialize_with = "lsn")]
    pub restart_lsn: Lsn,
    /// `reserved`, `extended`, `unreserved`, `lost`.
    pub wal_status: Option<String>,
    /// Bytes that may still be written before it is in danger.
    pub safe_wal_size: Option<i64>,
    /// It decodes at PREPARE.
    #[serde(default)]
    pub two_phase: bool,
    /// Why it was invalidated (17 and later).
    #[serde(default)]
    pub invalidation_reason: Option<String>,
    /// Oldest transaction whose catalog changes it still needs.
    #[serde(default, deserialize_with = "xid")]
    pub catalog_xmin: Option<u32>,
}

/// A configured outbox table as it is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TableFacts {
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// The schema is there.
    pub schema_exists: bool,
    /// `pg_class.relkind`; absent when there is no such relation.
    pub kind: Option<String>,
    /// `pg_class.relpersistence`.
    pub persistence: Option<String>,
    /// Who owns it.
    pub owner: Option<String>,
    /// It is a partition of another table.
    pub is_partition: bool,
    /// Object id of its membership in the publication, when it is named there.
    pub member_oid: Option<u32>,
    /// Its columns.
    pub columns: Vec<ColumnFacts>,
    /// Qualified names of tables that might have been meant, when it is missing.
    pub similar: Vec<String>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ColumnFacts {
    /// Name.
    pub name: String,
    /// Its values are computed.
    pub generated: bool,
}

/// The publication and the tables it ought to cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) publication: Option<PublicationFacts>,
    pub(crate) tables: Vec<TableFacts>,
}

const SERVER_SQL: &str = "
SELECT pg_catalog.json_build_object(
  'system_id', (SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()),
  'timeline', CASE WHEN pg_catalog.pg_is_in_recovery()
      THEN (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())
      ELSE ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int END,
  'version', pg_catalog.current_setting('server_version_num')::int,
  'version_text', pg_catalog.current_setting('server_version'),
  'wal_sender_timeout_ms',
      (extract(epoch FROM pg_catalog.current_setting('wal_sender_timeout')::interval) * 1000)::bigint,
  'wal_level', pg_catalog.current_setting('wal_level'),
  'standby', pg_catalog.pg_is_in_recovery(),
  'max_replication_slots', pg_catalog.current_setting('max_replication_slots')::int,
  'slots', (SELECT coalesce(pg_catalog.json_agg(slot_name), '[]')
      FROM (SELECT slot_name FROM pg_catalog.pg_replication_slots ORDER BY 1 LIMIT 100) s),
  'slots_used', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots),
  'max_wal_senders', pg_catalog.current_setting('max_wal_senders')::int,
  'wal_senders_used', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication),
  'sees_all_settings', pg_catalog.pg_has_role(current_user, 'pg_read_all_settings', 'USAGE'),
  'output_plugins', CASE WHEN pg_catalog.pg_has_role(current_user, 'pg_read_all_settings', 'USAGE')
      THEN pg_catalog.current_setting('output_plugin_libraries', true) END,
  'max_slot_wal_keep_size', pg_catalog.current_setting('max_slot_wal_keep_size'),
  'encoding', pg_catalog.current_setting('server_encoding'),
  'database', pg_catalog.current_database(),
  'current_lsn', CASE WHEN pg_catalog.pg_is_in_recovery()
      THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END,
  'messages_for_all', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.oidvectortypes(f.proargtypes) ORDER BY f.oid), '[]')
      FROM pg_catalog.pg_proc f WHERE f.proname = 'pg_logical_emit_message'
      AND f.pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND EXISTS (
          SELECT FROM pg_catalog.aclexplode(coalesce(f.proacl, pg_catalog.acldefault('f', f.proowner))) a
          WHERE a.grantee = 0 AND a.privilege_type = 'EXECUTE')),
  'role', (SELECT pg_catalog.json_build_object('name', r.rolname, 'superuser', r.rolsuper,
      'replication', r.rolsuper OR r.rolreplication OR EXISTS (
          SELECT FROM pg_catalog.pg_roles g WHERE g.rolname = 'rds_replication'
          AND pg_catalog.pg_has_role(r.oid, g.oid, 'MEMBER')))
      FROM pg_catalog.pg_roles r WHERE r.rolname = current_user))::pg_catalog.text";

const SLOT_SQL: &str = "SELECT pg_catalog.to_jsonb(s)::pg_catalog.text FROM pg_catalog.pg_replication_slots s WHERE slot_name = $1";

const TABLES_SQL: &str = "
SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('schema', w.schema, 'name', w.name,
  'schema_exists', n.oid IS NOT NULL, 'kind', c.relkind, 'persistence', c.relpersistence,
  'owner', pg_catalog.pg_get_userbyid(c.relowner), 'is_partition', coalesce(c.relispartition, false),
  'member_oid', (SELECT r.oid::bigint FROM pg_catalog.pg_publication_rel r
      JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
      WHERE r.prrelid = c.oid AND p.pubname = $1),
  'columns', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('name', a.attname,
        'generated', a.attgenerated <> '') ORDER BY a.attnum), '[]')
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
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name";

/// Asks for everything at once.
pub(crate) async fn gather(
    client: &Client,
    settings: &SourceSettings,
) -> Result<Facts, tokio_postgres::Error> {
    // Catalogue queries look dear to the planner in a database of many tables, and compiling them
    // takes longer than running them.
    let ((), server, slot, published) = tokio::try_join!(
        client.batch_execute("SET jit = off"),
        server(client),
        slot(client, &settings.slot),
        published(client, settings),
    )?;
    Ok(Facts {
        system_id: server.system_id.clone(),
        timeline: server.timeline,
        server_version: server.version,
        wal_sender_timeout: Some(server.wal_sender_timeout_ms)
            .filter(|ms| *ms > 0)
            .map(Duration::from_millis),
        slot,
        publication: published.publication,
        tables: published.tables,
        server,
    })
}

/// The server.
pub(crate) async fn server(client: &Client) -> Result<ServerFacts, tokio_postgres::Error> {
    let row = client.query_typed_one(SERVER_SQL, &[]).await?;
    row.try_get(0).map(|Document(server)| server)
}

/// The slot named `name`.
pub(crate) async fn slot(
    client: &Client,
    name: &str,
) -> Result<Option<SlotFacts>, tokio_postgres::Error> {
    document(client, SLOT_SQL, &[(&name, Type::TEXT)]).await
}

/// The publication and the outbox tables.
pub(crate) async fn published(
    client: &Client,
    settings: &SourceSettings,
) -> Result<Published, tokio_postgres::Error> {
    let schemas: Vec<&str> = settings.outboxes.iter().map(|o| o.schema.as_str()).collect();
    let names: Vec<&str> = settings.outboxes.iter().map(|o| o.table.as_str()).collect();
    let publication = &settings.publication;
    let asked: [Parameter<'_>; 3] =
        [(publication, Type::TEXT), (&schemas, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY)];
    let (publication, tables) = tokio::try_join!(
        document(client, published::SQL, &asked),
        document(client, TABLES_SQL, &asked),
    )?;
    Ok(Published { publication, tables: tables.unwrap_or_default() })
}

/// The role named `name`, if there is one.
pub(crate) async fn role(
    client: &Client,
    name: &str,
) -> Result<Option<RoleFacts>, tokio_postgres::Error> {
    const SQL: &str =
        "SELECT pg_catalog.json_build_object('name', r.rolname, 'superuser', r.rolsuper,
        'replication', r.rolsuper OR r.rolreplication OR EXISTS (
            SELECT FROM pg_catalog.pg_roles g WHERE g.rolname = 'rds_replication'
            AND pg_catalog.pg_has_role(r.oid, g.oid, 'MEMBER')))::pg_catalog.text
        FROM pg_catalog.pg_roles r WHERE r.rolname = $1";
    document(client, SQL, &[(&name, Type::TEXT)]).await
}

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Runs a statement that answers with at most one JSON document. Parameter types are given, so
/// that it takes one round trip and not three.
async fn document<T: DeserializeOwned>(
    client: &Client,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Option<T>, tokio_postgres::Error> {
    let row = client.query_typed_opt(sql, parameters).await?;
    row.map(|row| row.try_get(0).map(|Document(value)| value)).transpose()
}

/// JSON that came as text.
struct Document<T>(T);

impl<'a, T: DeserializeOwned> FromSql<'a> for Document<T> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Document(serde_json::from_slice(raw)?))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TEXT
    }
}

/// A transaction id in its text form.
fn xid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

/// An LSN in its text form; NULL is `0/0`.
fn lsn<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Lsn, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map_or(Ok(Lsn::ZERO), |text| text.parse().map_err(D::Error::custom))
}
