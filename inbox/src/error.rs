//! Why an inbox cannot begin, or go on. Once it runs, an outage of Postgres or of the broker never
//! ends it.

use std::error::Error;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// A setting that makes no sense.
    #[error("settings: {0}")]
    Settings(String),
    /// Postgres refuses what the inbox needs.
    #[error("{what}: {}", chain(.source))]
    Postgres { what: &'static str, source: tokio_postgres::Error },
    /// Postgres has accepted the connection, and says nothing.
    #[error("{what}: Postgres did not answer in {within:?}")]
    NoAnswer { what: &'static str, within: Duration },
    /// The broker refuses what the inbox needs.
    #[error("{what}: {reason}")]
    Broker { what: String, reason: String },
    /// A defect of this crate.
    #[error("a lane has ended: {0}")]
    Lane(String),
}

impl InboxError {
    pub(crate) fn broker(what: impl Into<String>, reason: impl std::fmt::Display) -> InboxError {
        InboxError::Broker { what: what.into(), reason: reason.to_string() }
    }
}

/// An error with its causes, which many libraries leave out of their `Display`.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
