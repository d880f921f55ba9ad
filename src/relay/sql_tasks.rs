//! What the loop needs from Postgres beside its stream: the catalog anew, and the slot's position
//! confirmed when there is no stream to confirm it on.
//!
//! Both take a connection for SQL, which the data thread may not wait for. They are carried out on
//! the control runtime; the loop asks, and looks for the answer when it comes by.

use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::base::backoff::Backoff;
use crate::base::lsn::Lsn;
use crate::source::catalog::{self, Catalog};
use crate::source::connect::ConnectError;
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

#[derive(Debug)]
enum Task {
    ReadCatalog { number: u64 },
    Confirm(ConfirmedPosition),
}

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

/// The loop's end.
#[derive(Debug)]
pub struct SqlTasks {
    tasks: mpsc::Sender<Task>,
    catalogs: std_mpsc::Receiver<(u64, Catalog)>,
    confirmed: std_mpsc::Receiver<Result<(), String>>,
    /// Of the last catalog that was asked for.
    number: u64,
    /// It is still wanted.
    wanted: bool,
}

/// The end of the control runtime.
#[derive(Debug)]
pub struct SqlWorker {
    tasks: mpsc::Receiver<Task>,
    catalogs: std_mpsc::SyncSender<(u64, Catalog)>,
    confirmed: std_mpsc::SyncSender<Result<(), String>>,
}

/// Two ends.
#[must_use]
pub fn pair() -> (SqlTasks, SqlWorker) {
    let (task_sender, tasks) = mpsc::channel(4);
    let (catalog_sender, catalogs) = std_mpsc::sync_channel(4);
    let (confirmed_sender, confirmed) = std_mpsc::sync_channel(1);
    let (number, wanted) = (0, false);
    (
        SqlTasks { tasks: task_sender, catalogs, confirmed, number, wanted },
        SqlWorker { tasks, catalogs: catalog_sender, confirmed: confirmed_sender },
    )
}

impl SqlTasks {
    /// Asks for the catalog as it is from now on.
    pub(super) fn ask_catalog(&mut self) {
        self.number += 1;
        // A closed channel means that all is over, and a full one cannot be: one task at a time.
        self.wanted = self.tasks.try_send(Task::ReadCatalog { number: self.number }).is_ok();
    }

    /// Has the catalog been asked for, and not come yet?
    pub(super) fn awaits_catalog(&self) -> bool {
        self.wanted
    }

    /// The catalog that was asked for last, once it is there.
    pub(super) fn catalog(&mut self) -> Option<Catalog> {
        while let Ok((number, catalog)) = self.catalogs.try_recv() {
            if self.wanted && number == self.number {
                self.wanted = false;
                return Some(catalog);
            }
        }
        None
    }

    /// The catalog that was asked for is not needed any more.
    pub(super) fn forget_catalog(&mut self) {
        self.wanted = false;
    }

    /// Confirms a position to the slot. Waits for it, a few seconds at most: only for the end.
    pub(super) fn confirm(&self, position: ConfirmedPosition) -> Result<(), String> {
        let gone = || "the process is ending".to_owned();
        self.tasks.try_send(Task::Confirm(position)).map_err(|_| gone())?;
        let answer = self.confirmed.recv_timeout(CONFIRM_WITHIN + ANSWER_MARGIN);
        answer.unwrap_or_else(|_| Err(gone()))
    }
}

/// Carries out tasks until the loop is gone. A newer task takes the place of one that is under way.
pub async fn serve(settings: &SourceSettings, mut worker: SqlWorker) {
    let mut next = worker.tasks.recv().await;
    while let Some(task) = next {
        next = match task {
            Task::ReadCatalog { number } => tokio::select! {
                catalog = read_patiently(settings) => {
                    let _unwanted = worker.catalogs.try_send((number, catalog)).is_err();
                    worker.tasks.recv().await
                }
                newer = worker.tasks.recv() => newer,
            },
            Task::Confirm(position) => {
                let confirming = timeout(CONFIRM_WITHIN, confirm(settings, &position));
                let late = |_| Err(format!("not within {} s", CONFIRM_WITHIN.as_secs()));
                let outcome = confirming.await.unwrap_or_else(late);
                let _nobody_waits = worker.confirmed.try_send(outcome).is_err();
                worker.tasks.recv().await
            }
        };
    }
}

/// Reads the catalog, over and over until it can be read.
async fn read_patiently(settings: &SourceSettings) -> Catalog {
    let mut backoff = Backoff::new(settings.reconnect_base, settings.reconnect_cap);
    loop {
        let late = |_| {
            let at = settings.connection.hosts.first().map_or("", |host| host.name.as_str());
            Err(ConnectError::Timeout { at: at.to_owned(), after: CATALOG_WITHIN })
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
    let told = |error| ConnectError::of_query(&sql.server, &error);
    catalog::read(&sql.client, settings).await.map_err(told)
}

async fn confirm(settings: &SourceSettings, position: &ConfirmedPosition) -> Result<(), String> {
    let sql = sql::connect(&settings.connection).await.map_err(|error| error.to_string())?;
    let ConfirmedPosition { lsn, system_id, timeline, own_pid } = position;
    // A session that is left behind goes on with its statement, and would keep the slot.
    let limited = sql.client.batch_execute(STATEMENT_LIMIT_SQL).await;
    limited.map_err(|error| ConnectError::of_query(&sql.server, &error).to_string())?;
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
