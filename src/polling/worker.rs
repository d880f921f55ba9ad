//! One worker: claims, hands over, waits, settles.
//!
//! A claim has a name, which marks its rows. If a connection breaks while a claim is made, the claim may
//! exist: it is abandoned over the next connection, because nobody publishes its rows. If a connection
//! breaks while rows are settled, they are settled again over the next, which changes nothing the second
//! time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout;

use super::batch::{Batch, Verdicts};
use super::claim_schedule::{ClaimOutcome, ClaimSchedule};
use super::session::{Claim, ClaimLimits, PollingSession, unanswered};
use super::settings::PollingSettings;
use super::statements::Statements;
use crate::base::backoff::Backoff;
use crate::base::error::{Exit, Fault};
use crate::source::connect::{ConnectCause, ConnectError, ConnectErrorKind, ServerError};
use crate::source::settings::SourceSettings;

/// How often a worker looks whether the loop takes batches again.
const CLOSED_TICK: Duration = Duration::from_millis(20);

/// What the workers of a process share.
pub(crate) struct PollingShared {
    pub(crate) source: SourceSettings,
    pub(crate) polling: PollingSettings,
    pub(crate) statements: Statements,
    /// Most bytes of a claim.
    pub(crate) bytes_max: usize,
    /// Names this process in the table.
    pub(crate) process: String,
    /// To the loop. There is room for one batch of each worker.
    pub(crate) batches: SyncSender<Batch>,
    /// Only one worker of a process claims at a time: that is what the interval is about.
    pub(crate) schedule: tokio::sync::Mutex<ClaimSchedule>,
    /// Does the loop take batches?
    pub(crate) open: Arc<AtomicBool>,
    /// Is there a connection? Maintenance says so: its own is in use every second.
    pub(crate) connected: Arc<AtomicBool>,
    /// Claims that are ours, to be renewed.
    pub(crate) live: Mutex<BTreeSet<String>>,
    /// Claims made.
    pub(crate) claims: AtomicU64,
    /// Rings when rows were settled.
    pub(crate) settled: Notify,
    /// No more claims.
    pub(crate) stop: watch::Receiver<bool>,
}

impl PollingShared {
    fn next_claim(&self) -> String {
        format!("{}#{}", self.process, self.claims.fetch_add(1, Ordering::Relaxed))
    }

    /// A claim is ours from here on, or no more.
    pub(crate) fn set_live(&self, claim: &str, live: bool) {
        let mut all = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live {
            all.insert(claim.to_owned());
        } else {
            all.remove(claim);
        }
    }

    /// The claims that are ours.
    #[must_use]
    pub(crate) fn live(&self) -> Vec<String> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }
}

/// Opens sessions, with waits between those that break.
pub(crate) struct Reconnect<'a> {
    shared: &'a PollingShared,
    backoff: Backoff,
    opened: bool,
}

impl<'a> Reconnect<'a> {
    pub(crate) fn new(shared: &'a PollingShared) -> Reconnect<'a> {
        let source = &shared.source;
        let backoff = Backoff::new(source.reconnect_base, source.reconnect_cap);
        Reconnect { shared, backoff, opened: false }
    }

    /// A statement has worked: waits begin small again.
    pub(crate) fn works(&mut self) {
        self.backoff.succeeded();
    }

    /// The next session, however long it takes; a fault when waiting would not help.
    pub(crate) async fn session(&mut self) -> Result<PollingSession, Fault> {
        // The one before has broken, and perhaps at once.
        if std::mem::replace(&mut self.opened, true) {
            tokio::time::sleep(self.backoff.next_delay()).await;
        }
        let PollingShared { source, polling, statements, .. } = self.shared;
        loop {
            let opening = PollingSession::open(&source.connection, statements, polling.lease);
            let limit = source.connection.connect_timeout + polling.lease;
            let error = match timeout(limit, opening).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(error)) => error,
                Err(_) => unanswered(),
            };
            if error.kind() == ConnectErrorKind::Fatal && !passes(&error) {
                return Err(match error.sqlstate() {
                    Some(state) if state.starts_with("42") => refused(self.shared, &error),
                    _ => error.fault(&source.connection, &source.slot, &source.publication),
                });
            }
            let wait = self.backoff.next_delay();
            tracing::warn!(error = %error, retry_in_ms = wait.as_millis() as u64, "no connection to postgres");
            tokio::time::sleep(wait).await;
        }
    }
}

/// Claims and settles until it is asked to stop; no claim is open then.
pub(crate) async fn work(shared: Arc<PollingShared>) -> Result<(), Fault> {
    let mut reconnect = Reconnect::new(&shared);
    let mut stop = shared.stop.clone();
    // A claim that may have been made.
    let mut doubtful: Option<String> = None;
    while !shared.is_stopping() {
        let session = tokio::select! {
            session = reconnect.session() => session?,
            _ = stop.changed() => break,
        };
        if let Some(claim) = &doubtful {
            if let Err(error) = session.abandon(claim).await {
                broke(&shared, &error)?;
                continue;
            }
            shared.set_live(claim, false);
        }
        doubtful = claim_and_settle(&shared, session, &mut reconnect).await?;
    }
    // Rows that were perhaps claimed need not wait for the lease to run out.
    if let Some(claim) = doubtful
        && let Ok(session) = reconnect.session().await
    {
        let _best_effort = session.abandon(&claim).await;
    }
    Ok(())
}

/// Logs that a connection broke; returns the fault when another would break, too.
pub(super) fn broke(shared: &PollingShared, error: &ConnectError) -> Result<(), Fault> {
    if error.kind() == ConnectErrorKind::Fatal && !passes(error) {
        return Err(refused(shared, error));
    }
    tracing::warn!(error = %error, "a polling connection broke: reconnecting");
    Ok(())
}

/// Timeouts, and a server that is a standby for now: another attempt may go well.
fn passes(error: &ConnectError) -> bool {
    const PASSING: [&str; 6] = ["25006", "25P02", "25P03", "25P04", "55000", "55P03"];
    error.sqlstate().is_some_and(|state| PASSING.contains(&state))
}

/// Claims and settles until the connection breaks within a claim, and returns that claim's name; or
/// until it is time to stop.
async fn claim_and_settle(
    shared: &PollingShared,
    mut session: PollingSession,
    reconnect: &mut Reconnect<'_>,
) -> Result<Option<String>, Fault> {
    loop {
        let claim = shared.next_claim();
        // Renewed from the moment it is made.
        shared.set_live(&claim, true);
        let claimed = match take_turn(shared, &session, &claim).await {
            None => {
                shared.set_live(&claim, false);
                return Ok(None);
            }
            Some(Ok(claimed)) => claimed,
            Some(Err(error)) => {
                broke(shared, &error)?;
                return Ok(Some(claim));
            }
        };
        reconnect.works();
        if claimed.rows.is_empty() {
            shared.set_live(&claim, false);
            continue;
        }
        let verdicts = hand_over(shared, &claim, claimed).await;
        let mut again = false;
        loop {
            let settled = match &verdicts {
                None => session.abandon(&claim).await,
                // After an answer was lost, rows may be settled already.
                Some(verdicts) => session.settle(&claim, verdicts).await.map(|lost| {
                    warn_of_lost_rows(if again { 0 } else { lost });
                }),
            };
            let Err(error) = settled else { break };
            broke(shared, &error)?;
            again = true;
            session = reconnect.session().await?;
        }
        if verdicts.is_none_or(|verdicts| verdicts.last) {
            shared.set_live(&claim, false);
        }
        shared.settled.notify_one();
    }
}

/// Waits for this worker's turn and claims; nothing when it is time to stop.
async fn take_turn(
    shared: &PollingShared,
    session: &PollingSession,
    claim: &str,
) -> Option<Result<Claim, ConnectError>> {
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
    let began = Instant::now();
    let rows_max = shared.polling.batch_max;
    let limits = ClaimLimits { reach: schedule.reach(), bytes_max: shared.bytes_max };
    match session.claim(claim, limits).await {
        // Others have the turn for longer: the table is being handed over, say.
        Ok(None) => {
            schedule.failed(began);
            tracing::debug!("no turn to claim within the time");
            Some(Ok(Claim::default()))
        }
        Ok(Some(claimed)) => {
            let taken = claimed.rows.len();
            let full = taken > 0 && (taken >= rows_max || taken < claimed.free);
            schedule.found(ClaimOutcome { taken, ready: claimed.ready, full }, began);
            Some(Ok(claimed))
        }
        Err(error) => {
            schedule.failed(began);
            Some(Err(error))
        }
    }
}

/// Gives the rows to the loop and waits for what becomes of them; nothing when there is no loop.
async fn hand_over(shared: &PollingShared, claim: &str, claimed: Claim) -> Option<Verdicts> {
    let (answer, verdicts) = oneshot::channel();
    let Claim { lsn, rows, .. } = claimed;
    let batch = Batch { claim: claim.to_owned(), lsn, rows, answer };
    // There is room for one batch of each worker, and this is the only one of this worker.
    if shared.batches.try_send(batch).is_err() {
        return None;
    }
    verdicts.await.ok()
}

/// A statement that will be refused again.
pub(super) fn refused(shared: &PollingShared, error: &ConnectError) -> Fault {
    let tables = shared.source.outboxes.iter();
    let tables: Vec<String> = tables.map(|it| format!("{}.{}", it.schema, it.table)).collect();
    let mend = match &error.cause {
        ConnectCause::Server(error) if !error.context.is_empty() => in_function(error),
        _ => "walrelay check; where a CHECK or a type refuses a status value, name the table's own in [source.polling.words]".to_owned(),
    };
    Fault::new(
        Exit::Source,
        "polling.refused",
        format!("postgres refuses what polling does with its rows: {error}"),
        format!("table {}", tables.join(", ")),
        mend,
    )
}

/// A trigger or a CHECK has failed. Names without a schema are not found in a session of the relay.
fn in_function(error: &ServerError) -> String {
    let context = error.context.lines().next().unwrap_or_default();
    match error.sqlstate.as_str() {
        "42P01" | "42883" | "42704" => format!(
            "{context} names something without its schema, and the relay's sessions have an empty search_path: ALTER FUNCTION … SET search_path = public; (docs/polling.md)"
        ),
        _ => format!("correct what the table runs when a row is claimed or settled: {context}"),
    }
}

/// Rows were claimed by somebody else before they were settled.
pub(super) fn warn_of_lost_rows(rows: u64) {
    if rows > 0 {
        tracing::warn!(
            rows,
            "rows were not ours any more when they were settled: the lease ran out, or somebody changed them; they may be published twice"
        );
    }
}
