//! Percent-encoding in URLs, undone.

/// Why a text cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A `%` that is not followed by two hexadecimal digits.
    Digits,
    /// `%00`: a NUL ends a text for Postgres, and separates user from password in an AMQP login.
    Nul,
    /// Not UTF-8 once decoded.
    Text,
}

/// Undoes percent-encoding.
pub fn decode(text: &str) -> Result<String, Malformed> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = rest.next().and_then(|byte| char::from(byte).to_digit(16));
            digit.map(|digit| digit as u8).ok_or(Malformed::Digits)
        };
        let value = digit()? * 16 + digit()?;
        if value == 0 {
            return Err(Malformed::Nul);
        }
        bytes.push(value);
    }
    String::from_utf8(bytes).map_err(|_| Malformed::Text)
}

#[cfg(test)]
#[path = "percent_tests.rs"]
mod tests;
