//! From a list of hosts to one logged-in session on a server with the right role.
//!
//! The stream and the SQL side go through here, so that hosts, TLS, timeouts and
//! `target_session_attrs` mean the same to both. As libpq: hosts in order, each address of a host in
//! turn, each with the whole timeout; a refusal that would be the same elsewhere ends the search.

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

use super::error::{ConnectCause, ConnectError, ConnectErrorKind};
use super::socket::{ServerSocket, SocketKind};
use crate::source::settings::{ConnInfo, PostgresHost, SslMode, TargetSessionAttrs};
use crate::source::tls;

const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const USER_TIMEOUT_MS: u32 = 60_000;
/// A refusal before the login.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// For servers and poolers that do not report their role at the login.
pub(in crate::source) const ROLE_SQL: &str = "SELECT pg_catalog.pg_is_in_recovery()::pg_catalog.text, pg_catalog.current_setting('default_transaction_read_only')";

/// The first statement of every session, as Postgres' own programs do it: from then on names and
/// operators mean those of `pg_catalog`, whatever database, role and `options` set. A startup
/// parameter would do as well, but for a pooler that drops it in silence.
pub(in crate::source) const EMPTY_PATH_SQL: &str =
    "SELECT pg_catalog.set_config('search_path', '', false)";

/// What `target_session_attrs` asks about.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::source) struct ServerRole {
    standby: bool,
    read_only: bool,
}

impl ServerRole {
    /// From the two parameters that servers since 14 report by themselves. Nothing when one is absent.
    pub(in crate::source) fn reported(
        standby: Option<&str>,
        read_only: Option<&str>,
    ) -> Option<ServerRole> {
        Some(ServerRole { standby: standby? == "on", read_only: read_only? == "on" })
    }

    /// From the answer to [`ROLE_SQL`].
    pub(in crate::source) fn answered(
        standby: Option<&str>,
        read_only: Option<&str>,
    ) -> ServerRole {
        ServerRole { standby: standby == Some("true"), read_only: read_only == Some("on") }
    }

    fn satisfies(self, wanted: TargetSessionAttrs) -> bool {
        match wanted {
            TargetSessionAttrs::Any | TargetSessionAttrs::PreferStandby => true,
            TargetSessionAttrs::ReadWrite => !self.standby && !self.read_only,
            TargetSessionAttrs::ReadOnly => self.standby || self.read_only,
            TargetSessionAttrs::Primary => !self.standby,
            TargetSessionAttrs::Standby => self.standby,
        }
    }
}

/// A socket on which the login can begin, and whose server it is.
pub(in crate::source) struct ServerLink {
    pub(in crate::source) socket: ServerSocket,
    pub(in crate::source) host: PostgresHost,
    /// For messages.
    pub(in crate::source) at: String,
}

/// What is done on a fresh socket.
pub(in crate::source) trait SessionLogin: Sync {
    type Session: Send;

    /// Logs in. The role is asked for only when `info` cares.
    fn login(
        &self,
        link: ServerLink,
        info: &ConnInfo,
    ) -> impl Future<Output = Result<(Self::Session, ServerRole), ConnectCause>> + Send;
}

/// The first server that answers, lets us in and has the wanted role.
pub(in crate::source) async fn first_fit<L: SessionLogin>(
    login: &L,
    info: &ConnInfo,
) -> Result<L::Session, ConnectError> {
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
            let at = host.to_string();
            let targets = targets(host, info).await.unwrap_or_else(|cause| {
                failed.push(ConnectError::new(&at, cause));
                Vec::new()
            });
            for target in targets {
                match attempt(login, info, host, &target, tls.as_ref(), *wanted).await {
                    Ok(session) => return Ok(session),
                    Err(cause) => failed.push(ConnectError::new(&at, cause)),
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

enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

async fn targets(host: &PostgresHost, info: &ConnInfo) -> Result<Vec<Target>, ConnectCause> {
    if host.is_socket() {
        return Ok(vec![Target::Unix(host.to_string().into())]);
    }
    let lookup = tokio::net::lookup_host((host.name.as_str(), host.port));
    let found = timeout(info.connect_timeout, lookup).await;
    let found = found.map_err(|_| ConnectCause::Timeout(info.connect_timeout))?;
    let found = found.map_err(|error| ConnectCause::Resolve(error.to_string()))?;
    let found: Vec<Target> = found.map(Target::Tcp).collect();
    if found.is_empty() {
        return Err(ConnectCause::Resolve("it has no address".to_owned()));
    }
    Ok(found)
}

async fn attempt<L: SessionLogin>(
    login: &L,
    info: &ConnInfo,
    host: &PostgresHost,
    target: &Target,
    tls: Option<&Arc<ClientConfig>>,
    wanted: TargetSessionAttrs,
) -> Result<L::Session, ConnectCause> {
    let at = host.to_string();
    let once = async |tls: Option<&Arc<ClientConfig>>| {
        let whole = async {
            let socket = dial(info, host, target, tls).await?;
            let link = ServerLink { socket, host: host.clone(), at: at.clone() };
            login.login(link, info).await
        };
        // Boxed: a handshake's state is large, and it is made once per connection.
        timeout(info.connect_timeout, Box::pin(whole))
            .await
            .unwrap_or_else(|_| Err(ConnectCause::Timeout(info.connect_timeout)))
    };
    let mut outcome = once(tls).await;
    if info.sslmode == SslMode::Prefer
        && tls.is_some()
        && matches!(target, Target::Tcp(_))
        && outcome.as_ref().err().is_some_and(ConnectCause::is_worth_plain)
    {
        outcome = once(None).await;
    }
    let (session, role) = outcome?;
    if role.satisfies(wanted) { Ok(session) } else { Err(ConnectCause::WrongRole(wanted)) }
}

async fn dial(
    info: &ConnInfo,
    host: &PostgresHost,
    target: &Target,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<ServerSocket, ConnectCause> {
    let kind = match target {
        // As libpq: never TLS on a Unix socket, whatever sslmode says.
        Target::Unix(path) => SocketKind::Unix(UnixStream::connect(path).await?),
        Target::Tcp(address) => {
            let socket = TcpStream::connect(address).await?;
            tune(&socket)?;
            match tls {
                Some(tls) => upgrade(socket, tls, info, host).await?,
                None => SocketKind::Tcp(socket),
            }
        }
    };
    Ok(ServerSocket::new(kind))
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

async fn upgrade(
    mut socket: TcpStream,
    tls: &Arc<ClientConfig>,
    info: &ConnInfo,
    host: &PostgresHost,
) -> Result<SocketKind, ConnectCause> {
    framing::write_ssl_request(&mut socket).await?;
    // Exactly one byte: what follows it in clear must reach the TLS session and break it, not us.
    match socket.read_u8().await? {
        b'S' => {}
        b'N' if info.sslmode == SslMode::Prefer => return Ok(SocketKind::Tcp(socket)),
        b'N' => return Err(ConnectCause::NoTls),
        b'E' => return Err(ConnectCause::server(&refusal(&mut socket).await?)),
        _ => return Err(ConnectCause::protocol("the server is no Postgres server")),
    }
    let connector = TlsConnector::from(Arc::clone(tls));
    let stream = connector.connect(tls::server_name(&host.name), socket).await?;
    Ok(SocketKind::Tls(Box::new(stream)))
}

/// The payload of an ErrorResponse whose tag was read.
async fn refusal(socket: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = socket.read_u32().await?.saturating_sub(4) as usize;
    let mut payload = vec![0; length.min(ERROR_BYTES_MAX)];
    socket.read_exact(&mut payload).await?;
    Ok(payload)
}
