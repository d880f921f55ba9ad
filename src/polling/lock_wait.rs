//! Says which table polling waits for at its start: a migration may have locked it for long.

use std::convert::Infallible;
use std::time::Duration;

use tokio_postgres::Error;
use tokio_postgres::types::Type;

use crate::source::settings::ConnInfo;
use crate::source::sql::{self, Sql};

/// How long a wait may last before it is looked at.
const LOOK_AFTER: Duration = Duration::from_secs(5);
/// Pause after the log has named a table.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Limit for a look.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// The search path is empty, so the name of the relation has its schema.
const SQL: &str = "
SELECT relation::pg_catalog.regclass::pg_catalog.text,
       pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(pid), ', ')
FROM pg_catalog.pg_locks WHERE pid = $1 AND locktype = 'relation' AND NOT granted";

/// A session that waits for a lock.
struct LockWait {
    relation: String,
    /// The processes that hold the lock, or wait for it in front; 0 is a prepared transaction.
    blockers: String,
}

/// Looks now and then at what the session of process `pid` waits for, until the future is dropped.
pub(crate) async fn explain(info: &ConnInfo, pid: i32) -> Infallible {
    let mut pause = LOOK_AFTER;
    loop {
        tokio::time::sleep(pause).await;
        let look = async { look(&sql::connect(info).await.ok()?, pid).await.ok().flatten() };
        let seen = tokio::time::timeout(LOOK_WITHIN, look).await.ok().flatten();
        pause = if seen.is_some() { AGAIN_AFTER } else { LOOK_AFTER };
        if let Some(LockWait { relation, blockers }) = seen {
            tracing::warn!(
                code = "polling.table-locked",
                relation,
                blockers,
                "another session has locked {relation}, and polling begins after it: SELECT pid, usename, state, xact_start, query FROM pg_catalog.pg_stat_activity WHERE pid IN ({blockers});"
            );
        }
    }
}

async fn look(sql: &Sql, pid: i32) -> Result<Option<LockWait>, Error> {
    let rows = sql.client.query_typed(SQL, &[(&pid, Type::INT4)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(LockWait { relation: row.try_get(0)?, blockers: row.try_get(1)? }))
}
