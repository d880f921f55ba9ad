//! One figure of `/status` on the page: where it stands in the document, and how it is written.
//!
//! Path and kind are attributes of its element, so the script writes a new value the same way
//! (`format.js`).

use maud::{Markup, html};
use serde_json::Value;

use crate::base::figures::{binary_size, duration, grouped};

#[derive(Clone, Copy)]
pub(super) enum FigureKind {
    Count,
    Bytes,
    /// Seconds with one digit, for what is usually short.
    Seconds,
    /// Whole seconds in the units of people, for what is usually long.
    Duration,
    Milliseconds,
    PerSecond,
    Text,
    /// The two words for true and false.
    Either(&'static str, &'static str),
}

use FigureKind::{Bytes, Count, Duration, Either, Milliseconds, PerSecond, Seconds, Text};

pub(super) struct Figure {
    /// A JSON Pointer into `/status`.
    path: &'static str,
    kind: FigureKind,
    /// The text where the value is `null` or missing.
    absent: &'static str,
}

impl Figure {
    pub(super) const fn new(path: &'static str, kind: FigureKind) -> Figure {
        Figure { path, kind, absent: "not known" }
    }

    pub(super) const fn or(self, absent: &'static str) -> Figure {
        Figure { absent, ..self }
    }

    pub(super) fn markup(&self, status: &Value) -> Markup {
        let Figure { path, kind, absent } = self;
        let value = status.pointer(path).filter(|value| !value.is_null());
        let text = value.map_or_else(|| (*absent).to_owned(), |value| kind.text(value));
        html! {
            span data-path=(path) data-kind=(kind.name()) data-absent=(absent)
                class=[value.is_none().then_some("absent")] { (text) }
        }
    }
}

impl FigureKind {
    fn name(self) -> String {
        match self {
            Count => "count".into(),
            Bytes => "bytes".into(),
            Seconds => "seconds".into(),
            Duration => "duration".into(),
            Milliseconds => "milliseconds".into(),
            PerSecond => "per-second".into(),
            Text => "text".into(),
            Either(yes, no) => format!("{yes}/{no}"),
        }
    }

    fn text(self, value: &Value) -> String {
        let number = value.as_f64().unwrap_or_default();
        // Saturates: a negative number is 0.
        let whole = number as u64;
        match self {
            Count => grouped(whole, '\u{202f}'),
            Bytes => binary_size(whole),
            Seconds => format!("{number:.1} s"),
            Duration => duration(whole),
            Milliseconds if number >= 10_000.0 => format!("{} s", short(number / 1e3)),
            Milliseconds => format!("{} ms", short(number)),
            PerSecond => format!("{}/s", short(number)),
            Text => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            Either(yes, no) => if value == &Value::Bool(true) { yes } else { no }.to_owned(),
        }
    }
}

/// Three digits at least where there are as many: `1.25`, `12.5`, `1 250`.
fn short(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        size if size < 10.0 => format!("{number:.2}"),
        size if size < 100.0 => format!("{number:.1}"),
        _ => grouped(number.round() as u64, '\u{202f}'),
    }
}
