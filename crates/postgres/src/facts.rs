//! Facts that Postgres states about itself, the role, the slot, the publication and the outbox
//! tables.
//!
//! The statements are pipelined, so that all of it takes one round trip. Nothing is judged here.

use std::time::Duration;

use serde::Deserialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::json_row::{document, document_opt, lsn};
use super::oldest_transaction::{OldestTransaction, oldest_transaction};
use super::publication::{PublishedFacts, published};
use super::settings::SourceSettings;
use super::slot_state::{SlotFacts, slot_state};
use walrelay_base::clock::unix_now_us;
use walrelay_base::lsn::Lsn;

#[derive(Clone, Debug)]
pub struct SourceFacts {
    pub server: ServerFacts,
    pub role: RoleFacts,
    /// The configured slot, if it exists.
    pub slot: Option<SlotFacts>,
    /// How much the slot has delivered so far, as Postgres counts it.
    pub decoded: Option<i64>,
    pub oldest_transaction: Option<OldestTransaction>,
    pub published: PublishedFacts,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ServerFacts {
    /// As in `IDENTIFY_SYSTEM`, like the timeline.
    pub system_id: String,
    pub timeline: u32,
    /// `server_version_num`, e.g. 170011.
    pub version: u32,
    pub version_text: String,
    /// 0 when it is off.
    pub wal_sender_timeout_ms: u64,
    pub wal_level: String,
    /// Since 19; as long as `wal_level` is `replica`, it depends on whether there is a logical slot.
    pub effective_wal_level: Option<String>,
    pub standby: bool,
    pub max_replication_slots: u32,
    /// Names of all slots of the server, at most 100.
    pub slots: Vec<String>,
    pub slots_used: u32,
    pub max_wal_senders: u32,
    pub wal_senders_used: u32,
    /// The role may read every setting.
    pub sees_all_settings: bool,
    /// `output_plugin_libraries`; absent before the minor releases that have it, and for a role that
    /// may not read it: reading it would then fail the whole statement.
    pub output_plugins: Option<String>,
    pub max_slot_wal_keep_size: String,
    pub encoding: String,
    pub database: String,
    #[serde(deserialize_with = "lsn")]
    pub current_lsn: Lsn,
    clock_unix_us: i64,
    /// The lead of this host's clock over that of Postgres, when the answer came.
    #[serde(skip)]
    pub host_ahead_us: i64,
    /// `synchronous_standby_names`.
    pub synchronous_standbys: String,
    /// The slots of `synchronized_standby_slots` (17 and later) that are missing or that no standby reads.
    pub unread_standby_slots: Vec<String>,
    /// Sessions of Patroni are on the server.
    pub has_patroni: bool,
    /// The argument types of each `pg_logical_emit_message` that PUBLIC may execute.
    pub messages_for_all: Vec<String>,
}

impl ServerFacts {
    /// `None` when it is off.
    pub fn wal_sender_timeout(&self) -> Option<Duration> {
        (self.wal_sender_timeout_ms > 0).then(|| Duration::from_millis(self.wal_sender_timeout_ms))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct RoleFacts {
    pub name: String,
    pub superuser: bool,
    /// It has `REPLICATION`, or the equivalent of a hosting provider.
    pub replication: bool,
    /// The server has the role by which RDS lets others replicate.
    pub on_rds: bool,
    /// It may grant that role.
    pub grants_rds: bool,
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
  'effective_wal_level', pg_catalog.current_setting('effective_wal_level', true),
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
      THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_flush_lsn() END,
  'synchronous_standbys', pg_catalog.current_setting('synchronous_standby_names'),
  'unread_standby_slots', (SELECT coalesce(pg_catalog.json_agg(name), '[]')
      FROM pg_catalog.regexp_split_to_table(pg_catalog.lower(
          pg_catalog.current_setting('synchronized_standby_slots', true)), '[^a-z0-9_]+') name
      WHERE name <> '' AND NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots s
          WHERE s.slot_name = name AND s.slot_type = 'physical' AND s.active)),
  'has_patroni', EXISTS (SELECT FROM pg_catalog.pg_stat_activity
      WHERE pg_catalog.starts_with(application_name, 'Patroni')),
  'clock_unix_us', (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint,
  'messages_for_all', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.oidvectortypes(f.proargtypes) ORDER BY f.oid), '[]')
      FROM pg_catalog.pg_proc f WHERE f.proname = 'pg_logical_emit_message'
      AND f.pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND EXISTS (
          SELECT FROM pg_catalog.aclexplode(coalesce(f.proacl, pg_catalog.acldefault('f', f.proowner))) a
          WHERE a.grantee = 0 AND a.privilege_type = 'EXECUTE')))::pg_catalog.text";

/// `$1` is a role, or NULL for the role of the connection.
const ROLE_SQL: &str = "
SELECT pg_catalog.json_build_object('name', r.rolname, 'superuser', r.rolsuper,
  'replication', r.rolsuper OR r.rolreplication OR EXISTS (
      SELECT FROM pg_catalog.pg_roles g WHERE g.rolname = 'rds_replication'
      AND pg_catalog.pg_has_role(r.oid, g.oid, 'MEMBER')),
  'on_rds', EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rds_replication'),
  'grants_rds', EXISTS (SELECT FROM pg_catalog.pg_roles g WHERE g.rolname = 'rds_superuser'
      AND pg_catalog.pg_has_role(r.oid, g.oid, 'MEMBER')))::pg_catalog.text
FROM pg_catalog.pg_roles r WHERE r.rolname = coalesce($1, current_user)";

pub async fn gather(client: &Client, settings: &SourceSettings) -> Result<SourceFacts, Error> {
    // In a database of many tables the planner overestimates the cost of these queries, and
    // compiling them takes longer than running them.
    // The slot is read before the end of WAL: a slot in use would otherwise seem to be ahead of it.
    let ((), state, oldest_transaction, server, role, published) = tokio::try_join!(
        client.batch_execute("SET jit = off"),
        slot_state(client, &settings.slot),
        oldest_transaction(client),
        server(client),
        document(client, ROLE_SQL, &[(&None::<&str>, Type::TEXT)]),
        published(client, settings),
    )?;
    let decoded = state.decoded();
    Ok(SourceFacts { server, role, slot: state.slot, decoded, oldest_transaction, published })
}

pub async fn server(client: &Client) -> Result<ServerFacts, Error> {
    let mut facts: ServerFacts = document(client, SERVER_SQL, &[]).await?;
    facts.host_ahead_us = unix_now_us().saturating_sub(facts.clock_unix_us);
    Ok(facts)
}

/// The system identifier, where the role may read it.
pub async fn system_id(client: &Client) -> Option<String> {
    const SQL: &str =
        "SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()";
    client.query_one(SQL, &[]).await.ok()?.try_get(0).ok()
}

pub async fn role(client: &Client, name: &str) -> Result<Option<RoleFacts>, Error> {
    document_opt(client, ROLE_SQL, &[(&name, Type::TEXT)]).await
}
