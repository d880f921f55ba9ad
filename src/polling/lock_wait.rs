//! Says which table polling waits for at its start: a migration may have locked it for long.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio_postgres::Error;
use tokio_postgres::types::Type;

use crate::source::settings::ConnInfo;
use crate::source::sql::{self, Sql};

/// How long a wait may last before it is looked at, and the pause between looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Pause after the log has named a table.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Limit for a look.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// The search path is empty, so the name of the relation has its schema.
const SQL: &str = "
SELECT relation::pg_catalog.regclass::pg_catalog.text,
       pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(pid), ', ')
FROM pg_catalog.pg_locks WHERE pid = $1 AND locktype = 'relation' AND NOT granted";

/// Looks regularly at the lock that the session of process `pid` waits for, until the future is dropped.
/// `report` is told of the wait at each look.
pub(crate) async fn explain(info: &ConnInfo, pid: i32, mut report: impl FnMut(&str)) -> Infallible {
    let mut logged_at: Option<Instant> = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let look = async { look(&sql::connect(info).await.ok()?, pid).await.ok().flatten() };
        let Ok(Some((relation, blockers))) = tokio::time::timeout(LOOK_WITHIN, look).await else {
            continue;
        };
        let sentence = format!(
            "another session has locked {relation}, and polling begins after it: SELECT pid, usename, state, xact_start, query FROM pg_catalog.pg_stat_activity WHERE pid IN ({blockers});"
        );
        report(&sentence);
        if logged_at.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            logged_at = Some(Instant::now());
            tracing::warn!(code = "polling.table-locked", relation, blockers, "{sentence}");
        }
    }
}

/// The relation for whose lock a session waits, and the processes that hold the lock, or wait for it in
/// front; 0 is a prepared transaction.
async fn look(sql: &Sql, pid: i32) -> Result<Option<(String, String)>, Error> {
    let rows = sql.client.query_typed(SQL, &[(&pid, Type::INT4)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some((row.try_get(0)?, row.try_get(1)?)))
}
