//! The slot seen from a second connection, so that lag and retained WAL stay true when the stream
//! is stuck.
//!
//! One prepared statement, cheap enough for every second: a read of shared memory, no table.

use std::time::{Duration, Instant};

use tokio_postgres::types::{PgLsn, Type};
use tokio_postgres::{Client, Statement};

use crate::base::lsn::Lsn;

/// The slot at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotSample {
    /// What Postgres believes to be confirmed.
    pub confirmed_flush: Lsn,
    /// Oldest WAL it keeps for the slot; `0/0` when that is gone.
    pub restart_lsn: Lsn,
    /// End of WAL.
    pub current_lsn: Lsn,
    /// WAL kept for the slot.
    pub retained_bytes: u64,
    /// Bytes that may still be written before the slot is in danger; absent without a limit.
    pub safe_wal_size: Option<i64>,
    /// `reserved`, `extended`, `unreserved`, `lost`.
    pub wal_status: String,
    /// Someone reads it.
    pub active: bool,
    /// Who reads it.
    pub active_pid: Option<i32>,
    /// Why it was invalidated (17 and later).
    pub invalidation_reason: Option<String>,
}

impl SlotSample {
    /// WAL that is not confirmed.
    #[must_use]
    pub fn lag_bytes(&self) -> u64 {
        self.current_lsn.bytes_since(self.confirmed_flush)
    }

    /// It can never be read again.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.wal_status == "lost" || self.invalidation_reason.is_some()
    }
}

/// A slot that is not ours is as good as none: preflight says so, and its WAL is nobody's loss here.
/// Columns that only newer servers have are reached through `to_jsonb`, which knows what is there.
const SQL: &str = "
SELECT s.confirmed_flush_lsn, s.restart_lsn,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END,
       s.safe_wal_size, coalesce(s.wal_status, 'lost'), s.active, s.active_pid,
       pg_catalog.to_jsonb(s) ->> 'invalidation_reason'
FROM pg_catalog.pg_replication_slots s
WHERE s.slot_name = $1 AND s.plugin = 'pgoutput' AND s.database = pg_catalog.current_database()";

/// Looks at one slot, again and again, on one connection.
#[derive(Debug)]
pub struct Watcher {
    statement: Statement,
    slot: String,
}

impl Watcher {
    /// Prepares the look at `slot`; good for as long as `client` is.
    pub async fn prepare(client: &Client, slot: &str) -> Result<Watcher, tokio_postgres::Error> {
        let statement = client.prepare_typed(SQL, &[Type::TEXT]).await?;
        Ok(Watcher { statement, slot: slot.to_owned() })
    }

    /// The slot now; `None` when it is gone. One round trip.
    pub async fn sample(
        &self,
        client: &Client,
    ) -> Result<Option<SlotSample>, tokio_postgres::Error> {
        let Some(row) = client.query_opt(&self.statement, &[&self.slot]).await? else {
            return Ok(None);
        };
        let lsn = |index: usize| -> Result<Lsn, tokio_postgres::Error> {
            let value: Option<PgLsn> = row.try_get(index)?;
            Ok(value.map_or(Lsn::ZERO, |value| Lsn::from_wire(value.into())))
        };
        let (confirmed_flush, restart_lsn, current_lsn) = (lsn(0)?, lsn(1)?, lsn(2)?);
        let kept = !restart_lsn.is_zero();
        Ok(Some(SlotSample {
            confirmed_flush,
            restart_lsn,
            current_lsn,
            retained_bytes: if kept { current_lsn.bytes_since(restart_lsn) } else { 0 },
            safe_wal_size: row.try_get(3)?,
            wal_status: row.try_get(4)?,
            active: row.try_get(5)?,
            active_pid: row.try_get(6)?,
            invalidation_reason: row.try_get(7)?,
        }))
    }
}

/// One look, unprepared, for callers that look once.
pub async fn sample(
    client: &Client,
    slot: &str,
) -> Result<Option<SlotSample>, tokio_postgres::Error> {
    Watcher::prepare(client, slot).await?.sample(client).await
}

/// How long `restart_lsn` has stood still. A transaction that stays open pins it, however fast
/// events flow, and WAL piles up. Counted from the first look: Postgres does not tell the past.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestartAge {
    last: Option<(Lsn, Instant)>,
}

impl RestartAge {
    /// Takes note of a look at `now` and returns the age.
    pub fn observe(&mut self, restart_lsn: Lsn, now: Instant) -> Duration {
        match self.last {
            Some((lsn, since)) if lsn == restart_lsn => now.saturating_duration_since(since),
            _ => {
                self.last = Some((restart_lsn, now));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests;
