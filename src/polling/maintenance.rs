//! Frees the rows of claims that are not renewed, settles rows that took longer than their claim,
//! deletes old published rows, and measures the backlog.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::batch::Verdicts;
use super::handover::HandoverState;
use super::session::{PollingSession, Settled, millis};
use super::worker::{PollingShared, Reconnect, broke, warn_of_lost_rows};
use crate::base::error::Fault;
use crate::metrics::Metrics;
use crate::source::connect::ConnectError;

/// How often the backlog is measured.
const BACKLOG_EVERY: Duration = Duration::from_secs(1);
/// Most rows that are counted.
const BACKLOG_MAX: i64 = 100_000;
/// Counting them may take one part of this many of the time.
const BACKLOG_COST: u32 = 10;
/// How often it is tried again to write verdicts whose rows are locked, which waits for the lock.
const LOCKED_EVERY: Duration = Duration::from_millis(500);
/// Trying may take one part of this many of the time.
const LOCKED_COST: u32 = 4;
/// Pause between two batches of a clean-up.
const CLEAN_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Maintenance {
    pub(crate) shared: Arc<PollingShared>,
    /// Verdicts from the loop for which no worker waits; it ends when the loop does.
    pub(crate) late: mpsc::Receiver<Verdicts>,
    /// Verdicts that a worker could not write, because others have locked rows of the claim.
    pub(crate) locked: mpsc::UnboundedReceiver<Verdicts>,
    pub(crate) metrics: Arc<Metrics>,
    /// Called when the slot exists and no rows are left for polling.
    pub(crate) handed_over: Box<dyn Fn(HandoverState) + Send + Sync>,
}

/// When each chore is due.
struct Chores {
    expire: Instant,
    backlog: Instant,
    /// None if published rows are kept.
    clean: Option<Instant>,
}

/// Verdicts that are to be written. Those of a claim keep their order.
struct Unwritten {
    next: VecDeque<Verdicts>,
    /// Another session has locked rows of these claims: they are tried again later.
    locked: VecDeque<Verdicts>,
    retry_at: Instant,
}

impl Maintenance {
    /// Runs until the loop has ended and everything is settled.
    pub(crate) async fn run(mut self) -> Result<(), Fault> {
        let shared = Arc::clone(&self.shared);
        let mut reconnect = Reconnect::new(&shared);
        let now = Instant::now();
        let clean = shared.polling.cleanup.enabled.then_some(now);
        let mut chores = Chores { expire: now, backlog: now, clean };
        let mut unwritten = Unwritten::new(now);
        loop {
            let session = reconnect.session().await?;
            // Other processes may have been unable to renew their claims, too.
            chores.expire = Instant::now() + shared.polling.lease;
            shared.connected.store(true, Ordering::Relaxed);
            let error = loop {
                match self.turn(&session, &mut chores, &mut unwritten).await {
                    Ok(true) => reconnect.succeeded(),
                    Ok(false) => return Ok(()),
                    Err(error) => break error,
                }
            };
            shared.connected.store(false, Ordering::Relaxed);
            self.backlog_is_unknown();
            broke(&shared, &error)?;
        }
    }

    /// Waits for verdicts or the next chore, and does what is due; false when no verdict can come any more.
    async fn turn(
        &mut self,
        session: &PollingSession,
        chores: &mut Chores,
        unwritten: &mut Unwritten,
    ) -> Result<bool, ConnectError> {
        let next = unwritten.due().map_or(chores.next(), |due| due.min(chores.next()));
        let is_over = self.late.is_closed() && self.late.is_empty();
        tokio::select! {
            biased;
            late = self.late.recv(), if !is_over => {
                if let Some(late) = late {
                    self.shared.live.decide(&late);
                    unwritten.add(late);
                }
            }
            locked = self.locked.recv(), if !self.locked.is_closed() => unwritten.put_aside(locked),
            () = tokio::time::sleep_until(next.into()) => {}
        }
        unwritten.write(session, &self.shared).await?;
        if is_over && unwritten.is_empty() {
            // A worker that finds it closed writes its verdicts itself.
            self.locked.close();
            while let Ok(locked) = self.locked.try_recv() {
                unwritten.put_aside(Some(locked));
            }
            return Ok(!unwritten.is_empty());
        }
        // The server ends each of at most four statements within the lease.
        session.within(self.shared.polling.lease * 4, self.chores(session, chores)).await?;
        Ok(true)
    }

    async fn chores(
        &self,
        session: &PollingSession,
        chores: &mut Chores,
    ) -> Result<(), tokio_postgres::Error> {
        let PollingShared { polling, statements, .. } = &*self.shared;
        let client = session.client();
        let now = Instant::now();
        if now >= chores.expire {
            chores.expire = now + (polling.lease / 4).min(Duration::from_secs(10));
            let void = client.execute(&statements.expire, &[&millis(polling.lease)]).await?;
            if void > 0 {
                self.metrics.expired_claims.inc_by(void);
                tracing::warn!(
                    code = "polling.claims-expired",
                    rows = void,
                    "rows were freed: their process has not renewed its claims"
                );
            }
        }
        if now >= chores.backlog {
            match self.measure_backlog(session).await {
                Err(error) if error.is_closed() => return Err(error),
                Err(error) => {
                    self.backlog_is_unknown();
                    tracing::warn!(code = "polling.backlog-unread", error = %session.query_error(&error), "the backlog cannot be looked at");
                }
                Ok(()) => {}
            }
            chores.backlog = now + BACKLOG_EVERY.max(now.elapsed() * BACKLOG_COST);
        }
        if chores.clean.is_some_and(|due| now >= due) {
            let cleanup = &polling.cleanup;
            let batch = i64::try_from(cleanup.batch_max).unwrap_or(i64::MAX);
            let age = millis(cleanup.older_than);
            chores.clean = Some(now + cleanup.interval);
            match client.execute(&statements.clean, &[&age, &batch]).await {
                Ok(gone) => {
                    self.metrics.cleaned_rows.inc_by(gone);
                    if gone >= cleanup.batch_max as u64 {
                        chores.clean = Some(now + CLEAN_PAUSE);
                    }
                }
                Err(error) if error.is_closed() => return Err(error),
                // Because of a foreign key or a trigger, for example. Events are still published.
                Err(error) => {
                    tracing::warn!(code = "polling.clean-up", error = %session.query_error(&error), "published rows cannot be deleted");
                }
            }
        }
        Ok(())
    }

    fn backlog_is_unknown(&self) {
        self.metrics.backlog.set(f64::NAN);
        self.metrics.backlog_age_seconds.set(f64::NAN);
    }

    async fn measure_backlog(&self, session: &PollingSession) -> Result<(), tokio_postgres::Error> {
        let statements = &self.shared.statements;
        let backlog = session.client().query_one(&statements.backlog, &[&BACKLOG_MAX]).await?;
        self.metrics.backlog.set(backlog.try_get::<_, i64>(0)? as f64);
        self.metrics.backlog_age_seconds.set(backlog.try_get(1)?);
        let state = HandoverState::read(session.client(), statements).await?;
        if state.handed_over && !state.left {
            (self.handed_over)(state);
        }
        Ok(())
    }
}

impl Unwritten {
    fn new(now: Instant) -> Unwritten {
        Unwritten { next: VecDeque::new(), locked: VecDeque::new(), retry_at: now }
    }

    fn is_empty(&self) -> bool {
        self.next.is_empty() && self.locked.is_empty()
    }

    fn add(&mut self, verdicts: Verdicts) {
        let follows = self.locked.iter().any(|locked| locked.claim == verdicts.claim);
        if follows { &mut self.locked } else { &mut self.next }.push_back(verdicts);
    }

    fn put_aside(&mut self, verdicts: Option<Verdicts>) {
        self.locked.extend(verdicts);
    }

    /// When something is to be written.
    fn due(&self) -> Option<Instant> {
        let is_locked = !self.locked.is_empty();
        if self.next.is_empty() { is_locked.then_some(self.retry_at) } else { Some(Instant::now()) }
    }

    /// Writes what can be written. What is not written stays, also when the connection breaks.
    async fn write(
        &mut self,
        session: &PollingSession,
        shared: &PollingShared,
    ) -> Result<(), ConnectError> {
        while let Some(verdicts) = self.next.front() {
            let is_written = settle(session, shared, verdicts).await?;
            let verdicts = self.next.pop_front();
            if !is_written {
                self.put_aside(verdicts);
            }
        }
        let now = Instant::now();
        if now < self.retry_at {
            return Ok(());
        }
        let mut index = 0;
        while let Some(verdicts) = self.locked.get(index) {
            let is_behind = self.locked.range(..index).any(|it| it.claim == verdicts.claim);
            if !is_behind && settle(session, shared, verdicts).await? {
                self.locked.remove(index);
            } else {
                index += 1;
            }
        }
        self.retry_at = now + LOCKED_EVERY.max(now.elapsed() * LOCKED_COST);
        Ok(())
    }
}

/// Writes verdicts; false if rows of their claim are locked.
async fn settle(
    session: &PollingSession,
    shared: &PollingShared,
    verdicts: &Verdicts,
) -> Result<bool, ConnectError> {
    let Settled::Written { lost } = session.settle(verdicts).await? else { return Ok(false) };
    warn_of_lost_rows(lost);
    if verdicts.last {
        shared.live.last_is_written(&verdicts.claim);
    }
    shared.settled.notify_one();
    Ok(true)
}

impl Chores {
    fn next(&self) -> Instant {
        let next = self.expire.min(self.backlog);
        self.clean.map_or(next, |clean| next.min(clean))
    }
}
