//! Removes old rows of `processed_messages`, in batches, so that no statement locks or writes much.

use std::time::Duration;

use tokio_postgres::types::ToSql;

use crate::connection::{Database, Outage, in_time};
use crate::settings::Settings;
use crate::time::{backoff, random_below};

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

/// The seconds since the last message that was processed more than `$2` seconds ago.
const SILENCE: &str = "
SELECT extract(epoch FROM now() - max(processed_at))::float8 FROM processed_messages
WHERE consumer = $1 AND processed_at < now() - make_interval(secs => $2)";

/// The age of a row counts from the last message that was processed before so long, or before ten intervals
/// if that is shorter: after a long outage the rows of messages that are delivered again may be old, and
/// must be there still. Where messages come all the time, this adds so much to the age.
const RECENT: Duration = Duration::from_secs(10 * 60);
/// The first rows are removed at a random time within this, or within an interval if that is shorter:
/// processes that start together do not all do it at once.
const FIRST_WITHIN: Duration = Duration::from_secs(60);

/// Runs until it is dropped.
pub(crate) struct Retention {
    pub(crate) database: Database,
    pub(crate) settings: Settings,
}

impl Retention {
    pub(crate) async fn run(self) {
        let Settings { service, retention_interval: interval, .. } = &self.settings;
        let mut backoff = backoff();
        tokio::time::sleep(random_below((*interval).min(FIRST_WITHIN))).await;
        loop {
            match self.remove_old_rows().await {
                Ok(()) => {
                    backoff.succeeded();
                    tokio::time::sleep(*interval).await;
                }
                Err(Outage(reason)) => {
                    tracing::warn!(
                        code = "inbox.retention",
                        consumer = service,
                        reason,
                        "old rows of processed_messages are not removed"
                    );
                    tokio::time::sleep((*interval).min(backoff.next_delay() * 10)).await;
                }
            }
        }
    }

    /// On a connection that is open only meanwhile.
    async fn remove_old_rows(&self) -> Result<(), Outage> {
        let client = in_time(self.database.connect()).await?;
        let Settings { service, retention, retention_interval, .. } = &self.settings;
        let recent = retention_interval.saturating_mul(10).min(RECENT).as_secs_f64();
        let params: [&(dyn ToSql + Sync); 2] = [service, &recent];
        let silence = client.query_one(SILENCE, &params).await?.try_get::<_, Option<f64>>(0)?;
        let Some(silence) = silence else { return Ok(()) };
        let age = retention.as_secs_f64() + silence;
        let rows_max = self.settings.retention_rows_max;
        while client.execute(REMOVE, &[service, &age, &i64::from(rows_max)]).await?
            >= u64::from(rows_max)
        {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn the_first_rows_are_removed_soon_after_the_start() {
        // GIVEN a process that may end before it is ten intervals old
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://app@{}/app", listener.local_addr().unwrap());
        let interval = Duration::from_secs(1);
        let settings = Settings::new("billing", url).retention_batches(interval, 1);
        let retention = Retention { database: Database::new(&settings).unwrap(), settings };
        let began = Instant::now();
        let running = tokio::spawn(retention.run());
        // WHEN it starts THEN it connects within an interval
        listener.accept().await.unwrap();
        assert!(began.elapsed() < 10 * interval, "{:?}", began.elapsed());
        running.abort();
    }

    #[tokio::test]
    #[ignore = "needs PostgreSQL: make test"]
    async fn rows_of_messages_that_come_again_after_an_outage_are_kept() {
        let client = testing::client().await;
        let url = testing::postgres_url();
        let day = Duration::from_secs(24 * 60 * 60);
        let settings = Settings::new("away", url).retention(7 * day);
        let retention = Retention { database: Database::new(&settings).unwrap(), settings };
        let rows = async || {
            let sql =
                "SELECT message_id FROM processed_messages WHERE consumer = 'away' ORDER BY 1";
            let rows = client.query(sql, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
        };
        // GIVEN no row at all THEN there is nothing to remove
        retention.remove_old_rows().await.unwrap();
        // GIVEN rows from before an outage of eight days, and what was processed since
        let made = "INSERT INTO processed_messages (consumer, message_id, processed_at) VALUES
            ('away', 'a-before', now() - interval '15 days 1 hour'),
            ('away', 'b-before', now() - interval '14 days 23 hours'),
            ('away', 'c-last', now() - interval '8 days'),
            ('away', 'd-since', now() - interval '9 minutes')";
        client.batch_execute(made).await.unwrap();
        // WHEN they are to be kept for ever THEN they are
        let for_ever = retention.settings.clone().retention(Duration::MAX);
        let for_ever = Retention { database: retention.database.clone(), settings: for_ever };
        for_ever.remove_old_rows().await.unwrap();
        assert_eq!(rows().await.len(), 4);
        // WHEN rows are removed THEN their age is counted from the beginning of the outage
        retention.remove_old_rows().await.unwrap();
        assert_eq!(rows().await, ["b-before", "c-last", "d-since"]);
        // WHEN messages have been processed for longer THEN it is counted from them
        let later =
            "UPDATE processed_messages SET processed_at = processed_at - interval '2 minutes'
            WHERE message_id = 'd-since'";
        client.batch_execute(later).await.unwrap();
        retention.remove_old_rows().await.unwrap();
        assert_eq!(rows().await, ["d-since"]);
    }
}
