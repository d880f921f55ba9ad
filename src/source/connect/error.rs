//! What can go wrong before the first event, typed, and what to do about it.
//!
//! SQLSTATEs decide, never prose: server messages are translated where `lc_messages` says so. Where
//! one SQLSTATE means several things, the name of the server's C function (never translated) tells them apart.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::time::Duration;

use pgwire_replication::PgWireError;
use pgwire_replication::protocol::messages::ErrorFields;

use crate::base::tls::TlsError;
use crate::source::require_auth::Unanswered;
use crate::source::settings::{Host, TargetSessionAttrs};

/// What the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Try again with backoff.
    Retry,
    /// The slot is in use: somebody else streams from it, or our former connection still dies.
    Busy,
    /// The server is starting, stopping, or threw us out: detach and come back.
    Stopping,
    /// Trying again would only repeat it.
    Fatal,
}

/// An error as the server tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerError {
    /// Five characters.
    pub sqlstate: String,
    /// The message, possibly translated.
    pub message: String,
    /// More of it; may be empty.
    pub detail: String,
    /// The server's advice; may be empty.
    pub hint: String,
    /// The C function that raised it.
    pub routine: String,
    /// The functions and triggers in which it was raised; mostly empty.
    pub context: String,
}

impl ServerError {
    /// From the payload of an ErrorResponse.
    #[must_use]
    pub fn parse(payload: &[u8]) -> ServerError {
        let fields = ErrorFields::parse(payload);
        ServerError {
            sqlstate: fields.code.unwrap_or_default(),
            message: fields.message.unwrap_or_default(),
            detail: fields.detail.unwrap_or_default(),
            hint: fields.hint.unwrap_or_default(),
            routine: fields.routine.unwrap_or_default(),
            context: fields.where_.unwrap_or_default(),
        }
    }

    /// The publication is not there, or was not when the WAL that is decoded was written.
    #[must_use]
    pub fn is_missing_publication(&self) -> bool {
        self.sqlstate == "42704" && self.routine.contains("ublication")
    }

    /// What the caller does next.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.sqlstate.as_str() {
            "55006" => Kind::Busy,
            // Admin shutdown, crash shutdown, cannot connect now.
            "57P01" | "57P02" | "57P03" => Kind::Stopping,
            // The database was dropped; a WAL file that the slot needs is gone.
            "57P04" | "58P01" => Kind::Fatal,
            code => match code.get(..2) {
                // Connection, rollback, resources, operator, system, internal: all may pass.
                Some("08" | "40" | "53" | "57" | "58" | "XX") => Kind::Retry,
                // 28 login, 3D database, 42 missing or forbidden, 55 wrong state, and whatever is new.
                _ => Kind::Fatal,
            },
        }
    }
}

impl From<&tokio_postgres::error::DbError> for ServerError {
    fn from(error: &tokio_postgres::error::DbError) -> ServerError {
        ServerError {
            sqlstate: error.code().code().to_owned(),
            message: error.message().to_owned(),
            detail: error.detail().unwrap_or_default().to_owned(),
            hint: error.hint().unwrap_or_default().to_owned(),
            routine: error.routine().unwrap_or_default().to_owned(),
            context: error.where_().unwrap_or_default().to_owned(),
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.sqlstate)?;
        if !self.detail.is_empty() {
            write!(f, "; {}", self.detail)?;
        }
        Ok(())
    }
}

/// Why there is no connection; `at` is `host:port` or the socket file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("{at}: the host name cannot be resolved: {why}")]
    Resolve {
        /// Which server.
        at: String,
        /// The resolver's reason.
        why: String,
    },
    /// The network or the server's end of it.
    #[error("{at}: {why}")]
    Io {
        /// Which server.
        at: String,
        /// The system's reason.
        why: String,
    },
    /// No login within `connect_timeout`.
    #[error("{at}: no connection within {} s", after.as_secs_f32())]
    Timeout {
        /// Which server.
        at: String,
        /// The deadline.
        after: Duration,
    },
    /// The TLS settings are unusable.
    #[error(transparent)]
    TlsSettings(#[from] TlsError),
    /// The server's certificate is not trusted, or the handshake failed otherwise.
    #[error("{at}: TLS: {why}")]
    Tls {
        /// Which server.
        at: String,
        /// rustls' reason.
        why: String,
        /// The certificate was the reason.
        untrusted: bool,
    },
    /// TLS is demanded and the server has none.
    #[error("{at}: the server does not support TLS, but sslmode demands it")]
    NoTls {
        /// Which server.
        at: String,
    },
    /// The server wants a password and there is none.
    #[error("{at}: the server asks for a password, and none was given")]
    NoPassword {
        /// Which server.
        at: String,
    },
    /// The server asks for what is not given over such a link, or not at all.
    #[error("{at}: the server asks for {}{}", refused.asked, if refused.in_clear { ", over a link that is not encrypted" } else { ", which require_auth does not allow" })]
    Unanswered {
        /// Which server.
        at: String,
        /// What it asks for.
        refused: Unanswered,
    },
    /// The server wants, or does, something in the login that we do not accept.
    #[error("{at}: login: {why}")]
    Login {
        /// Which server.
        at: String,
        /// What.
        why: String,
    },
    /// The server said no.
    #[error("{at}: {error}")]
    Server {
        /// Which server.
        at: String,
        /// What it said.
        error: Box<ServerError>,
    },
    /// What came is not the Postgres protocol, or out of order.
    #[error("{at}: protocol: {why}")]
    Protocol {
        /// Which server.
        at: String,
        /// What was wrong.
        why: String,
    },
    /// The server is not of the wanted sort.
    #[error("{at}: the server does not satisfy target_session_attrs={}", wanted_text(*wanted))]
    Unfit {
        /// Which server.
        at: String,
        /// What was asked for.
        wanted: TargetSessionAttrs,
    },
    /// Several servers were tried.
    #[error("none of the servers would do: {}", joined(.0))]
    All(Vec<ConnectError>),
}

impl ConnectError {
    /// What the caller does next.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            ConnectError::Resolve { .. }
            | ConnectError::Io { .. }
            | ConnectError::Timeout { .. }
            | ConnectError::Protocol { .. }
            | ConnectError::Unfit { .. } => Kind::Retry,
            ConnectError::TlsSettings(_)
            | ConnectError::Tls { .. }
            | ConnectError::NoTls { .. }
            | ConnectError::NoPassword { .. }
            | ConnectError::Unanswered { .. }
            | ConnectError::Login { .. } => Kind::Fatal,
            ConnectError::Server { error, .. } => error.kind(),
            // A fatal one ends the search, so these are all of the passing sort.
            ConnectError::All(each) => {
                let any = |kind| each.iter().any(|error| error.kind() == kind);
                if any(Kind::Stopping) {
                    // The one that would do is shutting down, whatever is wrong with the others.
                    Kind::Stopping
                } else if any(Kind::Busy) {
                    Kind::Busy
                } else {
                    Kind::Retry
                }
            }
        }
    }

    /// A server that answered was not of the wanted sort; it may become so by a promotion.
    #[must_use]
    pub fn is_unfit(&self) -> bool {
        match self {
            ConnectError::Unfit { .. } => true,
            ConnectError::All(each) => each.iter().any(ConnectError::is_unfit),
            _ => false,
        }
    }

    /// The server's code, when it was the server that refused.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            ConnectError::Server { error, .. } => Some(&error.sqlstate),
            _ => None,
        }
    }

    /// An SQL connection does not answer within `after`.
    #[must_use]
    pub fn late(server: &Host, after: Duration) -> ConnectError {
        ConnectError::Timeout { at: format!("{}:{}", server.name, server.port), after }
    }

    /// A query on an SQL connection failed.
    #[must_use]
    pub fn of_query(server: &Host, error: &tokio_postgres::Error) -> ConnectError {
        ConnectError::sql(&format!("{}:{}", server.name, server.port), error)
    }

    /// From an ErrorResponse.
    pub(in crate::source) fn server(at: &str, payload: &[u8]) -> ConnectError {
        ConnectError::Server { at: at.to_owned(), error: Box::new(ServerError::parse(payload)) }
    }

    pub(in crate::source) fn protocol(at: &str, why: impl Into<String>) -> ConnectError {
        ConnectError::Protocol { at: at.to_owned(), why: why.into() }
    }

    pub(in crate::source) fn login(at: &str, why: impl Into<String>) -> ConnectError {
        ConnectError::Login { at: at.to_owned(), why: why.into() }
    }

    pub(in crate::source) fn unanswered(at: &str, refused: Unanswered) -> ConnectError {
        ConnectError::Unanswered { at: at.to_owned(), refused }
    }

    /// A TLS failure arrives wrapped into an I/O error, some only with the first read after the handshake. So
    /// does our own refusal to answer.
    pub(in crate::source) fn io(at: &str, error: &io::Error) -> ConnectError {
        if let Some(refused) = error.get_ref().and_then(|inner| inner.downcast_ref::<Unanswered>())
        {
            return ConnectError::unanswered(at, *refused);
        }
        let at = at.to_owned();
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(tls) => ConnectError::Tls {
                at,
                why: tls.to_string(),
                untrusted: matches!(tls, rustls::Error::InvalidCertificate(_)),
            },
            None => ConnectError::Io { at, why: error.to_string() },
        }
    }

    pub(in crate::source) fn wire(at: &str, error: &PgWireError) -> ConnectError {
        match error {
            PgWireError::Io(error) => ConnectError::io(at, error),
            PgWireError::Auth(why) => ConnectError::login(at, why),
            other => ConnectError::protocol(at, other.to_string()),
        }
    }

    pub(in crate::source) fn sql(at: &str, error: &tokio_postgres::Error) -> ConnectError {
        if let Some(error) = error.as_db_error() {
            return ConnectError::Server { at: at.to_owned(), error: Box::new(error.into()) };
        }
        match error.source() {
            Some(source) => match source.downcast_ref::<io::Error>() {
                Some(error) => ConnectError::io(at, error),
                // The library has no type for it.
                None if source.to_string() == "password missing" => {
                    ConnectError::NoPassword { at: at.to_owned() }
                }
                None => ConnectError::login(at, format!("{error}: {source}")),
            },
            None if error.is_closed() => {
                ConnectError::Io { at: at.to_owned(), why: error.to_string() }
            }
            None => ConnectError::protocol(at, error.to_string()),
        }
    }

    /// True when `sslmode=prefer` tries again without TLS, as libpq does.
    pub(super) fn is_worth_plain(&self) -> bool {
        match self {
            ConnectError::Tls { .. } => true,
            ConnectError::Server { error, .. } => error.sqlstate == "28000",
            _ => false,
        }
    }
}

fn joined(errors: &[ConnectError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The word of the connection string.
pub(super) fn wanted_text(wanted: TargetSessionAttrs) -> &'static str {
    match wanted {
        TargetSessionAttrs::Any => "any",
        TargetSessionAttrs::ReadWrite => "read-write",
        TargetSessionAttrs::ReadOnly => "read-only",
        TargetSessionAttrs::Primary => "primary",
        TargetSessionAttrs::Standby => "standby",
        TargetSessionAttrs::PreferStandby => "prefer-standby",
    }
}
