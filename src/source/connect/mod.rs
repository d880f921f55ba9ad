//! The replication connection: from hosts to a stream of changes.
//!
//! Two steps, so that a caller can look before it leaps: [`open`] gives an authenticated connection
//! that answers replication commands and SQL, [`ReplicationClient::start`] turns it into the stream.
//! The start position is always 0/0, "where the slot stands": any other could skip events.
//!
//! Dropping a future of this module half-way leaves a connection that is only fit to be dropped too.

mod auth;
pub(in crate::source) mod dial;
mod error;
mod fault;
pub(in crate::source) mod socket;

use std::collections::BTreeMap;
use std::time::Duration;

use pgwire_replication::protocol::framing::{self, BackendMessage, MessageReader};
use tokio::time::timeout;

use self::dial::{EMPTY_PATH_SQL, ROLE_SQL, ServerLink, ServerRole, SessionLogin};
pub use self::error::{ConnectCause, ConnectError, ConnectErrorKind, ServerError};
use self::socket::ServerSocket;
use super::quote::{quote_ident, quote_replication_literal};
use super::settings::{ConnInfo, PostgresHost, TargetSessionAttrs};
use super::transport::Transport;
use crate::base::lsn::Lsn;

/// Nothing in a login or in an answer to a command is near this; a change on the stream may be
/// larger, but is not read here.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
const ROWS_MAX: usize = 10_000;

/// What to stream.
#[derive(Clone, Debug, Default)]
pub struct StartReplication {
    /// The slot.
    pub slot: String,
    /// The publication.
    pub publication: String,
    /// Logical messages too.
    pub messages: bool,
    /// Binary column values.
    pub binary: bool,
}

impl StartReplication {
    fn command(&self) -> String {
        // The list is a string that holds identifiers, so the name is quoted twice.
        let publication = quote_replication_literal(&quote_ident(&self.publication));
        let mut command = format!(
            "START_REPLICATION SLOT {} LOGICAL 0/0 (proto_version '1', publication_names {publication}",
            quote_ident(&self.slot)
        );
        for (name, wanted) in [("messages", self.messages), ("binary", self.binary)] {
            if wanted {
                command.push_str(&format!(", {name} 'true'"));
            }
        }
        command.push(')');
        command
    }
}

/// A row's values in text form, or NULL.
pub(crate) type TextRow = Vec<Option<String>>;

/// The answer to IDENTIFY_SYSTEM.
#[derive(Clone, Debug)]
struct SystemIdentity {
    /// Names the cluster; survives restarts and failovers, not restores.
    system_id: String,
    /// Changes with every promotion.
    timeline: u32,
    /// End of WAL.
    xlogpos: Lsn,
}

/// An authenticated connection in replication mode that does not stream yet.
pub struct ReplicationClient {
    socket: ServerSocket,
    reader: MessageReader,
    at: String,
    host: PostgresHost,
    /// What the server reported at login.
    parameters: BTreeMap<String, String>,
    backend_pid: i32,
    start_timeout: Duration,
}

/// A connection that streams.
#[derive(Debug)]
pub struct ReplicationSession {
    /// The socket.
    pub transport: Transport,
    /// Names the cluster; survives restarts and failovers, not restores.
    pub system_id: String,
    /// End of the WAL when the session began.
    pub xlogpos: Lsn,
    /// Changes with every promotion.
    pub timeline: u32,
    /// E.g. 170011 for 17.11.
    pub server_version: u32,
    /// The walsender's process id, as in `pg_stat_replication`.
    pub backend_pid: i32,
    /// Which server it is.
    pub host: PostgresHost,
}

/// Connects in replication mode to the first server that fits.
pub async fn open(info: &ConnInfo) -> Result<ReplicationClient, ConnectError> {
    dial::first_fit(&ReplicationLogin, info).await
}

/// Connects and starts streaming.
pub async fn open_stream(
    info: &ConnInfo,
    start: &StartReplication,
) -> Result<ReplicationSession, ConnectError> {
    open(info).await?.start(start).await
}

struct ReplicationLogin;

impl SessionLogin for ReplicationLogin {
    type Session = ReplicationClient;

    async fn login(
        &self,
        mut link: ServerLink,
        info: &ConnInfo,
    ) -> Result<(ReplicationClient, ServerRole), ConnectCause> {
        let mut reader = MessageReader::new().with_max_message_size(MESSAGE_BYTES_MAX);
        let greeting = auth::log_in(&mut link, &mut reader, info).await?;
        let mut client = ReplicationClient {
            socket: link.socket,
            reader,
            at: link.at,
            host: link.host,
            parameters: greeting.parameters,
            backend_pid: greeting.backend_pid,
            start_timeout: info.connect_timeout,
        };
        client.ask(EMPTY_PATH_SQL).await?;
        let role = client.role(info).await?;
        Ok((client, role))
    }
}

impl ReplicationClient {
    /// Runs one replication command or SQL text; gives the rows, values as text. The connection can
    /// be used further when the server refused below severity FATAL.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<TextRow>, ConnectError> {
        self.ask(sql).await.map_err(|cause| ConnectError::new(&self.at, cause))
    }

    async fn ask(&mut self, sql: &str) -> Result<Vec<TextRow>, ConnectCause> {
        framing::write_query(&mut self.socket, sql).await?;
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            // A FATAL error is the last message: then the error counts, not the end that follows.
            let message = match (self.receive().await, failed.take()) {
                (Err(_), Some(error)) | (Err(error), None) => return Err(error),
                (Ok(message), earlier) => {
                    failed = earlier;
                    message
                }
            };
            match message.tag {
                b'D' if rows.len() == ROWS_MAX => {
                    return Err(ConnectCause::protocol("more than 10000 rows in an answer"));
                }
                b'D' => rows.push(values(&message.payload).ok_or_else(|| {
                    ConnectCause::protocol("a row that does not hold what it says")
                })?),
                b'E' => failed = Some(ConnectCause::server(&message.payload)),
                b'Z' => return failed.map_or(Ok(rows), Err),
                b'T' | b'C' | b'I' | b'N' | b'S' => {}
                tag => return Err(unexpected(tag)),
            }
        }
    }

    /// START_REPLICATION from where the slot stands.
    pub async fn start(
        mut self,
        start: &StartReplication,
    ) -> Result<ReplicationSession, ConnectError> {
        let (after, at) = (self.start_timeout, self.at.clone());
        let wrong = |cause| ConnectError::new(&at, cause);
        let begun = timeout(after, self.begin(start)).await;
        let identity = begun.unwrap_or(Err(ConnectCause::Timeout(after))).map_err(wrong)?;
        Ok(ReplicationSession {
            system_id: identity.system_id,
            xlogpos: identity.xlogpos,
            timeline: identity.timeline,
            server_version: self.parameter("server_version").and_then(version).unwrap_or(0),
            backend_pid: self.backend_pid,
            host: self.host,
            transport: self.socket.into_transport().map_err(|error| wrong(error.into()))?,
        })
    }

    async fn begin(&mut self, start: &StartReplication) -> Result<SystemIdentity, ConnectCause> {
        let rows = self.ask("IDENTIFY_SYSTEM").await?;
        let value = |at: usize| rows.first()?.get(at)?.clone();
        let parsed = || {
            Some(SystemIdentity {
                system_id: value(0)?,
                timeline: value(1)?.parse().ok()?,
                xlogpos: value(2)?.parse().ok()?,
            })
        };
        let identity =
            parsed().ok_or_else(|| ConnectCause::protocol("IDENTIFY_SYSTEM was not answered"))?;
        framing::write_query(&mut self.socket, &start.command()).await?;
        loop {
            let message = self.receive().await?;
            match message.tag {
                b'W' => return Ok(identity),
                b'E' => return Err(ConnectCause::server(&message.payload)),
                b'N' | b'S' => {}
                tag => return Err(unexpected(tag)),
            }
        }
    }

    /// Which server it is.
    #[must_use]
    pub fn host(&self) -> &PostgresHost {
        &self.host
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    async fn role(&mut self, info: &ConnInfo) -> Result<ServerRole, ConnectCause> {
        if info.target_session_attrs == TargetSessionAttrs::Any {
            return Ok(ServerRole::default());
        }
        let standby = self.parameter("in_hot_standby");
        let read_only = self.parameter("default_transaction_read_only");
        if let Some(role) = ServerRole::reported(standby, read_only) {
            return Ok(role);
        }
        let rows = self.ask(ROLE_SQL).await?;
        let value = |at: usize| rows.first()?.get(at)?.as_deref();
        Ok(ServerRole::answered(value(0), value(1)))
    }

    async fn receive(&mut self) -> Result<BackendMessage, ConnectCause> {
        let message = self.reader.read(&mut self.socket).await?;
        if message.tag == b'N' {
            let notice = ServerError::parse(&message.payload);
            tracing::info!(at = %self.at, %notice, "notice from the server");
        }
        Ok(message)
    }
}

impl std::fmt::Debug for ReplicationClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("ReplicationClient");
        shown.field("at", &self.at).field("backend_pid", &self.backend_pid).finish_non_exhaustive()
    }
}

fn unexpected(tag: u8) -> ConnectCause {
    ConnectCause::Protocol(format!("unexpected message {:?}", char::from(tag)))
}

/// The values of a DataRow.
fn values(payload: &[u8]) -> Option<TextRow> {
    let (count, mut rest) = payload.split_first_chunk::<2>()?;
    let mut values = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            values.push(None);
            rest = after;
            continue;
        };
        let (value, after) = after.split_at_checked(length)?;
        values.push(Some(String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    Some(values)
}

/// `17.11 (Debian 17.11-1)` → 170011; `18beta1` → 180000; `9.6.24` → 90624.
fn version(text: &str) -> Option<u32> {
    let number = |part: &str| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse::<u32>().ok()
    };
    let mut parts = text.split_whitespace().next()?.split('.');
    let major = number(parts.next()?)?;
    let minor = parts.next().and_then(number).unwrap_or(0);
    if major >= 10 {
        return Some(major * 10_000 + minor);
    }
    Some(major * 10_000 + minor * 100 + parts.next().and_then(number).unwrap_or(0))
}

#[cfg(test)]
mod tests;
