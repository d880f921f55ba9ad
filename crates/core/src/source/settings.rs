//! The `[source]` section, and the connection that its `url` describes.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::require_auth::RequireAuth;
use crate::base::secret::Secret;
use crate::base::settings::kind::{IDENTIFIER, TextRule};
use crate::base::settings::{Choice, HOUR_MS, duration, flag, settings, text};
use crate::outbox::settings::{Messages, OutboxTable};

const SLOT: TextRule = TextRule {
    pattern: "^[a-z0-9_]{1,63}$",
    wanted: "1 to 63 lower-case letters, digits and underscores",
    holds: |text| {
        let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        (1..=63).contains(&text.len()) && text.bytes().all(known)
    },
};

settings! {
    /// The `[source]` section; what its `url` says, and the sections below it.
    #[derive(Clone, Debug)]
    pub struct SourceSettings {
        /// Replication slot.
        pub slot: String = text(SLOT).default("walrelay"),
        /// Publication that holds the outbox tables.
        pub publication: String = text(IDENTIFIER).default("walrelay"),
        /// Request column values in binary form. For a column whose binary form is not supported,
        /// text is used.
        pub binary: bool = flag().default("true"),
        /// Longest time without data on the stream before the relay asks Postgres what its
        /// walsender does. It waits for a walsender that decodes, and closes a dead connection.
        pub stall_timeout: Duration = duration(100, HOUR_MS).default("30s"),
        /// First wait before a reconnect, with full jitter. After a session of less than 10 s the waits grow further.
        pub reconnect_base: Duration = duration(1, HOUR_MS).default("50ms"),
        /// Longest wait before a reconnect.
        pub reconnect_cap: Duration = duration(1, HOUR_MS).default("5s"),
        /// How often the state of the slot is read, on the second connection.
        pub watch_interval: Duration = duration(100, HOUR_MS).default("1s"),
        /// Age from which the relay reports a transaction that keeps the slot's `restart_lsn`, and
        /// with it WAL, from moving.
        pub pinned_after: Duration = duration(100, HOUR_MS).default("1m"),
        /// Where Postgres is and how to log in; already merged with environment and `.pgpass`.
        pub connection: ConnInfo,
        /// Outbox tables; may be empty when `messages` is set.
        pub outboxes: Vec<OutboxTable>,
        /// Transactional logical messages as an outbox without a table.
        pub messages: Option<Messages>,
    }
}

/// The connection parameters of libpq that are supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnInfo {
    /// Tried in order.
    pub hosts: Vec<PostgresHost>,
    pub user: String,
    /// The password for every host, from the URL or the environment. Passwords out of the passfile
    /// are in [`PostgresHost::password`].
    pub password: Option<Secret>,
    pub dbname: String,
    pub application_name: String,
    /// Sent unchanged in the startup packet.
    pub options: Option<String>,
    /// Limit for one connection attempt to one address.
    pub connect_timeout: Duration,
    pub sslmode: SslMode,
    /// A PEM file, or `system`.
    pub sslrootcert: Option<PathBuf>,
    pub sslcert: Option<PathBuf>,
    pub sslkey: Option<PathBuf>,
    pub require_auth: RequireAuth,
    pub target_session_attrs: TargetSessionAttrs,
    pub login_files: LoginFiles,
}

impl Default for ConnInfo {
    fn default() -> ConnInfo {
        ConnInfo {
            hosts: Vec::new(),
            user: String::new(),
            password: None,
            dbname: String::new(),
            application_name: "walrelay".to_owned(),
            options: None,
            connect_timeout: Duration::from_secs(10),
            sslmode: SslMode::Prefer,
            sslrootcert: None,
            sslcert: None,
            sslkey: None,
            require_auth: RequireAuth::default(),
            target_session_attrs: TargetSessionAttrs::Any,
            login_files: LoginFiles::default(),
        }
    }
}

/// Where a login comes from that is read again for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginFiles {
    /// The whole `source.url`, if it is the content of a file.
    pub url: Option<Secret>,
    /// If passwords are in it.
    pub passfile: Option<PathBuf>,
}

impl LoginFiles {
    /// A login that is refused now may be accepted later, without a restart.
    pub fn are_used(&self) -> bool {
        self.url.is_some() || self.passfile.is_some()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresHost {
    /// Host name, IP address, or an absolute path: the directory of a Unix socket.
    pub name: String,
    pub port: u16,
    /// From the passfile, when [`ConnInfo::password`] is absent.
    pub password: Option<Secret>,
}

impl PostgresHost {
    pub fn is_socket(&self) -> bool {
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
    Disable,
    /// TLS if the server supports it, without verification.
    Prefer,
    /// Verifies the server only when a root certificate is given.
    Require,
    /// Verifies the certificate chain, not the name.
    VerifyCa,
    VerifyFull,
}

impl Choice for SslMode {
    const WORDS: &'static [(&'static str, SslMode)] = &[
        ("disable", SslMode::Disable),
        ("prefer", SslMode::Prefer),
        ("require", SslMode::Require),
        ("verify-ca", SslMode::VerifyCa),
        ("verify-full", SslMode::VerifyFull),
    ];
}

/// `target_session_attrs`, with libpq's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetSessionAttrs {
    Any,
    /// Not a standby, and `default_transaction_read_only` is off.
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    /// A standby if there is one, else any server.
    PreferStandby,
}

impl Choice for TargetSessionAttrs {
    const WORDS: &'static [(&'static str, TargetSessionAttrs)] = &[
        ("any", TargetSessionAttrs::Any),
        ("read-write", TargetSessionAttrs::ReadWrite),
        ("read-only", TargetSessionAttrs::ReadOnly),
        ("primary", TargetSessionAttrs::Primary),
        ("standby", TargetSessionAttrs::Standby),
        ("prefer-standby", TargetSessionAttrs::PreferStandby),
    ];
}

impl fmt::Display for TargetSessionAttrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|(_, attrs)| attrs == self).map_or("", |(word, _)| word);
        f.write_str(word)
    }
}
