//! Why one event cannot be published as it is.
//!
//! Each of these is terminal for its event and for that event only: a retry would find the same
//! row. So each becomes the cause of a dead letter, and says what is wrong with which column of
//! which event. Payloads are never quoted: they may hold what must not reach a log.

use crate::base::event::HEADERS_MAX;

/// A row, or a logical message, that is not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// A column that must have a value is NULL or absent.
    #[error("event {event}: column {column} is NULL, and every event needs it")]
    NullColumn {
        /// Event id, or `(unknown)`.
        event: String,
        /// Column.
        column: String,
    },
    /// A value that is not what its type says.
    #[error("event {event}: column {column} does not hold {expected}")]
    BadValue {
        /// Event id, or `(unknown)`.
        event: String,
        /// Column.
        column: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// A template needs a column that is NULL.
    #[error("event {event}: column {column} is NULL, and {template} = {text:?} needs it")]
    NullInTemplate {
        /// Event id.
        event: String,
        /// Column.
        column: String,
        /// Which template: `route.topic` or `route.key`.
        template: &'static str,
        /// The template's text.
        text: String,
    },
    /// A topic that no broker takes.
    #[error(
        "event {event}: {topic:?} is not a topic (1 to 249 of letters, digits, \".\", \"_\" and \
         \"-\"); it comes from route.topic = {text:?}"
    )]
    BadTopic {
        /// Event id.
        event: String,
        /// The topic, cut to what is worth reading.
        topic: String,
        /// The template's text.
        text: String,
    },
    /// The `headers` column is not a JSON object.
    #[error("event {event}: column {column} is not a JSON object: {reason}")]
    HeadersNotObject {
        /// Event id.
        event: String,
        /// Column.
        column: String,
        /// What the parser says.
        reason: String,
    },
    /// Too many headers.
    #[error("event {event}: more than {HEADERS_MAX} headers")]
    TooManyHeaders {
        /// Event id.
        event: String,
    },
    /// The partition column is not a partition.
    #[error("event {event}: column {column} = {value:?} is not a partition (0 to 2147483647)")]
    BadPartition {
        /// Event id.
        event: String,
        /// Column.
        column: String,
        /// What it holds.
        value: String,
    },
    /// A logical message that is not a JSON object.
    #[error("logical message at {lsn}: the content is not a JSON object: {reason}")]
    MessageNotObject {
        /// Where the message stands.
        lsn: String,
        /// What the parser says.
        reason: String,
    },
    /// The payload is not what the format needs.
    #[error("event {event}: format {format} cannot shape it: {reason}")]
    Format {
        /// Event id.
        event: String,
        /// Format.
        format: &'static str,
        /// What is wrong.
        reason: String,
    },
}

impl EventError {
    /// A stable name for dead letters and metrics.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self {
            EventError::NullColumn { .. } => "null-column",
            EventError::BadValue { .. } => "bad-value",
            EventError::NullInTemplate { .. } => "null-in-template",
            EventError::BadTopic { .. } => "bad-topic",
            EventError::HeadersNotObject { .. } => "headers-not-object",
            EventError::TooManyHeaders { .. } => "too-many-headers",
            EventError::BadPartition { .. } => "bad-partition",
            EventError::MessageNotObject { .. } => "message-not-object",
            EventError::Format { .. } => "format",
        }
    }
}
