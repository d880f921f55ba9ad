//! One connection with the statements of polling prepared.

use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::batch::{self, Claimed, Failed, Verdicts};
use super::statements::Statements;
use crate::lsn::Lsn;
use crate::source::connect::ConnectError;
use crate::source::settings::ConnInfo;
use crate::source::sql::{self, Sql};

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
            Ok([turn, claim, published, failed, noted, given_back]) => {
                Ok(Session { sql, turn, claim, published, failed, noted, given_back })
            }
            Err(error) => Err(ConnectError::of_query(&sql.server, &error)),
        }
    }

    async fn prepare(
        client: &Client,
        statements: &Statements,
        lease: Duration,
    ) -> Result<[Statement; 6], tokio_postgres::Error> {
        // A process that freezes within a claim must not hold up all others.
        let lease_ms = lease.as_millis();
        let settings = format!(
            "SET idle_in_transaction_session_timeout = {lease_ms}; SET bytea_output = hex; SET DateStyle = ISO"
        );
        client.batch_execute(&settings).await?;
        let Statements { turn, claim, published, failed, noted, given_back, .. } = statements;
        let (turn, claim, published, failed, noted, given_back) = tokio::try_join!(
            client.prepare(turn),
            client.prepare(claim),
            client.prepare(published),
            client.prepare(failed),
            client.prepare(noted),
            client.prepare(given_back),
        )?;
        Ok([turn, claim, published, failed, noted, given_back])
    }

    /// For statements that are not prepared.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.sql.client
    }

    /// An error of a query on this connection.
    #[must_use]
    pub fn told(&self, error: &tokio_postgres::Error) -> ConnectError {
        ConnectError::of_query(&self.sql.server, error)
    }

    /// Claims rows and marks them with `claim`. Says where the log stood. All four statements go
    /// out at once: the turn is held for as long as the server takes, whatever happens here.
    pub async fn claim(
        &self,
        claim: &str,
        appetite: Appetite,
    ) -> Result<(Lsn, Claimed), tokio_postgres::Error> {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (reach, bytes_max) = (number(appetite.reach), number(appetite.bytes_max));
        let parameters: [&(dyn ToSql + Sync); 3] = [&claim, &reach, &bytes_max];
        let client = self.client();
        let ((), turn, answer, ()) = tokio::try_join!(
            client.batch_execute("BEGIN"),
            client.query_one(&self.turn, &[]),
            client.query(&self.claim, &parameters),
            client.batch_execute("COMMIT"),
        )?;
        let lsn = u64::try_from(turn.try_get::<_, i64>(1)?).unwrap_or_default();
        Ok((Lsn::from_wire(lsn), batch::read(&answer)?))
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

fn missed(done: u64, of: usize) -> u64 {
    (of as u64).saturating_sub(done)
}
