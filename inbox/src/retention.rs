//! Removes old rows of `processed_messages`, in batches, so that no statement locks or writes much.

use std::time::{Duration, Instant, SystemTime};

use tokio_postgres::Client;

use crate::connection::{Database, Outage, in_time};
use crate::settings::Settings;
use crate::time::backoff;

/// With the rows of `deferred_messages` that came too late ([`crate::store`]): they would count
/// again once their message is not known to be processed.
const REMOVE: &str = "
WITH old AS MATERIALIZED (
    SELECT ctid AS row_at, message_id, dead_replays FROM processed_messages
    WHERE consumer = $1 AND processed_at < coalesce($4, now()) - make_interval(secs => $2)
    ORDER BY processed_at LIMIT $3
), late AS (
    DELETE FROM deferred_messages AS gone USING old
    WHERE gone.consumer = $1 AND gone.message_id = old.message_id
      AND coalesce(old.dead_replays >= gone.replays, true)
)
DELETE FROM processed_messages WHERE ctid = ANY (ARRAY(SELECT row_at FROM old))
    -- Once more: a replay may have renewed the row while this waited for it.
    AND processed_at < now() - make_interval(secs => $2)";

/// For so long after the start, or for ten intervals, whichever is shorter, the age of a row counts until
/// the consumer was last at work: the rows of messages that are delivered again after an outage must be
/// there still, however long that was. A process that always ends sooner removes some as well.
const CATCHES_UP_FOR: Duration = Duration::from_secs(10 * 60);

/// Before this process was started, and others that may have been shortly before.
const LAST_AT_WORK: &str = "
SELECT max(processed_at) FROM processed_messages
WHERE consumer = $1 AND processed_at < now() - make_interval(secs => $2)";

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
            match self.remove_old_rows(began).await {
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
    pub(crate) async fn remove_old_rows(&self, began: Instant) -> Result<(), Outage> {
        let client = in_time(self.database.connect()).await?;
        let catches_up_for = self.interval.saturating_mul(10).min(CATCHES_UP_FOR);
        let mut until = None;
        if began.elapsed() < catches_up_for {
            let before = (began.elapsed() + catches_up_for).as_secs_f64();
            let last = client.query_one(LAST_AT_WORK, &[&self.consumer, &before]).await?;
            until = last.get::<_, Option<SystemTime>>(0);
            if until.is_none() {
                return Ok(());
            }
        }
        loop {
            let removed = self.remove_batch(&client, until).await?;
            if removed < u64::from(self.rows_max) {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    async fn remove_batch(
        &self,
        client: &Client,
        until: Option<SystemTime>,
    ) -> Result<u64, Outage> {
        let (age, rows_max) = (self.age.as_secs_f64(), i64::from(self.rows_max));
        Ok(client.execute(REMOVE, &[&self.consumer, &age, &rows_max, &until]).await?)
    }
}
