//! The replication connection: from hosts to a stream of changes.
//!
//! Two steps, so that a caller can ask something first: [`open`] gives an
//! authenticated connection that answers replication commands and SQL,
//! [`ReplicationClient::start`] turns it into the stream. The start position is
//! always 0/0, which means where the slot stands: any other could skip events.
//!
//! If a future of this module is dropped before it is
//! ready, its connection can only be dropped, too.

mod auth;
pub(crate) mod dial;
mod error;
mod fault;
pub(crate) mod notice;
pub(crate) mod socket;

use std::time::Duration;

use pgwire_replication::protocol::framing::{self, BackendMessage, MessageReader};
use tokio::time::timeout;

pub use walrelay_core::source::server::{ConnectErrorKind, ServerError, ServerStart};

use self::dial::{SESSION_SQL, ServerLink, ServerRole};
pub(crate) use self::error::server_error;
pub use self::error::{ConnectCause, ConnectError};
use super::login_files;
use super::quote::{quote_ident, quote_replication_literal};
use super::settings::{ConnInfo, PostgresHost, SourceSettings, TargetSessionAttrs};
use super::slot_wait::NO_TIMEOUTS_SQL;
use walrelay_base::transport::Transport;

/// No message of a login or of an answer to a command comes near this. Changes may be larger, but
/// are not read here.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
const ROWS_MAX: usize = 10_000;

/// Postgres uses another `wal_sender_timeout` as soon as it reads its configuration again, and no message
/// tells the relay. A value that the session has set stays. The answer is this value in milliseconds.
const KEEP_TIMEOUT_SQL: &str = "SELECT (extract(epoch FROM pg_catalog.set_config('wal_sender_timeout', \
     pg_catalog.current_setting('wal_sender_timeout'), false)::interval) * 1000)::bigint";

#[derive(Clone, Debug, Default)]
pub struct StartReplication {
    pub slot: String,
    pub publication: String,
    /// Send logical messages.
    pub messages: bool,
    /// Send column values in binary form.
    pub binary: bool,
}

impl StartReplication {
    /// The stream of the configured slot.
    pub fn of(settings: &SourceSettings, binary: bool) -> StartReplication {
        let SourceSettings { slot, publication, messages, .. } = settings;
        let (slot, publication) = (slot.clone(), publication.clone());
        StartReplication { slot, publication, messages: messages.is_some(), binary }
    }

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

/// The values of a row in text form, or NULL.
pub(crate) type TextRow = Vec<Option<String>>;

/// An authenticated replication connection that does not stream yet.
pub struct ReplicationClient {
    link: ServerLink,
    reader: MessageReader,
    backend_pid: i32,
    started: ServerStart,
    wal_sender_timeout: Option<Duration>,
    start_timeout: Duration,
}

/// A replication connection that streams.
#[derive(Debug)]
pub struct ReplicationSession {
    pub transport: Transport,
    /// Identifies the cluster; survives restarts and failovers, not restores.
    pub system_id: String,
    /// Changes with every promotion.
    pub timeline: u32,
    /// The process id of the walsender, as in `pg_stat_replication`.
    pub backend_pid: i32,
    pub started: ServerStart,
    /// That of this session for as long as it lasts, or `None` when it is off.
    pub wal_sender_timeout: Option<Duration>,
    pub host: PostgresHost,
}

/// Connects to the first server that fits.
pub async fn open(info: &ConnInfo) -> Result<ReplicationClient, ConnectError> {
    let info =
        &*login_files::current(info).map_err(|unread| ConnectError::new("", unread.into()))?;
    dial::first_fit(info, |link| log_in(link, info)).await
}

/// Connects to the first server that would begin a session, and logs in nowhere.
pub async fn try_session(info: &ConnInfo) -> Result<(), ConnectError> {
    let info = &ConnInfo { target_session_attrs: TargetSessionAttrs::Any, ..info.clone() };
    let reached = async |mut link: ServerLink| {
        let mut reader = MessageReader::new().with_max_message_size(MESSAGE_BYTES_MAX);
        auth::reach_authentication(&mut link, &mut reader, info).await?;
        Ok(((), ServerRole::default()))
    };
    dial::first_fit(info, reached).await
}

/// Connects and starts to stream.
pub async fn open_stream(
    info: &ConnInfo,
    start: &StartReplication,
) -> Result<ReplicationSession, ConnectError> {
    open(info).await?.start(start).await
}

async fn log_in(
    mut link: ServerLink,
    info: &ConnInfo,
) -> Result<(ReplicationClient, ServerRole), ConnectCause> {
    let mut reader = MessageReader::new().with_max_message_size(MESSAGE_BYTES_MAX);
    auth::log_in(&mut link, &mut reader, info).await?;
    let (backend_pid, start_timeout) = (0, info.connect_timeout);
    let (started, wal_sender_timeout) = (ServerStart::default(), None);
    let mut client =
        ReplicationClient { link, reader, backend_pid, started, wal_sender_timeout, start_timeout };
    // A transaction is decoded, and waited for while the relay takes no more, within a transaction of Postgres.
    let sql = format!("{SESSION_SQL}; {KEEP_TIMEOUT_SQL}; {NO_TIMEOUTS_SQL}");
    let rows = client.ask(&sql).await?;
    let role = ServerRole::of(|at| rows.first()?.get(at)?.as_deref());
    client.started = role.started.clone();
    let pid = rows.first().and_then(|row| row.get(6)?.as_deref()?.parse().ok());
    client.backend_pid = pid.ok_or_else(|| ConnectCause::protocol("a malformed backend pid"))?;
    let timeout_ms = rows.get(1).and_then(|row| row.first()?.as_deref()?.parse().ok());
    let timeout_ms =
        timeout_ms.ok_or_else(|| ConnectCause::protocol("a malformed wal_sender_timeout"))?;
    client.wal_sender_timeout = Some(Duration::from_millis(timeout_ms)).filter(|it| !it.is_zero());
    Ok((client, role))
}

impl ReplicationClient {
    /// Runs one replication command or SQL text. The connection can be used further when the server
    /// refused with a severity below FATAL.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<TextRow>, ConnectError> {
        self.ask(sql).await.map_err(|cause| ConnectError::new(&self.link.host, cause))
    }

    async fn ask(&mut self, sql: &str) -> Result<Vec<TextRow>, ConnectCause> {
        framing::write_query(&mut self.link.socket, sql).await?;
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            // A FATAL error is the last message: it is the cause, not the end of the connection.
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
                b'D' => rows.push(
                    values(&message.payload)
                        .ok_or_else(|| ConnectCause::protocol("a malformed DataRow"))?,
                ),
                b'E' => failed = Some(ConnectCause::server(&message.payload)),
                b'Z' => return failed.map_or(Ok(rows), Err),
                b'T' | b'C' | b'I' | b'N' | b'S' => {}
                tag => return Err(unexpected(tag)),
            }
        }
    }

    /// START_REPLICATION from where the slot stands.
    pub async fn start(self, start: &StartReplication) -> Result<ReplicationSession, ConnectError> {
        let (limit, host) = (self.start_timeout, self.link.host.clone());
        let begun = timeout(limit, self.begin(start)).await;
        let begun = begun.unwrap_or(Err(ConnectCause::Timeout(limit)));
        begun.map_err(|cause| ConnectError::new(&host, cause))
    }

    async fn begin(mut self, start: &StartReplication) -> Result<ReplicationSession, ConnectCause> {
        let rows = self.ask("IDENTIFY_SYSTEM").await?;
        let value = |at: usize| rows.first()?.get(at)?.as_deref();
        let (system_id, timeline) =
            Option::zip(value(0), value(1).and_then(|text| text.parse().ok()))
                .ok_or_else(|| ConnectCause::protocol("a malformed answer to IDENTIFY_SYSTEM"))?;
        framing::write_query(&mut self.link.socket, &start.command()).await?;
        loop {
            let message = self.receive().await?;
            match message.tag {
                b'W' => break,
                b'E' => return Err(ConnectCause::server(&message.payload)),
                b'N' | b'S' => {}
                tag => return Err(unexpected(tag)),
            }
        }
        Ok(ReplicationSession {
            transport: self.link.socket.into_transport()?,
            system_id: system_id.to_owned(),
            timeline,
            backend_pid: self.backend_pid,
            started: self.started,
            wal_sender_timeout: self.wal_sender_timeout,
            host: self.link.host,
        })
    }

    pub fn host(&self) -> &PostgresHost {
        &self.link.host
    }

    pub fn started(&self) -> &ServerStart {
        &self.started
    }

    async fn receive(&mut self) -> Result<BackendMessage, ConnectCause> {
        let message = self.reader.read(&mut self.link.socket).await?;
        if message.tag == b'N' {
            notice::log(&ServerError::parse(&message.payload), &self.link.host);
        }
        Ok(message)
    }
}

impl std::fmt::Debug for ReplicationClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ReplicationClient { link, backend_pid, .. } = self;
        let mut shown = f.debug_struct("ReplicationClient");
        shown.field("host", &link.host).field("backend_pid", backend_pid).finish_non_exhaustive()
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

#[cfg(test)]
mod tests;
