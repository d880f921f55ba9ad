//! One worker: claims, hands over, waits, settles.
//!
//! What a worker holds is a claim, marked with a name of its own. A connection that breaks within a
//! claim leaves it open whether it was made: it is given back over the next connection, because
//! nobody has its rows. One that breaks within a settlement is settled again over the next: that
//! changes nothing the second time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout;

use super::batch::{Batch, Claimed, Verdicts};
use super::session::{Appetite, Session};
use super::settings::PollingSettings;
use super::statements::Statements;
use crate::base::backoff::Backoff;
use crate::base::error::{Exit, Fault};
use crate::polling::claim_schedule::{Found, Pace};
use crate::source::connect::{ConnectCause, ConnectError, ConnectErrorKind, ServerError};
use crate::source::settings::SourceSettings;

/// How often a worker looks whether the loop takes batches again.
const CLOSED_TICK: Duration = Duration::from_millis(20);

/// What the workers of a process share.
pub struct Shared {
    /// `[source]`.
    pub source: SourceSettings,
    /// `[source.polling]`.
    pub polling: PollingSettings,
    /// What they say to the database.
    pub statements: Statements,
    /// Most bytes of a claim.
    pub bytes_max: usize,
    /// Names this process.
    pub process: String,
    /// To the loop. There is room for one of each worker.
    pub batches: SyncSender<Batch>,
    /// Only one worker of a process claims at a time: that is what the interval is about.
    pub pace: tokio::sync::Mutex<Pace>,
    /// Does the loop take batches?
    pub open: Arc<AtomicBool>,
    /// Is there a connection? The keeper's own tells: it is in use every second.
    pub connected: Arc<AtomicBool>,
    /// Claims that are ours, for the keeper to renew.
    pub live: Mutex<BTreeSet<String>>,
    /// Claims made.
    pub claims: AtomicU64,
    /// Rings when rows were settled.
    pub settled: Notify,
    /// No more claims.
    pub stop: watch::Receiver<bool>,
}

impl Shared {
    fn next_claim(&self) -> String {
        format!("{}#{}", self.process, self.claims.fetch_add(1, Ordering::Relaxed))
    }

    /// A claim is ours from here on, or no more.
    pub fn set_live(&self, claim: &str, live: bool) {
        let mut all = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live {
            all.insert(claim.to_owned());
        } else {
            all.remove(claim);
        }
    }

    /// The claims that are ours.
    #[must_use]
    pub fn live(&self) -> Vec<String> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }
}

/// Opens sessions, with waits between those that break.
pub struct Reconnect<'a> {
    shared: &'a Shared,
    backoff: Backoff,
    opened: bool,
}

impl<'a> Reconnect<'a> {
    /// For one connection at a time.
    #[must_use]
    pub fn new(shared: &'a Shared) -> Reconnect<'a> {
        let source = &shared.source;
        let backoff = Backoff::new(source.reconnect_base, source.reconnect_cap);
        Reconnect { shared, backoff, opened: false }
    }

    /// A statement has worked: waits begin small again.
    pub fn works(&mut self) {
        self.backoff.succeeded();
    }

    /// The next session, however long it takes; a fault when waiting would not help.
    pub async fn session(&mut self) -> Result<Session, Fault> {
        // The one before has broken, and perhaps at once.
        if std::mem::replace(&mut self.opened, true) {
            tokio::time::sleep(self.backoff.next_delay()).await;
        }
        let Shared { source, polling, statements, .. } = self.shared;
        loop {
            let opening = Session::open(&source.connection, statements, polling.lease);
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

/// Works until told to stop, and has nothing in hand then.
pub async fn work(shared: Arc<Shared>) -> Result<(), Fault> {
    let mut reconnect = Reconnect::new(&shared);
    let mut stop = shared.stop.clone();
    // A claim of which nobody knows whether it was made.
    let mut doubtful: Option<String> = None;
    while !shared.is_stopping() {
        let session = tokio::select! {
            session = reconnect.session() => session?,
            _ = stop.changed() => break,
        };
        if let Some(claim) = &doubtful {
            let abandoned = session.abandon(claim);
            if let Err(error) = answered(&session, shared.polling.lease, abandoned).await {
                broke(&shared, &error)?;
                continue;
            }
            shared.set_live(claim, false);
        }
        doubtful = claim_and_settle(&shared, session, &mut reconnect).await?;
    }
    // What was perhaps claimed and is in nobody's hands needs no lease to run out.
    if let Some(claim) = doubtful
        && let Ok(session) = reconnect.session().await
    {
        let abandoned = session.abandon(&claim);
        let _best_effort = answered(&session, shared.polling.lease, abandoned).await;
    }
    Ok(())
}

/// An answer that does not come within the limit does not come: the way to the server is gone, or
/// whatever stands in it does not say so.
pub(super) async fn answered<T>(
    session: &Session,
    limit: Duration,
    ask: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, ConnectError> {
    match timeout(limit, ask).await {
        Ok(answer) => answer.map_err(|error| session.told(&error)),
        Err(_) => Err(unanswered()),
    }
}

fn unanswered() -> ConnectError {
    ConnectError::new("postgres", ConnectCause::Io("no answer within the lease".to_owned()))
}

/// A connection is of no use any more; a fault when another would not be either.
pub(super) fn broke(shared: &Shared, error: &ConnectError) -> Result<(), Fault> {
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

/// Turns until the connection breaks within a claim, then with the claim's name; or the end.
async fn claim_and_settle(
    shared: &Shared,
    mut session: Session,
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
            match settle(shared, &session, &claim, verdicts.as_ref(), again).await {
                Ok(()) => break,
                Err(error) => {
                    broke(shared, &error)?;
                    again = true;
                    session = reconnect.session().await?;
                }
            }
        }
        if verdicts.is_none_or(|verdicts| verdicts.last) {
            shared.set_live(&claim, false);
        }
        shared.settled.notify_one();
    }
}

/// Waits for this worker's turn and claims; nothing when it is time to stop.
async fn take_turn(
    shared: &Shared,
    session: &Session,
    claim: &str,
) -> Option<Result<Claimed, ConnectError>> {
    let mut stop = shared.stop.clone();
    let mut pace = tokio::select! {
        pace = shared.pace.lock() => pace,
        _ = stop.wait_for(|stop| *stop) => return None,
    };
    loop {
        if shared.is_stopping() {
            return None;
        }
        let wait = pace.wait(Instant::now());
        let wait = match (wait.is_zero(), shared.open.load(Ordering::Relaxed)) {
            (true, true) => break,
            (true, false) => CLOSED_TICK,
            (false, _) => wait,
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = stop.changed() => {}
            () = shared.settled.notified() => pace.settled(),
        }
    }
    let began = Instant::now();
    let rows_max = shared.polling.batch_max;
    let appetite = Appetite { reach: pace.reach(), bytes_max: shared.bytes_max };
    match answered(session, shared.polling.lease, session.claim(claim, appetite)).await {
        // Others have the turn for longer: the table is being handed over, say.
        Ok(None) => {
            pace.failed(began);
            tracing::debug!("no turn to claim within the time");
            Some(Ok(Claimed::default()))
        }
        Ok(Some(claimed)) => {
            let taken = claimed.rows.len();
            let full = taken > 0 && (taken >= rows_max || taken < claimed.free);
            pace.found(Found { taken, ready: claimed.ready, full }, began);
            Some(Ok(claimed))
        }
        Err(error) => {
            pace.failed(began);
            Some(Err(error))
        }
    }
}

/// Gives the rows to the loop and waits for what becomes of them; nothing when there is no loop.
async fn hand_over(shared: &Shared, claim: &str, claimed: Claimed) -> Option<Verdicts> {
    let (answer, verdicts) = oneshot::channel();
    let Claimed { lsn, rows, .. } = claimed;
    let batch = Batch { claim: claim.to_owned(), lsn, rows, answer };
    // There is room for one batch of each worker, and this is the only one of this worker.
    if shared.batches.try_send(batch).is_err() {
        return None;
    }
    verdicts.await.ok()
}

/// `again` after an answer was lost: then rows may be settled already.
async fn settle(
    shared: &Shared,
    session: &Session,
    claim: &str,
    verdicts: Option<&Verdicts>,
    again: bool,
) -> Result<(), ConnectError> {
    let lease = shared.polling.lease;
    let Some(verdicts) = verdicts else {
        return answered(session, lease, session.abandon(claim)).await;
    };
    let strangers = answered(session, lease, session.settle(claim, verdicts)).await?;
    warn_of_strangers(if again { 0 } else { strangers });
    Ok(())
}

/// A statement that will be refused again.
pub(super) fn refused(shared: &Shared, error: &ConnectError) -> Fault {
    let tables = shared.source.outboxes.iter();
    let tables: Vec<String> = tables.map(|it| format!("{}.{}", it.schema, it.table)).collect();
    let mend = match &error.cause {
        ConnectCause::Server(error) if !error.context.is_empty() => in_function(error),
        _ => "walrelay check; a CHECK or a type that does not know a status word is told apart by [source.polling.words]".to_owned(),
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

/// Rows were claimed by somebody else while they were in our hands.
pub(super) fn warn_of_strangers(rows: u64) {
    if rows > 0 {
        tracing::warn!(
            rows,
            "rows were not ours any more when they were settled: the lease ran out, or somebody changed them; they may be published twice"
        );
    }
}
