//! One connection with the statements of polling prepared.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::batch::{self, Claimed, Failed, Verdicts};
use super::statements::Statements;
use crate::base::lsn::Lsn;
use crate::source::connect::ConnectError;
use crate::source::settings::ConnInfo;
use crate::source::sql::{self, Sql};

/// A snapshot from before the turn would not show what the claim before has taken.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// What a claim may bring.
#[derive(Clone, Copy, Debug)]
pub struct Appetite {
    /// Rows that are looked at.
    pub reach: usize,
    /// Most bytes of payload; a single row may be larger.
    pub bytes_max: usize,
}

/// A connection; dropping it closes it.
pub struct Session {
    sql: Sql,
    turn: Statement,
    claim: Statement,
    fetch: Statement,
    abandoned: Statement,
    published: Statement,
    failed: Statement,
    noted: Statement,
    given_back: Statement,
}

impl Session {
    /// Connects and prepares.
    pub async fn open(
        info: &ConnInfo,
        statements: &Statements,
        lease: Duration,
    ) -> Result<Session, ConnectError> {
        let sql = sql::connect(info).await?;
        match Session::prepare(&sql.client, statements, lease).await {
            Ok([turn, claim, fetch, abandoned, published, failed, noted, given_back]) => {
                Ok(Session {
                    sql,
                    turn,
                    claim,
                    fetch,
                    abandoned,
                    published,
                    failed,
                    noted,
                    given_back,
                })
            }
            Err(error) => Err(sql.error(&error)),
        }
    }

    async fn prepare(
        client: &Client,
        statements: &Statements,
        lease: Duration,
    ) -> Result<[Statement; 8], tokio_postgres::Error> {
        // Whatever is asked ends at the server before anybody here gives up waiting for it: what
        // went on behind our backs would claim rows for nobody.
        let part = |percent: u128| (lease.as_millis() * percent / 100).max(1);
        client
            .batch_execute(&format!(
                "SET lock_timeout = {}; SET statement_timeout = {}; \
                 SET idle_in_transaction_session_timeout = {}; \
                 SET default_transaction_isolation = 'read committed'; \
                 SET bytea_output = hex; SET DateStyle = ISO",
                part(60),
                part(80),
                part(80)
            ))
            .await?;
        let Statements { turn, claim, fetch, abandoned, .. } = statements;
        let Statements { published, failed, noted, given_back, .. } = statements;
        let (turn, claim, fetch, abandoned, published, failed, noted, given_back) = tokio::try_join!(
            client.prepare(turn),
            client.prepare(claim),
            client.prepare(fetch),
            client.prepare(abandoned),
            client.prepare(published),
            client.prepare(failed),
            client.prepare(noted),
            client.prepare(given_back),
        )?;
        Ok([turn, claim, fetch, abandoned, published, failed, noted, given_back])
    }

    /// For statements that are not prepared.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.sql.client
    }

    /// An error of a query on this connection.
    #[must_use]
    pub fn told(&self, error: &tokio_postgres::Error) -> ConnectError {
        self.sql.error(error)
    }

    /// Claims rows and marks them with `claim`. All statements go out at once, and the rows are
    /// fetched behind the COMMIT: the turn is held for as long as the server takes, whatever
    /// happens here. Nothing when others had the turn for too long.
    pub async fn claim(
        &self,
        claim: &str,
        appetite: Appetite,
    ) -> Result<Option<Claimed>, tokio_postgres::Error> {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (reach, bytes_max) = (number(appetite.reach), number(appetite.bytes_max));
        let parameters: [&(dyn ToSql + Sync); 3] = [&claim, &reach, &bytes_max];
        let client = self.client();
        let whose: [&(dyn ToSql + Sync); 1] = [&claim];
        let turn = async {
            // Only here: a lock that the rows wait for later says nothing of the turn.
            client.query_one(&self.turn, &[]).await.map_err(|error| match error.code() {
                Some(&SqlState::LOCK_NOT_AVAILABLE) => None,
                _ => Some(error),
            })
        };
        // In this order: the first error is the one that counts, others follow from it.
        let done = tokio::try_join!(
            biased;
            broken(client.batch_execute(BEGIN)),
            turn,
            broken(client.query_one(&self.claim, &parameters)),
            broken(client.batch_execute("COMMIT")),
            broken(client.query(&self.fetch, &whose)),
        );
        let ((), turn, counts, (), rows) = match done {
            Ok(done) => done,
            Err(None) => return Ok(None),
            Err(Some(error)) => return Err(error),
        };
        let lsn = u64::try_from(turn.try_get::<_, i64>(1)?).unwrap_or_default();
        let count = |at| Ok(usize::try_from(counts.try_get::<_, i64>(at)?).unwrap_or(0));
        let (ready, free) = (count(0)?, count(1)?);
        Ok(Some(Claimed { lsn: Lsn::from_wire(lsn), rows: batch::read(&rows)?, ready, free }))
    }

    /// Everything of a claim is free again. It waits for the turn: a claim that still waits for it
    /// in the server is before this.
    pub async fn abandon(&self, claim: &str) -> Result<(), tokio_postgres::Error> {
        let client = self.client();
        let whose: [&(dyn ToSql + Sync); 1] = [&claim];
        tokio::try_join!(
            biased;
            client.batch_execute(BEGIN),
            client.query_one(&self.turn, &[]),
            client.execute(&self.abandoned, &whose),
            client.batch_execute("COMMIT"),
        )
        .map(drop)
    }

    /// Writes down what became of rows of a claim, all of it or nothing. Says how many of them were
    /// somebody else's by then.
    pub async fn settle(
        &self,
        claim: &str,
        verdicts: &Verdicts,
    ) -> Result<u64, tokio_postgres::Error> {
        let Verdicts { published, failed, noted, given_back, .. } = verdicts;
        let parts = [published, given_back].iter().filter(|ids| !ids.is_empty()).count()
            + [failed, noted].iter().filter(|rows| !rows.is_empty()).count();
        let client = self.client();
        if parts > 1 {
            client.batch_execute("BEGIN").await?;
        }
        let mut strangers = 0;
        // First what has failed: a row may have been noted and published since.
        self.write(&self.noted, claim, noted).await?;
        strangers += missed(self.write(&self.failed, claim, failed).await?, failed.len());
        for (statement, ids) in [(&self.published, published), (&self.given_back, given_back)] {
            if !ids.is_empty() {
                let done = client.execute(statement, &[&claim, ids]).await?;
                strangers += missed(done, ids.len());
            }
        }
        if parts > 1 {
            client.batch_execute("COMMIT").await?;
        }
        Ok(strangers)
    }

    async fn write(
        &self,
        statement: &Statement,
        claim: &str,
        rows: &[Failed],
    ) -> Result<u64, tokio_postgres::Error> {
        if rows.is_empty() {
            return Ok(0);
        }
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let attempts: Vec<i32> =
            rows.iter().map(|row| i32::try_from(row.attempts).unwrap_or(i32::MAX)).collect();
        // Text of Postgres has no zero byte.
        let reasons: Vec<String> = rows.iter().map(|row| row.reason.replace('\0', "")).collect();
        let waits: Vec<i64> = rows
            .iter()
            .map(|row| i64::try_from(row.wait.as_millis()).unwrap_or(i64::MAX))
            .collect();
        self.client().execute(statement, &[&claim, &ids, &attempts, &reasons, &waits]).await
    }
}

/// As an error that says more than that there was no turn.
async fn broken<T>(
    ask: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Option<tokio_postgres::Error>> {
    ask.await.map_err(Some)
}

fn missed(done: u64, of: usize) -> u64 {
    (of as u64).saturating_sub(done)
}
