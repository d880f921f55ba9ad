//! Notices a smart shutdown of Postgres (`pg_ctl stop -m smart`): it waits until every SQL session has ended by
//! itself, and tells none of them. Only a new connection is refused. A session that lasts as long as the
//! relay would let the shutdown wait for ever.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::Error;

use crate::connect::{self, ConnectError, ConnectErrorKind};
use crate::settings::ConnInfo;
use crate::sql::Sql;

/// The interval between two attempts to connect: `pg_ctl stop` waits for 60 s.
pub const TRY_EVERY: Duration = Duration::from_secs(30);
/// How long a shutdown that seems to wait for other sessions is not made faster: a role without
/// `pg_read_all_stats` cannot distinguish a session from a background worker, for which no shutdown waits.
pub const GO_ON_FOR: Duration = Duration::from_secs(300);
/// The interval between two looks whether other sessions are left.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Limit for one look.
const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// Relays with the same name of their application wait for each other's sessions no more than for their own.
/// `pg_stat_activity` shows the type of a backend only to its own role and to `pg_read_all_stats`.
const OTHERS_SQL: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS other
    WHERE other.datid IS NOT NULL AND other.usesysid IS NOT NULL
        AND coalesce(other.backend_type, 'client backend') = 'client backend'
        AND other.application_name <> pg_catalog.current_setting('application_name')
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_replication AS sender WHERE sender.pid = other.pid))";

/// Returns the error of a new connection once the server of `sql` stops and waits for no session of another
/// program: `sql` keeps it from stopping. Until then events of those sessions still come.
pub async fn wait_for_smart_shutdown(
    info: &ConnInfo,
    sql: &Sql,
    try_every: Duration,
    go_on_for: Duration,
) -> ConnectError {
    let refused = refusal(info, sql, try_every).await;
    let since = Instant::now();
    let mut is_logged = false;
    while since.elapsed() < go_on_for {
        match sql.within(LOOK_WITHIN, has_other_sessions(sql)).await {
            Ok(true) if !std::mem::replace(&mut is_logged, true) => {
                tracing::info!("postgres stops once the sessions of other programs have ended");
            }
            Ok(true) => {}
            Ok(false) | Err(_) => break,
        }
        sleep(LOOK_EVERY).await;
    }
    refused
}

/// Connects again and again to the server of `sql`, until that refuses because it stops, which it does before it
/// asks for a password. Whatever else comes of an attempt says nothing about `sql`.
async fn refusal(info: &ConnInfo, sql: &Sql, every: Duration) -> ConnectError {
    let info = ConnInfo { hosts: vec![sql.server.clone()], ..info.clone() };
    loop {
        sleep(every).await;
        match connect::try_session(&info).await {
            Err(error) if error.kind() == ConnectErrorKind::Stopping => return error,
            Err(error) => tracing::debug!(%error, "it is not known whether postgres stops"),
            Ok(()) => {}
        }
    }
}

async fn has_other_sessions(sql: &Sql) -> Result<bool, Error> {
    sql.client.query_one(OTHERS_SQL, &[]).await.map(|row| row.get(0))
}

#[cfg(test)]
#[path = "smart_shutdown_tests.rs"]
mod tests;
