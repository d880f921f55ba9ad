//! Whether the relay does its work, judged by its progress.
//!
//! The data thread publishes facts once per pass; the admin thread judges them against the clock,
//! once a second and for every probe. Nothing here reads a clock: every time is in milliseconds
//! since an origin that both threads share.
//!
//! Ready means: streaming, broker reachable, and unconfirmed events settle. That counts as progress
//! even while the confirmed LSN does not move, because a transaction of ten million rows moves it
//! once. An idle relay stays ready. A relay that has stood still for some seconds is held or
//! blocked, and at first still ready: a broker may take that long to elect a leader.

mod facts;
mod judge;
mod reason;
mod slot_pin;
pub mod slot_watch;
mod state_watch;
mod wal_growth;

pub use walrelay_core::health::{IntakeHold, Pass, Phase, SilentDestination};

pub use self::facts::{Facts, FactsWriter, Snapshot, facts};
pub use self::judge::{Health, Judge};
pub use self::reason::StateReason;
pub use self::state_watch::StateWatch;
pub use crate::metrics::HealthState;

#[cfg(test)]
mod tests;
