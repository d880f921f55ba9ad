//! Connects to the first of several hosts that answers, accepts the login and has the wanted role.
//!
//! The replication connection and the SQL connections are made here, so that hosts, TLS, timeouts
//! and `target_session_attrs` mean the same to both. As in libpq, hosts are tried in order, and of
//! each host every address, each with the whole timeout; a refusal that would be the same elsewhere
//! ends the search.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pgwire_replication::protocol::framing;
use rustls::ClientConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::{ConnectCause, ConnectError};
use super::socket::{ServerSocket, SocketKind};
use super::{ConnectErrorKind, ServerStart};
use crate::settings::{ConnInfo, PostgresHost, SslMode, TargetSessionAttrs};
use crate::tls;

const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const USER_TIMEOUT_MS: u32 = 60_000;
/// The most bytes of an error that the server sends instead of its answer to the TLS request.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// The first statement of every session. From then on names and operators mean those of `pg_catalog`,
/// whatever database, role and `options` set, as in the programs of Postgres. [`NO_SEARCH_PATH`] does the
/// same, but some poolers drop it without a message. A database without an encoding sends its
/// text as it is: it would send nothing that is not UTF-8, and the slot would stand at that row for ever.
/// The answer says what `target_session_attrs` depends on, and which server it is.
pub(crate) const SESSION_SQL: &str = "SELECT CASE \
     WHEN pg_catalog.current_setting('search_path') OPERATOR(pg_catalog.<>) '' \
     THEN pg_catalog.set_config('search_path', '', false) END, \
     pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only'), \
     extract(epoch FROM pg_catalog.pg_postmaster_start_time()), \
     CASE WHEN pg_catalog.current_setting('server_encoding') OPERATOR(pg_catalog.=) 'SQL_ASCII' \
     THEN pg_catalog.set_config('client_encoding', 'SQL_ASCII', false) END, \
     pg_catalog.current_setting('server_version_num'), pg_catalog.pg_backend_pid()";

/// The `options` of sessions that are none for replication. PgBouncer refuses them at the login, unless it
/// is told to ignore them. Behind a pooler that gives each transaction another session, the first statement
/// would leave a session without a `search_path` to the next client.
pub(crate) const NO_SEARCH_PATH: &str = "-c search_path=";

/// The oldest server that has everything a relay asks for.
const OLDEST_VERSION: u32 = 140_000;

/// The role of a server, as far as `target_session_attrs` depends on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerRole {
    standby: bool,
    read_only: bool,
    pub(crate) started: ServerStart,
    /// Its version, if that is too old for a relay.
    pub(super) too_old: Option<u32>,
}

impl ServerRole {
    /// `value` gives a column of the answer to [`SESSION_SQL`] in text form.
    pub(crate) fn of<'a>(value: impl Fn(usize) -> Option<&'a str>) -> ServerRole {
        let started = ServerStart::from(value(3).unwrap_or_default());
        let version = value(5).and_then(|text| text.parse().ok());
        ServerRole {
            standby: value(1) == Some("t"),
            read_only: value(2) == Some("on"),
            started,
            too_old: version.filter(|version| *version < OLDEST_VERSION),
        }
    }

    fn satisfies(&self, wanted: TargetSessionAttrs) -> bool {
        match wanted {
            TargetSessionAttrs::Any | TargetSessionAttrs::PreferStandby => true,
            TargetSessionAttrs::ReadWrite => !self.standby && !self.read_only,
            TargetSessionAttrs::ReadOnly => self.standby || self.read_only,
            TargetSessionAttrs::Primary => !self.standby,
            TargetSessionAttrs::Standby => self.standby,
        }
    }
}

/// A socket that is ready for the login, and its server.
pub(crate) struct ServerLink {
    pub(crate) socket: ServerSocket,
    pub(crate) host: PostgresHost,
}

/// Runs `login` on one server after the other, until one has the wanted role.
pub(crate) async fn first_fit<S, F>(
    info: &ConnInfo,
    login: impl Fn(ServerLink) -> F,
) -> Result<S, ConnectError>
where
    F: Future<Output = Result<(S, ServerRole), ConnectCause>>,
{
    let over_tcp = info.hosts.iter().any(|host| !host.is_socket());
    let tls = if over_tcp { tls::client_config(info) } else { Ok(None) };
    let tls = tls.map_err(|error| ConnectError::new("", error.into()))?;
    let roles: &[TargetSessionAttrs] = match &info.target_session_attrs {
        TargetSessionAttrs::PreferStandby => {
            &[TargetSessionAttrs::Standby, TargetSessionAttrs::Any]
        }
        one => std::slice::from_ref(one),
    };
    let mut failed = Vec::new();
    for wanted in roles {
        failed.clear();
        for host in &info.hosts {
            let addresses = resolve(host, info).await.unwrap_or_else(|cause| {
                failed.push(ConnectError::new(host, cause));
                Vec::new()
            });
            for address in addresses {
                let attempt = Attempt { info, host, address };
                match attempt.run(&login, tls.as_ref()).await {
                    Ok((_, ServerRole { too_old: Some(version), .. })) => {
                        failed.push(ConnectError::new(host, ConnectCause::TooOld(version)));
                    }
                    Ok((session, role)) if role.satisfies(*wanted) => return Ok(session),
                    Ok(_) => failed.push(ConnectError::new(host, ConnectCause::WrongRole(*wanted))),
                    Err(cause) => failed.push(ConnectError::new(host, cause)),
                }
                if let Some(error) = failed.pop_if(|it| it.kind() == ConnectErrorKind::Fatal) {
                    return Err(error);
                }
            }
        }
    }
    match failed.len() {
        1 => Err(failed.remove(0)),
        _ => Err(ConnectError::new("", ConnectCause::All(failed))),
    }
}

enum ServerAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

async fn resolve(host: &PostgresHost, info: &ConnInfo) -> Result<Vec<ServerAddress>, ConnectCause> {
    if host.is_socket() {
        return Ok(vec![ServerAddress::Unix(host.to_string().into())]);
    }
    let lookup = tokio::net::lookup_host((host.name.as_str(), host.port));
    let found = timeout(info.connect_timeout, lookup).await;
    let found = found.map_err(|_| ConnectCause::Timeout(info.connect_timeout))?;
    let found = found.map_err(|error| ConnectCause::Resolve(error.to_string()))?;
    let found: Vec<ServerAddress> = found.map(ServerAddress::Tcp).collect();
    if found.is_empty() {
        return Err(ConnectCause::Resolve("it has no address".to_owned()));
    }
    Ok(found)
}

/// The attempt to log in at one address.
struct Attempt<'a> {
    info: &'a ConnInfo,
    host: &'a PostgresHost,
    address: ServerAddress,
}

impl Attempt<'_> {
    async fn run<S, F>(
        &self,
        login: &impl Fn(ServerLink) -> F,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<(S, ServerRole), ConnectCause>
    where
        F: Future<Output = Result<(S, ServerRole), ConnectCause>>,
    {
        let limit = self.info.connect_timeout;
        let once = async |tls| {
            let whole = async {
                let socket = self.dial(tls).await?;
                login(ServerLink { socket, host: self.host.clone() }).await
            };
            // Boxed: the state of a handshake is large, and there is one per connection.
            let outcome = timeout(limit, Box::pin(whole)).await;
            outcome.unwrap_or(Err(ConnectCause::Timeout(limit)))
        };
        let outcome = once(tls).await;
        match &outcome {
            Err(cause)
                if self.info.sslmode == SslMode::Prefer
                    && tls.is_some()
                    && matches!(self.address, ServerAddress::Tcp(_))
                    && cause.may_pass_without_tls() =>
            {
                match once(None).await {
                    // pg_hba.conf asks for TLS, so the first error is the one to mend.
                    Err(without) if without.is_of_pg_hba() => outcome,
                    without => without,
                }
            }
            _ => outcome,
        }
    }

    async fn dial(&self, tls: Option<&Arc<ClientConfig>>) -> Result<ServerSocket, ConnectCause> {
        let kind = match &self.address {
            // As in libpq: never TLS on a Unix socket, whatever sslmode says.
            ServerAddress::Unix(path) => SocketKind::Unix(UnixStream::connect(path).await?),
            ServerAddress::Tcp(address) => {
                let socket = TcpStream::connect(address).await?;
                tune(&socket)?;
                match tls {
                    Some(tls) => self.start_tls(socket, tls).await?,
                    None => SocketKind::Tcp(socket),
                }
            }
        };
        Ok(ServerSocket::new(kind))
    }

    async fn start_tls(
        &self,
        mut socket: TcpStream,
        tls: &Arc<ClientConfig>,
    ) -> Result<SocketKind, ConnectCause> {
        framing::write_ssl_request(&mut socket).await?;
        // Exactly one byte: whatever follows it unencrypted
        // must reach the TLS session and break it.
        match socket.read_u8().await? {
            b'S' => {}
            b'N' if self.info.sslmode == SslMode::Prefer => return Ok(SocketKind::Tcp(socket)),
            b'N' => return Err(ConnectCause::NoTls),
            b'E' => return Err(ConnectCause::server(&error_payload(&mut socket).await?)),
            _ => return Err(ConnectCause::protocol("the server is no Postgres server")),
        }
        let connector = TlsConnector::from(Arc::clone(tls));
        let stream = connector.connect(tls::server_name(&self.host.name), socket).await?;
        Ok(SocketKind::Tls(Box::new(stream)))
    }
}

fn tune(socket: &TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
    // Keepalive does not run while data is unacknowledged; this covers that.
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(socket, USER_TIMEOUT_MS)?;
    Ok(())
}

/// The payload of an ErrorResponse whose tag was read.
async fn error_payload(socket: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = socket.read_u32().await?.saturating_sub(4) as usize;
    let mut payload = vec![0; length.min(ERROR_BYTES_MAX)];
    socket.read_exact(&mut payload).await?;
    Ok(payload)
}
