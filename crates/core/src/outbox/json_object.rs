//! Text that must be a JSON object, and why it is none: its type or a place in it, never what stands
//! there. The parser's own message quotes a string of any length.

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
    match first {
        Some(b'{') => Ok(Deserializer::from_slice(json)),
        None => Err(NotAnObject::Is("empty")),
        Some(b'"') => Err(NotAnObject::Is("a string")),
        Some(b'[') => Err(NotAnObject::Is("an array")),
        Some(b't' | b'f') => Err(NotAnObject::Is("a boolean")),
        Some(b'n') => Err(NotAnObject::Is("null")),
        Some(b'-' | b'0'..=b'9') => Err(NotAnObject::Is("a number")),
        Some(_) => Err(NotAnObject::Is("no JSON")),
    }
}

#[cfg(test)]
#[path = "json_object_tests.rs"]
mod tests;
