//! Who holds the slot.
//!
//! A read of shared memory. START_REPLICATION would tell the same, but each refusal is a line in
//! the server's log, and it does not say who the holder is.

use tokio_postgres::types::{PgLsn, Type};
use tokio_postgres::{Client, Statement};

use crate::base::lsn::Lsn;

/// The server and the slot at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The server is a standby.
    pub in_recovery: bool,
    /// The slot; `None` when it does not exist.
    pub slot: Option<HeldSlot>,
}

/// The slot at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldSlot {
    /// What Postgres believes to be confirmed.
    pub confirmed_flush: Lsn,
    /// The process that holds it.
    pub holder: Option<Holder>,
    /// Transactions decoded since the slot was created (15 and later).
    pub decoded: Option<i64>,
}

/// The process that holds the slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its process id on the server.
    pub pid: i32,
    /// Its `application_name`.
    pub application: String,
    /// It has our role and our `application_name`: it is a relay like this one, which streams, or
    /// confirms its last position over SQL before it ends.
    pub peer: bool,
}

/// `pg_stat_activity` shows role and application of every process to every role. Before 15,
/// statistics of slots are read from a file: they are left out there.
const SQL: &str = "
SELECT pg_catalog.pg_is_in_recovery(), s.slot_name IS NOT NULL, s.confirmed_flush_lsn,
       s.active_pid, coalesce(r.application_name, ''),
       coalesce(r.usename = session_user AND r.application_name
           = pg_catalog.current_setting('application_name'), false),
       CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 >= 150000
           THEN (SELECT t.total_txns FROM pg_catalog.pg_stat_replication_slots t
                 WHERE t.slot_name = s.slot_name) END
FROM (VALUES (1)) one
LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = $1
LEFT JOIN pg_catalog.pg_stat_activity r ON r.pid = s.active_pid";

/// Looks at one slot again and again, on one connection.
#[derive(Debug)]
pub struct HolderQuery {
    statement: Statement,
    slot: String,
}

impl HolderQuery {
    /// Prepares the look at `slot`; good for as long as `client` is.
    pub async fn prepare(
        client: &Client,
        slot: &str,
    ) -> Result<HolderQuery, tokio_postgres::Error> {
        let statement = client.prepare_typed(SQL, &[Type::TEXT]).await?;
        Ok(HolderQuery { statement, slot: slot.to_owned() })
    }

    /// One round trip.
    pub async fn look(&self, client: &Client) -> Result<Look, tokio_postgres::Error> {
        let row = client.query_one(&self.statement, &[&self.slot]).await?;
        let in_recovery = row.try_get(0)?;
        if !row.try_get(1)? {
            return Ok(Look { in_recovery, slot: None });
        }
        let confirmed: Option<PgLsn> = row.try_get(2)?;
        let pid: Option<i32> = row.try_get(3)?;
        let (application, peer): (String, bool) = (row.try_get(4)?, row.try_get(5)?);
        let slot = HeldSlot {
            confirmed_flush: confirmed.map_or(Lsn::ZERO, |lsn| Lsn::from_wire(lsn.into())),
            holder: pid.map(|pid| Holder { pid, application, peer }),
            decoded: row.try_get(6)?,
        };
        Ok(Look { in_recovery, slot: Some(slot) })
    }
}
