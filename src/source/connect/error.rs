//! What can go wrong before the first event, and what the caller does next.
//!
//! SQLSTATEs decide, never prose: server messages are translated where `lc_messages` says so. Where
//! one SQLSTATE means several things, the name of the server's C function (never translated) tells
//! them apart.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::time::Duration;

use pgwire_replication::PgWireError;
use pgwire_replication::protocol::messages::ErrorFields;
use tokio_postgres::error::DbError;

use crate::base::tls::TlsError;
use crate::source::require_auth::RefusedAuth;
use crate::source::settings::TargetSessionAttrs;

/// What the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectErrorKind {
    /// Try again with backoff.
    Retry,
    /// The slot is in use: somebody else streams from it, or our former connection still dies.
    Busy,
    /// The server is starting, stopping, or threw us out: detach and come back.
    Stopping,
    /// Trying again would only repeat it.
    Fatal,
}

use ConnectErrorKind::{Busy, Fatal, Retry, Stopping};

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
    /// From the payload of an ErrorResponse or a NoticeResponse.
    pub(crate) fn parse(payload: &[u8]) -> ServerError {
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
    pub(crate) fn is_missing_publication(&self) -> bool {
        self.sqlstate == "42704" && self.routine.contains("ublication")
    }

    /// The warning by which Postgres says, from 18 on, that the stream goes on without the
    /// publication.
    pub(crate) fn is_skipped_publication(&self) -> bool {
        self.sqlstate == "55000" || self.routine == "LoadPublications"
    }

    /// What the caller does next.
    #[must_use]
    pub fn kind(&self) -> ConnectErrorKind {
        match self.sqlstate.as_str() {
            "55006" => Busy,
            // Admin shutdown, crash shutdown, cannot connect now.
            "57P01" | "57P02" | "57P03" => Stopping,
            // The database was dropped; a WAL file that the slot needs is gone.
            "57P04" | "58P01" => Fatal,
            code => match code.get(..2) {
                // Connection, rollback, resources, operator, system, internal: all may pass.
                Some("08" | "40" | "53" | "57" | "58" | "XX") => Retry,
                // 28 login, 3D database, 42 missing or forbidden, 55 wrong state, and whatever is new.
                _ => Fatal,
            },
        }
    }
}

impl From<&DbError> for ServerError {
    fn from(error: &DbError) -> ServerError {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        ServerError {
            sqlstate: error.code().code().to_owned(),
            message: error.message().to_owned(),
            detail: text(error.detail()),
            hint: text(error.hint()),
            routine: text(error.routine()),
            context: text(error.where_()),
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

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError {
    /// `host:port` or the socket file; empty where it is not about one server.
    pub at: String,
    /// What went wrong there.
    pub cause: ConnectCause,
}

/// What went wrong with a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectCause {
    /// The name has no address.
    #[error("the host name cannot be resolved: {0}")]
    Resolve(String),
    /// The network or the server's end of it.
    #[error("{0}")]
    Io(String),
    /// No login within `connect_timeout`, or no answer in time.
    #[error("no connection within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The TLS settings are unusable.
    #[error(transparent)]
    TlsSettings(#[from] TlsError),
    /// The server's certificate is not trusted.
    #[error("TLS: {0}")]
    Untrusted(String),
    /// The handshake failed otherwise.
    #[error("TLS: {0}")]
    Tls(String),
    /// TLS is demanded and the server has none.
    #[error("the server does not support TLS, but sslmode demands it")]
    NoTls,
    /// The server wants a password and there is none.
    #[error("the server asks for a password, and none was given")]
    NoPassword,
    /// The server asks for what is not given over such a link, or not at all.
    #[error(transparent)]
    Refused(#[from] RefusedAuth),
    /// The server wants, or does, something in the login that we do not accept.
    #[error("login: {0}")]
    Login(String),
    /// The server said no.
    #[error("{0}")]
    Server(Box<ServerError>),
    /// What came is not the Postgres protocol, or out of order.
    #[error("protocol: {0}")]
    Protocol(String),
    /// The server has another role than `target_session_attrs` wants.
    #[error("the server does not satisfy target_session_attrs={}", .0.word())]
    WrongRole(TargetSessionAttrs),
    /// Several servers were tried.
    #[error("none of the servers would do: {}", joined(.0))]
    All(Vec<ConnectError>),
}

fn joined(errors: &[ConnectError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at.as_str() {
            "" => self.cause.fmt(f),
            at => write!(f, "{at}: {}", self.cause),
        }
    }
}

impl std::error::Error for ConnectError {}

impl ConnectError {
    pub(crate) fn new(at: impl Into<String>, cause: ConnectCause) -> ConnectError {
        ConnectError { at: at.into(), cause }
    }

    /// What the caller does next.
    #[must_use]
    pub fn kind(&self) -> ConnectErrorKind {
        match &self.cause {
            ConnectCause::Resolve(_)
            | ConnectCause::Io(_)
            | ConnectCause::Timeout(_)
            | ConnectCause::Protocol(_)
            | ConnectCause::WrongRole(_) => Retry,
            ConnectCause::TlsSettings(_)
            | ConnectCause::Untrusted(_)
            | ConnectCause::Tls(_)
            | ConnectCause::NoTls
            | ConnectCause::NoPassword
            | ConnectCause::Refused(_)
            | ConnectCause::Login(_) => Fatal,
            ConnectCause::Server(error) => error.kind(),
            // A fatal one ends the search, so these are all of the passing sort. One that shuts down
            // is the one that would do, whatever is wrong with the others.
            ConnectCause::All(each) => {
                let any = |kind: &ConnectErrorKind| each.iter().any(|error| error.kind() == *kind);
                [Stopping, Busy].into_iter().find(any).unwrap_or(Retry)
            }
        }
    }

    /// A server that answered has the wrong role; a promotion may change that.
    #[must_use]
    pub fn is_wrong_role(&self) -> bool {
        match &self.cause {
            ConnectCause::WrongRole(_) => true,
            ConnectCause::All(each) => each.iter().any(ConnectError::is_wrong_role),
            _ => false,
        }
    }

    /// The server's code, when it was the server that refused.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        match &self.cause {
            ConnectCause::Server(error) => Some(&error.sqlstate),
            _ => None,
        }
    }
}

impl ConnectCause {
    /// True when `sslmode=prefer` tries again without TLS, as libpq does.
    pub(super) fn is_worth_plain(&self) -> bool {
        match self {
            ConnectCause::Tls(_) | ConnectCause::Untrusted(_) => true,
            ConnectCause::Server(error) => error.sqlstate == "28000",
            _ => false,
        }
    }

    /// From an ErrorResponse.
    pub(super) fn server(payload: &[u8]) -> ConnectCause {
        ConnectCause::Server(Box::new(ServerError::parse(payload)))
    }

    pub(super) fn protocol(why: impl Into<String>) -> ConnectCause {
        ConnectCause::Protocol(why.into())
    }

    pub(super) fn login(why: impl Into<String>) -> ConnectCause {
        ConnectCause::Login(why.into())
    }
}

/// A TLS failure arrives wrapped into an I/O error, some only with the first read after the handshake.
/// So does our own refusal to answer.
impl From<&io::Error> for ConnectCause {
    fn from(error: &io::Error) -> ConnectCause {
        let Some(inner) = error.get_ref() else { return ConnectCause::Io(error.to_string()) };
        if let Some(refused) = inner.downcast_ref::<RefusedAuth>() {
            return ConnectCause::Refused(*refused);
        }
        match inner.downcast_ref::<rustls::Error>() {
            Some(tls @ rustls::Error::InvalidCertificate(_)) => {
                ConnectCause::Untrusted(tls.to_string())
            }
            Some(tls) => ConnectCause::Tls(tls.to_string()),
            None => ConnectCause::Io(error.to_string()),
        }
    }
}

impl From<io::Error> for ConnectCause {
    fn from(error: io::Error) -> ConnectCause {
        ConnectCause::from(&error)
    }
}

impl From<PgWireError> for ConnectCause {
    fn from(error: PgWireError) -> ConnectCause {
        match error {
            PgWireError::Io(error) => ConnectCause::from(&*error),
            PgWireError::Auth(why) => ConnectCause::Login(why),
            other => ConnectCause::Protocol(other.to_string()),
        }
    }
}

impl From<tokio_postgres::Error> for ConnectCause {
    fn from(error: tokio_postgres::Error) -> ConnectCause {
        ConnectCause::from(&error)
    }
}

impl From<&tokio_postgres::Error> for ConnectCause {
    fn from(error: &tokio_postgres::Error) -> ConnectCause {
        if let Some(error) = error.as_db_error() {
            return ConnectCause::Server(Box::new(error.into()));
        }
        match error.source() {
            Some(source) => match source.downcast_ref::<io::Error>() {
                Some(error) => ConnectCause::from(error),
                // The library has no type for it.
                None if source.to_string() == "password missing" => ConnectCause::NoPassword,
                None => ConnectCause::Login(format!("{error}: {source}")),
            },
            None if error.is_closed() => ConnectCause::Io(error.to_string()),
            None => ConnectCause::Protocol(error.to_string()),
        }
    }
}
