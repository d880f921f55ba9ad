//! How a line looks that is not written by the log's own format: a fault that ends the process, a
//! panic, and what stands for lines that were not written.

use std::fmt;
use std::io::IsTerminal as _;

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use super::args::LogFormat;
use super::output::is_coloured;
use super::repeats::Suppressed;
use crate::base::clock::unix_now_us;
use crate::base::error::Fault;
use crate::base::text::{escaped, escaped_lines, json_lines_shown, truncated};
use crate::base::time::rfc3339;

/// Most of a message that stands for the lines that were not written.
const SAMPLE_BYTES_MAX: usize = 120;
/// The names of fields that tell kinds of one place apart.
pub(super) const CODES: [&str; 2] = ["code", "facility"];

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
    /// The format that was asked for; without one, that of a service or of a command that people type.
    pub(crate) fn of(is_service: bool, format: Option<LogFormat>) -> Style {
        let errors = std::io::stderr();
        let is_json = match format {
            Some(format) => format == LogFormat::Json,
            None => is_service && !errors.is_terminal(),
        };
        if is_json { Style::Json } else { Style::Text { coloured: is_coloured(&errors) } }
    }

    /// A fault that ends the process, as lines of standard error.
    pub(crate) fn format(self, fault: &Fault) -> String {
        let text = fault.to_string();
        match (self, text.split_once(": ")) {
            (Style::Json, _) => {
                let Fault { code, exit, what, place, mend, .. } = fault;
                json_line(what, Some(FaultFields { code, place, help: mend, exit: *exit as u8 }))
            }
            (Style::Text { coloured: true }, Some((head, rest))) => {
                format!("\x1b[1;31m{head}\x1b[0m: {rest}\n")
            }
            (Style::Text { .. }, _) => text + "\n",
        }
    }

    /// A line in place of those that were not written.
    pub(super) fn more(self, suppressed: &Suppressed<Sample>) -> String {
        let Suppressed { shown: Sample { level, target, code, message }, lines, within } =
            suppressed;
        let message = format!("… {lines} more in {} s: {message}", within.as_secs().max(1));
        self.in_place(level.as_str(), target, code.as_deref(), &message)
    }

    /// A line in place of one whose values have so many bytes.
    pub(super) fn cut(self, line: Sample, bytes: usize) -> String {
        let Sample { level, target, code, message } = line;
        let message = format!("{message}… (a line of {bytes} bytes)");
        self.in_place(level.as_str(), target, code.as_deref(), &message)
    }

    /// A line in place of those that nobody has read.
    pub(super) fn lost(self, lines: u64) -> String {
        let message = format!("{lines} lines of the log were lost: standard error was not read");
        self.in_place("WARN", "walrelay", Some("log.lost"), &message)
    }

    /// A line of the log in place of others.
    fn in_place(self, level: &str, target: &str, code: Option<&str>, message: &str) -> String {
        let timestamp = rfc3339(unix_now_us());
        match self {
            Style::Json => Line { timestamp, level, message, fault: None, code, target }.json(),
            Style::Text { .. } => {
                let code = code.map(|code| format!(" code={code:?}")).unwrap_or_default();
                format!("{timestamp} {level:>5} {}{}\n", escaped(message), escaped(&code))
            }
        }
    }

    pub(super) fn panicked(self, text: &str) -> String {
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
    help: &'a str,
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

/// What stands for lines that were not written.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) level: Level,
    pub(super) target: &'static str,
    pub(super) code: Option<String>,
    pub(super) message: String,
}

impl Sample {
    pub(super) fn of(event: &Event<'_>) -> Sample {
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
