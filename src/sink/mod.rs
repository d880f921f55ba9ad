//! Brokers. A sink knows nothing of Postgres: it takes an event under a number, and later reports
//! under the same number whether the broker has it.
//!
//! A new sink is one folder and one line in [`SINKS`]; CONTRIBUTING.md says what it must keep, and
//! the conformance suite runs over all of them.

pub mod bench_target;
mod broker;
mod file;
pub mod kafka;
pub mod log;
mod memory;
pub mod rabbitmq;
pub mod search;
pub(crate) mod settings;
#[cfg(test)]
pub(crate) mod testing;
pub mod topic_reader;

pub use self::broker::{Broker, Requirements, SinkKind, StartupCheck, UNREACHABLE, factory};
pub(crate) use self::broker::{Configure, RouteRules};
pub use self::publish::{
    Disposition, ErrorRow, Failure, PublishError, PublishLimits, Sink, SinkReport,
};
pub(crate) use walrelay_core::sink::publish;

pub const SINKS: &[&SinkKind] =
    &[&kafka::broker::SINK, &rabbitmq::broker::SINK, &file::broker::SINK, &memory::SINK];

pub(crate) fn kind_named(name: &str) -> Option<&'static SinkKind> {
    SINKS.iter().find(|kind| kind.name == name).copied()
}

/// The table of docs/errors.md.
#[must_use]
pub fn errors_table() -> String {
    let mut table =
        "| Sink | Code | What the broker or its client says | Class | Consequence |\n|---|---|---|---|---|\n"
            .to_owned();
    for kind in SINKS {
        for row in (kind.errors)() {
            let ErrorRow { code, description, class, disposition } = row;
            table += &format!(
                "| {} | `{code}` | {description} | `{class}` | {disposition} |\n",
                kind.name
            );
        }
    }
    table
}
