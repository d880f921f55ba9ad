//! The consumer's two tables.
//!
//! `processed_messages` makes a repetition recognisable. `deferred_messages` is what keeps the
//! order of a key through retries: a message is not handled while a row of an earlier message of
//! its key exists. A row is committed before its copy is published, and deleted when the message
//! is processed or its dead letter confirmed. So a crash between any two steps leaves either the
//! original or a confirmed copy to be delivered, never neither.
//!
//! An instance that has lost its partition or channel may still write the row of a message while
//! another one handles it. So a row counts only while its message is not settled.
//!
//! After a crash there may be several copies of one message. Each has a number, and the row knows
//! the newest that the broker has confirmed: older ones are acknowledged without being handled. A
//! copy whose row is gone is one of a message that was settled, however long ago.
//!
//! A dead letter leaves a row in `processed_messages`, too: the original may come again after it.
//! `dead_replays` is how often it had been replayed by then. A further replay is handled, and takes
//! the row over.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement, Transaction};

use crate::connection::OwnClient;
use crate::message::{Message, stable_hash};

/// One round trip decides what a delivery is. `$4` is the number of the copy, 0 for an original;
/// `$5` how often its dead letter was replayed.
const CLAIM: &str = "
WITH own AS MATERIALIZED (
    SELECT position, attempts, copy FROM deferred_messages
    WHERE consumer = $1 AND message_id = $2
), earlier AS MATERIALIZED (
    SELECT level, extract(epoch FROM due_at - now())::float8 AS due_in
    FROM deferred_messages AS before
    WHERE consumer = $1 AND message_key = $3
      AND position < coalesce((SELECT position FROM own), 9223372036854775807)
      AND NOT EXISTS (
          SELECT FROM processed_messages AS done
          WHERE done.consumer = $1 AND done.message_id = before.message_id
            AND coalesce(done.dead_replays >= before.replays, true))
    ORDER BY position LIMIT 1
), fresh AS (
    INSERT INTO processed_messages AS known (consumer, message_id)
    SELECT $1, $2
    WHERE NOT EXISTS (SELECT FROM earlier)
      AND coalesce((SELECT copy FROM own) <= $4, $4 = 0)
    ON CONFLICT (consumer, message_id) DO UPDATE
    SET dead_replays = NULL, processed_at = excluded.processed_at
    WHERE known.dead_replays < $5
    RETURNING true
)
SELECT EXISTS (SELECT FROM fresh),
       NOT EXISTS (SELECT FROM fresh) AND EXISTS (
           SELECT FROM processed_messages
           WHERE consumer = $1 AND message_id = $2 AND coalesce(dead_replays >= $5, true)),
       (SELECT level FROM earlier),
       (SELECT attempts FROM own),
       (SELECT copy FROM own),
       (SELECT due_in FROM earlier)";

/// Has the commit of a single statement wait for the disk, for the reason of [`COMMIT`].
macro_rules! durable {
    () => {
        "durable AS MATERIALIZED (
    SELECT CASE pg_catalog.current_setting('synchronous_commit')
        WHEN 'off' THEN pg_catalog.set_config('synchronous_commit', 'on', true) END
)"
    };
}

/// `$7`: in how many seconds the copy is due. Returns nothing if another instance has settled the
/// message meanwhile.
const DEFER: &str = concat!(
    "
WITH ",
    durable!(),
    "
INSERT INTO deferred_messages AS known
    (consumer, message_id, message_key, level, attempts, replays, due_at)
SELECT $1::text, $2::text, $3::bytea, $4::int, $5::int, $6::int,
       now() + make_interval(secs => $7::float8)
FROM durable WHERE NOT EXISTS (
    SELECT FROM processed_messages
    WHERE consumer = $1 AND message_id = $2 AND coalesce(dead_replays >= $6, true))
ON CONFLICT (consumer, message_id) DO UPDATE
SET level = excluded.level,
    due_at = excluded.due_at,
    attempts = greatest(known.attempts, excluded.attempts),
    replays = greatest(known.replays, excluded.replays)
RETURNING copy + 1"
);

/// The copies of a further replay are counted anew: a late one of before does not make them old.
const COPIED: &str = "
UPDATE deferred_messages SET copy = greatest(copy, $4)
WHERE consumer = $1 AND message_id = $2 AND replays = $3";

/// `$3`: the row of a further replay stays.
const FORGET: &str = "
DELETE FROM deferred_messages WHERE consumer = $1 AND message_id = $2 AND replays <= $3";

const DEAD: &str = concat!(
    "
WITH ",
    durable!(),
    ", forgotten AS (
    DELETE FROM deferred_messages WHERE consumer = $1 AND message_id = $2 AND replays <= $3
)
INSERT INTO processed_messages AS known (consumer, message_id, dead_replays)
SELECT $1::text, $2::text, $3::int FROM durable
ON CONFLICT (consumer, message_id) DO UPDATE
SET dead_replays = excluded.dead_replays, processed_at = excluded.processed_at
WHERE known.dead_replays < excluded.dead_replays"
);

/// A commit that is reported must last, or a message is acknowledged, or its copy published, and nothing
/// knows of it: where sessions do not wait for the disk, these transactions do. Another value, which
/// waits for a standby as well, stays. It is set in each transaction, because a pooler may give each
/// another session. COMMIT itself reports no error when a statement of the handler has failed, or has
/// ended the transaction, and the handler did not say so; SAVEPOINT does.
const COMMIT: &str = "SAVEPOINT inbox; \
    SELECT pg_catalog.set_config('synchronous_commit', 'on', true) \
    WHERE pg_catalog.current_setting('synchronous_commit') = 'off'; \
    COMMIT";

/// Parsing waits for the locks of the tables, as behind VACUUM FULL, and a server process that waits does
/// not notice that its client has given up: each attempt would leave another one, until there is no room
/// for sessions. So each wait ends by itself, sooner than [`crate::connection::CONNECT_WITHIN`].
const BEGIN_PREPARING: &str = "BEGIN; SET LOCAL lock_timeout = 8000";

/// Keys up to this size are stored as they are.
const KEY_BYTES_MAX: usize = 512;

/// The claim of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The message is to be handled: the row of `processed_messages` is inserted.
    /// `attempts` have failed according to the message's row of `deferred_messages`, which is deleted
    /// in the same transaction.
    First { attempts: Option<u32> },
    /// It is settled, or a newer copy of it is under way. `has_row`: it is settled, and a row of
    /// `deferred_messages` is left.
    Duplicate { has_row: bool },
    /// An earlier message of its key is in this level. It is due after this time, or was due so long
    /// ago.
    Waiting { level: i32, due: Duration, attempts: Option<u32> },
}

/// The change of the message's row of `deferred_messages`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// Before its copy is published.
    Defer { level: i32, attempts: i32, wait: Duration },
    /// The broker has confirmed the copy of this number.
    Copied { copy: i32 },
    /// It is settled already.
    Forget,
    /// Its dead letter is confirmed.
    Dead,
}

/// A session with what it has prepared.
pub(crate) struct Store {
    client: OwnClient,
    consumer: String,
    statements: Statements,
}

struct Statements {
    claim: Statement,
    defer: Statement,
    copied: Statement,
    forget: Statement,
    dead: Statement,
}

/// In a transaction of its own: the locks of two statements could be in the way of a migration that locks
/// both tables. The statement belongs to the session, and outlives the transaction.
async fn prepare(client: &Client, sql: &str) -> Result<Statement, Error> {
    client.batch_execute(BEGIN_PREPARING).await?;
    let statement = client.prepare(sql).await?;
    client.batch_execute("COMMIT").await?;
    Ok(statement)
}

impl Store {
    /// After an error the transaction ends with the client, which is dropped.
    pub(crate) async fn open(client: OwnClient, consumer: &str) -> Result<Store, Error> {
        let statements = Statements {
            claim: prepare(&client, CLAIM).await?,
            defer: prepare(&client, DEFER).await?,
            copied: prepare(&client, COPIED).await?,
            forget: prepare(&client, FORGET).await?,
            dead: prepare(&client, DEAD).await?,
        };
        Ok(Store { client, consumer: consumer.to_owned(), statements })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(crate) async fn begin(&mut self) -> Result<Claimed<'_>, Error> {
        let Store { client, consumer, statements } = self;
        Ok(Claimed { transaction: client.transaction().await?, consumer, statements })
    }

    /// After `Defer` returns the number of the next copy, if there is to be one.
    pub(crate) async fn change(
        &self,
        message: &Message,
        change: Change,
    ) -> Result<Option<i32>, Error> {
        let Store { client, consumer, statements } = self;
        let (id, replays) = (message.id(), message.replays());
        let Statements { defer, copied, forget, dead, .. } = statements;
        let row = match change {
            Change::Defer { level, attempts, wait } => {
                let key = message.key().map(stored_key);
                let params: [&(dyn ToSql + Sync); 7] =
                    [consumer, &id, &key, &level, &attempts, &replays, &wait.as_secs_f64()];
                client.query_opt(defer, &params).await?
            }
            Change::Copied { copy } => {
                client.query_opt(copied, &[consumer, &id, &replays, &copy]).await?
            }
            Change::Forget => client.query_opt(forget, &[consumer, &id, &replays]).await?,
            Change::Dead => client.query_opt(dead, &[consumer, &id, &replays]).await?,
        };
        Ok(row.map(|row| row.get(0)))
    }
}

/// The transaction of one message.
pub(crate) struct Claimed<'s> {
    pub(crate) transaction: Transaction<'s>,
    consumer: &'s str,
    statements: &'s Statements,
}

impl Claimed<'_> {
    pub(crate) async fn claim(&self, message: &Message) -> Result<Claim, Error> {
        let key = message.key().map(stored_key);
        let (id, copy, replays) = (message.id(), message.retry.copy, message.replays());
        let params: [&(dyn ToSql + Sync); 5] = [&self.consumer, &id, &key, &copy, &replays];
        let row = self.transaction.query_one(&self.statements.claim, &params).await?;
        let (is_inserted, is_processed) = (row.get(0), row.get(1));
        let attempts: Option<i32> = row.get(3);
        let attempts = attempts.map(|attempts| u32::try_from(attempts).unwrap_or_default());
        let has_row = attempts.is_some();
        let is_newest = row.get::<_, Option<i32>>(4).map_or(copy == 0, |known| copy >= known);
        let earlier: Option<(i32, f64)> = row.get::<_, Option<i32>>(2).zip(row.get(5));
        if is_inserted && has_row {
            // Before the handler, which may change the role or the search path of its transaction.
            let forget = &self.statements.forget;
            self.transaction.execute(forget, &[&self.consumer, &id, &replays]).await?;
        }
        Ok(match earlier {
            _ if is_inserted => Claim::First { attempts },
            _ if is_processed => Claim::Duplicate { has_row },
            // A newer copy is under way, or this one's message was settled long ago.
            _ if !is_newest => Claim::Duplicate { has_row: false },
            Some((level, due_in)) => {
                let due = Duration::try_from_secs_f64(due_in.abs()).unwrap_or(Duration::MAX);
                Claim::Waiting { level, due, attempts }
            }
            // Another session has processed it while this one waited for its row.
            None => Claim::Duplicate { has_row },
        })
    }

    /// The handler was successful.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        self.transaction.batch_execute(COMMIT).await?;
        // It is over, and a `Transaction` that is dropped would be rolled back.
        std::mem::forget(self.transaction);
        Ok(())
    }

    pub(crate) async fn rollback(self) -> Result<(), Error> {
        self.transaction.rollback().await
    }
}

/// A key that fits the index: of a long one its beginning and a hash. Two keys of one hash would
/// wait for each other, no more.
fn stored_key(key: &[u8]) -> Vec<u8> {
    if key.len() <= KEY_BYTES_MAX {
        return key.to_vec();
    }
    [&key[..KEY_BYTES_MAX], &stable_hash(key).to_be_bytes()].concat()
}

/// The server ends the session, or is not ready: an outage, whatever the statement was.
pub(crate) fn ends_session(error: &Error) -> bool {
    let Some(code) = error.code() else { return true };
    let ends = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::DATABASE_DROPPED,
        SqlState::IDLE_SESSION_TIMEOUT,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        // transaction_timeout, for which the library has no name.
        SqlState::from_code("25P04"),
    ];
    code.code().starts_with("08") || ends.contains(code)
}

/// The statement can never succeed with these values: SQLSTATE class 22. Class 54 is no such sign: no id or key
/// is stored that an index cannot hold, and a server without transaction ids left refuses everything with it.
pub(crate) fn is_of_data(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("22"))
}

#[cfg(test)]
mod tests;
