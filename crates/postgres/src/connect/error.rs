//! Why a connection cannot be made or used, and what the caller does next.
//!
//! SQLSTATEs decide, never the text of a message: servers translate messages where `lc_messages`
//! says so. Where one SQLSTATE means several things, the name of the server's C function (which is
//! never translated) tells them apart.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::time::Duration;

use pgwire_replication::PgWireError;
use tokio_postgres::error::DbError;
use walrelay_core::source::server::ConnectErrorKind::{Busy, Fatal, Retry, Stopping};
use walrelay_core::source::server::{ConnectErrorKind, ServerError};

use crate::login_files::LoginUnread;
use crate::require_auth::RefusedAuth;
use crate::settings::TargetSessionAttrs;
use walrelay_base::tls::{TlsError, TlsFailure};

/// The error with which a statement was refused.
pub(crate) fn server_error(error: &DbError) -> ServerError {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    ServerError {
        sqlstate: error.code().code().to_owned(),
        message: error.message().to_owned(),
        detail: text(error.detail()),
        hint: text(error.hint()),
        routine: text(error.routine()),
        context: text(error.where_()),
    }
    .without_values()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError {
    /// `host:port` or the socket file; empty where the error is not about one server.
    pub at: String,
    pub cause: ConnectCause,
}

/// The cause of a failed connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectCause {
    #[error("the host name cannot be resolved: {0}")]
    Resolve(String),
    #[error("{0}")]
    Io(String),
    #[error("no connection within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    #[error(transparent)]
    TlsSettings(#[from] TlsError),
    #[error(transparent)]
    Tls(TlsFailure),
    #[error("the server does not support TLS, but sslmode demands it")]
    NoTls,
    #[error("the server asks for a password, and none was given")]
    NoPassword,
    /// The login is in a file that cannot be read now.
    #[error("no login: {0}")]
    LoginUnread(#[from] LoginUnread),
    #[error(transparent)]
    Refused(#[from] RefusedAuth),
    /// The server asks for, or does, something in the login that is not supported.
    #[error("login: {0}")]
    Login(String),
    #[error("{0}")]
    Server(Box<ServerError>),
    /// A value that the server has sent cannot be read.
    #[error("{0}")]
    Value(String),
    /// Not the Postgres protocol, or a message out of order.
    #[error("protocol: {0}")]
    Protocol(String),
    #[error("the server does not satisfy target_session_attrs={0}")]
    WrongRole(TargetSessionAttrs),
    #[error("PostgreSQL {} is too old: 14 is the oldest version that is supported", .0 / 10_000)]
    TooOld(u32),
    /// The errors of all servers that were tried.
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
    /// `at` is the server, or empty where the error is not about one server.
    pub fn new(at: impl fmt::Display, cause: ConnectCause) -> ConnectError {
        ConnectError { at: at.to_string(), cause }
    }

    pub fn kind(&self) -> ConnectErrorKind {
        match &self.cause {
            ConnectCause::Resolve(_)
            | ConnectCause::Io(_)
            | ConnectCause::Timeout(_)
            | ConnectCause::Protocol(_)
            | ConnectCause::LoginUnread(_)
            | ConnectCause::WrongRole(_) => Retry,
            ConnectCause::TlsSettings(_)
            | ConnectCause::Tls(_)
            | ConnectCause::NoTls
            | ConnectCause::NoPassword
            | ConnectCause::Refused(_)
            | ConnectCause::Login(_)
            | ConnectCause::TooOld(_)
            | ConnectCause::Value(_) => Fatal,
            ConnectCause::Server(error) => error.kind(),
            // A fatal error ends the search, so none of these is fatal. A server that shuts down is
            // the one that was wanted, unless another one runs and may take a connection later.
            ConnectCause::All(each) => {
                let any = |kind: &ConnectErrorKind| each.iter().any(|error| error.kind() == *kind);
                let runs = |it: &ConnectError| it.kind() == Retry && it.sqlstate().is_some();
                let kinds: &[_] = if each.iter().any(runs) { &[Busy] } else { &[Stopping, Busy] };
                kinds.iter().copied().find(any).unwrap_or(Retry)
            }
        }
    }

    /// The server knows no such user, or the password is not his.
    pub fn is_refused_login(&self) -> bool {
        match &self.cause {
            ConnectCause::NoPassword => true,
            ConnectCause::Server(error) => error.sqlstate.starts_with("28"),
            _ => false,
        }
    }

    /// TLS fails: its files do not fit each other or the server, or the two sides agree on nothing.
    pub fn is_of_tls(&self) -> bool {
        matches!(self.cause, ConnectCause::TlsSettings(_) | ConnectCause::Tls(_))
    }

    /// A server that answered has the wrong role; a promotion may change that.
    pub fn is_wrong_role(&self) -> bool {
        match &self.cause {
            ConnectCause::WrongRole(_) => true,
            ConnectCause::All(each) => each.iter().any(ConnectError::is_wrong_role),
            _ => false,
        }
    }

    /// Whether RDS Proxy has refused `options`. Unlike a server, it names no routine; and it keeps a session
    /// that was changed for the client that changed it.
    pub(crate) fn is_refused_option(&self) -> bool {
        matches!(&self.cause, ConnectCause::Server(it) if it.sqlstate == "0A000" && it.routine.is_empty())
    }

    /// The SQLSTATE, when the server refused.
    pub fn sqlstate(&self) -> Option<&str> {
        match &self.cause {
            ConnectCause::Server(error) => Some(&error.sqlstate),
            _ => None,
        }
    }
}

impl ConnectCause {
    /// True when `sslmode=prefer` tries again without TLS, as libpq does.
    pub(super) fn may_pass_without_tls(&self) -> bool {
        match self {
            ConnectCause::Tls(_) => true,
            ConnectCause::Server(error) => error.sqlstate == "28000",
            _ => false,
        }
    }

    /// The server refuses because no line of `pg_hba.conf` lets the connection in as it is.
    pub(super) fn is_of_pg_hba(&self) -> bool {
        matches!(self, ConnectCause::Server(error)
            if error.sqlstate == "28000" && error.routine == "ClientAuthentication")
    }

    /// From the payload of an ErrorResponse.
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

/// An I/O error may wrap a TLS failure, some of which only come with the first read after the
/// handshake, or our own refusal to answer an authentication request.
impl From<&io::Error> for ConnectCause {
    fn from(error: &io::Error) -> ConnectCause {
        let Some(inner) = error.get_ref() else { return ConnectCause::Io(error.to_string()) };
        if let Some(refused) = inner.downcast_ref::<RefusedAuth>() {
            return ConnectCause::Refused(*refused);
        }
        match inner.downcast_ref::<rustls::Error>() {
            Some(error) => ConnectCause::Tls(TlsFailure::of(error)),
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
            return ConnectCause::Server(Box::new(server_error(error)));
        }
        match error.source() {
            // Also where the cause is an io::Error. The library does not publish the kinds of its errors.
            Some(source) if error.to_string().starts_with("authentication error") => {
                ConnectCause::Login(source.to_string())
            }
            Some(source) => match source.downcast_ref::<io::Error>() {
                Some(error) => ConnectCause::from(error),
                // The library has no type for it.
                None if source.to_string() == "password missing" => ConnectCause::NoPassword,
                None if error.to_string().starts_with("error deserializing") => {
                    ConnectCause::Value(format!("{error}: {source}"))
                }
                None => ConnectCause::Login(format!("{error}: {source}")),
            },
            None if error.is_closed() => ConnectCause::Io(error.to_string()),
            None => ConnectCause::Protocol(error.to_string()),
        }
    }
}
