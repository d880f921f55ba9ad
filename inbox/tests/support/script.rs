//! A handler that does what the value of a message says.
//!
//! | Value | What |
//! |---|---|
//! | `ok` | writes a row |
//! | `slow MS` | takes so long |
//! | `gate` | waits until the test opens the gate |
//! | `fail N`, `panic N`, `swallow N` | does so in the first N attempts, after it has written its row |
//! | `early N` | panics in the first N attempts, before there is a future |
//! | `judge N` | fails so, with an error whose judgement panics |
//! | `permanent`, `named` | fails for good |
//! | `conflict N` | loses against another transaction in the first N calls |
//! | `end N` | ends its session in the first N calls, and then waits for the gate |
//! | `down`, `hold` | fails, or holds its lane, for as long as what it depends on is away |

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio_postgres::Transaction;
use walrelay_inbox::{Failure, Handler, Message, classify};

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) at: Instant,
}

/// The calls of handlers, whether or not they were committed.
pub(crate) struct Calls {
    calls: Mutex<Vec<Call>>,
    gate: Semaphore,
    /// How many handlers have come to the gate.
    at_gate: AtomicUsize,
    is_dependency_away: AtomicBool,
}

impl Calls {
    pub(crate) fn new() -> Arc<Calls> {
        Arc::new(Calls {
            calls: Mutex::default(),
            gate: Semaphore::new(0),
            at_gate: AtomicUsize::new(0),
            is_dependency_away: AtomicBool::new(false),
        })
    }

    pub(crate) fn all(&self) -> Vec<Call> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn of(&self, id: &str) -> Vec<Call> {
        self.all().into_iter().filter(|call| call.id == id).collect()
    }

    pub(crate) fn at_gate(&self) -> usize {
        self.at_gate.load(Ordering::SeqCst)
    }

    async fn pass_gate(&self) {
        self.at_gate.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.acquire().await);
    }

    pub(crate) fn open_gate(&self) {
        self.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// Takes away, or brings back, a dependency of the handler other than Postgres.
    pub(crate) fn set_dependency_away(&self, is_away: bool) {
        self.is_dependency_away.store(is_away, Ordering::SeqCst);
    }
}

pub(crate) struct Script(pub(crate) Arc<Calls>);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ScriptError {
    #[error("it may pass")]
    Passing,
    #[error("it never passes")]
    Permanent,
    #[error("the account is closed")]
    Named,
    #[error("nobody can judge it")]
    Unjudged,
    #[error("the provider is away")]
    Away,
    #[error("postgres")]
    Postgres(#[from] tokio_postgres::Error),
}

impl Handler for Script {
    type Error = ScriptError;

    fn handle(
        &self,
        message: &Message,
        transaction: &Transaction<'_>,
    ) -> impl Future<Output = Result<(), ScriptError>> + Send {
        assert!(!is_early(message, "early"), "as the message says");
        self.play(message, transaction)
    }

    fn classify(&self, error: &ScriptError) -> Failure {
        match error {
            ScriptError::Passing => Failure::Transient,
            ScriptError::Permanent => Failure::Permanent,
            ScriptError::Named => Failure::PermanentAs("billing.closed".into()),
            ScriptError::Unjudged => panic!("as the message says"),
            ScriptError::Away => Failure::Hold,
            ScriptError::Postgres(_) => classify(error),
        }
    }
}

impl Script {
    async fn play(
        &self,
        message: &Message,
        transaction: &Transaction<'_>,
    ) -> Result<(), ScriptError> {
        let call = Call { id: message.id().to_owned(), at: Instant::now() };
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        let key = message.key().map(|key| String::from_utf8_lossy(key).into_owned());
        let sql = "INSERT INTO handled (message_id, message_key) VALUES ($1, $2)";
        transaction.execute(sql, &[&message.id(), &key]).await?;
        let (what, count) = parts(message);
        let is_early = is_early(message, &what);
        let is_away = self.0.is_dependency_away.load(Ordering::SeqCst);
        match what.as_str() {
            "slow" => tokio::time::sleep(Duration::from_millis(count.into())).await,
            "gate" => self.0.pass_gate().await,
            "fail" if is_early => return Err(ScriptError::Passing),
            "panic" if is_early => panic!("as the message says"),
            "swallow" if is_early => {
                drop(transaction.execute("SELECT 1 / 0", &[]).await);
            }
            "judge" if is_early => return Err(ScriptError::Unjudged),
            "conflict" if self.0.of(message.id()).len() <= count as usize => {
                let code = if count % 2 == 0 { "40001" } else { "40P01" };
                transaction.batch_execute(&raise(code)).await?;
            }
            "end" if self.0.of(message.id()).len() <= count as usize => {
                transaction.batch_execute("SELECT pg_terminate_backend(pg_backend_pid())").await?;
            }
            "end" => self.0.pass_gate().await,
            "down" if is_away => return Err(ScriptError::Passing),
            "hold" if is_away => return Err(ScriptError::Away),
            "permanent" => return Err(ScriptError::Permanent),
            "named" => return Err(ScriptError::Named),
            _ => {}
        }
        Ok(())
    }
}

/// A statement that fails with this SQLSTATE.
fn raise(code: &str) -> String {
    format!("DO $$ BEGIN RAISE EXCEPTION 'as the message says' USING ERRCODE = '{code}'; END $$")
}

/// The word of a message, and its number.
fn parts(message: &Message) -> (String, u32) {
    let text = String::from_utf8_lossy(message.value().unwrap_or(b"ok")).into_owned();
    let (what, count) = text.split_once(' ').unwrap_or((&text, "0"));
    (what.to_owned(), count.parse().unwrap_or_default())
}

/// The message says `what`, and this is one of its first attempts.
fn is_early(message: &Message, what: &str) -> bool {
    let (found, count) = parts(message);
    found == what && message.failed_attempts() < count
}
