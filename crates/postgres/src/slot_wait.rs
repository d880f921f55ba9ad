//! Waits of Postgres while it makes a slot, seen from a second connection.
//!
//! It waits for every transaction that is open when the creation begins, and where the first logical
//! slot raises `effective_wal_level` (19 and later) for each process of the server.

use serde::Deserialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::json_row::document_opt;
use super::oldest_transaction::oldest_transaction;

/// No time limit of the role or of the database applies to the session: Postgres may wait for minutes.
pub const NO_TIMEOUTS_SQL: &str = "SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings \
     WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', \
     'idle_in_transaction_session_timeout', 'idle_session_timeout')";

const SQL: &str = "
SELECT pg_catalog.json_build_object('kind', a.wait_event_type, 'event', a.wait_event,
  'blockers', CASE WHEN a.wait_event_type = 'Lock'
      THEN pg_catalog.pg_blocking_pids(a.pid) ELSE '{}' END)::pg_catalog.text
FROM pg_catalog.pg_stat_activity a WHERE a.pid = $1";

#[derive(Default, Deserialize)]
struct Wait {
    kind: Option<String>,
    event: Option<String>,
    /// The processes that hold the lock, or wait for it in front; 0 is a prepared transaction.
    blockers: Vec<i32>,
}

impl Wait {
    /// The wait for an open transaction, as that of the creation.
    fn is_for_transaction(&self) -> bool {
        let event = self.event.as_deref();
        self.kind.as_deref() == Some("Lock")
            && matches!(event, Some("transactionid" | "virtualxid"))
    }

    fn sentence(&self) -> String {
        match (self.kind.as_deref(), self.event.as_deref()) {
            (_, Some("ProcSignalBarrier")) => {
                "waiting for every process of Postgres to take over effective_wal_level = logical: \
                 a checkpoint that is being written can delay one for minutes"
                    .to_owned()
            }
            (Some("Lock"), Some(_)) if self.is_for_transaction() => ANY_TRANSACTION.to_owned(),
            (Some("Lock"), Some(event)) => {
                let pids: Vec<String> = self.blockers.iter().map(ToString::to_string).collect();
                let pids = if pids.is_empty() { "unknown".to_owned() } else { pids.join(", ") };
                format!("waiting for a lock ({event}); pg_blocking_pids: {pids}")
            }
            (Some(kind), Some(event)) => format!("waiting for Postgres ({kind}: {event})"),
            _ => "Postgres is still at work, and waits for nothing".to_owned(),
        }
    }
}

/// The process of a session.
pub async fn session_pid(client: &Client) -> Result<i32, Error> {
    let row = client.query_typed_one("SELECT pg_catalog.pg_backend_pid()", &[]).await?;
    row.try_get(0)
}

/// Asks what the session of process `pid` waits for, as a sentence.
pub async fn describe_wait(client: &Client, pid: i32) -> Result<String, Error> {
    let wait: Option<Wait> = document_opt(client, SQL, &[(&pid, Type::INT4)]).await?;
    let wait = wait.unwrap_or_default();
    if wait.is_for_transaction()
        && let Some(oldest) = oldest_transaction(client).await?
    {
        let (summary, mend) = (oldest.summary(), oldest.mend());
        return Ok(format!(
            "waiting for open transactions to end; the oldest: {summary}; to end it: {mend};"
        ));
    }
    Ok(wait.sentence())
}

/// For a creation that cannot be looked at.
pub const ANY_TRANSACTION: &str = "waiting for open transactions to end; the oldest: SELECT pid, xact_start, query \
     FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start LIMIT 1;";

#[cfg(test)]
#[path = "slot_wait_tests.rs"]
mod tests;
