//! Plays seeded schedules to the core of walrelay, and checks what consumers see.

pub mod arguments;
mod broker;
mod checker;
mod digest;
mod faults;
mod fleet;
mod kafka;
mod life;
#[cfg(feature = "mutants")]
pub mod mutants;
mod network;
mod numbers;
mod options;
mod postgres;
mod process;
mod publication;
mod rabbitmq;
mod scenarios;
mod shrink;
mod sometimes;
mod story;
mod surroundings;
mod tail;
#[cfg(test)]
mod tests;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use mimalloc::MiMalloc;

pub use self::checker::Violation;
pub use self::faults::{FAULTS, FaultKind};
pub use self::fleet::{Fleet, Progress, Totals};
pub use self::options::{Options, SinkKind};
pub use self::rabbitmq::RabbitCounts;
pub use self::scenarios::Scenario;
pub use self::shrink::{Shrunk, shrink};
pub use self::sometimes::Sometimes;
pub use self::story::{About, Line};
pub use self::surroundings::Counts;
pub use self::world::{Report, World};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Plays one schedule. A panic of the core is a violation.
#[must_use]
pub fn run(options: &Options, tells: bool) -> Report {
    #[cfg(feature = "mutants")]
    mutants::set(options);
    let played = catch_unwind(AssertUnwindSafe(|| World::new(options, tells).run()));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        Report { violation: Some(format!("panic: {text}").into()), ..Report::default() }
    })
}

pub(crate) fn mutant_named(name: &str) -> Result<&'static str, String> {
    #[cfg(feature = "mutants")]
    return mutants::named(name);
    #[cfg(not(feature = "mutants"))]
    Err(format!("--mutant {name} needs a build with the feature `mutants`"))
}
