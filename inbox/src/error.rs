//! Why an inbox cannot begin, or go on. Once it runs, an outage of Postgres or of the broker never
//! ends it.

use std::error::Error;
use std::time::Duration;

use tokio_postgres::error::DbError;

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
    let mut text = text_of(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = text_of(cause);
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// The message alone of an error of Postgres: the detail may quote a row, which no log shows.
fn text_of(error: &(dyn Error + 'static)) -> String {
    let message = |error: &DbError| format!("{}: {}", error.severity(), error.message());
    error.downcast_ref().map_or_else(|| error.to_string(), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[tokio::test]
    #[ignore = "needs PostgreSQL: make test"]
    async fn the_error_of_a_statement_does_not_show_the_row() {
        let client = testing::client().await;
        let made = "CREATE TEMP TABLE seen (id text PRIMARY KEY)";
        client.batch_execute(made).await.unwrap();
        let insert = "INSERT INTO seen VALUES ('canary')";
        client.batch_execute(insert).await.unwrap();
        let error = client.batch_execute(insert).await.unwrap_err();
        let told = r#"db error: ERROR: duplicate key value violates unique constraint "seen_pkey""#;
        assert_eq!(chain(&error), told);
    }
}
