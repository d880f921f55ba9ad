//! Facts that decide which process moved the slot.

use serde::Deserialize;

use super::server::{ServerRun, ServerStart};
use crate::base::lsn::Lsn;
use crate::mutants::{Mutant, on};

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
    /// restart of the server, lost in a crash.
    pub decoded: Option<i64>,
    /// When the statistics of the server were reset last (15 and later), as a crash does.
    pub stats_reset_unix_us: Option<i64>,
    /// Another relay of this slot has a session.
    pub has_peer: bool,
    /// When it was so, by the server's clock.
    pub at_unix_us: i64,
}

impl HeldSlot {
    /// The run of the server, as it was started, in which the slot was so.
    pub fn run_of(&self, start: &ServerStart) -> ServerRun {
        let stats_reset_unix_us = self.stats_reset_unix_us.filter(|_| !on(Mutant::RunByPostmaster));
        ServerRun { start: start.clone(), stats_reset_unix_us }
    }
}
