//! What the source obeys: the `[source]` section, typed.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::require_auth::RequireAuth;
use crate::base::secret::Secret;
use crate::outbox::settings::{Messages, OutboxTable};

/// The `[source]` section.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Where Postgres is and how to log in; already merged with environment and `.pgpass`.
    pub connection: ConnInfo,
    /// Replication slot, `^[a-z0-9_]{1,63}$`.
    pub slot: String,
    /// Publication.
    pub publication: String,
    /// Outbox tables; may be empty when `messages` is set.
    pub outboxes: Vec<OutboxTable>,
    /// Transactional logical messages as an outbox without a table.
    pub messages: Option<Messages>,
    /// Ask Postgres for binary column values (`source.binary`, default true). The relay falls back
    /// to text by itself for a mapped column whose binary form it does not read.
    pub binary: bool,
    /// Longest silence on the stream before Postgres is asked what its walsender does
    /// (`source.stall_timeout`, 30s).
    pub stall_timeout: Duration,
    /// First wait before a reconnect (`source.reconnect_base`, 50ms), full jitter.
    pub reconnect_base: Duration,
    /// Longest wait before a reconnect (`source.reconnect_cap`, 5s).
    pub reconnect_cap: Duration,
    /// How often the slot is looked at on the second connection (`source.watch_interval`, 1s).
    pub watch_interval: Duration,
}

/// libpq-like connection information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnInfo {
    /// Tried in order.
    pub hosts: Vec<PostgresHost>,
    /// Role.
    pub user: String,
    /// Password, if one was given by URL, environment or passfile for every host; see [`PostgresHost::password`].
    pub password: Option<Secret>,
    /// Database.
    pub dbname: String,
    /// `application_name`, default `walrelay`.
    pub application_name: String,
    /// `options`, sent verbatim in the startup packet.
    pub options: Option<String>,
    /// Deadline for one connection attempt to one host; default 10s.
    pub connect_timeout: Duration,
    /// TLS mode; default `prefer` (as libpq).
    pub sslmode: SslMode,
    /// `sslrootcert`: a PEM file, or `system`.
    pub sslrootcert: Option<PathBuf>,
    /// Client certificate (PEM).
    pub sslcert: Option<PathBuf>,
    /// Client key (PEM).
    pub sslkey: Option<PathBuf>,
    /// `require_auth`: which requests for a password are answered.
    pub require_auth: RequireAuth,
    /// Which servers of a multi-host URL will do.
    pub target_session_attrs: TargetSessionAttrs,
}

/// One server of a multi-host URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresHost {
    /// Host name, IP address, or an absolute path: the folder of a Unix socket.
    pub name: String,
    /// Port.
    pub port: u16,
    /// Password from the passfile for exactly this host, when `ConnInfo::password` is absent.
    pub password: Option<Secret>,
}

impl PostgresHost {
    pub(super) fn is_socket(&self) -> bool {
        self.name.starts_with('/')
    }
}

/// `host:port`, or the socket file.
impl fmt::Display for PostgresHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PostgresHost { name, port, .. } = self;
        match name {
            folder if self.is_socket() => write!(f, "{folder}/.s.PGSQL.{port}"),
            v6 if v6.contains(':') => write!(f, "[{v6}]:{port}"),
            name => write!(f, "{name}:{port}"),
        }
    }
}

/// `sslmode`, with libpq's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS if the server has it, unverified.
    Prefer,
    /// TLS or nothing; verified only when a root certificate is given (as libpq).
    Require,
    /// The chain must verify, the name need not.
    VerifyCa,
    /// Chain and name must verify.
    VerifyFull,
}

/// `target_session_attrs`, with libpq's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetSessionAttrs {
    /// Whoever answers first.
    Any,
    /// No standby, and default_transaction_read_only is off.
    ReadWrite,
    /// The opposite.
    ReadOnly,
    /// No standby.
    Primary,
    /// In recovery.
    Standby,
    /// A standby if there is one.
    PreferStandby,
}

impl TargetSessionAttrs {
    /// The words of the connection string.
    pub(super) const WORDS: [(&str, TargetSessionAttrs); 6] = [
        ("any", TargetSessionAttrs::Any),
        ("read-write", TargetSessionAttrs::ReadWrite),
        ("read-only", TargetSessionAttrs::ReadOnly),
        ("primary", TargetSessionAttrs::Primary),
        ("standby", TargetSessionAttrs::Standby),
        ("prefer-standby", TargetSessionAttrs::PreferStandby),
    ];

    pub(super) fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, attrs)| *attrs == self).map_or("", |(word, _)| word)
    }
}
