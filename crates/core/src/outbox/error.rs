//! Why one row cannot be published.
//!
//! [`EventError`] is terminal for one event only: a retry would find the same row. So it becomes
//! the cause of a dead letter, and says what is wrong with which column of which event. Payloads
//! are never quoted: they may hold what must not reach a log.

use crate::base::event::{HEADERS_MAX, brief};
use crate::base::text::{REASON_BYTES_MAX, bounded};
use crate::pgoutput::cursor::DecodeError;

/// A row, or a logical message, that is not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct EventError {
    class: &'static str,
    text: String,
}

impl EventError {
    #[cold]
    pub fn new(class: &'static str, text: String) -> EventError {
        EventError { class, text: bounded(text, REASON_BYTES_MAX) }
    }

    #[cold]
    pub fn too_many_headers(event: &str) -> EventError {
        let event = brief(event);
        let text = format!("event {event}: more than {HEADERS_MAX} headers");
        EventError::new("too-many-headers", text)
    }

    /// A stable name for dead letters and metrics.
    pub const fn class(&self) -> &'static str {
        self.class
    }
}

/// Why a row did not become an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The bytes are not a row: the stream cannot be trusted any further.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The row is not an event: a dead letter.
    #[error(transparent)]
    Event(#[from] EventError),
}
