//! Handler of both consumers: one row, one round trip.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

pub(crate) const TABLE: &str =
    "create table effects (message_id text not null, bytes bigint not null)";

/// Counts what was handled, and tells when that is all.
pub(crate) struct Counted {
    count: AtomicU64,
    wanted: u64,
    began: std::sync::OnceLock<Instant>,
    done: watch::Sender<Option<Duration>>,
}

impl Counted {
    pub(crate) fn new(wanted: u64) -> Counted {
        let (count, began) = (AtomicU64::new(0), std::sync::OnceLock::new());
        Counted { count, wanted, began, done: watch::Sender::new(None) }
    }

    /// From the first message to the last.
    pub(crate) fn done(&self) -> watch::Receiver<Option<Duration>> {
        self.done.subscribe()
    }

    pub(crate) async fn write(
        &self,
        transaction: &Transaction<'_>,
        id: &str,
        bytes: usize,
    ) -> Result<(), tokio_postgres::Error> {
        let began = *self.began.get_or_init(Instant::now);
        let bytes = bytes as i64;
        let sql = "insert into effects values ($1, $2)";
        transaction.execute_typed(sql, &[(&id, Type::TEXT), (&bytes, Type::INT8)]).await?;
        if self.count.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted {
            self.done.send_replace(Some(began.elapsed()));
        }
        Ok(())
    }
}

/// Completes when all is handled, with how long that took.
pub(crate) async fn wait(mut done: watch::Receiver<Option<Duration>>) -> Duration {
    match done.wait_for(Option::is_some).await {
        Ok(took) => took.unwrap_or_default(),
        // The consumer has ended before.
        Err(_) => Duration::ZERO,
    }
}
