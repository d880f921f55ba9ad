//! What is done beside the claims: voiding those that nobody renews, settling what took longer than
//! its claim, deleting what was published long ago, and looking how much waits. Renewing has a
//! connection of its own: nothing may hold it up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_postgres::types::ToSql;

use super::batch::Verdicts;
use super::handover::Standing;
use super::session::Session;
use super::worker::{Reconnect, Shared, answered, broke, warn_of_strangers};
use crate::base::error::Fault;
use crate::metrics::Metrics;
use crate::source::connect::ConnectError;

/// How often it is looked how much waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Rows that are counted; there may be more.
const BACKLOG_MAX: i64 = 100_000;
/// A tenth of the time for counting them, at most.
const LOOK_COST: u32 = 10;
/// Between two batches of a clean-up: other work goes first.
const CLEAN_PAUSE: Duration = Duration::from_millis(50);

/// Verdicts that come after their claim was settled.
#[derive(Debug)]
pub struct Late {
    /// Of which claim.
    pub claim: String,
    /// What has become of its rows.
    pub verdicts: Verdicts,
}

/// Beside the workers, one for each process.
pub struct Keeper {
    /// What it shares with the workers.
    pub shared: Arc<Shared>,
    /// From the loop; it ends when the loop does.
    pub late: mpsc::Receiver<Late>,
    /// Where the backlog is shown.
    pub metrics: Arc<Metrics>,
    /// Called when the table belongs to the slot and nothing is left for polling.
    pub handed_over: Box<dyn Fn(Standing) + Send + Sync>,
}

/// When each chore is due.
struct Chores {
    expire: Instant,
    look: Instant,
    /// Never where nothing is to be deleted.
    clean: Option<Instant>,
}

impl Keeper {
    /// Keeps until the loop has ended and everything is settled.
    pub async fn keep(mut self) -> Result<(), Fault> {
        let shared = Arc::clone(&self.shared);
        let mut reconnect = Reconnect::new(&shared);
        let now = Instant::now();
        // A process that begins after an outage must not be quicker than those who hold claims.
        let expire = now + shared.polling.lease;
        let clean = shared.polling.cleanup.enabled.then_some(now);
        let mut chores = Chores { expire, look: now, clean };
        let mut held: Option<Late> = None;
        loop {
            let session = reconnect.session().await?;
            shared.connected.store(true, Ordering::Relaxed);
            let error = loop {
                match self.turn(&session, &mut chores, &mut held).await {
                    Ok(true) => reconnect.works(),
                    Ok(false) => return Ok(()),
                    Err(error) => break error,
                }
            };
            shared.connected.store(false, Ordering::Relaxed);
            broke(&shared, &error)?;
            // Others could not renew their claims either.
            chores.expire = Instant::now() + shared.polling.lease;
        }
    }

    /// One turn; false when there is nothing more to come. `held` is not settled yet.
    async fn turn(
        &mut self,
        session: &Session,
        chores: &mut Chores,
        held: &mut Option<Late>,
    ) -> Result<bool, ConnectError> {
        if held.is_none() {
            let next = chores.next().saturating_duration_since(Instant::now());
            tokio::select! {
                biased;
                late = self.late.recv() => match late {
                    Some(late) => *held = Some(late),
                    None => return Ok(false),
                },
                () = tokio::time::sleep(next) => {}
            }
        }
        if let Some(Late { claim, verdicts }) = held {
            let settling = session.settle(claim, verdicts);
            warn_of_strangers(answered(session, self.shared.polling.lease, settling).await?);
            if verdicts.last {
                self.shared.set_live(claim, false);
            }
            self.shared.settled.notify_one();
            *held = None;
        }
        // Each of at most four statements ends at the server within the lease.
        answered(session, self.shared.polling.lease * 4, self.chores(session, chores)).await?;
        Ok(true)
    }

    async fn chores(
        &self,
        session: &Session,
        chores: &mut Chores,
    ) -> Result<(), tokio_postgres::Error> {
        let Shared { polling, statements, .. } = &*self.shared;
        let client = session.client();
        let now = Instant::now();
        let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        if now >= chores.expire {
            chores.expire = now + (polling.lease / 4).min(Duration::from_secs(10));
            let void = client.execute(&statements.expire, &[&ms(polling.lease)]).await?;
            if void > 0 {
                self.metrics.expired_claims.inc_by(void);
                tracing::warn!(rows = void, "claims were void: their process has not renewed them");
            }
        }
        if now >= chores.look {
            match self.look(session).await {
                Err(error) if error.is_closed() => return Err(error),
                Err(error) => {
                    tracing::warn!(error = %session.told(&error), "the backlog cannot be looked at");
                }
                Ok(()) => {}
            }
            chores.look = now + LOOK_EVERY.max(now.elapsed() * LOOK_COST);
        }
        if chores.clean.is_some_and(|due| now >= due) {
            let cleanup = &polling.cleanup;
            let batch = i64::try_from(cleanup.batch_max).unwrap_or(i64::MAX);
            let age = ms(cleanup.older_than);
            chores.clean = Some(now + cleanup.interval);
            match client.execute(&statements.clean, &[&age, &batch]).await {
                Ok(gone) => {
                    self.metrics.cleaned_rows.inc_by(gone);
                    if gone >= cleanup.batch_max as u64 {
                        chores.clean = Some(now + CLEAN_PAUSE);
                    }
                }
                Err(error) if error.is_closed() => return Err(error),
                // A foreign key, a trigger: events go on all the same.
                Err(error) => {
                    tracing::warn!(error = %session.told(&error), "published rows cannot be deleted");
                }
            }
        }
        Ok(())
    }

    async fn look(&self, session: &Session) -> Result<(), tokio_postgres::Error> {
        let statements = &self.shared.statements;
        let backlog = session.client().query_one(&statements.backlog, &[&BACKLOG_MAX]).await?;
        self.metrics.backlog.set(backlog.try_get::<_, i64>(0)? as f64);
        self.metrics.backlog_age_seconds.set(backlog.try_get(1)?);
        let standing = Standing::ask(session.client(), statements).await?;
        if standing.handed_over && !standing.left {
            (self.handed_over)(standing);
        }
        Ok(())
    }
}

impl Chores {
    fn next(&self) -> Instant {
        let next = self.expire.min(self.look);
        self.clean.map_or(next, |clean| next.min(clean))
    }
}

/// Renews the claims of this process, until it is dropped.
pub async fn renew(shared: Arc<Shared>) -> Result<(), Fault> {
    let mut reconnect = Reconnect::new(&shared);
    let quarter = shared.polling.lease / 4;
    let quarter_ms = i64::try_from(quarter.as_millis()).unwrap_or(i64::MAX);
    loop {
        let session = reconnect.session().await?;
        let error = loop {
            let live = shared.live();
            if !live.is_empty() {
                let whose: [&(dyn ToSql + Sync); 2] = [&live, &quarter_ms];
                let renewing = session.client().execute(&shared.statements.renew, &whose);
                match answered(&session, quarter, renewing).await {
                    Ok(_) => reconnect.works(),
                    Err(error) => break error,
                }
            }
            tokio::time::sleep(quarter).await;
        };
        broke(&shared, &error)?;
    }
}
