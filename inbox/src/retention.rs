//! Removes old rows of `processed_messages`, in batches, so that no statement locks or writes much.

use std::time::{Duration, Instant};

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

/// So long after the start, or for ten intervals, whichever is shorter, rows are kept for twice as
/// long. After a long outage the rows of messages that are delivered again may be old, and must be there
/// still. A process that always ends sooner must remove some as well.
const KEEPS_MORE_FOR: Duration = Duration::from_secs(10 * 60);

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
        let began = Instant::now();
        loop {
            match self.remove_old_rows(self.age_kept(began.elapsed())).await {
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

    fn age_kept(&self, since_start: Duration) -> Duration {
        let keeps_more = since_start < self.interval.saturating_mul(10).min(KEEPS_MORE_FOR);
        self.age.saturating_mul(if keeps_more { 2 } else { 1 })
    }

    /// On a connection that is open only meanwhile.
    async fn remove_old_rows(&self, age: Duration) -> Result<(), Outage> {
        let client = in_time(self.database.connect()).await?;
        loop {
            let removed = self.remove_batch(&client, age).await?;
            if removed < u64::from(self.rows_max) {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    async fn remove_batch(&self, client: &Client, age: Duration) -> Result<u64, Outage> {
        let (age, rows_max) = (age.as_secs_f64(), i64::from(self.rows_max));
        Ok(client.execute(REMOVE, &[&self.consumer, &age, &rows_max]).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_process_keeps_rows_longer_until_redeliveries_had_time_to_come() {
        let day = Duration::from_secs(24 * 3600);
        let kept = |interval, since_start| {
            let settings = Settings::new("billing", "postgres://app@localhost/app").retention(day);
            let settings = settings.retention_batches(interval, 1);
            Retention::new(&settings, Database::new(&settings).unwrap()).age_kept(since_start)
        };
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(kept(minute, Duration::ZERO), 2 * day);
        assert_eq!(kept(minute, 10 * minute - second), 2 * day);
        assert_eq!(kept(minute, 10 * minute), day);
        assert_eq!(kept(second, 10 * second), day);
        assert_eq!(kept(60 * minute, 10 * minute), day);
    }
}
