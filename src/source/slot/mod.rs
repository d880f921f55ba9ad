//! The slot's life: made, shown and dropped only when a person asks.
//!
//! The publication always comes first: a slot reads the catalogue as it was at each change, so it
//! cannot see a publication that is younger than the change. A slot in use is never dropped.

mod advance;

use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{PgLsn, Type};

pub use self::advance::{Advance, advance};
use super::facts;
use super::publication;
use super::quote::quote_literal;
use super::settings::SourceSettings;
use crate::base::error::{Exit, Fault};
use crate::base::lsn::Lsn;
use crate::base::text::escaped;

/// `pg_create_logical_replication_slot` takes `failover` from this version on.
const KNOWS_FAILOVER: i32 = 170_000;

/// A slot for people.
#[derive(Clone, Debug)]
pub struct SlotView {
    /// Its row.
    pub slot: facts::SlotFacts,
    /// End of WAL.
    pub current_lsn: Lsn,
}

/// Makes the slot and returns the position from which it delivers. Waits for the transactions
/// that are open; `failover` needs PostgreSQL 17.
pub async fn create(
    client: &Client,
    settings: &SourceSettings,
    failover: bool,
) -> Result<Lsn, Fault> {
    let name = &settings.slot;
    const SQL: &str = "SELECT pg_catalog.current_setting('server_version_num')::int,
        EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = $1)";
    let row = client
        .query_typed_one(SQL, &[(&settings.publication, Type::TEXT)])
        .await
        .map_err(|e| slot_fault(&e, name, &[]))?;
    let (version, published): (i32, bool) = (row.get(0), row.get(1));
    if !published {
        return Err(publication::missing(settings, false));
    }
    if failover && version < KNOWS_FAILOVER {
        return Err(Fault::new(
            Exit::Usage,
            "slot.failover",
            format!("failover slots need PostgreSQL 17, this is {}", version / 10_000),
            "--failover",
            "walrelay slot create",
        ));
    }
    match client.query_typed_one(&create_sql(name, failover), &[]).await {
        Ok(row) => Ok(lsn(row.get(0))),
        Err(error) => Err(slot_fault(&error, name, &existing(client).await)),
    }
}

/// The statement that makes the slot unless it is there.
#[must_use]
pub(super) fn create_if_missing_sql(name: &str) -> String {
    let literal = quote_literal(name);
    format!(
        "SELECT pg_catalog.pg_create_logical_replication_slot({literal}, 'pgoutput')\n  WHERE NOT EXISTS \
         (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = {literal});"
    )
}

fn create_sql(name: &str, failover: bool) -> String {
    let literal = quote_literal(name);
    let options = if failover { ", false, false, true" } else { "" };
    format!(
        "SELECT lsn FROM pg_catalog.pg_create_logical_replication_slot({literal}, 'pgoutput'{options})"
    )
}

/// Drops the slot, and with it what it has not delivered.
pub async fn drop(client: &Client, name: &str) -> Result<(), Fault> {
    let slot = facts::slot(client, name).await.map_err(|e| slot_fault(&e, name, &[]))?;
    let Some(slot) = slot else {
        return Err(Fault::new(
            Exit::Slot,
            "slot.missing",
            format!("replication slot {name} does not exist"),
            "source.slot",
            "nothing to drop; SELECT slot_name FROM pg_catalog.pg_replication_slots; lists what there is",
        ));
    };
    if let Some(pid) = slot.active_pid {
        return Err(active(name, Some(pid)));
    }
    let sql = format!("SELECT pg_catalog.pg_drop_replication_slot({})", quote_literal(name));
    client.batch_execute(&sql).await.map_err(|e| slot_fault(&e, name, &[]))
}

/// The slot as it stands.
pub async fn show(client: &Client, name: &str) -> Result<Option<SlotView>, Fault> {
    const SQL: &str =
        "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
        ELSE pg_catalog.pg_current_wal_lsn() END";
    let (slot, row) = tokio::try_join!(facts::slot(client, name), client.query_typed_one(SQL, &[]))
        .map_err(|e| slot_fault(&e, name, &[]))?;
    let current_lsn = row.get::<_, Option<PgLsn>>(0).map_or(Lsn::ZERO, lsn);
    Ok(slot.map(|slot| SlotView { slot, current_lsn }))
}

impl SlotView {
    /// WAL that Postgres keeps for it.
    #[must_use]
    pub fn retained_bytes(&self) -> Option<u64> {
        let from = self.slot.restart_lsn;
        (!from.is_zero()).then(|| self.current_lsn.bytes_since(from))
    }

    /// WAL not yet confirmed.
    #[must_use]
    pub fn lag_bytes(&self) -> u64 {
        self.current_lsn.bytes_since(self.slot.confirmed_flush)
    }

    /// Names and values in the order of the table; an absent value is null.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let slot = &self.slot;
        let restart = (!slot.restart_lsn.is_zero()).then(|| slot.restart_lsn.to_string());
        vec![
            ("slot", json!(slot.name)),
            ("plugin", json!(slot.plugin)),
            ("database", json!(slot.database)),
            ("active_pid", json!(slot.active_pid)),
            ("restart_lsn", json!(restart)),
            ("confirmed_flush_lsn", json!(slot.confirmed_flush.to_string())),
            ("current_lsn", json!(self.current_lsn.to_string())),
            ("lag_bytes", json!(self.lag_bytes())),
            ("retained_wal_bytes", json!(self.retained_bytes())),
            ("safe_wal_bytes", json!(slot.safe_wal_size)),
            ("wal_status", json!(slot.wal_status)),
            ("invalidation_reason", json!(slot.invalidation_reason)),
        ]
    }

    /// For scripts.
    #[must_use]
    pub fn to_json(&self) -> Value {
        self.fields().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// For people, one line per fact.
    #[must_use]
    pub fn to_table(&self) -> String {
        let line = |(name, value): (&str, Value)| {
            let text = match value {
                Value::Null => "-".to_owned(),
                Value::String(text) => escaped(&text),
                other => other.to_string(),
            };
            format!("{name:<20} {text}\n")
        };
        self.fields().into_iter().map(line).collect()
    }
}

/// Names of the slots of the server, for a fault; empty when even that cannot be had.
pub(super) async fn existing(client: &Client) -> Vec<String> {
    const SQL: &str = "SELECT slot_name::pg_catalog.text FROM pg_catalog.pg_replication_slots ORDER BY 1 LIMIT 100";
    let rows = client.query_typed(SQL, &[]).await.unwrap_or_default();
    rows.iter().map(|row| row.get(0)).collect()
}

/// All slots are taken.
pub(crate) fn none_free(slots: &[String], max: Option<u32>) -> Fault {
    let (all, raise) = match max {
        Some(max) => (format!("all {max} replication slots"), (max + 5).to_string()),
        None => ("all replication slots".to_owned(), "…".to_owned()),
    };
    Fault::new(
        Exit::Slot,
        "slot.none-free",
        format!("{all} are in use (max_replication_slots): {}", slots.join(", ")),
        "",
        format!(
            "drop one that nobody needs: SELECT pg_catalog.pg_drop_replication_slot('NAME'); or ALTER SYSTEM \
             SET max_replication_slots = {raise}; then restart Postgres"
        ),
    )
}

fn active(name: &str, pid: Option<i32>) -> Fault {
    let (by, end) = match pid {
        Some(pid) => {
            (format!("pid {pid}"), format!("SELECT pg_catalog.pg_terminate_backend({pid});"))
        }
        None => (
            "another process".to_owned(),
            format!(
                "SELECT pg_catalog.pg_terminate_backend(active_pid) FROM pg_catalog.pg_replication_slots WHERE \
                 slot_name = {};",
                quote_literal(name)
            ),
        ),
    };
    Fault::new(
        Exit::Slot,
        "slot.active",
        format!("slot {name} is being read by {by}"),
        "source.slot",
        format!("stop that relay first; if it is gone without a trace: {end}"),
    )
}

/// What a failed slot function means.
pub(super) fn slot_fault(error: &tokio_postgres::Error, name: &str, slots: &[String]) -> Fault {
    let Some(db) = error.as_db_error() else {
        return crate::doctor::source::query_fault(error, "working on the slot");
    };
    let fault = |exit, code, what, mend: String| Fault::new(exit, code, what, "source.slot", mend);
    match db.code() {
        code if *code == SqlState::CONFIGURATION_LIMIT_EXCEEDED => none_free(slots, None),
        code if *code == SqlState::DUPLICATE_OBJECT => fault(
            Exit::Slot,
            "slot.exists",
            format!("replication slot {name} exists already"),
            "walrelay slot show; nothing needs to be created".to_owned(),
        ),
        code if *code == SqlState::UNDEFINED_OBJECT => fault(
            Exit::Slot,
            "slot.missing",
            format!("replication slot {name} does not exist"),
            "walrelay slot create".to_owned(),
        ),
        code if *code == SqlState::OBJECT_IN_USE => active(name, pid_in(db.message())),
        code if *code == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => fault(
            Exit::Source,
            "source.wal-level",
            format!("Postgres cannot decode its WAL: {}", db.message()),
            "ALTER SYSTEM SET wal_level = 'logical'; then restart Postgres; on a standby connect \
             to the primary"
                .to_owned(),
        ),
        code if *code == SqlState::INSUFFICIENT_PRIVILEGE => fault(
            Exit::Source,
            "source.role",
            format!("the role may not work on replication slots: {}", db.message()),
            "as a superuser: ALTER ROLE … REPLICATION; with the role that source.url names"
                .to_owned(),
        ),
        _ => crate::doctor::source::query_fault(error, "working on the slot"),
    }
}

/// The pid that Postgres names in `… is active for PID 4711`.
fn pid_in(message: &str) -> Option<i32> {
    message.rsplit(|c: char| !c.is_ascii_digit()).find(|run| !run.is_empty())?.parse().ok()
}

fn lsn(value: PgLsn) -> Lsn {
    Lsn::from_wire(value.into())
}

#[cfg(test)]
mod tests;
