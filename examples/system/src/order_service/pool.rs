//! A few connections to Postgres, made when needed. One that has failed is not used again.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio_postgres::{Client, Error, NoTls};

pub(crate) struct Pool {
    url: String,
    permits: Semaphore,
    idle: Mutex<Vec<Client>>,
}

impl Pool {
    pub(crate) fn new(url: &str, connections: usize) -> Pool {
        let (permits, idle) = (Semaphore::new(connections), Mutex::default());
        Pool { url: url.to_owned(), permits, idle }
    }

    /// Waits for a free connection, or makes one, and lets `work` use it.
    pub(crate) async fn with<T>(
        &self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // An error would mean that the semaphore was closed, which nobody does.
        let _permit = self.permits.acquire().await.ok();
        let mut client = match self.take_idle() {
            Some(client) => client,
            None => self.connect().await?,
        };
        let outcome = work(&mut client).await;
        if outcome.is_ok() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
        outcome
    }

    fn take_idle(&self) -> Option<Client> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|client| !client.is_closed());
        idle.pop()
    }

    async fn connect(&self) -> Result<Client, Error> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(%error, "a connection to Postgres has broken");
            }
        });
        Ok(client)
    }
}
