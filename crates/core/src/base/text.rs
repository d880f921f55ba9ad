//! Escapes texts from outside (rows, brokers, servers, files, the environment) before they reach a
//! log, a fault or a table, so that they cannot move the cursor of a terminal, change the direction
//! of a line, or forge a line of the relay.

use std::fmt::{self, Write};

pub use walrelay_dead_letter::text::truncated;

/// Bytes as text: control characters and what is not UTF-8 are escaped.
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text += &escaped(chunk.valid());
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").ok();
        }
    }
    text
}

/// Text with its control characters escaped.
pub fn escaped(text: &str) -> String {
    replace_hidden(text, |c| c.escape_default().to_string())
}

/// Like [`escaped`], but keeps line ends.
pub fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// A text as one quoted word of a shell, without control characters.
pub fn quoted(text: &str) -> String {
    format!("'{}'", escaped(text).replace('\'', r"'\''"))
}

/// Most bytes of a reason: why an event was given up, or what a broker has said.
pub const REASON_BYTES_MAX: usize = 2000;

/// A text that rows, brokers and files have a part in, cut where it is longer than anybody reads.
pub fn bounded(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    format!("{}… ({} bytes)", truncated(&text, bytes_max), text.len())
}

/// The beginning of an escaped text, without memory of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShortText {
    bytes: [u8; ShortText::BYTES_MAX],
    length: usize,
}

impl ShortText {
    const BYTES_MAX: usize = 120;

    pub fn new(text: &str) -> ShortText {
        let text = escaped(text);
        let text = truncated(&text, ShortText::BYTES_MAX);
        let mut bytes = [0; ShortText::BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        ShortText { bytes, length: text.len() }
    }
}

impl fmt::Display for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default())
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Escapes JSON: what [`escaped`] escapes occurs only in JSON strings, so it is written as `\uXXXX`.
pub fn json_shown(json: &str) -> String {
    replace_hidden(json, |c| format!("\\u{:04x}", u32::from(c)))
}

/// Like [`json_shown`], but keeps line ends: for JSON lines and TOML.
pub fn json_lines_shown(text: &str) -> String {
    text.split('\n').map(json_shown).collect::<Vec<_>>().join("\n")
}

/// The candidate that is most similar to `name`, if any is similar.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase().replace('-', "_");
    let distance = |text: &str| strsim::damerau_levenshtein(&folded, &text.to_lowercase());
    candidates
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, near)| {
            let (short, long) = (folded.len().min(near.len()), folded.len().max(near.len()));
            *distance <= 1 + short / 3 && 2 * *distance < long
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn replace_hidden(text: &str, escape: impl Fn(char) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            out += &escape(c);
        } else {
            out.push(c);
        }
    }
    out
}

/// Control characters (C0, DEL, C1), marks that end a line or a paragraph, and marks that turn the
/// direction of the text that follows.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
