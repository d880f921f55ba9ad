//! Logs: text on a terminal, JSON otherwise, unless `--log-format` says which; always on standard error.
//!
//! `run` is a service: what it writes has one format, also the fault that ends it and a panic. The fault
//! that ends any other command is text, unless `--log-format` says otherwise.

use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt::format::{self, Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use super::args::LogFormat;
use super::output::put;
use super::repeats::{Repeats, Suppressed};
use super::style::{CODES, Sample, Style};
use crate::base::error::{Exit, Fault};
use crate::base::log_queue::{LineRank, LogStream};
use crate::base::text::{escaped, json_lines_shown};
use crate::base::{log, log_queue};
use crate::config::{self, BrokerConfig, Config, Effective, Loaded, LogSettings, Request};

const DEFAULT_LEVEL: &str = "info";
/// Of a longer line only the beginning of its message is written.
const LINE_BYTES_MAX: usize = 64 << 10;
const LEVEL_FLAG: &str = "--log or WALRELAY_LOG";
const LEVEL_KEY: &str = "log.level";
/// Target of audit lines, which say who did what.
const AUDIT: &str = "audit";
/// The AMQP client logs whole messages that the broker returns, and payloads must not be logged. A
/// filter alone would not do: one of its modules by name would go before it.
const NEVER_LOGGED: &str = "lapin";
/// Lines of this target are never limited.
const STATES: &str = "walrelay::health::state_watch";

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
type LevelSwitch = Box<dyn Fn(Targets) + Send + Sync>;

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
    let reload = LogReload { given: log.level(), request, effective, switch };
    reload.follow(&config.log)?;
    Ok((config, reload))
}

/// Reads the level of the log again, for SIGHUP.
pub(super) struct LogReload<'a> {
    /// By a flag or `WALRELAY_LOG`, which cannot change.
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
        let loaded = config::load(self.request);
        let followed = loaded.and_then(|loaded| Ok((self.follow(&loaded.config.log)?, loaded)));
        let (level, loaded) = match followed {
            Ok(followed) => followed,
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

    /// Sets the level of the log; returns it.
    fn follow(&self, log: &LogSettings) -> Result<String, Fault> {
        follow(&self.switch, self.given, log)
    }
}

/// Sets the level of the log: the one that was given, or else that of the configuration.
fn follow(switch: &LevelSwitch, given: Option<&str>, log: &LogSettings) -> Result<String, Fault> {
    let (level, place) = match (given, &log.level) {
        (Some(given), _) => (given, LEVEL_FLAG),
        (None, Some(level)) => (level.as_str(), LEVEL_KEY),
        (None, None) => (DEFAULT_LEVEL, LEVEL_KEY),
    };
    switch(filter(level, place)?);
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
        put(
            &mut LogStream { rank: LineRank::Kept },
            &faults.panicked(&format!("{panic}\n{backtrace}")),
        );
    }));
    let style = Style::of(true, options.format);
    if is_service {
        log_queue::start(move |lost| style.lost(lost))?;
    }
    let (lines, switch) = lines(filter, style, StandardError, Instant::now);
    match lines.try_init() {
        // A second command line in one process (a test) keeps the first subscriber.
        Ok(()) | Err(_) => Ok(switch),
    }
}

/// The subscriber that writes log lines, and what sets its level.
fn lines<W, C>(filter: Targets, style: Style, writer: W, clock: C) -> (Dispatch, LevelSwitch)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
    C: Fn() -> Instant + Send + Sync + 'static,
{
    // The filter decides alone.
    let builder = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
    match style {
        Style::Text { coloured } => {
            let lines = builder
                .with_writer(writer)
                .with_ansi(coloured)
                .fmt_fields(format::debug_fn(field).delimited(" "))
                .event_format(Limited::new(style, ForPeople::default(), clock));
            filtered(lines.finish(), filter)
        }
        Style::Json => {
            let writer = Escaping(writer);
            let format = Limited::new(style, Format::default().json().flatten_event(true), clock);
            // The fields of a span are formatted by what `json` sets.
            let lines = builder.with_writer(writer).json().event_format(format);
            filtered(lines.finish(), filter)
        }
    }
}

fn filtered<S>(lines: S, filter: Targets) -> (Dispatch, LevelSwitch)
where
    S: Subscriber + Send + Sync,
    Targets: Layer<S>,
{
    let (filter, handle) = reload::Layer::new(filter);
    let switch = Box::new(move |filter| {
        // Fails only where a second command line of one process has kept the first subscriber.
        let _is_used = handle.reload(filter).is_ok();
    });
    (Dispatch::new(lines.with(filter)), switch)
}

/// Writes one field of a line for people, escaped because its value may come from outside.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = escaped(&format!("{value:?}"));
    match field.name() {
        "message" => write!(writer, "{value}"),
        name if writer.has_ansi_escapes() => {
            write!(writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m{value}")
        }
        name => write!(writer, "{name}={value}"),
    }
}

/// The stream of log lines.
struct StandardError;

impl<'w> MakeWriter<'w> for StandardError {
    type Writer = LogStream;

    fn make_writer(&'w self) -> LogStream {
        LogStream { rank: LineRank::Ordinary }
    }

    fn make_writer_for(&'w self, line: &Metadata<'_>) -> LogStream {
        let is_kept = tells_what_was_done(line) || line.target() == STATES;
        LogStream { rank: if is_kept { LineRank::Kept } else { LineRank::Ordinary } }
    }
}

/// Is it an audit line of what was done, and not of a token that was refused?
fn tells_what_was_done(line: &Metadata<'_>) -> bool {
    line.target() == AUDIT && *line.level() == Level::INFO
}

/// Escapes what moves a terminal's cursor in lines of JSON; JSON itself does not escape all of it.
struct Escaping<W>(W);

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for Escaping<W> {
    type Writer = Escaping<W::Writer>;

    fn make_writer(&'w self) -> Escaping<W::Writer> {
        Escaping(self.0.make_writer())
    }

    fn make_writer_for(&'w self, line: &Metadata<'_>) -> Escaping<W::Writer> {
        Escaping(self.0.make_writer_for(line))
    }
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write_all(json_lines_shown(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Lines for people, which do not name the module that wrote them, but mark audit lines.
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

/// Where in the code a line comes from, and the hash of its code.
type Kind = (Identifier, u64);

/// Writes lines by `format`, those of one kind only so often. What a level below `info` was asked
/// for is written whole, and so are audit lines of what was done.
struct Limited<F, C> {
    style: Style,
    format: F,
    clock: C,
    repeats: Mutex<Repeats<Kind, Sample>>,
}

impl<F, C: Fn() -> Instant> Limited<F, C> {
    fn new(style: Style, format: F, clock: C) -> Limited<F, C> {
        Limited { style, format, clock, repeats: Mutex::new(Repeats::new()) }
    }

    /// Whether the line may be written, and what was not written before it.
    fn judge(&self, event: &Event<'_>) -> (bool, Vec<Suppressed<Sample>>) {
        let metadata = event.metadata();
        if metadata.target().split("::").next() == Some(NEVER_LOGGED) {
            return (false, Vec::new());
        }
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        let (target, now) = (metadata.target(), (self.clock)());
        let suppressed = match target {
            log::LAST_COUNTS => repeats.take_all_suppressed(),
            _ => repeats.take_suppressed(now),
        };
        if [log::COUNTS, log::LAST_COUNTS].contains(&target) {
            return (false, suppressed);
        }
        // A change of state comes once a second at most, and the last one counts.
        let is_whole = tells_what_was_done(metadata) || [STATES, log::FINDINGS].contains(&target);
        if *metadata.level() > Level::INFO || is_whole {
            return (true, suppressed);
        }
        let mut code = CodeHash(DefaultHasher::new());
        event.record(&mut code);
        let kind = (metadata.callsite(), code.0.finish());
        (repeats.permit(kind, now, || Sample::of(event)), suppressed)
    }
}

impl<S, N, F, C> FormatEvent<S, N> for Limited<F, C>
where
    C: Fn() -> Instant,
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (permitted, suppressed) = self.judge(event);
        for suppressed in suppressed {
            writer.write_str(&self.style.more(&suppressed))?;
        }
        if !permitted {
            return Ok(());
        }
        let mut length = Length(0);
        event.record(&mut length);
        if length.0 > LINE_BYTES_MAX {
            return writer.write_str(&self.style.cut(Sample::of(event), length.0));
        }
        self.format.format_event(context, writer, event)
    }
}

/// Bytes of the values of a line.
struct Length(usize);

impl Visit for Length {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        // Counting does not fail.
        write!(self, "{value:?}").ok();
    }

    fn record_str(&mut self, _: &Field, value: &str) {
        self.0 += value.len();
    }
}

impl fmt::Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

struct CodeHash(DefaultHasher);

impl Visit for CodeHash {
    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        if CODES.contains(&field.name()) {
            value.hash(&mut self.0);
        }
    }
}

fn filter(level: &str, place: &str) -> Result<Targets, Fault> {
    // Audit lines are written at every level, and so are counts of lines that were not.
    let always = format!("{NEVER_LOGGED}=off,{AUDIT}=info,{}=info", log::COUNTS);
    // Anything else would become part of a target that no line has.
    let is_known = |c: char| c.is_ascii_alphanumeric() || "_:=,-".contains(c);
    let parsed = match level.chars().find(|c| !is_known(*c)) {
        Some(c) => Err(format!("it cannot hold {c:?}")),
        None if level.split(',').any(str::is_empty) => Err("a part of it is empty".to_owned()),
        None => format!("{level},{always}").parse().map_err(|error: ParseError| error.to_string()),
    };
    parsed.map_err(|error| {
        Fault::new(
            Exit::Usage,
            "config.bad-value",
            format!("{level:?} is no log filter: {error}"),
            place,
            "use one of error, warn, info, debug, trace, or a filter as in info,walrelay=debug",
        )
    })
}

#[cfg(test)]
#[path = "logging_tests.rs"]
mod tests;
