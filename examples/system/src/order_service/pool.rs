//! A few connections to Postgres, made when needed. One that has failed is not used again.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, Error, NoTls};

/// For a request, with its wait for a connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Classes of SQLSTATE that tell of the server or of other transactions, and pass: connection, rollback,
/// resources, operator intervention.
const PASSING: [&str; 4] = ["08", "40", "53", "57"];

pub(crate) struct Pool {
    config: Config,
    permits: Semaphore,
    idle: Mutex<Vec<Client>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolError {
    #[error("no answer of Postgres within {} s", ANSWER_WITHIN.as_secs())]
    Late,
    #[error(transparent)]
    Postgres(#[from] Error),
}

impl PoolError {
    /// The same request can be successful later.
    pub(crate) fn may_pass(&self) -> bool {
        use std::error::Error as _;
        let PoolError::Postgres(error) = self else { return true };
        match error.code() {
            Some(code) => PASSING.iter().any(|class| code.code().starts_with(class)),
            // Without one it comes from this side: the connection was lost, or could not be made.
            None => {
                error.is_closed() || error.source().is_some_and(|cause| cause.is::<io::Error>())
            }
        }
    }

    /// Postgres refuses the values of the request: classes data exception and integrity constraint.
    pub(crate) fn is_of_values(&self) -> bool {
        let PoolError::Postgres(error) = self else { return false };
        error.code().is_some_and(|code| ["22", "23"].iter().any(|it| code.code().starts_with(it)))
    }
}

impl Pool {
    pub(crate) fn new(url: &str, connections: usize) -> Result<Pool, Error> {
        let mut config: Config = url.parse()?;
        config.connect_timeout(CONNECT_WITHIN);
        // A server that has vanished is noticed after this.
        config.tcp_user_timeout(ANSWER_WITHIN);
        Ok(Pool { config, permits: Semaphore::new(connections), idle: Mutex::default() })
    }

    /// Waits for a free connection, or makes one, and lets `work` use it. Whether work that is late was
    /// done is unknown: its connection is closed.
    pub(crate) async fn with<T>(
        &self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, PoolError> {
        let working = async {
            // An error would mean that the semaphore was closed, which nobody does.
            let _permit = self.permits.acquire().await.ok();
            let mut client = match self.take_idle() {
                Some(client) => client,
                None => self.connect().await?,
            };
            let done = work(&mut client).await?;
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
            Ok(done)
        };
        timeout(ANSWER_WITHIN, working).await.unwrap_or(Err(PoolError::Late))
    }

    fn take_idle(&self) -> Option<Client> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|client| !client.is_closed());
        idle.pop()
    }

    async fn connect(&self) -> Result<Client, Error> {
        let (client, connection) = self.config.connect(NoTls).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(%error, "a connection to Postgres has broken");
            }
        });
        Ok(client)
    }
}
