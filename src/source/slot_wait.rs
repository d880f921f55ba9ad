//! What Postgres waits for while it makes a slot, seen from a second connection.
//!
//! It waits for every transaction that is open when the creation begins, and where the first logical
//! slot raises `effective_wal_level` (19 and later) for each process of the server.

use serde::Deserialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::json_row::document_opt;
use super::oldest_transaction::oldest_transaction;

/// No time limit of the role or of the database applies to the session: Postgres may wait for minutes.
pub(crate) const NO_TIMEOUTS_SQL: &str = "SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings \
     WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')";

const SQL: &str = "
SELECT pg_catalog.json_build_object('kind', a.wait_event_type, 'event', a.wait_event)::pg_catalog.text
FROM pg_catalog.pg_stat_activity a WHERE a.pid = $1";

#[derive(Deserialize)]
struct WaitEvent {
    kind: Option<String>,
    event: Option<String>,
}

/// The process of a session.
pub(crate) async fn session_pid(client: &Client) -> Result<i32, Error> {
    let row = client.query_typed_one("SELECT pg_catalog.pg_backend_pid()", &[]).await?;
    row.try_get(0)
}

/// What the session of process `pid` waits for, as a sentence.
pub(crate) async fn waits_for(client: &Client, pid: i32) -> Result<String, Error> {
    let event: Option<WaitEvent> = document_opt(client, SQL, &[(&pid, Type::INT4)]).await?;
    let Some(WaitEvent { kind: Some(kind), event: Some(event) }) = event else {
        return Ok(ANY_TRANSACTION.to_owned());
    };
    if event == "ProcSignalBarrier" {
        return Ok(
            "waiting for every process of Postgres to take over effective_wal_level = logical: \
             a checkpoint that is being written can delay one for minutes"
                .to_owned(),
        );
    }
    let oldest = oldest_transaction(client).await?;
    Ok(match oldest.filter(|_| kind == "Lock") {
        Some(oldest) => format!(
            "waiting for open transactions to end; the oldest: {}; to end it: {};",
            oldest.summary(),
            oldest.mend()
        ),
        None => format!("waiting for Postgres ({kind}: {event})"),
    })
}

/// For a creation that cannot be looked at.
pub(crate) const ANY_TRANSACTION: &str = "waiting for open transactions to end; the oldest: SELECT pid, xact_start, query \
     FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start LIMIT 1;";
