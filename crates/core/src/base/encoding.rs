//! Bytes written as text: hexadecimal and percent-encoding.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// ASCII characters that RFC 3986 does not allow in a path.
#[rustfmt::skip]
const NOT_IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'[').add(b'\\')
    .add(b']').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| hex_digits(*byte)).map(char::from).collect()
}

#[inline]
pub fn hex_digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 0xF].map(|digit| b"0123456789abcdef"[usize::from(digit)])
}

/// Appends the bytes that `hex` stands for, or returns `None` if it is not hexadecimal.
pub fn push_unhexed(hex: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (pairs, []) = hex.as_chunks::<2>() else { return None };
    out.reserve(pairs.len());
    for [high, low] in pairs {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        out.push((digit(*high)? << 4 | digit(*low)?) as u8);
    }
    Some(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PercentError {
    /// A `%` is not followed by two hexadecimal digits.
    Digits,
    /// NUL ends a text in Postgres' protocol, and separates user and password in AMQP's.
    Nul,
    NotUtf8,
}

/// The text as a part of the path of a URI.
pub fn path_encoded(text: &str) -> String {
    utf8_percent_encode(text, NOT_IN_PATHS).to_string()
}

pub fn percent_decode(text: &str) -> Result<String, PercentError> {
    let has_digits = |after: &str| {
        after.as_bytes().first_chunk::<2>().is_some_and(|it| it.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(has_digits) {
        return Err(PercentError::Digits);
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| PercentError::NotUtf8)?;
    if decoded.contains('\0') { Err(PercentError::Nul) } else { Ok(decoded.into_owned()) }
}

#[cfg(test)]
#[path = "encoding_tests.rs"]
mod tests;
