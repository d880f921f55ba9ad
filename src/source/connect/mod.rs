//! The replication connection: from hosts to a stream of changes.
//!
//! Two steps, so that a caller can look before it leaps: [`open`] gives an authenticated connection that
//! answers replication commands and SQL, [`Control::start`] turns it into the stream. The start position is
//! always 0/0, "where the slot stands": any other could skip events.
//!
//! Dropping a future of this module half-way leaves a connection that is only fit to be dropped too.

use std::collections::BTreeMap;
use std::time::Duration;

use pgwire_replication::protocol::framing::{self, BackendMessage, MessageReader};
use tokio::time::timeout;

use super::settings::{ConnInfo, Host};
use super::transport::Transport;
use crate::base::lsn::Lsn;

mod auth;
pub(in crate::source) mod dial;
mod error;
mod fault;
pub(in crate::source) mod first_answer;

pub use error::{ConnectError, Kind, ServerError};

use dial::{EMPTY_PATH_SQL, Link, Login, SORT_SQL, Sort, Stream};

/// Nothing in a login or in an answer to a command is near this; a change on the stream may be larger, but
/// is not read here.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
const ROWS_MAX: usize = 10_000;

/// What to stream.
#[derive(Clone, Debug)]
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
        // The list is an SQL string holding identifiers, so the name is quoted twice.
        let publication = literal(&identifier(&self.publication));
        let mut command = format!(
            "START_REPLICATION SLOT {} LOGICAL 0/0 (proto_version '1', publication_names {publication}",
            identifier(&self.slot)
        );
        if self.messages {
            command.push_str(", messages 'true'");
        }
        if self.binary {
            command.push_str(", binary 'true'");
        }
        command.push(')');
        command
    }
}

/// `"name"`, fit for SQL and for replication commands.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `'text'`, fit for replication commands.
#[must_use]
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The answer to IDENTIFY_SYSTEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Names the cluster; survives restarts and failovers, not restores.
    pub system_id: String,
    /// Changes with every promotion.
    pub timeline: u32,
    /// End of WAL.
    pub xlogpos: Lsn,
    /// The database.
    pub dbname: String,
}

/// One column value in text form, or NULL.
pub type Cell = Option<String>;

/// An authenticated connection in replication mode that does not stream yet.
pub struct Control {
    stream: Stream,
    reader: MessageReader,
    at: String,
    host: Host,
    parameters: BTreeMap<String, String>,
    backend_pid: i32,
    start_timeout: Duration,
    identity: Option<Identity>,
}

/// A connection that streams.
#[derive(Debug)]
pub struct Session {
    /// The socket.
    pub transport: Transport,
    /// Stream bytes read too early; empty as long as handshake messages are read one by one.
    pub leftover: Vec<u8>,
    /// See [`Identity`].
    pub system_id: String,
    /// End of the WAL when the session began.
    pub xlogpos: Lsn,
    /// See [`Identity`].
    pub timeline: u32,
    /// E.g. 170011 for 17.11.
    pub server_version: u32,
    /// The walsender's process id, as in `pg_stat_replication`.
    pub backend_pid: i32,
    /// Which server it is.
    pub host: Host,
}

/// Connects in replication mode to the first server that fits.
///
/// # Errors
/// See [`ConnectError::kind`].
pub async fn open(info: &ConnInfo) -> Result<Control, ConnectError> {
    dial::first_fit(&ReplicationLogin, info).await
}

/// Connects and starts streaming.
///
/// # Errors
/// See [`ConnectError::kind`].
pub async fn open_stream(
    info: &ConnInfo,
    start: &StartReplication,
) -> Result<Session, ConnectError> {
    open(info).await?.start(start).await
}

struct ReplicationLogin;

impl Login for ReplicationLogin {
    type Session = Control;

    async fn login(
        &self,
        mut link: Link,
        info: &ConnInfo,
    ) -> Result<(Control, Sort), ConnectError> {
        let mut reader = MessageReader::new().with_max_message_size(MESSAGE_BYTES_MAX);
        let greeting = auth::startup(&mut link, &mut reader, info).await?;
        let mut control = Control {
            stream: link.stream,
            reader,
            at: link.at,
            host: link.host,
            parameters: greeting.parameters,
            backend_pid: greeting.backend_pid,
            start_timeout: info.connect_timeout,
            identity: None,
        };
        control.query(EMPTY_PATH_SQL).await?;
        let sort = control.sort(info).await?;
        Ok((control, sort))
    }
}

impl Control {
    /// IDENTIFY_SYSTEM.
    ///
    /// # Errors
    /// The connection broke, or the server is none that streams.
    pub async fn identify(&mut self) -> Result<Identity, ConnectError> {
        let rows = self.query("IDENTIFY_SYSTEM").await?;
        let cell = |at: usize| rows.first().and_then(|row| row.get(at)).cloned().flatten();
        let parsed = || {
            Some(Identity {
                system_id: cell(0)?,
                timeline: cell(1)?.parse().ok()?,
                xlogpos: cell(2)?.parse().ok()?,
                dbname: cell(3)?,
            })
        };
        let identity = parsed()
            .ok_or_else(|| ConnectError::protocol(&self.at, "IDENTIFY_SYSTEM was not answered"))?;
        self.identity = Some(identity.clone());
        Ok(identity)
    }

    /// Runs one replication command or SQL text; gives the rows, values as text.
    ///
    /// # Errors
    /// What the server says; the connection can be used further when it was [`ConnectError::Server`]
    /// below severity FATAL.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<Vec<Cell>>, ConnectError> {
        self.send(sql).await?;
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
                    return Err(ConnectError::protocol(
                        &self.at,
                        "more than 10000 rows in an answer",
                    ));
                }
                b'D' => rows.push(cells(&message.payload).ok_or_else(|| {
                    ConnectError::protocol(&self.at, "a row that does not hold what it says")
                })?),
                b'E' => failed = Some(ConnectError::server(&self.at, &message.payload)),
                b'Z' => return failed.map_or(Ok(rows), Err),
                b'T' | b'C' | b'I' | b'N' | b'S' => {}
                tag => return Err(self.unexpected(tag)),
            }
        }
    }

    /// START_REPLICATION from where the slot stands.
    ///
    /// # Errors
    /// `Busy` while the slot is in use, `Fatal` when it is missing or lost.
    pub async fn start(mut self, start: &StartReplication) -> Result<Session, ConnectError> {
        let after = self.start_timeout;
        let identity = timeout(after, self.begin(start))
            .await
            .unwrap_or_else(|_| Err(ConnectError::Timeout { at: self.at.clone(), after }))?;
        let server_version = self.server_version();
        let transport =
            self.stream.into_transport().map_err(|error| ConnectError::io(&self.at, &error))?;
        Ok(Session {
            transport,
            leftover: Vec::new(),
            system_id: identity.system_id,
            xlogpos: identity.xlogpos,
            timeline: identity.timeline,
            server_version,
            backend_pid: self.backend_pid,
            host: self.host,
        })
    }

    async fn begin(&mut self, start: &StartReplication) -> Result<Identity, ConnectError> {
        let identity = match self.identity.clone() {
            Some(identity) => identity,
            None => self.identify().await?,
        };
        self.send(&start.command()).await?;
        loop {
            let message = self.receive().await?;
            match message.tag {
                b'W' => return Ok(identity),
                b'E' => return Err(ConnectError::server(&self.at, &message.payload)),
                b'N' | b'S' => {}
                tag => return Err(self.unexpected(tag)),
            }
        }
    }

    /// E.g. 170011 for 17.11; 0 when the server does not say.
    #[must_use]
    pub fn server_version(&self) -> u32 {
        self.parameter("server_version").and_then(version).unwrap_or(0)
    }

    /// What the server reported of `name` at login.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Which server it is.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The walsender's process id.
    #[must_use]
    pub fn backend_pid(&self) -> i32 {
        self.backend_pid
    }

    async fn sort(&mut self, info: &ConnInfo) -> Result<Sort, ConnectError> {
        if info.target_session_attrs == super::settings::TargetSessionAttrs::Any {
            return Ok(Sort::default());
        }
        let reported = Sort::reported(
            self.parameter("in_hot_standby"),
            self.parameter("default_transaction_read_only"),
        );
        if let Some(sort) = reported {
            return Ok(sort);
        }
        let rows = self.query(SORT_SQL).await?;
        let cell = |at: usize| rows.first().and_then(|row| row.get(at)).cloned().flatten();
        Ok(Sort {
            standby: cell(0).as_deref() == Some("t"),
            read_only: cell(1).as_deref() == Some("on"),
        })
    }

    async fn send(&mut self, sql: &str) -> Result<(), ConnectError> {
        let sent = framing::write_query(&mut self.stream, sql).await;
        sent.map_err(|error| ConnectError::wire(&self.at, &error))
    }

    async fn receive(&mut self) -> Result<BackendMessage, ConnectError> {
        let message = self.reader.read(&mut self.stream).await;
        let message = message.map_err(|error| ConnectError::wire(&self.at, &error))?;
        if message.tag == b'N' {
            let notice = ServerError::parse(&message.payload);
            tracing::info!(at = %self.at, %notice, "notice from the server");
        }
        Ok(message)
    }

    fn unexpected(&self, tag: u8) -> ConnectError {
        ConnectError::protocol(&self.at, format!("unexpected message {:?}", char::from(tag)))
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control")
            .field("at", &self.at)
            .field("backend_pid", &self.backend_pid)
            .finish_non_exhaustive()
    }
}

/// The values of a DataRow.
fn cells(payload: &[u8]) -> Option<Vec<Cell>> {
    let (count, mut rest) = payload.split_first_chunk::<2>()?;
    let mut cells = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            cells.push(None);
            rest = after;
            continue;
        };
        let (value, after) = after.split_at_checked(length)?;
        cells.push(Some(String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    Some(cells)
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
