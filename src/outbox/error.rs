//! Why a table, or one row of it, cannot be published.
//!
//! [`ExtractError`] concerns a table and stops the relay. [`EventError`] is terminal for one event
//! only: a retry would find the same row. So it becomes the cause of a dead letter, and says what is
//! wrong with which column of which event. Payloads are never quoted: they may hold what must not
//! reach a log.

use std::fmt;

use crate::base::error::Fault;
use crate::base::event::HEADERS_MAX;
use crate::pgoutput::cursor::DecodeError;

/// A row, or a logical message, that is not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct EventError {
    class: &'static str,
    text: String,
}

impl EventError {
    /// `class` is the stable name for dead letters and metrics.
    #[cold]
    pub(crate) fn new(class: &'static str, text: String) -> EventError {
        EventError { class, text }
    }

    /// An error in one column of the event whose id is `event`.
    #[cold]
    pub(super) fn in_column(
        class: &'static str,
        event: &str,
        column: &str,
        problem: impl fmt::Display,
    ) -> EventError {
        EventError::new(class, format!("event {event}: column {column} {problem}"))
    }

    /// The event has more headers than there is room for.
    #[cold]
    pub(crate) fn too_many_headers(event: &str) -> EventError {
        EventError::new(
            "too-many-headers",
            format!("event {event}: more than {HEADERS_MAX} headers"),
        )
    }

    /// A stable name for dead letters and metrics.
    #[must_use]
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

/// Why rows of a table cannot become events at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtractError {
    /// The table lacks a column.
    MissingColumn(Fault),
    /// The binary form of a column is not read. The relay opens the stream in text mode by itself.
    NeedsText {
        /// The column.
        column: String,
        /// What to say where the relay may not do so.
        fault: Fault,
    },
    /// The route uses too many columns, or sets too many headers.
    RouteTooLarge(Fault),
}

impl From<ExtractError> for Fault {
    fn from(error: ExtractError) -> Fault {
        match error {
            ExtractError::MissingColumn(fault)
            | ExtractError::NeedsText { fault, .. }
            | ExtractError::RouteTooLarge(fault) => fault,
        }
    }
}
