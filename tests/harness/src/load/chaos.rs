//! Concurrent writers whose every outcome an exact checker can judge.
//!
//! The per-key sequence is taken under a row lock of the `keys` table, held until commit: commit
//! order per key *is* `seq` order, gap-free. Locks are taken in key order, so writers never
//! deadlock. A commit whose answer was lost is resolved by taking the same locks again (which
//! waits for a backend that may still be committing) and then looking for one of its ids.

mod text;
mod transaction;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use self::transaction::{Outcome, Plan};
use super::execute;
use crate::kit::{Rng, Session, lock, runtime};
use crate::{HarnessError, Result};

const KEYS_TABLE: &str = "public.keys";
/// How long Postgres may be unreachable.
const OUTAGE_MAX: Duration = Duration::from_secs(60);

/// Writers that go on until `events` events are committed.
#[derive(Clone, Debug)]
pub struct ChaosWriters {
    pub url: String,
    /// Values of `aggregatetype`; a key belongs to one of them for ever.
    pub aggregatetypes: Vec<String>,
    pub events: u64,
    pub writers: u64,
    pub keys: u64,
    pub rows_max: u64,
    /// Share of transactions that end in ROLLBACK.
    pub rollback_share: f64,
    /// Share of transactions that roll back to a savepoint on their way.
    pub savepoint_share: f64,
    /// Spreads the events evenly over this time; as fast as it goes when absent.
    pub last: Option<Duration>,
    /// Same seed, same plans; interleaving is the machine's.
    pub seed: u64,
}

/// The report of the writers on their work, as far as they know; the table is the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChaosReport {
    pub events_committed: u64,
    pub committed: u64,
    pub rolled_back: u64,
    /// Rows inserted and then rolled back, savepoints included.
    pub events_rolled_back: u64,
    pub savepoint_rollbacks: u64,
    pub copies: u64,
    /// Transactions that an outage ended before COMMIT was sent.
    pub broken: u64,
    /// Lost COMMIT answers that turned out committed.
    pub unknown_committed: u64,
    /// Sessions opened after the first of each writer.
    pub reconnects: u64,
}

impl ChaosReport {
    fn add(&mut self, other: &ChaosReport) {
        self.events_committed += other.events_committed;
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.events_rolled_back += other.events_rolled_back;
        self.savepoint_rollbacks += other.savepoint_rollbacks;
        self.copies += other.copies;
        self.broken += other.broken;
        self.unknown_committed += other.unknown_committed;
        self.reconnects += other.reconnects;
    }
}

/// Events not yet reserved by a writer, and the pace at which they may be.
#[derive(Debug)]
struct Budget {
    left: u64,
    reserved: u64,
    /// Writers between reservation and outcome: what they hold may come back.
    open: u64,
}

impl ChaosWriters {
    /// Eight writers, fifty keys, a tenth rolled back, transactions of up to 10,000 rows.
    pub fn new(url: impl Into<String>, events: u64, seed: u64) -> ChaosWriters {
        ChaosWriters {
            url: url.into(),
            aggregatetypes: vec!["order".into()],
            events,
            writers: 8,
            keys: 50,
            rows_max: 10_000,
            rollback_share: 0.1,
            savepoint_share: 0.15,
            last: None,
            seed,
        }
    }

    pub fn run(&self) -> Result<ChaosReport> {
        self.prepare()?;
        let budget = Mutex::new(Budget { left: self.events, reserved: 0, open: 0 });
        let began = Instant::now();
        let reports: Vec<Result<ChaosReport>> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..self.writers.max(1))
                .map(|writer| {
                    let budget = &budget;
                    scope.spawn(move || runtime()?.block_on(self.write(writer, budget, began)))
                })
                .collect();
            let gone = |_| Err(HarnessError::Other("a writer panicked".into()));
            writers.into_iter().map(|writer| writer.join().unwrap_or_else(gone)).collect()
        });
        let mut sum = ChaosReport::default();
        for report in reports {
            sum.add(&report?);
        }
        Ok(sum)
    }

    fn prepare(&self) -> Result<()> {
        if self.aggregatetypes.is_empty() {
            return Err(HarnessError::Other("chaos writers need an aggregate type".into()));
        }
        let sql = format!(
            "create table if not exists {KEYS_TABLE} (key text primary key, seq bigint not null);
             insert into {KEYS_TABLE} select 'key-' || n, 0 from generate_series(0, {}) n
             on conflict do nothing",
            self.keys.max(1) - 1
        );
        execute(&self.url, &sql)
    }

    async fn write(
        &self,
        writer: u64,
        budget: &Mutex<Budget>,
        began: Instant,
    ) -> Result<ChaosReport> {
        let mut rng = Rng::fork(self.seed, writer);
        let mut report = ChaosReport::default();
        let mut session = self.session().await?;
        loop {
            let wanted = rng.log_uniform(self.rows_max);
            let (rows, before) = match reserve(budget, wanted) {
                Reserved::Rows { rows, before } => (rows, before),
                Reserved::Wait => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                Reserved::Done => return Ok(report),
            };
            self.pace(before, began).await;
            let plan = Plan::draw(self, rows, &mut rng);
            let (outcome, broke) = match plan.run(&session.client, &mut report).await {
                Ok(outcome) => (outcome, false),
                Err(broken) if broken.is_permanent() => return Err(broken.error.into()),
                Err(broken) => {
                    session = self.session().await?;
                    report.reconnects += 1;
                    (self.resolve(&mut session, &plan, broken.at_commit, &mut report).await?, true)
                }
            };
            let committed = plan.account(outcome, broke, &mut report);
            give_back(budget, rows, committed);
        }
    }

    /// Settles what became of a transaction whose session died, however often Postgres dies again.
    async fn resolve(
        &self,
        session: &mut Session,
        plan: &Plan,
        at_commit: bool,
        report: &mut ChaosReport,
    ) -> Result<Outcome> {
        if !at_commit {
            return Ok(Outcome::RolledBack);
        }
        loop {
            match plan.is_committed(&session.client).await {
                Ok(true) => return Ok(Outcome::Committed),
                Ok(false) => return Ok(Outcome::RolledBack),
                Err(_) => {
                    *session = self.session().await?;
                    report.reconnects += 1;
                }
            }
        }
    }

    /// A session, waiting out an outage of up to [`OUTAGE_MAX`].
    async fn session(&self) -> Result<Session> {
        let began = Instant::now();
        loop {
            match Session::open(&self.url).await {
                Ok(session) => return Ok(session),
                Err(error) if began.elapsed() > OUTAGE_MAX => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Holds a transaction back until the events reserved before it are due.
    async fn pace(&self, before: u64, began: Instant) {
        let Some(last) = self.last else { return };
        let due = last.mul_f64((before as f64 / self.events.max(1) as f64).min(1.0));
        tokio::time::sleep_until((began + due).into()).await;
    }
}

enum Reserved {
    Rows { rows: u64, before: u64 },
    Wait,
    Done,
}

fn reserve(budget: &Mutex<Budget>, wanted: u64) -> Reserved {
    let mut budget = lock(budget);
    let rows = wanted.min(budget.left);
    if rows == 0 {
        return if budget.open == 0 { Reserved::Done } else { Reserved::Wait };
    }
    let before = budget.reserved;
    budget.left -= rows;
    budget.reserved += rows;
    budget.open += 1;
    Reserved::Rows { rows, before }
}

fn give_back(budget: &Mutex<Budget>, rows: u64, committed: u64) {
    let mut budget = lock(budget);
    budget.open -= 1;
    budget.left += rows - committed;
    budget.reserved -= rows - committed;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rolled_back_reservation_is_written_by_someone_else() {
        // GIVEN a budget of 10 events, 7 of them reserved
        let budget = Mutex::new(Budget { left: 10, reserved: 0, open: 0 });
        assert!(matches!(reserve(&budget, 7), Reserved::Rows { rows: 7, before: 0 }));
        // WHEN the rest is taken too
        assert!(matches!(reserve(&budget, 7), Reserved::Rows { rows: 3, before: 7 }));
        // THEN a third writer waits, for the first may roll back
        assert!(matches!(reserve(&budget, 1), Reserved::Wait));
        give_back(&budget, 7, 0);
        give_back(&budget, 3, 3);
        assert!(matches!(reserve(&budget, 9), Reserved::Rows { rows: 7, before: 3 }));
        give_back(&budget, 7, 7);
        assert!(matches!(reserve(&budget, 1), Reserved::Done));
    }
}
