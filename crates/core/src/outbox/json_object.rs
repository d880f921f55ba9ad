//! Text that must be a JSON object, and why it is none: its type or a place in it, never what stands
//! there. The parser's own message quotes a string of any length.

use serde::de::IgnoredAny;
use serde_json::Deserializer;
use serde_json::de::SliceRead;
use serde_json::error::Category;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotAnObject {
    #[error("it is {0}")]
    Is(&'static str),
    #[error("it is malformed at line {line}, column {column}")]
    Malformed { line: usize, column: usize },
    #[error("it has more than {0} members")]
    TooLong(usize),
    #[error("the name of a member has the character NUL")]
    HasNul,
}

impl NotAnObject {
    pub(super) fn of(error: &serde_json::Error) -> NotAnObject {
        match error.classify() {
            Category::Eof => NotAnObject::Is("not complete"),
            _ => NotAnObject::Malformed { line: error.line(), column: error.column() },
        }
    }
}

/// A parser of text that begins as an object does.
pub(super) fn opened(json: &[u8]) -> Result<Deserializer<SliceRead<'_>>, NotAnObject> {
    let first = json.iter().find(|byte| !byte.is_ascii_whitespace());
    let is = match first {
        Some(b'{') => return Ok(Deserializer::from_slice(json)),
        None => "empty",
        _ if serde_json::from_slice::<IgnoredAny>(json).is_err() => "not JSON",
        Some(b'"') => "a string",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(_) => "a number",
    };
    Err(NotAnObject::Is(is))
}

#[cfg(test)]
#[path = "json_object_tests.rs"]
mod tests;
