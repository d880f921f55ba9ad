//! A confirmed position, reported without a stream.
//!
//! When a stream has ended there is nothing left to report on, and what the broker confirmed after
//! that would be published again by the next process. `pg_replication_slot_advance` takes the
//! position too: it goes through the WAL without the output plugin, so that it also gets to where a
//! stream broke.

use tokio_postgres::Client;
use tokio_postgres::types::{PgLsn, Type};

use super::slot_fault;
use crate::base::error::Fault;
use crate::base::lsn::Lsn;
use crate::source::facts::{self, SlotFacts};

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
    let (server, found) =
        tokio::try_join!(facts::server(client), facts::slot(client, slot)).map_err(told)?;
    let is_ours = |found: &SlotFacts| {
        found.plugin.as_deref() == Some("pgoutput")
            && found.database.as_ref() == Some(&server.database)
    };
    let Some(found) = found.filter(is_ours) else {
        return Ok(Advance::NotOurs(format!("there is no slot {slot}")));
    };
    if (server.system_id.as_str(), server.timeline) != (system_id, timeline) {
        return Ok(Advance::NotOurs(format!(
            "this is system {}, timeline {}, and not {system_id}, {timeline}",
            server.system_id, server.timeline
        )));
    }
    if found.confirmed_flush >= to {
        return Ok(Advance::Done);
    }
    if to > server.current_lsn {
        return Ok(Advance::NotOurs(format!("the WAL ends at {}", server.current_lsn)));
    }
    if found.active_pid.is_some() {
        return Ok(Advance::Active(found.active_pid));
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
