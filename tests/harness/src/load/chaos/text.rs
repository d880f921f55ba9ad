//! Random text that hurts careless code, and the escapes it needs on its way.

use crate::kit::Rng;

/// Quotes, escapes, line ends, a NUL look-alike, two-, three- and four-byte characters.
const NASTY: [char; 16] = [
    '"', '\\', '\'', '\n', '\r', '\t', '{', '}', '\u{1}', '\u{7f}', 'ü', 'ß', '€', '日', '😀',
    '\u{2028}',
];

/// Text of `chars` characters, one in twelve of them nasty; never NUL, which jsonb refuses.
pub(super) fn random(rng: &mut Rng, chars: u64) -> String {
    let mut text = String::new();
    let mut bits = 0;
    for at in 0..chars {
        if at % 8 == 0 {
            bits = rng.next_u64();
        }
        let byte = (bits & 0xFF) as u8;
        bits >>= 8;
        text.push(match byte {
            0..=21 => NASTY[usize::from(byte) % NASTY.len()],
            letter => char::from(b'a' + letter % 26),
        });
    }
    text
}

pub(super) fn push_json(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Appends one field of COPY's text format.
pub(super) fn push_copy(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_repeatable_nasty_and_of_its_length() {
        let text = random(&mut Rng::new(5), 2_000);
        assert_eq!(text, random(&mut Rng::new(5), 2_000));
        assert_eq!(text.chars().count(), 2_000);
        assert!(NASTY.iter().all(|c| text.contains(*c)));
    }
}
