//! Removes old rows of `processed_messages`, in batches, so that no statement locks or writes much.

use std::time::Duration;

use tokio_postgres::Client;

use crate::connection::{Database, Outage, in_time};
use crate::settings::Settings;
use crate::time::backoff;

/// With the rows of `deferred_messages` that came too late ([`crate::store`]): they would count
/// again once their message is not known to be processed.
const REMOVE: &str = "
WITH old AS MATERIALIZED (
    SELECT ctid AS row_at, message_id, dead_replays FROM processed_messages
    WHERE consumer = $1 AND processed_at < now() - make_interval(secs => $2)
    ORDER BY processed_at LIMIT $3
), late AS (
    DELETE FROM deferred_messages AS gone USING old
    WHERE gone.consumer = $1 AND gone.message_id = old.message_id
      AND coalesce(old.dead_replays >= gone.replays, true)
)
DELETE FROM processed_messages WHERE ctid = ANY (ARRAY(SELECT row_at FROM old))
    -- Once more: a replay may have renewed the row while this waited for it.
    AND processed_at < now() - make_interval(secs => $2)";

/// The first rows are removed so long after the start, or after ten intervals, whichever is shorter. After
/// a long outage the rows of messages that are delivered again may be old, and must be there still.
const FIRST_AFTER: Duration = Duration::from_secs(10 * 60);

/// Runs until it is dropped.
pub(crate) struct Retention {
    pub(crate) database: Database,
    pub(crate) consumer: String,
    age: Duration,
    interval: Duration,
    rows_max: u32,
}

impl Retention {
    pub(crate) fn new(settings: &Settings, database: Database) -> Retention {
        Retention {
            database,
            consumer: settings.service.clone(),
            age: settings.retention,
            interval: settings.retention_interval,
            rows_max: settings.retention_rows_max,
        }
    }

    pub(crate) async fn run(self) {
        let mut backoff = backoff();
        tokio::time::sleep(self.interval.saturating_mul(10).min(FIRST_AFTER)).await;
        loop {
            match self.remove_old_rows().await {
                Ok(()) => {
                    backoff.succeeded();
                    tokio::time::sleep(self.interval).await;
                }
                Err(Outage(reason)) => {
                    tracing::warn!(
                        code = "inbox.retention",
                        consumer = self.consumer,
                        reason,
                        "old rows of processed_messages are not removed"
                    );
                    tokio::time::sleep(self.interval.min(backoff.next_delay() * 10)).await;
                }
            }
        }
    }

    /// On a connection that is open only meanwhile.
    async fn remove_old_rows(&self) -> Result<(), Outage> {
        let client = in_time(self.database.connect()).await?;
        loop {
            let removed = self.remove_batch(&client).await?;
            if removed < u64::from(self.rows_max) {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    async fn remove_batch(&self, client: &Client) -> Result<u64, Outage> {
        let (age, rows_max) = (self.age.as_secs_f64(), i64::from(self.rows_max));
        Ok(client.execute(REMOVE, &[&self.consumer, &age, &rows_max]).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn nothing_is_removed_before_redeliveries_had_time_to_come() {
        // GIVEN a process that starts, perhaps after a long outage
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://app@{}/app", listener.local_addr().unwrap());
        let pause = Duration::from_millis(20);
        let settings = Settings::new("billing", url).retention_batches(pause, 1);
        let retention = Retention::new(&settings, Database::new(&settings).unwrap());
        let began = Instant::now();
        let running = tokio::spawn(retention.run());
        // WHEN it connects for the first time THEN several intervals have passed
        listener.accept().await.unwrap();
        assert!(began.elapsed() >= 10 * pause, "{:?}", began.elapsed());
        running.abort();
    }
}
