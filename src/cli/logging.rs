//! Logs: text on a terminal, JSON otherwise, unless `--log-format` says which; always on standard error.
//!
//! `run` is a service: what it writes has one format, also the fault that ends it and a panic. The fault
//! that ends any other command is text, unless `--log-format` says otherwise.

use std::io::IsTerminal as _;

use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload;

use super::args::LogFormat;
use super::output::{is_coloured, put};
use crate::base::error::{Exit, Fault};
use crate::base::log::{self, AUDIT, LogStream, Style};
use crate::base::settings::kind::TextRule;
use crate::config::{
    self, BrokerConfig, Config, Effective, LOG_FILTER, Loaded, LogSettings, Request,
};

const DEFAULT_LEVEL: &str = "info";
const LEVEL_FLAG: &str = "--log, WALRELAY_LOG or RUST_LOG";
/// The variable that programs in Rust share.
const LEVEL_VARIABLE: &str = "RUST_LOG";
const LEVEL_KEY: &str = "log.level";

/// The style that was asked for; without one, that of a service or of a command that people type.
pub(super) fn style(is_service: bool, format: Option<LogFormat>) -> Style {
    let errors = std::io::stderr();
    let is_json = match format {
        Some(format) => format == LogFormat::Json,
        None => is_service && !errors.is_terminal(),
    };
    if is_json { Style::Json } else { Style::Text { coloured: is_coloured(&errors) } }
}

/// The level that the variable has which programs in Rust share.
pub(super) fn shared_level() -> Option<String> {
    std::env::var(LEVEL_VARIABLE).ok()
}

#[derive(Clone, Copy)]
pub(super) struct LogOptions<'a> {
    pub(super) level: Option<&'a str>,
    pub(super) format: Option<LogFormat>,
    pub(super) faults: Style,
    /// Nobody waits for a log that is not read.
    pub(super) is_service: bool,
}

impl<'a> LogOptions<'a> {
    fn level(&self) -> Option<&'a str> {
        self.level.filter(|level| !level.is_empty())
    }
}

/// Sets the level of a log that is being written.
type LevelSwitch = reload::Handle<Targets, Registry>;

/// Starts logging and reads the configuration; faults of both are reported together.
pub(super) fn prepare(log: LogOptions<'_>, request: &Request) -> Result<Config, Vec<Fault>> {
    prepare_reloading(log, request).map(|(config, _)| config)
}

/// The same for a command that uses the broker alone: other sections may be missing or wrong.
pub(super) fn prepare_broker(
    log: LogOptions<'_>,
    request: &Request,
) -> Result<BrokerConfig, Vec<Fault>> {
    let (switch, config) = both(start(log).map_err(Vec::from), config::load_broker(request))?;
    follow(&switch, log.level(), &config.log)?;
    Ok(config)
}

/// The same, and what reads the level of the log again.
pub(super) fn prepare_reloading<'a>(
    log: LogOptions<'a>,
    request: &'a Request,
) -> Result<(Config, LogReload<'a>), Vec<Fault>> {
    let (switch, loaded) = both(start(log).map_err(Vec::from), config::load(request))?;
    let Loaded { config, effective } = loaded;
    let given = log.level();
    follow(&switch, given, &config.log)?;
    Ok((config, LogReload { given, request, effective, switch }))
}

/// Reads the level of the log again, for SIGHUP.
pub(super) struct LogReload<'a> {
    /// The filter that a flag or a variable gives, which cannot change.
    given: Option<&'a str>,
    request: &'a Request,
    /// The configuration of this process.
    effective: Effective,
    switch: LevelSwitch,
}

impl LogReload<'_> {
    /// Secrets in files need nothing: they are read for each connection. All other keys hold from
    /// the next start on, which is logged.
    pub(super) fn run(&self) {
        let loaded = config::load(self.request).and_then(|loaded| {
            let level = follow(&self.switch, self.given, &loaded.config.log)?;
            Ok((level, loaded))
        });
        let (level, loaded) = match loaded {
            Ok(loaded) => loaded,
            Err(faults) => {
                for fault in faults {
                    let Fault { code: fault_code, what, place, mend, .. } = fault;
                    tracing::warn!(
                        code = "run.not-reloaded",
                        fault_code,
                        place,
                        help = mend,
                        "SIGHUP: nothing was changed: {what}"
                    );
                }
                return;
            }
        };
        tracing::info!(target: AUDIT, log_level = level, "SIGHUP: the level of the log was read again, and secrets can be read");
        let mut changed = loaded.effective.changed_since(&self.effective);
        changed.retain(|key| key != LEVEL_KEY);
        if !changed.is_empty() {
            let keys = changed.join(", ");
            tracing::warn!(
                code = "run.restart-needed",
                keys,
                "these keys have changed and hold from the next start on"
            );
        }
    }
}

/// Sets the level of the log: the one that was given, or else that of the configuration. Returns it.
fn follow(switch: &LevelSwitch, given: Option<&str>, log: &LogSettings) -> Result<String, Fault> {
    let (level, place) = match (given, &log.level) {
        (Some(given), _) => (given, LEVEL_FLAG),
        (None, Some(level)) => (level.as_str(), LEVEL_KEY),
        (None, None) => (DEFAULT_LEVEL, LEVEL_KEY),
    };
    // Fails only where a second command line of one process has kept the first subscriber.
    let _is_used = switch.reload(filter(level, place)?).is_ok();
    Ok(level.to_owned())
}

/// Both results, or the faults of both.
pub(super) fn both<A, B>(
    a: Result<A, Vec<Fault>>,
    b: Result<B, Vec<Fault>>,
) -> Result<(A, B), Vec<Fault>> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(mut faults), Err(more)) => {
            faults.extend(more);
            Err(faults)
        }
        (Err(faults), Ok(_)) | (Ok(_), Err(faults)) => Err(faults),
    }
}

/// Starts logging. A panic is written in the style of a fault.
fn start(options: LogOptions<'_>) -> Result<LevelSwitch, Fault> {
    let LogOptions { faults, is_service, .. } = options;
    let filter = filter(options.level().unwrap_or(DEFAULT_LEVEL), LEVEL_FLAG)?;
    std::panic::set_hook(Box::new(move |panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        put(&mut LogStream, &faults.panicked(&format!("{panic}\n{backtrace}")));
    }));
    let (filter, switch) = reload::Layer::new(filter);
    let lines = log::start(style(true, options.format), is_service)?;
    // A second command line in one process (a test) keeps the first subscriber.
    let subscriber = Registry::default().with(filter).with(lines);
    let _is_first = tracing::subscriber::set_global_default(subscriber).is_ok();
    Ok(switch)
}

fn filter(level: &str, place: &str) -> Result<Targets, Fault> {
    let TextRule { wanted, holds, .. } = LOG_FILTER;
    // Audit lines are written at every level.
    let parsed = format!("{level},{AUDIT}=info").parse::<Targets>().ok();
    parsed.filter(|_| holds(level)).ok_or_else(|| {
        let (what, mend) = (format!("{level:?} is not {wanted}"), format!("write {wanted}"));
        Fault::new(Exit::Usage, "config.bad-value", what, place, mend)
    })
}

#[cfg(test)]
#[path = "logging_tests.rs"]
mod tests;
