//! Logs: text on a terminal, JSON otherwise, always on standard error.
//!
//! `run` is a service: unless standard error is a terminal, everything that it writes is JSON, also
//! the fault that ends it and a panic. The fault that ends any other command is text.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{self, Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::output::{is_coloured, put};
use super::repeats::{Repeats, Suppressed};
use crate::base::clock::unix_now_us;
use crate::base::error::{Exit, Fault};
use crate::base::log_queue::{LineRank, LogStream};
use crate::base::text::{escaped, escaped_lines, json_lines_shown, truncated};
use crate::base::time::rfc3339;
use crate::base::{log, log_queue};
use crate::config::{self, Config, Request};

const DEFAULT_LEVEL: &str = "info";
/// Target of audit lines, which say who did what.
const AUDIT: &str = "audit";
/// The AMQP client logs whole messages that the broker returns, and payloads must not be logged. A
/// filter alone would not do: one of its modules by name would go before it.
const NEVER_LOGGED: &str = "lapin";
/// Lines of this target are never limited.
const STATES: &str = "walrelay::health::state_watch";
/// Most of a message that stands for the lines that were not written.
const SAMPLE_BYTES_MAX: usize = 120;

#[derive(Clone, Copy)]
pub(super) struct LogOptions<'a> {
    pub(super) level: Option<&'a str>,
    pub(super) faults: Style,
    /// Nobody waits for a log that is not read.
    pub(super) is_service: bool,
}

/// Starts logging and reads the configuration; faults of both are reported together.
pub(super) fn prepare(log: LogOptions<'_>, request: &Request) -> Result<Config, Vec<Fault>> {
    let ((), loaded) = both(start(log).map_err(Vec::from), config::load(request))?;
    Ok(loaded.config)
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

/// How log lines are written, or a fault that ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Text {
        coloured: bool,
    },
    /// A JSON object per line.
    Json,
}

impl Style {
    /// The style of a service, or of a command that people type.
    pub(crate) fn of(is_service: bool) -> Style {
        let errors = std::io::stderr();
        match is_service && !errors.is_terminal() {
            true => Style::Json,
            false => Style::Text { coloured: is_coloured(&errors) },
        }
    }

    /// A fault that ends the process, as lines of standard error.
    pub(crate) fn format(self, fault: &Fault) -> String {
        let text = fault.to_string();
        match (self, text.split_once(": ")) {
            (Style::Json, _) => {
                let Fault { code, exit, what, place, mend } = fault;
                json_line(what, Some(FaultFields { code, place, mend, exit: *exit as u8 }))
            }
            (Style::Text { coloured: true }, Some((head, rest))) => {
                format!("\x1b[1;31m{head}\x1b[0m: {rest}\n")
            }
            (Style::Text { .. }, _) => text + "\n",
        }
    }

    /// A line in place of those that were not written.
    fn more(self, suppressed: &Suppressed<Sample>) -> String {
        let Suppressed { shown: Sample { level, target, code, message }, lines, within } =
            suppressed;
        let message = format!("… {lines} more in {} s: {message}", within.as_secs().max(1));
        let (timestamp, code) = (rfc3339(unix_now_us()), code.as_deref());
        match self {
            Style::Json => Line {
                timestamp,
                level: level.as_str(),
                message: &message,
                fault: None,
                code,
                target,
            }
            .json(),
            Style::Text { .. } => {
                let code = code.map(|code| format!(" code={code:?}")).unwrap_or_default();
                format!("{timestamp} {level:>5} {}{}\n", escaped(&message), escaped(&code))
            }
        }
    }

    /// A line in place of those that nobody has read.
    fn lost(self, lines: u64) -> String {
        let message = format!("{lines} lines of the log were lost: standard error was not read");
        let (timestamp, code) = (rfc3339(unix_now_us()), Some("log.lost"));
        let (level, target) = ("WARN", "walrelay");
        match self {
            Style::Json => {
                Line { timestamp, level, message: &message, fault: None, code, target }.json()
            }
            Style::Text { .. } => format!("{timestamp}  {level} {message} code=\"log.lost\"\n"),
        }
    }

    fn panicked(self, text: &str) -> String {
        match self {
            Style::Json => json_line(text, None),
            Style::Text { .. } => escaped_lines(text) + "\n",
        }
    }
}

/// A line in the form of the log's own.
#[derive(Serialize)]
struct Line<'a> {
    timestamp: String,
    level: &'a str,
    message: &'a str,
    #[serde(flatten)]
    fault: Option<FaultFields<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    target: &'a str,
}

#[derive(Serialize)]
struct FaultFields<'a> {
    code: &'a str,
    #[serde(rename = "where")]
    place: &'a str,
    mend: &'a str,
    exit: u8,
}

fn json_line(message: &str, fault: Option<FaultFields<'_>>) -> String {
    let timestamp = rfc3339(unix_now_us());
    Line { timestamp, level: "ERROR", message, fault, code: None, target: "walrelay" }.json()
}

impl Line<'_> {
    fn json(&self) -> String {
        // Texts and a number can always be serialized.
        json_lines_shown(&serde_json::to_string(self).unwrap_or_default()) + "\n"
    }
}

/// Starts logging. A panic is written in the style of a fault.
fn start(options: LogOptions<'_>) -> Result<(), Fault> {
    let LogOptions { level, faults, is_service } = options;
    let level = level.filter(|level| !level.is_empty());
    let filter = filter(level.unwrap_or(DEFAULT_LEVEL))?;
    std::panic::set_hook(Box::new(move |panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        put(
            &mut LogStream { rank: LineRank::Kept },
            &faults.panicked(&format!("{panic}\n{backtrace}")),
        );
    }));
    let style = Style::of(true);
    if is_service {
        log_queue::start(move |lost| style.lost(lost))?;
    }
    match lines(filter, style, StandardError, Instant::now).try_init() {
        // A second command line in one process (a test) keeps the first subscriber.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The subscriber that writes log lines.
fn lines<W, C>(filter: EnvFilter, style: Style, writer: W, clock: C) -> Dispatch
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
    C: Fn() -> Instant + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    match style {
        Style::Text { coloured } => Dispatch::new(
            builder
                .with_writer(writer)
                .with_ansi(coloured)
                .fmt_fields(format::debug_fn(field).delimited(" "))
                .event_format(Limited::new(style, ForPeople::default(), clock))
                .finish(),
        ),
        Style::Json => {
            let writer = Escaping(writer);
            let lines = Limited::new(style, Format::default().json().flatten_event(true), clock);
            // The fields of a span are formatted by what `json` sets.
            Dispatch::new(builder.with_writer(writer).json().event_format(lines).finish())
        }
    }
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

/// What stands for lines that were not written.
#[derive(Clone)]
struct Sample {
    level: Level,
    target: &'static str,
    code: Option<String>,
    message: String,
}

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
        if permitted { self.format.format_event(context, writer, event) } else { Ok(()) }
    }
}

/// The names of fields that tell kinds of one place apart.
const CODES: [&str; 2] = ["code", "facility"];

struct CodeHash(DefaultHasher);

impl Visit for CodeHash {
    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        if CODES.contains(&field.name()) {
            value.hash(&mut self.0);
        }
    }
}

impl Sample {
    fn of(event: &Event<'_>) -> Sample {
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        let mut sample = Sample { level, target, code: None, message: String::new() };
        event.record(&mut sample);
        sample
    }
}

impl Visit for Sample {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            truncated(&format!("{value:?}"), SAMPLE_BYTES_MAX).clone_into(&mut self.message);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if CODES.contains(&field.name()) {
            self.code = Some(value.to_owned());
        }
    }
}

fn filter(level: &str) -> Result<EnvFilter, Fault> {
    // Audit lines are written at every level, and so are counts of lines that were not.
    let always = format!("{NEVER_LOGGED}=off,{AUDIT}=info,{}=info", log::COUNTS);
    EnvFilter::builder().parse(format!("{level},{always}")).map_err(|error| {
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
#[path = "logging_tests.rs"]
mod tests;
