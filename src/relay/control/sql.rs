//! Reads the catalog again, and confirms the slot's position when there is no stream for that.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use walrelay_core::relay::control::{ConfirmedPosition, Walsender};
use walrelay_core::source::slot_state::HeldSlot;

use crate::base::random;
use crate::source::catalog::{self, Catalog};
use crate::source::connect::{ConnectCause, ConnectError};
use crate::source::settings::{ConnInfo, SourceSettings};
use crate::source::slot::{self, Advance};
use crate::source::sql;

/// Limit for reading the catalog, including the connection.
const CATALOG_WITHIN: Duration = Duration::from_secs(30);
/// Limit for confirming a position, including the connection: the process is about to end.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_secs(5);
/// How long a walsender that this relay does not know may hold the slot: it may be of a session
/// that was being opened when the relay stopped.
const UNKNOWN_WALSENDER_WITHIN: Duration = Duration::from_secs(1);
/// Less than [`CONFIRM_WITHIN`].
const STATEMENT_LIMIT_SQL: &str = "SET statement_timeout = '4s'";

/// How to connect to the server of the stream, if there was one, for something that must be done within
/// `limit`: hosts that are gone take none of that time, and the first address of a name that is gone half.
pub(super) fn connection(
    own: &ConnInfo,
    walsender: Option<&Walsender>,
    limit: Duration,
) -> ConnInfo {
    let hosts = walsender.map_or_else(|| own.hosts.clone(), |it| vec![it.host.clone()]);
    ConnInfo { hosts, connect_timeout: own.connect_timeout.min(limit / 2), ..own.clone() }
}

/// Retries until the catalog of the server that the stream comes from has been read.
pub(super) async fn read_catalog(
    settings: &SourceSettings,
    walsender: Option<&Walsender>,
) -> Catalog {
    let info = connection(&settings.connection, walsender, CATALOG_WITHIN);
    let mut backoff = random::backoff(settings.reconnect_base, settings.reconnect_cap);
    loop {
        let late = |_| {
            let at = info.hosts.first().map_or("", |host| host.name.as_str());
            Err(ConnectError::new(at, ConnectCause::Timeout(CATALOG_WITHIN)))
        };
        let read = timeout(CATALOG_WITHIN, read(settings, &info, walsender)).await;
        match read.unwrap_or_else(late) {
            Ok(catalog) => return catalog,
            Err(error) => {
                let delay = backoff.next_delay();
                tracing::warn!(
                    code = "source.catalog-unread", error = %error, retry_in_ms = delay.as_millis() as u64,
                    "the stream waits: the catalog must be read to distinguish a new table from a partition of an outbox"
                );
                tokio::time::sleep(delay).await;
            }
        }
    }
}

async fn read(
    settings: &SourceSettings,
    info: &ConnInfo,
    walsender: Option<&Walsender>,
) -> Result<Catalog, ConnectError> {
    let sql = sql::connect(info).await?;
    if walsender.is_some_and(|walsender| walsender.server != sql.started) {
        let cause = ConnectCause::Protocol("the stream comes from another server".to_owned());
        return Err(ConnectError::new(&sql.server, cause));
    }
    catalog::read(&sql.client, settings).await.map_err(|error| sql.error(&error))
}

pub(super) async fn confirm_in_time(
    settings: &SourceSettings,
    walsender: Option<&Walsender>,
    position: &ConfirmedPosition,
) -> Result<(), String> {
    let info = connection(&settings.connection, walsender, CONFIRM_WITHIN);
    let late = |_| Err(format!("not within {} s", CONFIRM_WITHIN.as_secs()));
    timeout(CONFIRM_WITHIN, confirm(settings, &info, position)).await.unwrap_or_else(late)
}

async fn confirm(
    settings: &SourceSettings,
    info: &ConnInfo,
    position: &ConfirmedPosition,
) -> Result<(), String> {
    let sql = sql::connect(info).await.map_err(|error| error.to_string())?;
    let ConfirmedPosition { lsn, place, .. } = position;
    // The server finishes the statement of a client that has gone, and would keep the slot for it.
    let limited = sql.client.batch_execute(STATEMENT_LIMIT_SQL).await;
    limited.map_err(|error| sql.error(&error).to_string())?;
    let refusal = |slot: &HeldSlot| position.refusal(slot);
    let (name, place) = (&settings.slot, (place.system_id.as_str(), place.timeline));
    let began = Instant::now();
    let mut backoff = random::backoff(settings.reconnect_base, settings.reconnect_cap);
    loop {
        let advance = slot::advance(&sql.client, name, &sql.started, *lsn, place, refusal).await;
        match advance.map_err(|fault| fault.what)? {
            Advance::Done => return Ok(()),
            Advance::NotOurs(why) => return Err(why),
            // A relay that has taken the slot over reports positions of its own.
            Advance::Active(Some(pid))
                if pid != position.own_pid && began.elapsed() > UNKNOWN_WALSENDER_WITHIN =>
            {
                return Err(format!("another process reads the slot, pid {pid}"));
            }
            // A walsender of this relay may still be ending.
            Advance::Active(_) => tokio::time::sleep(backoff.next_delay()).await,
        }
    }
}

#[cfg(test)]
#[path = "sql_tests.rs"]
mod tests;
