//! One line of the log, as text for people or as an object of JSON.

use std::fmt::Debug;

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use crate::clock::unix_now_us;
use crate::error::Fault;
use crate::text::{escaped, escaped_lines, json_shown, truncated};
use crate::time::rfc3339;

/// Target of audit lines, which say who did what.
pub const AUDIT: &str = "audit";
/// The most bytes of a line. A longer line has the beginning of its message only, and its
/// code.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a message that stands for a longer one, or for lines that were not written.
const SAMPLE_BYTES_MAX: usize = 120;
/// The fields that tell apart kinds of lines from one place in the code.
const CODES: [&str; 2] = ["code", "facility"];

/// The style in which log lines are written, and the fault that ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Text { coloured: bool },
    Json,
}

impl Style {
    /// Formats a fault that ends the process, as lines of standard error.
    pub fn format(self, fault: &Fault) -> String {
        let Fault { code, exit, what, place, mend, .. } = fault;
        let text = fault.to_string();
        match (self, text.split_once(": ")) {
            (Style::Json, _) => {
                let mut line = Line::new(self, Level::ERROR, "walrelay", what);
                for (name, value) in [("code", *code), ("where", place), ("help", mend)] {
                    line.add(name, value, &value);
                }
                line.add("exit", *exit as u8, exit);
                line.text()
            }
            (Style::Text { .. }, Some((head, rest))) => {
                format!("{}: {rest}\n", self.painted("1;31", head))
            }
            (Style::Text { .. }, None) => text + "\n",
        }
    }

    /// Formats a panic, whose text has lines of its own.
    pub fn panicked(self, text: &str) -> String {
        match self {
            Style::Json => Line::new(self, Level::ERROR, "walrelay", text).text(),
            Style::Text { .. } => escaped_lines(text) + "\n",
        }
    }

    /// Formats the line with the number of lines that were lost.
    pub(super) fn lost(self, lines: u64) -> String {
        let message = format!("{lines} lines of the log were lost: standard error was not read");
        let mut line = Line::new(self, Level::WARN, "walrelay", &message);
        line.add("code", "log.lost", &"log.lost");
        line.text()
    }

    /// Puts a text in a colour or font, where the style has any.
    fn painted(self, code: &str, text: &str) -> String {
        match self {
            Style::Text { coloured: true } => format!("\x1b[{code}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    style: Style,
    level: Level,
    target: &'static str,
    pub(super) message: String,
    /// The text of the fields, in the style.
    fields: String,
    /// Whether the line takes in a field of this name.
    takes: fn(&str) -> bool,
}

impl Line {
    pub(super) fn new(style: Style, level: Level, target: &'static str, message: &str) -> Line {
        let (message, fields) = (message.to_owned(), String::new());
        Line { style, level, target, message, fields, takes: |_| true }
    }

    fn with(style: Style, event: &Event<'_>, takes: fn(&str) -> bool) -> Line {
        let metadata = event.metadata();
        let mut line = Line { takes, ..Line::new(style, *metadata.level(), metadata.target(), "") };
        event.record(&mut line);
        line
    }

    /// Formats the line of an event, with its end.
    pub(super) fn text_of(style: Style, event: &Event<'_>) -> String {
        let text = Line::with(style, event, |_| true).text();
        if text.len() <= LINE_BYTES_MAX {
            return text;
        }
        let mut line = Line::sample_of(style, event);
        line.message += &format!(" (a line of {} bytes)", text.len());
        line.text()
    }

    /// Formats the codes of an event, without its message.
    pub(super) fn codes_of(style: Style, event: &Event<'_>) -> String {
        Line::with(style, event, |name| CODES.contains(&name)).fields
    }

    /// Makes a line of the codes of an event and the beginning of its message.
    pub(super) fn sample_of(style: Style, event: &Event<'_>) -> Line {
        let mut line = Line::with(style, event, |name| name == "message" || CODES.contains(&name));
        let begin = truncated(&line.message, SAMPLE_BYTES_MAX);
        if begin.len() < line.message.len() {
            line.message = format!("{begin}…");
        }
        line
    }

    fn add(&mut self, name: &str, json: impl Serialize, text: &dyn Debug) {
        let style = self.style;
        self.fields += &match style {
            _ if !(self.takes)(name) => return,
            // Texts and numbers can always be serialized.
            Style::Json => {
                format!(",{name:?}:{}", serde_json::to_string(&json).unwrap_or_default())
            }
            Style::Text { .. } => {
                let value = escaped(&format!("{text:?}"));
                format!(" {}{}{value}", style.painted("3", name), style.painted("2", "="))
            }
        };
    }

    /// Formats the line, with its end.
    pub(super) fn text(&self) -> String {
        let Line { style, level, target, message, fields, .. } = self;
        let timestamp = rfc3339(unix_now_us());
        if *style == Style::Json {
            let message = serde_json::to_string(message).unwrap_or_default();
            return json_shown(&format!(
                r#"{{"timestamp":"{timestamp}","level":"{level}","message":{message}{fields},"target":"{target}"}}"#
            )) + "\n";
        }
        let colour = match *level {
            Level::ERROR => "31",
            Level::WARN => "33",
            Level::INFO => "32",
            Level::DEBUG => "34",
            Level::TRACE => "35",
        };
        let (timestamp, level) =
            (style.painted("2", &timestamp), style.painted(colour, &format!("{level:>5}")));
        // Lines for people do not name the module that wrote them, except for audit lines.
        let audit =
            if *target == AUDIT { style.painted("2", "audit:") + " " } else { String::new() };
        format!("{timestamp} {level} {audit}{}{fields}\n", escaped(message))
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if (self.takes)(field.name()) {
            let text = format!("{value:?}");
            match field.name() {
                "message" => self.message = text,
                name => self.add(name, &text, &format_args!("{text}")),
            }
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), value, &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field.name(), value, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field.name(), value, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field.name(), value, &value);
    }
}
