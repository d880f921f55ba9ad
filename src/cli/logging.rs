//! Logs: text on a terminal, JSON otherwise, always on standard error.

use std::fmt;
use std::io::IsTerminal;

use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::error::{Exit, Fault};

const DEFAULT_LEVEL: &str = "info";
/// Target of the lines that say who did what.
const AUDIT: &str = "audit";

/// Starts logging at `level`, a level or a filter.
pub(crate) fn start(level: Option<&str>) -> Result<(), Fault> {
    let level = level.filter(|level| !level.is_empty());
    let filter = filter(level.unwrap_or(DEFAULT_LEVEL))?;
    let terminal = std::io::stderr().is_terminal();
    let coloured = super::no_color_is_unset();
    match lines(filter, terminal, coloured, std::io::stderr).try_init() {
        // A second command line in one process (a test) keeps the first subscriber.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What writes log lines.
fn lines<W>(filter: EnvFilter, terminal: bool, coloured: bool, writer: W) -> Dispatch
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    if terminal {
        Dispatch::new(builder.with_ansi(coloured).event_format(ForPeople::default()).finish())
    } else {
        Dispatch::new(builder.json().flatten_event(true).finish())
    }
}

/// A line for people: which module wrote it is none of their concern, but that it is an audit line
/// is.
#[derive(Default)]
struct ForPeople(Format);

impl<S, N> FormatEvent<S, N> for ForPeople
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let is_audit = event.metadata().target() == AUDIT;
        self.0.clone().with_target(is_audit).format_event(context, writer, event)
    }
}

fn filter(level: &str) -> Result<EnvFilter, Fault> {
    // The AMQP client logs whole messages that the broker returns: payloads do not belong in logs.
    // Who did what is logged however quiet the rest is to be.
    EnvFilter::builder().parse(format!("{level},lapin=off,{AUDIT}=info")).map_err(|error| {
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
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What is written of an audit line and another one.
    fn written(level: &str, terminal: bool) -> Vec<String> {
        let written = Written::default();
        let own = written.clone();
        let lines = lines(filter(level).unwrap(), terminal, false, move || own.clone());
        tracing::dispatcher::with_default(&lines, || {
            tracing::info!(target: "audit", who = "me", "replay begins");
            tracing::info!("something else");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn audit_lines_are_written_however_quiet_the_rest_is_and_can_be_recognised() {
        for level in ["warn", "error", "off", "audit=off", "warn,audit=error"] {
            let lines = written(level, true);
            assert_eq!(lines.len(), 1, "{level}: {lines:?}");
            assert!(lines[0].contains("INFO audit: replay begins who=\"me\""), "{lines:?}");
            let lines = written(level, false);
            assert_eq!(lines.len(), 1, "{level}: {lines:?}");
            assert!(lines[0].contains(r#""target":"audit""#), "{lines:?}");
        }
        // THEN on a terminal other lines do not say where they come from
        let lines = written("info", true);
        assert!(lines[1].ends_with("INFO something else"), "{lines:?}");
    }

    #[test]
    fn levels_and_filters_are_understood() {
        assert!(filter("debug").is_ok() && filter("warn,walrelay=trace").is_ok());
        let fault = filter("walrelay=loud").unwrap_err();
        assert_eq!((fault.exit, fault.code), (Exit::Usage, "config.bad-value"));
    }
}
