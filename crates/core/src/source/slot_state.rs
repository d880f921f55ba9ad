//! Facts that decide which process moved the slot.

use serde::Deserialize;

use super::server::ServerRun;
use crate::base::lsn::Lsn;

/// The process that holds a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SlotHolder {
    pub pid: i32,
    /// Its `application_name`.
    pub application: String,
    /// It has the role and `application_name` of this connection: it is another relay, which
    /// streams or confirms its last position over SQL before it ends.
    pub peer: bool,
}

/// The facts that decide which process moved the slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldSlot {
    pub confirmed_flush: Lsn,
    pub holder: Option<SlotHolder>,
    /// Transactions decoded since the slot was created (15 and later). A stream, pg_recvlogical and
    /// `pg_logical_slot_get_changes` count, `pg_replication_slot_advance` does not. Kept over a
    /// restart of the server, lost in a crash. None once somebody has reset the statistics of the
    /// slot.
    pub decoded: Option<i64>,
    /// The run of the server in which the slot was so.
    pub run: ServerRun,
    /// Another relay of this slot has a session.
    pub has_peer: bool,
    /// When it was so, by the server's clock.
    pub at_unix_us: i64,
}
