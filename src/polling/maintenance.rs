//! Frees the rows of claims that are not renewed, settles rows that took longer than their claim,
//! deletes old published rows, and measures the backlog.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc;
use tokio_postgres::Client;

use super::batch::Verdicts;
use super::handover::HandoverState;
use super::session::{Attempt, PollingSession, Settled, millis};
use super::worker::{PollingShared, Reconnect, broke};
use crate::base::error::Fault;
use crate::metrics::Metrics;
use crate::source::connect::ConnectError;

/// How often the backlog is measured.
const BACKLOG_EVERY: Duration = Duration::from_secs(1);
/// Most rows that are counted.
const BACKLOG_MAX: i64 = 100_000;
/// Counting them may take one part of this many of the time, as long as a count takes less than 3 s.
const BACKLOG_COST: u32 = 10;
/// Longest pause between two counts, because one that takes long may have waited for a lock.
const BACKLOG_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause while too many verdicts wait for locks.
const LOCKED_PAUSE: Duration = Duration::from_millis(50);
/// A difference of clocks that answers of different speed may show.
const CLOCK_AHEAD: Duration = Duration::from_secs(1);
/// Pause between two batches of a clean-up.
const CLEAN_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Maintenance {
    pub(crate) shared: Arc<PollingShared>,
    /// Verdicts from the loop for which no worker waits; it ends when the loop does.
    pub(crate) late: mpsc::Receiver<Verdicts>,
    pub(crate) metrics: Arc<Metrics>,
    /// Called when the slot exists and no rows are left for polling.
    pub(crate) handed_over: Box<dyn Fn(HandoverState) + Send + Sync>,
}

/// Verdicts that were received and are not settled yet.
struct HeldVerdicts {
    verdicts: Verdicts,
    /// The connection has ended during an attempt to write them: they may be written.
    is_unsure: bool,
}

/// When each chore is due.
struct Chores {
    expire: Instant,
    clock: ServerClock,
    backlog: Instant,
    /// None if published rows are kept.
    clean: Option<Instant>,
}

impl Maintenance {
    /// Runs until the loop has ended and everything is settled.
    pub(crate) async fn run(mut self) -> Result<(), Fault> {
        let shared = Arc::clone(&self.shared);
        let mut reconnect = Reconnect::new(&shared);
        let now = Instant::now();
        let clean = shared.polling.cleanup.enabled.then_some(now);
        let clock = ServerClock::default();
        let mut chores = Chores { expire: now, clock, backlog: now, clean };
        let mut held = None;
        loop {
            let session = reconnect.session().await?;
            // Other processes may have been unable to renew their claims, too.
            chores.expire = Instant::now() + shared.polling.lease;
            chores.clock = ServerClock::default();
            shared.connected.store(true, Ordering::Relaxed);
            let error = loop {
                match self.turn(&session, &mut chores, &mut held).await {
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

    /// Settles one late verdict or waits for the next chore; false when no verdict can come any
    /// more.
    async fn turn(
        &mut self,
        session: &PollingSession,
        chores: &mut Chores,
        held: &mut Option<HeldVerdicts>,
    ) -> Result<bool, ConnectError> {
        if held.is_none() {
            let next = chores.next().saturating_duration_since(Instant::now());
            tokio::select! {
                biased;
                late = self.late.recv() => match late {
                    Some(late) => {
                        self.shared.live.decide(&late);
                        *held = Some(HeldVerdicts { verdicts: late, is_unsure: false });
                    }
                    None => return Ok(false),
                },
                () = tokio::time::sleep(next) => {}
            }
        }
        if let Some(found) = held {
            if self.is_settled(session, found).await? {
                *held = None;
            } else {
                let left = held.take().and_then(|it| self.shared.locked.put_aside(it.verdicts));
                *held = left.map(|verdicts| HeldVerdicts { verdicts, is_unsure: false });
                if held.is_some() {
                    tokio::time::sleep(LOCKED_PAUSE).await;
                }
            }
        }
        // The server ends each of at most four statements within the lease.
        let limit = self.shared.polling.lease * 4;
        tokio::select! {
            done = session.within(limit, self.chores(session, chores)) => done?,
            never = self.forget_stale_backlog() => match never {},
        }
        Ok(true)
    }

    /// Writes verdicts, unless rows of their claim are locked, or earlier verdicts of it wait for that.
    async fn is_settled(
        &self,
        session: &PollingSession,
        held: &mut HeldVerdicts,
    ) -> Result<bool, ConnectError> {
        if self.shared.locked.contain(&held.verdicts.claim) {
            return Ok(false);
        }
        match session.settle(&held.verdicts, Attempt::First).await {
            Ok(Settled::Written { lost }) => {
                self.shared.verdicts_written(&held.verdicts, lost, held.is_unsure);
                Ok(true)
            }
            Ok(Settled::RowsLocked) => Ok(false),
            Err(error) => {
                held.is_unsure = true;
                Err(error)
            }
        }
    }

    async fn chores(
        &self,
        session: &PollingSession,
        chores: &mut Chores,
    ) -> Result<(), tokio_postgres::Error> {
        let PollingShared { polling, statements, .. } = &*self.shared;
        let client = &session.sql.client;
        let now = Instant::now();
        if now >= chores.expire || chores.clock.looked.is_none() {
            let asked = Instant::now();
            let server = client.query_one("SELECT pg_catalog.clock_timestamp()", &[]).await?;
            let ahead = chores.clock.advance(server.try_get(0)?, asked, Instant::now());
            if ahead > CLOCK_AHEAD.max(polling.lease / 8) {
                tracing::warn!(
                    code = "polling.clock-set",
                    ahead_s = ahead.as_secs(),
                    "the clock of the database has gone on faster than that of this process: it was set forward, or this machine was suspended; no claim counts as expired before each process could renew its own"
                );
                chores.expire = now + polling.lease;
            }
        }
        if now >= chores.expire {
            chores.expire = now + (polling.lease / 4).min(Duration::from_secs(10));
            self.expire_claims(client).await?;
        }
        if now >= chores.backlog {
            match self.measure_backlog(session).await {
                Err(error) if error.is_closed() => return Err(error),
                Err(error) => {
                    self.backlog_is_unknown();
                    tracing::warn!(code = "polling.backlog-unread", error = %session.sql.error(&error), "the backlog cannot be looked at");
                }
                Ok(()) => {}
            }
            chores.backlog = Instant::now() + backlog_pause(now.elapsed());
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
                    tracing::warn!(code = "polling.clean-up", error = %session.sql.error(&error), "published rows cannot be deleted");
                }
            }
        }
        Ok(())
    }

    async fn expire_claims(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let PollingShared { polling, statements, .. } = &*self.shared;
        let void = client.execute(&statements.expire, &[&millis(polling.lease)]).await?;
        if void > 0 {
            self.metrics.expired_claims.inc_by(void);
            tracing::warn!(
                code = "polling.claims-expired",
                rows = void,
                "rows were freed: their process has not renewed its claims"
            );
        }
        Ok(())
    }

    /// Makes the backlog unknown while the chores wait for a table that another session has locked, until the
    /// future is dropped.
    async fn forget_stale_backlog(&self) -> Infallible {
        loop {
            tokio::time::sleep(BACKLOG_EVERY).await;
            if self.shared.lock_wait.is_told() {
                self.backlog_is_unknown();
            }
        }
    }

    fn backlog_is_unknown(&self) {
        self.metrics.backlog.set(f64::NAN);
        self.metrics.backlog_age_seconds.set(f64::NAN);
    }

    async fn measure_backlog(&self, session: &PollingSession) -> Result<(), tokio_postgres::Error> {
        let statements = &self.shared.statements;
        let backlog = session.sql.client.query_one(&statements.backlog, &[&BACKLOG_MAX]).await?;
        self.metrics.backlog.set(backlog.try_get::<_, i64>(0)? as f64);
        self.metrics.backlog_age_seconds.set(backlog.try_get(1)?);
        let state = HandoverState::read(&session.sql.client, statements).await?;
        if state.handed_over && !state.left {
            (self.handed_over)(state);
        }
        Ok(())
    }
}

/// The pause that follows a count of the backlog.
fn backlog_pause(took: Duration) -> Duration {
    (took * BACKLOG_COST).clamp(BACKLOG_EVERY, BACKLOG_PAUSE_MAX)
}

/// The clock of the server, compared with that of this process: the age of a claim is measured with the
/// former.
#[derive(Default)]
struct ServerClock {
    looked: Option<(SystemTime, Instant)>,
}

impl ServerClock {
    /// By how much the clock of the server has gone on faster since the last look, at least.
    fn advance(&mut self, server: SystemTime, asked: Instant, answered: Instant) -> Duration {
        let Some((before, looked)) = self.looked.replace((server, asked)) else {
            return Duration::ZERO;
        };
        server.duration_since(before).unwrap_or_default().saturating_sub(answered - looked)
    }
}

impl Chores {
    fn next(&self) -> Instant {
        let next = self.expire.min(self.backlog);
        self.clean.map_or(next, |clean| next.min(clean))
    }
}

/// Writes verdicts of locked rows, each claim in its order, until a stop is requested and none waits. Those of
/// a single claim wait in the queue of the lock, so that nobody else has the rows first.
pub(crate) async fn write_locked(
    shared: Arc<PollingShared>,
    mut receiver: mpsc::Receiver<Verdicts>,
) -> Result<(), Fault> {
    let mut reconnect = Reconnect::new(&shared);
    let mut stop = shared.stop.clone();
    let mut waiting = VecDeque::new();
    let mut session = None;
    // The connection has ended during the attempt to write the first.
    let mut is_unsure = false;
    loop {
        while let Ok(verdicts) = receiver.try_recv() {
            waiting.push_back(verdicts);
        }
        let Some(verdicts) = waiting.front() else {
            // The connection is open only while something waits.
            session = None;
            tokio::select! {
                verdicts = receiver.recv() => match verdicts {
                    Some(verdicts) => waiting.push_back(verdicts),
                    None => return Ok(()),
                },
                // A worker that finds it closed tries again to write its verdicts itself.
                _ = stop.wait_for(|stop| *stop) => receiver.close(),
            }
            continue;
        };
        let open = match session.take() {
            Some(open) => open,
            None => reconnect.session().await?,
        };
        let is_alone = waiting.iter().all(|other| other.claim == verdicts.claim);
        let attempt = next_attempt(shared.live.has_lost_rows(&verdicts.claim), is_alone);
        match open.settle(verdicts, attempt).await {
            Ok(Settled::Written { lost }) => {
                reconnect.succeeded();
                shared.locked.written(&verdicts.claim);
                shared.verdicts_written(verdicts, lost, is_unsure);
                waiting.pop_front();
                (session, is_unsure) = (Some(open), false);
            }
            // Other claims are tried first now: their rows may be free.
            Ok(Settled::RowsLocked) => {
                let claim = verdicts.claim.clone();
                let (same, others): (Vec<_>, Vec<_>) =
                    waiting.drain(..).partition(|it: &Verdicts| it.claim == claim);
                waiting.extend(others.into_iter().chain(same));
                (session, is_unsure) = (Some(open), false);
            }
            Err(error) => {
                broke(&shared, &error)?;
                is_unsure = true;
            }
        }
    }
}

/// The attempt to write verdicts whose rows were locked. If the claim has lost rows, another one publishes those and
/// the rows behind them again: none is taken back.
fn next_attempt(has_lost_rows: bool, is_alone: bool) -> Attempt {
    match (has_lost_rows, is_alone) {
        (true, _) => Attempt::First,
        (false, true) => Attempt::AgainAlone,
        (false, false) => Attempt::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_has_waited_for_a_lock_is_repeated_soon() {
        let millis = Duration::from_millis;
        assert_eq!(backlog_pause(millis(5)), BACKLOG_EVERY);
        assert_eq!(backlog_pause(millis(400)), millis(4_000));
        assert_eq!(backlog_pause(millis(18_000)), BACKLOG_PAUSE_MAX);
    }

    #[test]
    fn a_server_clock_that_was_set_forward_is_noticed_at_the_next_look() {
        let (server, now) = (SystemTime::now(), Instant::now());
        let seconds = Duration::from_secs;
        let mut clock = ServerClock::default();
        let mut advance = |server, asked, answered| {
            clock.advance(server, now + seconds(asked), now + seconds(answered))
        };
        assert_eq!(advance(server, 0, 1), seconds(0));
        assert_eq!(advance(server + seconds(8), 7, 7), seconds(1));
        // WHEN an answer takes long THEN that is no difference
        assert_eq!(advance(server + seconds(18), 8, 18), seconds(0));
        assert_eq!(advance(server + seconds(78), 28, 28), seconds(40));
        // WHEN it was set back THEN it is not ahead
        assert_eq!(advance(server, 29, 29), seconds(0));
        assert_eq!(advance(server + seconds(1), 30, 30), seconds(0));
    }
}
