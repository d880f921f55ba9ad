//! Failures of the harness itself, never a verdict about the relay.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub type Result<T, E = HarnessError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    #[error("{what} missing in {}: run scripts/setup", place.display())]
    Missing { what: String, place: PathBuf },
    /// A service ended, or did not answer in time, while it was being started.
    #[error("{service} did not start: {reason}; its last lines:\n{log_tail}")]
    Start { service: &'static str, reason: String, log_tail: String },
    #[error("{what}: not within {} ms", limit.as_millis())]
    Late { what: String, limit: Duration },
    #[error("{tool} failed: {}", output.trim())]
    Tool { tool: String, output: String },
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
    /// `tokio_postgres` itself says only "db error".
    #[error("postgres: {}", .0.as_db_error().map_or_else(|| .0.to_string(), ToString::to_string))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("kafka: {0}")]
    Kafka(#[from] rdkafka::error::KafkaError),
    /// RabbitMQ closed the channel or the connection with this reply code.
    #[error("rabbitmq: {code} {text}")]
    Amqp { code: u16, text: String },
    #[error(transparent)]
    Proc(#[from] walrelay_measure::process::ProcError),
    #[error("{0}")]
    Other(String),
}

/// A failure that is only told.
pub fn other(error: impl std::fmt::Display) -> HarnessError {
    HarnessError::Other(error.to_string())
}

impl HarnessError {
    /// For `map_err`: says what was being done when the system refused.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> HarnessError {
        let doing = doing.into();
        move |source| HarnessError::Io { doing, source }
    }

    /// The service could not bind its port: it may be started once more with another.
    pub(crate) fn is_port_clash(&self) -> bool {
        let HarnessError::Start { log_tail, .. } = self else { return false };
        let tail = log_tail.to_lowercase();
        ["address already in use", "eaddrinuse", "address in use"].iter().any(|s| tail.contains(s))
    }
}
