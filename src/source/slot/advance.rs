//! A confirmed position, reported without a stream.
//!
//! When a stream has ended there is nothing left to report on, and what the broker confirmed after
//! that would be published again by the next process. `pg_replication_slot_advance` takes the
//! position too: it goes through the WAL without the output plugin, so that it also gets to where a
//! stream broke.

use tokio_postgres::Client;
use tokio_postgres::types::{PgLsn, Type};

use super::{lsn, slot_fault};
use crate::error::Fault;
use crate::lsn::Lsn;

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The slot stands there, or further on.
    Done,
    /// This process reads the slot, as far as it is known; the slot may be free soon.
    Active(Option<i32>),
    /// The position means nothing here.
    NotOurs(String),
}

/// `$1` is the slot.
const LOOK_SQL: &str = "
SELECT s.confirmed_flush_lsn, s.active_pid, pg_catalog.pg_is_in_recovery(),
  (SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()),
  CASE WHEN pg_catalog.pg_is_in_recovery()
    THEN (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())
    ELSE ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int END,
  CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
    ELSE pg_catalog.pg_current_wal_flush_lsn() END
FROM pg_catalog.pg_replication_slots s
WHERE s.slot_name = $1 AND s.plugin = 'pgoutput' AND s.database = pg_catalog.current_database()";

const ADVANCE_SQL: &str = "SELECT FROM pg_catalog.pg_replication_slot_advance($1, $2)";

/// Moves the slot up to `to`, which means something on this system and timeline only. A slot that
/// is further on is left alone, and never moved beyond the end of the WAL.
pub async fn advance(
    client: &Client,
    slot: &str,
    to: Lsn,
    system_id: &str,
    timeline: u32,
) -> Result<Advance, Fault> {
    let told = |error| slot_fault(&error, slot, &[]);
    let row = client.query_typed_opt(LOOK_SQL, &[(&slot, Type::TEXT)]).await.map_err(told)?;
    let Some(row) = row else { return Ok(Advance::NotOurs(format!("there is no slot {slot}"))) };
    let position = |value: Option<PgLsn>| value.map_or(Lsn::ZERO, lsn);
    let (confirmed, end) = (position(row.get(0)), position(row.get(5)));
    let (active_pid, found_system, found_timeline): (Option<i32>, &str, i32) =
        (row.get(1), row.get(3), row.get(4));
    if found_system != system_id || u32::try_from(found_timeline) != Ok(timeline) {
        return Ok(Advance::NotOurs(format!(
            "this is system {found_system}, timeline {found_timeline}, and not {system_id}, {timeline}"
        )));
    }
    if confirmed >= to {
        return Ok(Advance::Done);
    }
    if to > end {
        return Ok(Advance::NotOurs(format!("the WAL ends at {end}")));
    }
    if active_pid.is_some() {
        return Ok(Advance::Active(active_pid));
    }
    let to = PgLsn::from(to.to_wire());
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&slot, Type::NAME), (&to, Type::PG_LSN)];
    match client.query_typed(ADVANCE_SQL, &parameters).await {
        Ok(_) => Ok(Advance::Done),
        Err(error) => match slot_fault(&error, slot, &[]) {
            fault if fault.code == "slot.active" => Ok(Advance::Active(None)),
            fault => Err(fault),
        },
    }
}
