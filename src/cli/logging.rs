//! Logs: text on a terminal, JSON otherwise, always on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::error::{Exit, Fault};

const DEFAULT_LEVEL: &str = "info";

/// Starts logging at `level`, a level or a filter.
pub(crate) fn start(level: Option<&str>) -> Result<(), Fault> {
    let level = level.filter(|level| !level.is_empty());
    let filter = filter(level.unwrap_or(DEFAULT_LEVEL))?;
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if terminal {
        builder.with_ansi(super::no_color_is_unset()).with_target(false).finish().try_init()
    } else {
        builder.json().flatten_event(true).finish().try_init()
    };
    match started {
        // A second command line in one process (a test) keeps the first subscriber.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn filter(level: &str) -> Result<EnvFilter, Fault> {
    // The AMQP client logs whole messages that the broker returns: payloads do not belong in logs.
    EnvFilter::builder().parse(format!("{level},lapin=off")).map_err(|error| {
        Fault::new(
            Exit::Usage,
            "config.bad-value",
            format!("{level:?} is no log filter: {error}"),
            "--log or WALRELAY_LOG",
            "use one of error, warn, info, debug, trace, or a filter as in info,walrelay=debug",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters_are_understood() {
        assert!(filter("debug").is_ok() && filter("warn,walrelay=trace").is_ok());
        let fault = filter("walrelay=loud").unwrap_err();
        assert_eq!((fault.exit, fault.code), (Exit::Usage, "config.bad-value"));
    }
}
