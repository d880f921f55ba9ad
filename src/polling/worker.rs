//! A worker: claims rows, passes them to the loop, waits for the verdicts, and writes these down.
//!
//! A claim has a name, which marks its rows. If a connection breaks during a
//! claim, the claim may exist: then it is abandoned over the next connection,
//! because nobody publishes its rows. If a connection breaks while rows are
//! settled, they are settled again over the next, which changes nothing more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot, watch};

use super::batch::{Batch, Verdicts};
use super::claim_lease::ClaimLease;
use super::claim_schedule::{ClaimOutcome, ClaimSchedule};
use super::live_claims::LiveClaims;
use super::lock_wait::LockWait;
use super::locked_verdicts::LockedVerdicts;
use super::lost_rows;
use super::session::{Attempt, Claim, ClaimLimits, PollingSession, REPLANNING, Settled};
use super::settings::PollingSettings;
use super::statements::Statements;
use crate::base::backoff::Backoff;
use crate::base::clock::unix_now_us;
use crate::base::error::{Exit, Fault};
use crate::base::host;
use crate::base::random;
use crate::source::connect::{ConnectCause, ConnectError, ConnectErrorKind, ServerError};
use crate::source::settings::SourceSettings;

/// How often a worker checks whether the loop takes batches again.
const CLOSED_TICK: Duration = Duration::from_millis(20);

/// A batch on its way to the loop.
#[derive(Debug)]
pub(crate) struct PassedBatch {
    pub(crate) batch: Batch,
    /// Takes one answer.
    pub(crate) answer: oneshot::Sender<Verdicts>,
}

/// The state that the workers of a process share.
pub(crate) struct PollingShared {
    pub(crate) source: SourceSettings,
    pub(crate) polling: PollingSettings,
    pub(crate) statements: Statements,
    /// Most bytes of a claim.
    pub(crate) bytes_max: usize,
    /// The name of this process in the table.
    pub(crate) process: String,
    /// To the loop, with room for one batch of each worker.
    pub(crate) batches: SyncSender<PassedBatch>,
    /// Only one worker of a process claims at a time, at the configured interval.
    pub(crate) schedule: tokio::sync::Mutex<ClaimSchedule>,
    /// Whether the loop takes batches.
    pub(crate) open: AtomicBool,
    /// Whether there is a connection. Set by maintenance, which uses its own every second.
    pub(crate) connected: AtomicBool,
    /// Whether Postgres has refused a login, and has accepted none since.
    pub(crate) login_refused: AtomicBool,
    pub(crate) lease: Arc<ClaimLease>,
    /// Claims of this process, which must be renewed.
    pub(crate) live: LiveClaims,
    /// Number of the next claim.
    pub(crate) claims: AtomicU64,
    /// Notified when rows were settled.
    pub(crate) settled: Notify,
    /// Verdicts of claims whose rows other sessions have locked.
    pub(crate) locked: LockedVerdicts,
    /// The wait for a table that another session has locked.
    pub(crate) lock_wait: LockWait,
    /// No more claims.
    pub(crate) stop: watch::Receiver<bool>,
}

impl PollingShared {
    fn next_claim(&self) -> String {
        claim_name(&self.process, self.claims.fetch_add(1, Ordering::Relaxed))
    }

    /// Verdicts are written, but for so many rows that no longer belonged to the claim. `is_unsure` says that an
    /// attempt before got no answer, and may have written them.
    pub(super) fn verdicts_written(&self, verdicts: &Verdicts, lost: u64, is_unsure: bool) {
        self.note_lost_rows(&verdicts.claim, lost, is_unsure);
        if verdicts.last {
            self.live.last_is_written(&verdicts.claim);
        }
        self.settled.notify_one();
    }

    fn note_lost_rows(&self, claim: &str, rows: u64, is_unsure: bool) {
        if rows > 0 {
            self.live.lose_some(claim);
        }
        if rows > 0 && !is_unsure {
            tracing::warn!(
                code = "polling.claims-lost",
                rows,
                "rows no longer belonged to their claim when they were settled: the lease ran out, or somebody changed them; they may be published twice"
            );
        }
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Whether the log names the lock that was not given: `lock_not_available`.
    fn is_explained(&self, error: &ConnectError) -> bool {
        error.sqlstate() == Some("55P03") && self.lock_wait.is_told()
    }
}

/// The name of this process in the table.
pub(crate) fn process_name() -> String {
    let began = unix_now_us() / 1000;
    format!("{}:{}:{began:x}", host::name(), std::process::id())
}

/// The name of a claim, which marks its rows.
pub(crate) fn claim_name(process: &str, number: u64) -> String {
    format!("{process}#{number}")
}

/// Opens sessions, and waits between those that break.
pub(crate) struct Reconnect<'a> {
    shared: &'a PollingShared,
    backoff: Backoff,
    opened: bool,
}

impl<'a> Reconnect<'a> {
    pub(crate) fn new(shared: &'a PollingShared) -> Reconnect<'a> {
        let source = &shared.source;
        let backoff = random::backoff(source.reconnect_base, source.reconnect_cap);
        Reconnect { shared, backoff, opened: false }
    }

    /// A statement has succeeded, so waits begin short again.
    pub(crate) fn succeeded(&mut self) {
        self.backoff.succeeded();
    }

    /// A session that has looked whether rows are lost: another server may be behind a new connection.
    async fn checked(
        &self,
        opened: Result<PollingSession, ConnectError>,
    ) -> Result<PollingSession, ConnectError> {
        let session = opened?;
        let PollingShared { statements, live, lease, .. } = self.shared;
        let claims: Vec<String> = live.undecided_rows().into_keys().collect();
        if !claims.is_empty() {
            let length = lease.length();
            let looking = lost_rows::look(&session, statements, live, lease, &claims, length);
            session.within(lease.interval(), looking).await?;
        }
        Ok(session)
    }

    /// The next session. Retries until there is one, or a fault that no retry mends.
    pub(crate) async fn session(&mut self) -> Result<PollingSession, Fault> {
        // The last session has broken, perhaps at once.
        if std::mem::replace(&mut self.opened, true) {
            tokio::time::sleep(self.backoff.next_delay()).await;
        }
        let PollingShared { source, polling, statements, lock_wait, .. } = self.shared;
        loop {
            let opening =
                PollingSession::open(&source.connection, statements, polling.lease, lock_wait);
            let error = match self.checked(opening.await).await {
                Ok(session) => {
                    self.shared.login_refused.store(false, Ordering::Relaxed);
                    return Ok(session);
                }
                Err(error) => error,
            };
            // One was accepted before there were workers: it is being rotated.
            let is_rotated = error.is_refused_login() && source.connection.login_files.are_used();
            if error.kind() == ConnectErrorKind::Fatal && !is_rotated && !passes(&error) {
                return Err(match error.sqlstate() {
                    Some(state) if state.starts_with("42") => refused(self.shared, &error),
                    _ => error.fault(&source.connection, &source.slot, &source.publication),
                });
            }
            if is_rotated {
                self.shared.login_refused.store(true, Ordering::Relaxed);
            }
            let wait = self.backoff.next_delay();
            if !self.shared.is_explained(&error) {
                tracing::warn!(code = "source.no-connection", error = %error, retry_in_ms = wait.as_millis() as u64, "no connection to postgres");
            }
            tokio::time::sleep(wait).await;
        }
    }
}

/// Claims and settles until a stop is requested. No claim is open then.
pub(crate) async fn work(shared: Arc<PollingShared>) -> Result<(), Fault> {
    let mut reconnect = Reconnect::new(&shared);
    let mut stop = shared.stop.clone();
    // A claim whose COMMIT may have succeeded.
    let mut unsure: Option<String> = None;
    while !shared.is_stopping() {
        let session = tokio::select! {
            session = reconnect.session() => session?,
            _ = stop.changed() => break,
        };
        if let Some(claim) = &unsure {
            if let Err(error) = session.abandon(claim).await {
                broke(&shared, &error)?;
                continue;
            }
            shared.live.end(claim);
        }
        unsure = claim_and_settle(&shared, session, &mut reconnect).await?;
    }
    // Otherwise its rows would wait until the lease runs out.
    if let Some(claim) = unsure
        && let Ok(session) = reconnect.session().await
    {
        let _best_effort = session.abandon(&claim).await;
    }
    Ok(())
}

/// Logs that a connection broke. Returns a fault if the next would break in the same way.
pub(super) fn broke(shared: &PollingShared, error: &ConnectError) -> Result<(), Fault> {
    if error.kind() == ConnectErrorKind::Fatal && !passes(error) {
        let SourceSettings { connection, slot, publication, .. } = &shared.source;
        return Err(match &error.cause {
            ConnectCause::Server(_) => refused(shared, error),
            _ => error.fault(connection, slot, publication),
        });
    }
    if error.sqlstate() != Some("55P03") {
        shared.lock_wait.end();
    }
    if !shared.is_explained(error) {
        tracing::warn!(code = "polling.connection-lost", error = %error, "a polling connection broke: reconnecting");
    }
    Ok(())
}

/// Timeouts, a server that is a standby for now, and TLS, whose files are replaced one after the other: another
/// attempt may succeed.
fn passes(error: &ConnectError) -> bool {
    const PASSING: [&str; 6] = ["25006", "25P02", "25P03", "25P04", "55000", "55P03"];
    error.is_of_tls() || error.sqlstate().is_some_and(|state| PASSING.contains(&state))
}

/// Claims and settles until a stop is requested, or the connection breaks during a claim. Returns
/// the name of that claim.
async fn claim_and_settle(
    shared: &PollingShared,
    mut session: PollingSession,
    reconnect: &mut Reconnect<'_>,
) -> Result<Option<String>, Fault> {
    loop {
        let claim = shared.next_claim();
        let (claimed, claimed_at) = match take_turn(shared, &session, &claim).await {
            None => return Ok(None),
            Some(Ok(claimed)) => claimed,
            Some(Err(error)) => {
                broke(shared, &error)?;
                return Ok(Some(claim));
            }
        };
        reconnect.succeeded();
        if claimed.rows.is_empty() {
            shared.live.end(&claim);
            continue;
        }
        shared.live.fetched(&claim, claimed.rows.len());
        let verdicts = hand_over(shared, &claim, claimed, claimed_at).await;
        match &verdicts {
            Some(verdicts) => shared.live.decide(verdicts),
            None => shared.live.decide(&Verdicts { last: true, ..Verdicts::of(claim.clone()) }),
        }
        let is_last = write_answer(shared, &claim, verdicts, &mut session, reconnect).await?;
        shared.live.worker_has_written(&claim, is_last);
        shared.settled.notify_one();
    }
}

/// Writes what the loop has answered; without an answer the claim is abandoned. Returns whether the claim
/// has its last verdict. One whose rows are locked is put aside.
async fn write_answer(
    shared: &PollingShared,
    claim: &str,
    mut verdicts: Option<Verdicts>,
    session: &mut PollingSession,
    reconnect: &mut Reconnect<'_>,
) -> Result<bool, Fault> {
    let mut again = false;
    loop {
        let settled = match &verdicts {
            None => session.abandon(claim).await.map(|()| Settled::Written { lost: 0 }),
            Some(verdicts) => session.settle(verdicts, Attempt::First).await,
        };
        match settled {
            Ok(Settled::Written { lost }) => {
                shared.note_lost_rows(claim, lost, again);
                return Ok(verdicts.is_none_or(|verdicts| verdicts.last));
            }
            // Unless too many wait, or the process ends.
            Ok(Settled::RowsLocked) => match verdicts.and_then(|it| shared.locked.put_aside(it)) {
                Some(left) => verdicts = Some(left),
                None => return Ok(false),
            },
            Err(error) => {
                broke(shared, &error)?;
                again = true;
                *session = reconnect.session().await?;
            }
        }
    }
}

/// Waits until a claim is due, and claims; with the time at which the claim began. None when a stop
/// is requested.
async fn take_turn(
    shared: &PollingShared,
    session: &PollingSession,
    claim: &str,
) -> Option<Result<(Claim, Instant), ConnectError>> {
    let mut stop = shared.stop.clone();
    let mut schedule = tokio::select! {
        schedule = shared.schedule.lock() => schedule,
        _ = stop.wait_for(|stop| *stop) => return None,
    };
    loop {
        if shared.is_stopping() {
            return None;
        }
        let wait = schedule.wait(Instant::now());
        let wait = match (wait.is_zero(), shared.open.load(Ordering::Relaxed)) {
            (true, true) => break,
            (true, false) => CLOSED_TICK,
            (false, _) => wait,
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = stop.changed() => {}
            () = shared.settled.notified() => schedule.settled(),
        }
    }
    shared.live.begin(claim);
    let began = Instant::now();
    let rows_max = shared.polling.batch_max;
    let limits = ClaimLimits { reach: schedule.reach(), bytes_max: shared.bytes_max };
    // Boxed, because the future that waits has room for it twice.
    let claiming = Box::pin(session.claim(claim, limits));
    match shared.lock_wait.explain_during(session.pid, claiming).await {
        // Another session holds the lock for longer, for example for a handover.
        Ok(None) => {
            schedule.failed(began);
            tracing::debug!("another session holds the lock for claiming");
            Some(Ok((Claim::default(), began)))
        }
        Ok(Some(claimed)) => {
            shared.lock_wait.end();
            let taken = claimed.rows.len();
            let full = taken > 0 && (taken >= rows_max || taken < claimed.free);
            if began.elapsed() >= shared.lease.length() {
                // The loop gives its rows back: the next claim examines fewer.
                schedule.failed(began);
            } else {
                schedule.found(ClaimOutcome { taken, ready: claimed.ready, full }, began);
            }
            Some(Ok((claimed, began)))
        }
        Err(error) => {
            schedule.failed(began);
            Some(Err(error))
        }
    }
}

/// Passes the rows to the loop and waits for the verdicts. None when the loop has ended.
async fn hand_over(
    shared: &PollingShared,
    claim: &str,
    claimed: Claim,
    claimed_at: Instant,
) -> Option<Verdicts> {
    let (answer, verdicts) = oneshot::channel();
    let Claim { lsn, rows, .. } = claimed;
    let batch = Batch { claim: claim.to_owned(), claimed_at, lsn, rows };
    // The channel has room for one batch of each worker.
    shared.batches.try_send(PassedBatch { batch, answer }).ok()?;
    verdicts.await.ok()
}

/// The fault of a statement that would be refused again.
pub(super) fn refused(shared: &PollingShared, error: &ConnectError) -> Fault {
    let tables = shared.source.outboxes.iter();
    let tables: Vec<String> = tables.map(ToString::to_string).collect();
    let mend = match &error.cause {
        // Postgres refuses the statement that fetches rows, whose result tells the types (statements.rs).
        ConnectCause::Server(error) if error.routine == REPLANNING => {
            "start walrelay again: columns of the table are of another type now".to_owned()
        }
        ConnectCause::Server(error) if !error.context.is_empty() => in_function(error),
        _ => "walrelay check; where a CHECK or a type refuses a status value, set the value of the table in [source.polling.status_values]".to_owned(),
    };
    Fault::new(
        Exit::Source,
        "polling.refused",
        format!("postgres refuses what polling does with its rows: {error}"),
        format!("table {}", tables.join(", ")),
        mend,
    )
}

/// How to mend a trigger or a CHECK that has failed.
fn in_function(error: &ServerError) -> String {
    let context = &error.context;
    match error.sqlstate.as_str() {
        "42P01" | "42883" | "42704" => format!(
            "{context} names something without its schema, and the relay's sessions have an empty search_path: ALTER FUNCTION … SET search_path = public; (docs/polling.md)"
        ),
        _ => format!("correct what the table runs when a row is claimed or settled: {context}"),
    }
}
