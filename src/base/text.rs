//! Texts from outside as they are shown: whoever wrote them, they cannot move a terminal's cursor, turn
//! the direction of a line, or look like a line of ours.
//!
//! Every text that comes from a row, a broker, a server, a file or the environment passes through here
//! on its way to a log, a fault or a table.

use std::fmt::Write;

/// Bytes as text: control characters and what is not UTF-8 are escaped.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        push_escaped(&mut text, chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            write!(text, "\\x{byte:02x}").ok();
        }
    }
    text
}

/// Text with its control characters escaped.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_escaped(&mut out, text);
    out
}

/// The same for a text of several lines: their ends stay.
#[must_use]
pub fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// A text as one word of a shell: what it holds is not obeyed, and moves no cursor.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("'{}'", escaped(text).replace('\'', r"'\''"))
}

/// JSON that can be shown: what [`escaped`] escapes stands in texts only, and is written as JSON
/// writes it.
#[must_use]
pub fn json_shown(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) {
            // Writing to a string does not fail.
            write!(out, "\\u{:04x}", u32::from(c)).ok();
        } else {
            out.push(c);
        }
    }
    out
}

/// The same for text in which a line ends where one ends on the screen: JSON lines, TOML.
#[must_use]
pub fn json_lines_shown(text: &str) -> String {
    text.split('\n').map(json_shown).collect::<Vec<_>>().join("\n")
}

fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        if is_hidden(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
}

/// Control characters (C0, DEL, C1), marks that end a line or a paragraph, and marks that turn the
/// direction of the text that follows.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_cursor_gets_through() {
        assert_eq!(shown("order-7 ü".as_bytes()), "order-7 ü");
        assert_eq!(shown(b"a\x1b[2Jb\r\n"), "a\\u{1b}[2Jb\\r\\n");
        assert_eq!(shown(&[b'k', 0xff, 0xfe, 0]), "k\\xff\\xfe\\u{0}");
        assert_eq!(escaped("a\u{202e}b\u{9b}"), "a\\u{202e}b\\u{9b}");
        assert_eq!(escaped("a\u{2028}b\u{2029}\x7f"), "a\\u{2028}b\\u{2029}\\u{7f}");
        assert_eq!(escaped(&escaped("a\x1b")), "a\\u{1b}", "it may be done twice");
    }

    #[test]
    fn lines_end_where_they_ended_and_nothing_else_gets_through() {
        assert_eq!(escaped_lines("a\x1b[2J\r\nb\n"), "a\\u{1b}[2J\\r\nb\n");
        assert_eq!(json_lines_shown("{\"a\":\"\u{9b}\"}\n{}\n"), "{\"a\":\"\\u009b\"}\n{}\n");
    }

    #[test]
    fn a_quoted_text_is_one_word() {
        assert_eq!(quoted("order-7"), "'order-7'");
        assert_eq!(quoted("a'b $(c)\n"), r"'a'\''b $(c)\n'");
    }

    #[test]
    fn json_that_is_shown_means_the_same() {
        let text = "ü\u{9b}2J\u{202e}\u{7f}\n";
        let shown = json_shown(&serde_json::to_string(text).unwrap());
        assert_eq!(shown, r#""ü\u009b2J\u202e\u007f\n""#);
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }
}
