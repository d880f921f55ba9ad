//! Plays seeded schedules to the core of walrelay, and checks what consumers see.

mod broker;
mod checker;
mod faults;
mod life;
mod network;
mod postgres;
mod process;
mod publication;
mod surroundings;
mod world;

pub use self::faults::FaultKind;
pub use self::surroundings::Counts;
pub use self::world::{Report, World};

/// Plays one schedule.
#[must_use]
pub fn run(seed: u64, tells: bool) -> Report {
    World::new(seed, tells).run()
}
