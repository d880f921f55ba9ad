//! Failures of the harness, told so that the reader knows what to do next.

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

pub type Result<T, E = HarnessError> = std::result::Result<T, E>;

/// Why a service could not be started, reached or stopped.
#[derive(Debug)]
pub enum HarnessError {
    /// Something that `scripts/setup` installs is not there.
    Missing {
        /// What is missing, e.g. `Kafka jars`.
        what: String,
        place: PathBuf,
    },
    /// A service ended, or did not answer in time, while it was being started.
    Start {
        service: &'static str,
        reason: String,
        log_tail: String,
    },
    Late {
        what: String,
        limit: Duration,
    },
    Tool {
        /// The tool and what it was asked.
        tool: String,
        output: String,
    },
    Io {
        doing: String,
        source: io::Error,
    },
    Other(String),
}

impl HarnessError {
    /// For `map_err`: says what was being done when the system refused.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> HarnessError {
        let doing = doing.into();
        move |source| HarnessError::Io { doing, source }
    }

    /// Two services wanted one port; another port mends it.
    pub(crate) fn is_port_clash(&self) -> bool {
        let HarnessError::Start { log_tail, .. } = self else { return false };
        let tail = log_tail.to_lowercase();
        ["address already in use", "eaddrinuse", "address in use"].iter().any(|s| tail.contains(s))
    }
}

impl fmt::Display for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HarnessError::Missing { what, place } => {
                write!(f, "{what} missing in {}: run scripts/setup", place.display())
            }
            HarnessError::Start { service, reason, log_tail } => {
                write!(f, "{service} did not start: {reason}")?;
                if log_tail.is_empty() {
                    write!(f, " (it wrote nothing)")
                } else {
                    write!(f, "; its last lines:\n{log_tail}")
                }
            }
            HarnessError::Late { what, limit } => {
                write!(f, "{what}: not within {} ms", limit.as_millis())
            }
            HarnessError::Tool { tool, output } => write!(f, "{tool} failed: {}", output.trim()),
            HarnessError::Io { doing, source } => write!(f, "{doing}: {source}"),
            HarnessError::Other(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for HarnessError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            HarnessError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
