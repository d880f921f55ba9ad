//! Says which lock of the table the sessions of a process wait for: a migration may hold it for long.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use crate::base::error::Fault;
use crate::base::lock::locked;
use crate::source::faults::query_fault;
use crate::source::settings::ConnInfo;
use crate::source::slot_wait::session_pid;
use crate::source::sql::{self, Sql};

/// How long a wait may last before it is looked at, and the pause between looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Pause after the log has named a table.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Limit for a look.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// The search path is empty, so the name of the relation has its schema.
const SQL: &str = "
SELECT relation::pg_catalog.regclass::pg_catalog.text,
       pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(pid), ', ')
FROM pg_catalog.pg_locks WHERE pid = $1 AND locktype = 'relation' AND NOT granted";

/// The wait for a lock that several sessions of a process may share.
pub(crate) struct LockWait {
    info: ConnInfo,
    look_every: Duration,
    /// Gets a sentence at each look that finds the wait, and an empty text when the wait has ended.
    report: Box<dyn Fn(&str) + Send + Sync>,
    found: Mutex<Found>,
}

/// The looks that have found a wait, since the last one ended.
#[derive(Default)]
struct Found {
    last_at: Option<Instant>,
    logged_at: Option<Instant>,
}

impl LockWait {
    pub(crate) fn new(
        info: &ConnInfo,
        look_every: Duration,
        report: impl Fn(&str) + Send + Sync + 'static,
    ) -> LockWait {
        LockWait {
            info: info.clone(),
            look_every,
            report: Box::new(report),
            found: Mutex::default(),
        }
    }

    /// Awaits what the session of process `pid` does with a table, and says meanwhile for which lock it waits.
    pub(crate) async fn explain_during<T>(&self, pid: i32, doing: impl Future<Output = T>) -> T {
        tokio::select! {
            done = doing => done,
            never = self.explain(pid) => match never {},
        }
    }

    /// The same for the session of `client`; asks first which process it has.
    pub(crate) async fn explain_on<T>(
        &self,
        client: &Client,
        doing: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let pid = session_pid(client).await;
        let pid = pid.map_err(|error| query_fault(&error, "asking for the session's process"))?;
        self.explain_during(pid, doing).await
    }

    /// Looks regularly at the lock that the session of process `pid` waits for, until the future is dropped.
    async fn explain(&self, pid: i32) -> Infallible {
        loop {
            tokio::time::sleep(self.look_every).await;
            // Another session has looked, at the same lock.
            if locked(&self.found).last_at.is_some_and(|at| at.elapsed() < self.look_every) {
                continue;
            }
            // Boxed, because the future of every claim would hold it.
            let look =
                Box::pin(async { look(&sql::connect(&self.info).await.ok()?, pid).await.ok()? });
            if let Ok(Some((relation, blockers))) = timeout(LOOK_WITHIN, look).await {
                self.tell(&relation, &blockers);
            }
        }
    }

    fn tell(&self, relation: &str, blockers: &str) {
        let sentence = format!(
            "another session has locked {relation}, and this process waits for it: SELECT pid, usename, state, xact_start, query FROM pg_catalog.pg_stat_activity WHERE pid IN ({blockers});"
        );
        let is_logged = {
            let (mut found, now) = (locked(&self.found), Instant::now());
            found.last_at = Some(now);
            let is_due = found.logged_at.is_none_or(|at| now.duration_since(at) >= LOG_EVERY);
            if is_due {
                found.logged_at = Some(now);
            }
            is_due
        };
        (self.report)(&sentence);
        if is_logged {
            tracing::warn!(code = "polling.table-locked", relation, blockers, "{sentence}");
        }
    }

    /// Whether a wait was found that has not ended.
    pub(crate) fn is_told(&self) -> bool {
        locked(&self.found).last_at.is_some()
    }

    /// A statement has had its locks.
    pub(crate) fn end(&self) {
        let found = std::mem::take(&mut *locked(&self.found));
        if found.last_at.is_some() {
            (self.report)("");
        }
    }
}

/// Awaits what a command does with a table on `client`, and says for which lock it waits.
pub(crate) async fn with_explanation<T>(
    info: &ConnInfo,
    client: &Client,
    doing: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    LockWait::new(info, LOOK_EVERY, |_| {}).explain_on(client, doing).await
}

/// The relation for whose lock a session waits, and the processes that hold the lock, or wait for it in
/// front; 0 is a prepared transaction.
async fn look(sql: &Sql, pid: i32) -> Result<Option<(String, String)>, Error> {
    let rows = sql.client.query_typed(SQL, &[(&pid, Type::INT4)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (relation, blockers): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    // No process blocks it any more: the wait has just ended.
    Ok(Some((relation, blockers)).filter(|(_, blockers)| !blockers.is_empty()))
}

#[cfg(test)]
#[path = "lock_wait_tests.rs"]
mod tests;
