//! Texts of the log as they are shown: whoever wrote them, they cannot move a terminal's cursor.

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

fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_control() || is_direction(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
}

/// Marks that turn the direction of the text that follows.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
    }
}
