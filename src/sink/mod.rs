//! Brokers. A sink knows nothing of Postgres: it takes an event under a number, and later reports
//! under the same number whether the broker has it.
//!
//! A new sink is one crate or folder and one line in [`SINKS`]; CONTRIBUTING.md says what it must keep, and
//! the conformance suite runs over all of them.

#[cfg(feature = "file")]
mod file;
mod memory;
#[cfg(test)]
pub(crate) mod testing;

pub use walrelay_sink::{
    Broker, Configure, Disposition, ErrorRow, Failure, PublishError, Requirements, RouteRules,
    Sink, SinkKind, SinkReport, StartupCheck, UNREACHABLE, bench_target, broker, factory, log,
    publish, search, settings, topic_reader,
};

#[cfg(not(any(feature = "file", feature = "kafka", feature = "rabbitmq")))]
compile_error!("walrelay needs a sink: build it with --features kafka, rabbitmq or file");

/// The sinks of this build.
pub const SINKS: &[&SinkKind] = &[
    #[cfg(feature = "kafka")]
    &walrelay_kafka::SINK,
    #[cfg(feature = "rabbitmq")]
    &walrelay_rabbitmq::SINK,
    #[cfg(feature = "file")]
    &file::broker::SINK,
    &memory::SINK,
];

/// The features that are sinks.
const SINK_FEATURES: &[&str] = &["kafka", "rabbitmq", "file"];

/// The values of `sink.kind` that some build knows.
pub(crate) fn kind_names() -> Vec<&'static str> {
    SINK_FEATURES.iter().copied().chain([memory::SINK.name]).collect()
}

/// Whether the name is that of a sink which this build lacks.
pub(crate) fn is_missing(name: &str) -> bool {
    is_missing_from(SINKS, name)
}

fn is_missing_from(kinds: &[&SinkKind], name: &str) -> bool {
    SINK_FEATURES.contains(&name) && kinds.iter().all(|kind| kind.name != name)
}

/// The sinks that have an example of a configuration.
pub(crate) fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    SINKS.iter().filter_map(|kind| Some((kind.name, kind.example?)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_that_was_not_built_is_told_from_an_unknown_one() {
        let built: &[&SinkKind] = &[&memory::SINK];
        assert!(SINK_FEATURES.iter().all(|name| is_missing_from(built, name)));
        assert!(!is_missing_from(built, "memory") && !is_missing_from(built, "kafak"));
        for kind in SINKS {
            assert!(kind_names().contains(&kind.name) && !is_missing(kind.name), "{}", kind.name);
        }
    }
}
