//! The loop of [`walrelay_core::relay`] with its surroundings: sessions, the state file, the stops
//! that are kept, the topics that are read, and claimed rows.

mod claim_workers;
pub mod control;
mod preconditions;
mod state_file;
pub(crate) mod stops;
mod topic_ends;

use walrelay_core::relay::faults;
pub use walrelay_core::relay::feed::slot::SlotFeed;
pub use walrelay_core::relay::{Parts, ReadBack, Relay, ports};

pub(crate) use self::claim_workers::Workers;
pub use self::preconditions::{inspect, unfit_route, unfit_routes};
pub(crate) use self::state_file::open as open_state_file;
pub(crate) use self::topic_ends::read_back;
pub(crate) use walrelay_ops::adapters::{FactsRecorder, PassCounts};

#[cfg(test)]
mod replication_tests;
