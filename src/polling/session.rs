//! A connection on which the statements of polling are prepared.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Kind, ToSql};
use tokio_postgres::{Column, Statement};

use super::batch::{self, FailedRow, PolledRow, Verdicts};
use super::lock_wait::LockWait;
use super::statements::{EVENT, Statements};
use crate::base::lsn::Lsn;
use crate::pgoutput::relation::Relation;
use crate::source::connect::{ConnectCause, ConnectError, ServerError};
use crate::source::settings::ConnInfo;
use crate::source::slot_wait::session_pid;
use crate::source::sql::{self, Sql};

/// A snapshot that was taken before the lock would not show the rows of the claim before.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// An attempt to write verdicts: how long it waits for rows that other sessions have locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It waits for a second, so that what comes after it does not wait for long.
    First,
    /// Rows were locked, and so they were not renewed, and may have been freed. It waits for a second,
    /// because verdicts of other claims wait as well.
    Again,
    /// The same with no other claim: it waits as long as the session waits for anything.
    AgainAlone,
}

/// The outcome of writing the verdicts of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// They are written, but for so many rows that no longer belonged to the claim.
    Written { lost: u64 },
    /// Another session has locked some of the rows, and nothing is written: a row must not be settled
    /// before an earlier one of its key.
    RowsLocked,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimLimits {
    /// Most rows that are examined.
    pub(crate) reach: usize,
    /// Most bytes of the event's columns; a single row may have more.
    pub(crate) bytes_max: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The server's position at the claim.
    pub(crate) lsn: Lsn,
    pub(crate) rows: Vec<PolledRow>,
    /// Ready rows among those that were examined.
    pub(crate) ready: usize,
    /// The rows of them whose key was not busy, up to the size of a batch.
    pub(crate) free: usize,
}

pub(crate) struct PollingSession {
    pub(crate) sql: Sql,
    /// Its process.
    pub(crate) pid: i32,
    lease: Duration,
    /// The begin of a transaction that waits for locks for a short time.
    begin_short: String,
    /// The event's columns have other types than at the start: what was claimed is still settled.
    is_retyped: bool,
    any_character: bool,
    turn: Statement,
    claim: Statement,
    fetch: Statement,
    abandoned: Statement,
    published: Statement,
    failed: Statement,
    noted: Statement,
    retaken: Statement,
    given_back: Statement,
}

impl PollingSession {
    pub(crate) async fn open(
        info: &ConnInfo,
        statements: &Statements,
        lease: Duration,
        lock_wait: &LockWait,
    ) -> Result<PollingSession, ConnectError> {
        // It tries one address after the other, each for `connect_timeout`.
        let sql = sql::connect(info).await?;
        let prepared = PollingSession::prepare(sql, statements, lease, lock_wait);
        let limit = info.connect_timeout + lease;
        timeout(limit, prepared).await.unwrap_or_else(|_| Err(unanswered(limit)))
    }

    async fn prepare(
        sql: Sql,
        statements: &Statements,
        lease: Duration,
        lock_wait: &LockWait,
    ) -> Result<PollingSession, ConnectError> {
        let failed = |error| sql.error(&error);
        // The server ends a statement before this side stops waiting for it. Otherwise a claim
        // could succeed when nobody waits for its rows any more.
        let part = |percent: u128| (lease.as_millis() * percent / 100).max(1);
        let begin_short = format!("{BEGIN}; SET LOCAL lock_timeout = {}", part(60).min(1_000));
        let settings = format!(
            "SET lock_timeout = {}; SET statement_timeout = {}; \
             SET idle_in_transaction_session_timeout = {}; \
             SET default_transaction_isolation = 'read committed'; \
             SET default_transaction_read_only = off; \
             SET bytea_output = hex; SET DateStyle = ISO",
            part(60),
            part(80),
            part(80)
        );
        sql.client.batch_execute(&settings).await.map_err(failed)?;
        let pid = session_pid(&sql.client).await.map_err(failed)?;
        let prepare = |statement| sql.client.prepare(statement);
        // Postgres locks the table to prepare a statement.
        let preparing = async {
            tokio::try_join!(
                prepare(&statements.turn),
                prepare(&statements.claim),
                prepare(&statements.fetch),
                prepare(&statements.abandoned),
                prepare(&statements.published),
                prepare(&statements.failed),
                prepare(&statements.noted),
                prepare(&statements.retaken),
                prepare(&statements.given_back),
            )
        };
        let prepared = lock_wait.explain_during(pid, Box::pin(preparing)).await;
        let (turn, claim, fetch, abandoned, published, failed, noted, retaken, given_back) =
            prepared.map_err(failed)?;
        lock_wait.end();
        let is_retyped = !has_types(&fetch, &statements.event);
        Ok(PollingSession {
            sql,
            pid,
            lease,
            begin_short,
            is_retyped,
            any_character: statements.any_character,
            turn,
            claim,
            fetch,
            abandoned,
            published,
            failed,
            noted,
            retaken,
            given_back,
        })
    }

    /// Waits for an answer. After the limit the connection counts as broken: the network may have
    /// dropped it silently.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, ConnectError> {
        match timeout(limit, asked).await {
            Ok(answer) => answer.map_err(|error| self.sql.error(&error)),
            Err(_) => Err(unanswered(limit)),
        }
    }

    /// Claims rows and marks them with `claim`. All statements are sent at once, and the rows are
    /// fetched after the COMMIT, so the lock is held only while the server works, whatever happens
    /// here. None if others held the lock for too long.
    pub(crate) async fn claim(
        &self,
        claim: &str,
        limits: ClaimLimits,
    ) -> Result<Option<Claim>, ConnectError> {
        if self.is_retyped {
            return Err(retyped());
        }
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (reach, bytes_max) = (number(limits.reach), number(limits.bytes_max));
        let parameters: [&(dyn ToSql + Sync); 3] = [&claim, &reach, &bytes_max];
        let client = &self.sql.client;
        let turn = async {
            // Only here: a later lock timeout is about rows.
            client.query_one(&self.turn, &[]).await.map_err(|error| match error.code() {
                Some(&SqlState::LOCK_NOT_AVAILABLE) => None,
                _ => Some(error),
            })
        };
        self.within(self.lease, async {
            // In this order, because later errors follow from the first.
            let done = tokio::try_join!(
                biased;
                failing(client.batch_execute(BEGIN)),
                turn,
                failing(client.query_one(&self.claim, &parameters)),
                failing(client.batch_execute("COMMIT")),
                failing(client.query(&self.fetch, &parameters[..1])),
            );
            let ((), turn, counts, (), rows) = match done {
                Ok(done) => done,
                Err(None) => return Ok(None),
                Err(Some(error)) => return Err(error),
            };
            let lsn = u64::try_from(turn.try_get::<_, i64>(1)?).unwrap_or_default();
            let count = |at| Ok(usize::try_from(counts.try_get::<_, i64>(at)?).unwrap_or(0));
            let (ready, free) = (count(0)?, count(1)?);
            Ok(Some(Claim { lsn: Lsn::from_wire(lsn), rows: batch::read(&rows)?, ready, free }))
        })
        .await
    }

    /// Frees all rows of a claim. It takes the lock, so a claim that still waits for the lock in
    /// the server comes before it.
    pub(crate) async fn abandon(&self, claim: &str) -> Result<(), ConnectError> {
        let client = &self.sql.client;
        let parameters: [&(dyn ToSql + Sync); 1] = [&claim];
        self.within(self.lease, async {
            tokio::try_join!(
                biased;
                client.batch_execute(BEGIN),
                client.query_one(&self.turn, &[]),
                client.execute(&self.abandoned, &parameters),
                client.batch_execute("COMMIT"),
            )
            .map(drop)
        })
        .await
    }

    /// Writes the verdicts of a claim in one transaction.
    pub(crate) async fn settle(
        &self,
        verdicts: &Verdicts,
        attempt: Attempt,
    ) -> Result<Settled, ConnectError> {
        if verdicts.is_empty() {
            return Ok(Settled::Written { lost: 0 });
        }
        let writing = async {
            match self.write_verdicts(verdicts, attempt).await {
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                    Ok(Settled::RowsLocked)
                }
                written => written.map(|lost| Settled::Written { lost }),
            }
        };
        self.within(self.lease, writing).await
    }

    /// All statements are sent at once. Returns how many rows no longer belonged to the claim.
    async fn write_verdicts(
        &self,
        verdicts: &Verdicts,
        attempt: Attempt,
    ) -> Result<u64, tokio_postgres::Error> {
        let Verdicts { claim, published, failed, noted, given_back, .. } = verdicts;
        let client = &self.sql.client;
        let begin = match attempt {
            Attempt::First | Attempt::Again => &self.begin_short,
            Attempt::AgainAlone => BEGIN,
        };
        let mut perhaps_freed = Vec::new();
        if attempt != Attempt::First {
            let ids = failed.iter().map(|row| &row.id).chain(published);
            perhaps_freed.extend(ids.cloned());
        }
        // First the failures: a row may have been noted, and published since.
        let ((), _, _, failures, publishes, releases, ()) = tokio::try_join!(
            biased;
            client.batch_execute(begin),
            self.write(&self.retaken, claim, &perhaps_freed),
            self.write_failures(&self.noted, claim, noted),
            self.write_failures(&self.failed, claim, failed),
            self.write(&self.published, claim, published),
            self.write(&self.given_back, claim, given_back),
            client.batch_execute("COMMIT"),
        )?;
        let rows = failed.len() + published.len() + given_back.len();
        Ok((rows as u64).saturating_sub(failures + publishes + releases))
    }

    async fn write(
        &self,
        statement: &Statement,
        claim: &str,
        ids: &[String],
    ) -> Result<u64, tokio_postgres::Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        self.sql.client.execute(statement, &[&claim, &ids]).await
    }

    async fn write_failures(
        &self,
        statement: &Statement,
        claim: &str,
        rows: &[FailedRow],
    ) -> Result<u64, tokio_postgres::Error> {
        if rows.is_empty() {
            return Ok(0);
        }
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let attempts: Vec<i32> =
            rows.iter().map(|row| i32::try_from(row.attempts).unwrap_or(i32::MAX)).collect();
        let reasons: Vec<String> =
            rows.iter().map(|row| storable(&row.reason, self.any_character)).collect();
        let waits: Vec<i64> = rows.iter().map(|row| millis(row.wait)).collect();
        self.sql.client.execute(statement, &[&claim, &ids, &attempts, &reasons, &waits]).await
    }
}

/// A text that the database takes: without a zero byte, which no text in Postgres has, and with a mark in place of what
/// the encoding may lack. Otherwise the verdict would be refused, and the row claimed and refused again for ever.
fn storable(text: &str, any_character: bool) -> String {
    let text = text.replace('\0', "");
    if any_character { text } else { text.replace(|it: char| !it.is_ascii(), "?") }
}

/// Makes any error one that is not the lock's.
async fn failing<T>(
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Option<tokio_postgres::Error>> {
    asked.await.map_err(Some)
}

/// Whether the columns are of the types for which the values are read. The last columns of the statement
/// tell (statements.rs).
fn has_types(fetch: &Statement, event: &Relation) -> bool {
    let told = fetch.columns().iter().skip(EVENT + event.columns.len());
    told.map(Column::type_).zip(&event.columns).all(|(array, column)| {
        let mut found = array;
        while let Kind::Array(below) | Kind::Domain(below) = found.kind()
            && found.oid() != column.type_oid
        {
            found = below;
        }
        found.oid() == column.type_oid
    })
}

/// The routine of Postgres that refuses a prepared statement whose types have changed.
pub(super) const REPLANNING: &str = "RevalidateCachedQuery";

/// The error of Postgres if they have changed since the statement was prepared.
fn retyped() -> ConnectError {
    let error = ServerError {
        sqlstate: "0A000".to_owned(),
        message: "a column has another type than at the start".to_owned(),
        routine: REPLANNING.to_owned(),
        ..ServerError::default()
    };
    ConnectError::new("postgres", ConnectCause::Server(Box::new(error)))
}

fn unanswered(limit: Duration) -> ConnectError {
    let seconds = millis(limit) as f64 / 1_000.0;
    ConnectError::new("postgres", ConnectCause::Io(format!("no answer within {seconds} s")))
}

/// As the statements take it.
pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
