//! What the loop needs from Postgres beside its stream: the catalog anew, and the slot's position
//! confirmed when there is no stream to confirm it on.
//!
//! Both take a connection for SQL, which the data thread may not wait for. They are carried out on
//! the control runtime; the loop asks, and looks for the answer when it comes by.

use std::time::Duration;

use tokio::time::timeout;

use super::link::{Link, LinkEnd};
use crate::base::backoff::Backoff;
use crate::base::lsn::Lsn;
use crate::source::catalog::{self, Catalog};
use crate::source::connect::{ConnectCause, ConnectError};
use crate::source::settings::SourceSettings;
use crate::source::slot::{self, Advance};
use crate::source::sql;

/// Longest way to a catalog, connection included.
const CATALOG_WITHIN: Duration = Duration::from_secs(30);
/// Longest way to a confirmed position, connection included: the process is about to end.
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);
/// Less than [`CONFIRM_WITHIN`].
const STATEMENT_LIMIT_SQL: &str = "SET statement_timeout = '4s'";
/// The answer of the control runtime is on its way.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);

/// A position that the broker has confirmed, and where it means something.
#[derive(Clone, Debug)]
pub struct ConfirmedPosition {
    /// Everything before it is confirmed.
    pub lsn: Lsn,
    /// The database system.
    pub system_id: String,
    /// Its timeline.
    pub timeline: u32,
    /// The walsender of the last session.
    pub own_pid: i32,
}

/// Asks for the catalog. The answer to an earlier question is dropped.
#[derive(Debug)]
pub struct CatalogLink {
    link: Link<u64, (u64, Catalog)>,
    /// The last request.
    number: u64,
    awaited: bool,
}

impl CatalogLink {
    pub(super) fn new(link: Link<u64, (u64, Catalog)>) -> CatalogLink {
        CatalogLink { link, number: 0, awaited: false }
    }

    /// Asks for the catalog as it is from now on.
    pub(in crate::relay) fn request(&mut self) {
        self.number += 1;
        self.awaited = self.link.request(self.number);
    }

    /// Has the catalog been asked for, and not come yet?
    pub(in crate::relay) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// The catalog that was asked for last, once it is there.
    pub(in crate::relay) fn answer(&mut self) -> Option<Catalog> {
        while let Some((number, catalog)) = self.link.answer() {
            if self.awaited && number == self.number {
                self.awaited = false;
                return Some(catalog);
            }
        }
        None
    }

    /// The catalog is not needed any more.
    pub(in crate::relay) fn cancel(&mut self) {
        self.awaited = false;
    }
}

impl Link<ConfirmedPosition, Result<(), String>> {
    /// Confirms a position to the slot. Waits for it, a few seconds at most.
    pub(in crate::relay) fn confirm(&self, position: ConfirmedPosition) -> Result<(), String> {
        let sent = self.request(position);
        let answer = sent.then(|| self.answer_within(CONFIRM_WITHIN + ANSWER_MARGIN)).flatten();
        answer.unwrap_or_else(|| Err("the process is ending".to_owned()))
    }
}

/// Reads the catalog as often as it is asked for. A new request ends the one under way.
pub(super) async fn serve_catalogs(
    settings: &SourceSettings,
    mut end: LinkEnd<u64, (u64, Catalog)>,
) {
    let mut next = end.requests.recv().await;
    while let Some(number) = next {
        next = tokio::select! {
            catalog = read_patiently(settings) => {
                let _unwanted = end.answers.try_send((number, catalog)).is_err();
                end.requests.recv().await
            }
            newer = end.requests.recv() => newer,
        };
    }
}

/// Confirms positions.
pub(super) async fn serve_confirms(
    settings: &SourceSettings,
    mut end: LinkEnd<ConfirmedPosition, Result<(), String>>,
) {
    while let Some(position) = end.requests.recv().await {
        let confirming = timeout(CONFIRM_WITHIN, confirm(settings, &position));
        let late = |_| Err(format!("not within {} s", CONFIRM_WITHIN.as_secs()));
        let outcome = confirming.await.unwrap_or_else(late);
        let _nobody_waits = end.answers.try_send(outcome).is_err();
    }
}

/// Retries until the catalog was read.
async fn read_patiently(settings: &SourceSettings) -> Catalog {
    let mut backoff = Backoff::new(settings.reconnect_base, settings.reconnect_cap);
    loop {
        let late = |_| {
            let at = settings.connection.hosts.first().map_or("", |host| host.name.as_str());
            Err(ConnectError::new(at, ConnectCause::Timeout(CATALOG_WITHIN)))
        };
        let read = timeout(CATALOG_WITHIN, read(settings)).await;
        match read.unwrap_or_else(late) {
            Ok(catalog) => return catalog,
            Err(error) => {
                let delay = backoff.next_delay();
                tracing::warn!(
                    error = %error, retry_in_ms = delay.as_millis() as u64,
                    "the stream waits: the catalog has to be read, to tell a new table from a partition of an outbox"
                );
                tokio::time::sleep(delay).await;
            }
        }
    }
}

async fn read(settings: &SourceSettings) -> Result<Catalog, ConnectError> {
    let sql = sql::connect(&settings.connection).await?;
    catalog::read(&sql.client, settings).await.map_err(|error| sql.error(&error))
}

async fn confirm(settings: &SourceSettings, position: &ConfirmedPosition) -> Result<(), String> {
    let sql = sql::connect(&settings.connection).await.map_err(|error| error.to_string())?;
    let ConfirmedPosition { lsn, system_id, timeline, own_pid } = position;
    // A session that is left behind goes on with its statement, and would keep the slot.
    let limited = sql.client.batch_execute(STATEMENT_LIMIT_SQL).await;
    limited.map_err(|error| sql.error(&error).to_string())?;
    let mut backoff = Backoff::new(settings.reconnect_base, settings.reconnect_cap);
    loop {
        let advance = slot::advance(&sql.client, &settings.slot, *lsn, system_id, *timeline).await;
        match advance.map_err(|fault| fault.what)? {
            Advance::Done => return Ok(()),
            Advance::NotOurs(why) => return Err(why),
            // The position of a relay that has taken over counts, and not this one.
            Advance::Active(Some(pid)) if pid != *own_pid => {
                return Err(format!("another process reads the slot, pid {pid}"));
            }
            // A walsender of ours may still be ending.
            Advance::Active(_) => tokio::time::sleep(backoff.next_delay()).await,
        }
    }
}
