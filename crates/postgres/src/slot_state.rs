//! The slot's row at one moment, the process that holds it, and the server's position.
//!
//! One statement for every use, cheap enough for ten times a second: it reads shared memory and no
//! table. START_REPLICATION fails when another process holds the slot, but each failure is a line
//! in the server's log, and does not say which process it is.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};
use walrelay_core::source::server::{ServerRun, ServerStart};
pub use walrelay_core::source::slot_state::{HeldSlot, SlotHolder};

use super::idle_timeout::IdleTimeout;
use super::json_row::{JsonText, document, lsn, present, xid};
use walrelay_base::clock::unix_now_us;
use walrelay_base::figures::binary_size;
use walrelay_base::lsn::Lsn;
use walrelay_base::text::escaped;

/// One row of `pg_replication_slots`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SlotFacts {
    #[serde(rename = "slot_name")]
    pub name: String,
    /// Absent for a physical slot, as is the database.
    pub plugin: Option<String>,
    pub database: Option<String>,
    pub temporary: bool,
    pub active: bool,
    pub active_pid: Option<i32>,
    /// `0/0` for a slot without a position: a physical one, or one that is being made.
    #[serde(rename = "confirmed_flush_lsn", deserialize_with = "lsn")]
    pub confirmed_flush: Lsn,
    /// Oldest WAL it needs; `0/0` when that was removed.
    #[serde(deserialize_with = "lsn")]
    pub restart_lsn: Lsn,
    /// `reserved`, `extended`, `unreserved`, `lost`.
    pub wal_status: Option<String>,
    /// Bytes of WAL that may be written before the slot can be lost; absent without a limit.
    pub safe_wal_size: Option<i64>,
    #[serde(default)]
    pub two_phase: bool,
    /// Since 17.
    #[serde(default)]
    pub invalidation_reason: Option<String>,
    /// Oldest transaction whose catalog changes it still needs.
    #[serde(default, deserialize_with = "xid")]
    pub catalog_xmin: Option<u32>,
    /// Since 17, like `synced`.
    failover: Option<bool>,
    /// It stays true where the standby that has synchronized it is promoted, and means nothing there.
    synced: Option<bool>,
    #[serde(default)]
    in_recovery: bool,
    /// Why a standby has not synchronized it the last time; the outer one is absent before 19.
    #[serde(default, deserialize_with = "present")]
    slotsync_skip_reason: Option<Option<String>>,
    /// `idle_replication_slot_timeout`; absent before 18.
    idle_timeout_ms: Option<u64>,
    /// For how long nobody has read it; absent while somebody does, and before 17.
    idle_ms: Option<u64>,
}

impl SlotFacts {
    /// A logical slot has no position before it is made.
    pub fn is_being_made(&self) -> bool {
        let has_no_position = self.plugin.is_some() && self.confirmed_flush.is_zero();
        has_no_position && !self.is_lost() && !self.is_half_synchronized()
    }

    /// A standby is still synchronizing it, and a promotion would drop it.
    pub fn is_half_synchronized(&self) -> bool {
        self.temporary && self.synced == Some(true)
    }

    /// Standbys synchronize it.
    pub fn is_failover(&self) -> bool {
        self.failover == Some(true)
    }

    /// A former primary has kept it: Postgres copies no slot of this name from the primary.
    pub fn is_own_on_standby(&self) -> bool {
        self.in_recovery && self.is_failover() && self.synced == Some(false)
    }

    /// Postgres has copied it from the primary.
    pub fn is_copy_on_standby(&self) -> bool {
        self.in_recovery && self.synced == Some(true)
    }

    /// It can never be read again.
    pub fn is_lost(&self) -> bool {
        self.wal_status.as_deref() == Some("lost") || self.invalidation_reason.is_some()
    }

    /// The effect of the time without a reader on the slot; none where that is without limit, as it
    /// is for a slot that a standby synchronizes.
    pub fn idle_timeout(&self) -> Option<IdleTimeout> {
        let applies = !self.is_lost() && !self.is_copy_on_standby();
        let timeout = self.idle_timeout_ms.filter(|ms| *ms > 0 && applies);
        let idle = self.idle_ms.map(Duration::from_millis);
        timeout.map(|ms| IdleTimeout { timeout: Duration::from_millis(ms), idle })
    }

    /// Why it is not on this standby as it is on the primary.
    pub fn slotsync_skip_reason(&self) -> Option<&str> {
        self.slotsync_skip_reason.as_ref().filter(|_| self.in_recovery)?.as_deref()
    }

    /// Why Postgres invalidated it; before 17, removed WAL is the only reason.
    pub fn loss_reason(&self) -> &str {
        self.invalidation_reason.as_deref().unwrap_or("wal_removed")
    }
}

/// The server and the slot at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SlotState {
    pub in_recovery: bool,
    /// The end of the WAL that is on disk: a crash can lose what is behind it, and no slot sends that.
    #[serde(deserialize_with = "lsn")]
    pub current_lsn: Lsn,
    /// The one that was asked.
    pub database: String,
    pub slot: Option<SlotFacts>,
    pub holder: Option<SlotHolder>,
    decoded: Option<i64>,
    decoded_is_reset: bool,
    stats_reset_unix_us: Option<i64>,
    has_peer: bool,
    at_unix_us: i64,
}

impl SlotState {
    /// The slot if a relay on this database can use it. Any other counts as absent: the doctor
    /// reports it, and its WAL does not matter here.
    pub fn own_slot(&self) -> Option<&SlotFacts> {
        self.slot.as_ref().filter(|slot| {
            slot.plugin.as_deref() == Some("pgoutput")
                && slot.database.as_ref() == Some(&self.database)
        })
    }

    /// The slot at the server that was started then.
    pub fn held(&self, start: &ServerStart) -> Option<HeldSlot> {
        let confirmed_flush = self.slot.as_ref()?.confirmed_flush;
        let SlotState { holder, decoded, .. } = self.clone();
        let decoded = decoded.filter(|_| !self.decoded_is_reset);
        let (has_peer, at_unix_us) = (self.has_peer, self.at_unix_us);
        let run = ServerRun::new(start.clone(), self.stats_reset_unix_us);
        Some(HeldSlot { confirmed_flush, holder, decoded, run, has_peer, at_unix_us })
    }

    /// [`HeldSlot::decoded`], also after a reset.
    pub fn decoded(&self) -> Option<i64> {
        self.slot.as_ref().and(self.decoded)
    }

    /// WAL that `slot` has not confirmed.
    pub fn lag_bytes(&self, slot: &SlotFacts) -> u64 {
        self.current_lsn.bytes_since(slot.confirmed_flush)
    }

    /// WAL that Postgres retains for `slot`; `None` once that was removed.
    pub fn retained_bytes(&self, slot: &SlotFacts) -> Option<u64> {
        (!slot.restart_lsn.is_zero()).then(|| self.current_lsn.bytes_since(slot.restart_lsn))
    }

    /// Names and values to show; an absent value is null. `None` without a slot.
    pub fn fields(&self) -> Option<Vec<(&'static str, Value)>> {
        let slot = self.slot.as_ref()?;
        let shown = |lsn: Lsn| (!lsn.is_zero()).then(|| lsn.to_string());
        let confirmed = shown(slot.confirmed_flush);
        let lag = confirmed.as_ref().map(|_| self.lag_bytes(slot));
        let mut fields = vec![
            ("slot", json!(slot.name)),
            ("plugin", json!(slot.plugin)),
            ("database", json!(slot.database)),
            ("temporary", json!(slot.temporary)),
            ("active_pid", json!(slot.active_pid)),
            ("restart_lsn", json!(shown(slot.restart_lsn))),
            ("confirmed_flush_lsn", json!(confirmed)),
            ("current_lsn", json!(self.current_lsn.to_string())),
            ("lag_bytes", json!(lag)),
            ("retained_wal_bytes", json!(self.retained_bytes(slot))),
            ("safe_wal_bytes", json!(slot.safe_wal_size)),
            ("wal_status", json!(slot.wal_status)),
            ("invalidation_reason", json!(slot.invalidation_reason)),
        ];
        if let Some(idle) = slot.idle_timeout() {
            fields.push(("idle_timeout_seconds", json!(idle.timeout.as_secs())));
            fields.push(("idle_left_seconds", json!(idle.left().map(|left| left.as_secs()))));
        }
        fields.extend(slot.failover.map(|is_set| ("failover", json!(is_set))));
        fields.extend(slot.synced.map(|is_set| ("synced", json!(is_set))));
        let skipped = slot.slotsync_skip_reason.as_ref();
        fields.extend(skipped.map(|reason| ("slotsync_skip_reason", json!(reason))));
        Some(fields)
    }
}

/// One line per field, aligned, for people: sizes have a unit.
pub fn field_lines(fields: Vec<(&'static str, Value)>) -> String {
    let line = |(name, value): (&str, Value)| {
        let text = match value {
            Value::Null => "-".to_owned(),
            Value::String(text) => escaped(&text),
            Value::Number(bytes) if name.ends_with("_bytes") => {
                bytes.as_u64().map_or_else(|| bytes.to_string(), binary_size)
            }
            other => other.to_string(),
        };
        format!("{name:<20} {text}\n")
    };
    fields.into_iter().map(line).collect()
}

/// `to_jsonb` includes the columns that only newer servers have. `pg_stat_activity` shows role and
/// application of every process to every role. Before 15, statistics are read from a file:
/// they are left out there. The time is that after the slot was read. `greatest` passes over NULL, so
/// a slot that is read would have an idle time of 0.
///
/// `pg_stat_activity` also shows the last statement of every process of the same role. Relays mark
/// this one with the slot's name and with a text of their process, so that they see each other.
const SQL: &str = "
pg_catalog.json_build_object(
  'in_recovery', pg_catalog.pg_is_in_recovery(),
  'current_lsn', CASE WHEN pg_catalog.pg_is_in_recovery()
      THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_flush_lsn() END,
  'database', pg_catalog.current_database(),
  'slot', CASE WHEN s.slot_name IS NOT NULL THEN pg_catalog.to_jsonb(s) || pg_catalog.jsonb_build_object(
      'in_recovery', pg_catalog.pg_is_in_recovery(),
      'idle_timeout_ms', (extract(epoch FROM pg_catalog.current_setting('idle_replication_slot_timeout', true)
          ::pg_catalog.interval) * 1000)::pg_catalog.int8,
      'idle_ms', CASE WHEN pg_catalog.to_jsonb(s) ->> 'inactive_since' IS NOT NULL
          THEN greatest(0, (extract(epoch FROM pg_catalog.clock_timestamp()
          - (pg_catalog.to_jsonb(s) ->> 'inactive_since')::pg_catalog.timestamptz) * 1000)::pg_catalog.int8) END) END,
  'holder', CASE WHEN r.pid IS NOT NULL THEN pg_catalog.json_build_object(
      'pid', s.active_pid, 'application', coalesce(r.application_name, ''),
      'peer', coalesce(r.usename = session_user AND r.application_name
          = pg_catalog.current_setting('application_name'), false)) END,
  'decoded', CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 >= 150000
      THEN (SELECT t.total_txns FROM pg_catalog.pg_stat_replication_slots t
            WHERE t.slot_name = s.slot_name) END,
  'decoded_is_reset', EXISTS (SELECT FROM pg_catalog.pg_stat_replication_slots t
      WHERE t.slot_name = s.slot_name AND t.stats_reset IS NOT NULL),
  'stats_reset_unix_us', CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 >= 150000
      THEN (extract(epoch FROM pg_catalog.pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::pg_catalog.int8 END,
  'has_peer', EXISTS (SELECT FROM pg_catalog.pg_stat_activity p
      WHERE p.usename = session_user AND p.datname = pg_catalog.current_database()
      AND p.application_name = pg_catalog.current_setting('application_name')
      AND pg_catalog.starts_with(p.query, $2) AND NOT pg_catalog.starts_with(p.query, $3)),
  'at_unix_us', (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::pg_catalog.int8)::pg_catalog.text
FROM (VALUES (1)) one
LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = $1
LEFT JOIN pg_catalog.pg_stat_activity r ON r.pid = s.active_pid";

/// Takes one round trip.
pub async fn slot_state(client: &Client, slot: &str) -> Result<SlotState, Error> {
    let (marks, sql) = (RelayMarks::of(slot), format!("SELECT {SQL}"));
    let RelayMarks { any, own } = &marks;
    document(client, &sql, &[(&slot, Type::TEXT), (any, Type::TEXT), (own, Type::TEXT)]).await
}

/// How the statement of a relay begins that looks at the slot it reads or waits for.
#[derive(Debug)]
struct RelayMarks {
    any: String,
    own: String,
}

impl RelayMarks {
    fn of(slot: &str) -> RelayMarks {
        /// Differs from process to process, also on different machines.
        static PROCESS: OnceLock<String> = OnceLock::new();
        let process = PROCESS.get_or_init(|| format!("{} {}", std::process::id(), unix_now_us()));
        // Postgres allows no other characters in the name of a slot.
        let is_allowed = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        let name: String = slot.chars().filter(is_allowed).collect();
        let any = format!("SELECT /* relay of slot {name}, process ");
        let own = format!("{any}{process} */");
        RelayMarks { any, own }
    }
}

/// The prepared statement of a relay, for repeated use on one connection.
#[derive(Debug)]
pub struct SlotQuery {
    statement: Statement,
    slot: String,
    marks: RelayMarks,
}

impl SlotQuery {
    /// From then on Postgres does not end the session because of the time between two statements.
    pub async fn prepare(client: &Client, slot: &str) -> Result<SlotQuery, Error> {
        let marks = RelayMarks::of(slot);
        let sql = format!("{}{SQL}", marks.own);
        let ((), statement) = tokio::try_join!(
            client.batch_execute("SET idle_session_timeout = 0"),
            client.prepare_typed(&sql, &[Type::TEXT, Type::TEXT, Type::TEXT]),
        )?;
        Ok(SlotQuery { statement, slot: slot.to_owned(), marks })
    }

    pub async fn run(&self, client: &Client) -> Result<SlotState, Error> {
        let RelayMarks { any, own } = &self.marks;
        let row = client.query_one(&self.statement, &[&self.slot, any, own]).await?;
        row.try_get(0).map(|JsonText(state)| state)
    }
}

/// How long `restart_lsn` has not changed. A transaction that stays open
/// holds it, however fast events flow, and WAL accumulates. Counted from
/// the first observation, because Postgres does not report it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestartAge {
    last: Option<(Lsn, Instant)>,
}

impl RestartAge {
    pub fn observe(&mut self, restart_lsn: Lsn, now: Instant) -> Duration {
        match self.last {
            Some((lsn, since)) if lsn == restart_lsn => now.saturating_duration_since(since),
            _ => {
                self.last = Some((restart_lsn, now));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
#[path = "slot_state_tests.rs"]
mod tests;
