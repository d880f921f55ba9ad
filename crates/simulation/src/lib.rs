//! Plays seeded schedules to the core of walrelay, and checks what consumers see.

mod broker;
mod checker;
mod faults;
mod kafka;
mod life;
mod network;
mod postgres;
mod process;
mod surroundings;
mod world;

pub use self::faults::FaultKind;
pub use self::process::SinkKind;
pub use self::surroundings::Counts;
pub use self::world::{Report, World};

/// Plays one schedule; with this kind of sink, or with that of the seed.
#[must_use]
pub fn run(seed: u64, tells: bool, sink: Option<SinkKind>) -> Report {
    World::new(seed, tells, sink).run()
}
