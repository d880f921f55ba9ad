//! From a list of hosts to one socket with the right sort of server behind it.
//!
//! The stream and the SQL side go through here, so that hosts, TLS, timeouts and
//! `target_session_attrs` mean the same to both. As libpq: hosts in order, each address of a host in turn,
//! each with the whole timeout; a refusal that would be the same elsewhere ends the search.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pgwire_replication::protocol::framing;
use rustls::ClientConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::{ConnectError, Kind};
use crate::source::settings::{ConnInfo, Host, SslMode, TargetSessionAttrs};
use crate::source::tls;
use crate::source::transport::Transport;

const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const USER_TIMEOUT_MS: u32 = 60_000;
/// A refusal before the login.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// A socket on which the login can begin.
pub(in crate::source) struct Link {
    pub(in crate::source) stream: Stream,
    pub(in crate::source) host: Host,
    /// For messages.
    pub(in crate::source) at: String,
    /// Neither TLS nor this machine: others can read what goes over it.
    pub(in crate::source) exposed: bool,
}

/// What `target_session_attrs` asks about.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::source) struct Sort {
    pub(in crate::source) standby: bool,
    pub(in crate::source) read_only: bool,
}

impl Sort {
    /// From the two parameters that servers since 14 report by themselves.
    pub(in crate::source) fn reported(
        standby: Option<&str>,
        read_only: Option<&str>,
    ) -> Option<Sort> {
        Some(Sort { standby: standby? == "on", read_only: read_only? == "on" })
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

/// For servers and poolers that do not report it.
pub(in crate::source) const SORT_SQL: &str = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only')";

/// The first statement of every session, as Postgres' own programs do it: from then on names and operators mean
/// those of `pg_catalog`, whatever database, role and `options` set. A startup parameter would do as well, but for
/// a pooler that drops it in silence.
pub(in crate::source) const EMPTY_PATH_SQL: &str =
    "SELECT pg_catalog.set_config('search_path', '', false)";

/// What is done on a fresh socket.
pub(in crate::source) trait Login: Sync {
    type Session: Send;

    /// Logs in; the sort is looked at only when `info` cares.
    fn login(
        &self,
        link: Link,
        info: &ConnInfo,
    ) -> impl Future<Output = Result<(Self::Session, Sort), ConnectError>> + Send;
}

/// The first server that answers, lets us in and is of the wanted sort.
pub(in crate::source) async fn first_fit<L: Login>(
    login: &L,
    info: &ConnInfo,
) -> Result<L::Session, ConnectError> {
    let over_tcp = info.hosts.iter().any(|host| !is_unix(host));
    let tls = if over_tcp { tls::client_config(info)? } else { None };
    let wishes: &[TargetSessionAttrs] = match &info.target_session_attrs {
        TargetSessionAttrs::PreferStandby => {
            &[TargetSessionAttrs::Standby, TargetSessionAttrs::Any]
        }
        one => std::slice::from_ref(one),
    };
    let mut failed = Vec::new();
    for wanted in wishes {
        failed.clear();
        for host in &info.hosts {
            for target in targets(host, info).await.unwrap_or_else(|error| {
                failed.push(error);
                Vec::new()
            }) {
                match attempt(login, info, host, &target, tls.as_ref(), *wanted).await {
                    Ok(session) => return Ok(session),
                    Err(error) if error.kind() == Kind::Fatal => return Err(error),
                    Err(error) => failed.push(error),
                }
            }
        }
    }
    match failed.len() {
        1 => Err(failed.remove(0)),
        _ => Err(ConnectError::All(failed)),
    }
}

enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

fn is_unix(host: &Host) -> bool {
    host.name.starts_with('/')
}

/// `host:port`, or the socket file.
fn shown(host: &Host) -> String {
    match () {
        () if is_unix(host) => format!("{}/.s.PGSQL.{}", host.name, host.port),
        () if host.name.contains(':') => format!("[{}]:{}", host.name, host.port),
        () => format!("{}:{}", host.name, host.port),
    }
}

async fn targets(host: &Host, info: &ConnInfo) -> Result<Vec<Target>, ConnectError> {
    let at = shown(host);
    if is_unix(host) {
        return Ok(vec![Target::Unix(at.into())]);
    }
    let lookup = tokio::net::lookup_host((host.name.as_str(), host.port));
    match timeout(info.connect_timeout, lookup).await {
        Ok(Ok(found)) => {
            let found = found.map(Target::Tcp).collect::<Vec<_>>();
            if found.is_empty() {
                return Err(ConnectError::Resolve { at, why: "it has no address".to_owned() });
            }
            Ok(found)
        }
        Ok(Err(error)) => Err(ConnectError::Resolve { at, why: error.to_string() }),
        Err(_) => Err(ConnectError::Timeout { at, after: info.connect_timeout }),
    }
}

async fn attempt<L: Login>(
    login: &L,
    info: &ConnInfo,
    host: &Host,
    target: &Target,
    tls: Option<&Arc<ClientConfig>>,
    wanted: TargetSessionAttrs,
) -> Result<L::Session, ConnectError> {
    let once = async |tls: Option<&Arc<ClientConfig>>| {
        let after = info.connect_timeout;
        let whole = async {
            let link = dial(info, host, target, tls).await?;
            login.login(link, info).await
        };
        // Boxed: a handshake's state is large, and it is made once per connection.
        timeout(after, Box::pin(whole))
            .await
            .unwrap_or_else(|_| Err(ConnectError::Timeout { at: shown(host), after }))
    };
    let mut outcome = once(tls).await;
    if info.sslmode == SslMode::Prefer
        && tls.is_some()
        && matches!(target, Target::Tcp(_))
        && outcome.as_ref().err().is_some_and(ConnectError::is_worth_plain)
    {
        outcome = once(None).await;
    }
    let (session, sort) = outcome?;
    if sort.satisfies(wanted) {
        return Ok(session);
    }
    Err(ConnectError::Unfit { at: shown(host), wanted })
}

async fn dial(
    info: &ConnInfo,
    host: &Host,
    target: &Target,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Link, ConnectError> {
    let at = shown(host);
    let wrong = |error: io::Error| ConnectError::io(&at, &error);
    let stream = match target {
        // As libpq: never TLS on a Unix socket, whatever sslmode says.
        Target::Unix(path) => Stream::Unix(UnixStream::connect(path).await.map_err(wrong)?),
        Target::Tcp(address) => {
            let socket = TcpStream::connect(address).await.map_err(wrong)?;
            tune(&socket).map_err(wrong)?;
            match tls {
                Some(tls) => upgrade(socket, tls, info, host, &at).await?,
                None => Stream::Tcp(socket),
            }
        }
    };
    let exposed = stream.is_exposed();
    Ok(Link { stream, host: host.clone(), at, exposed })
}

fn tune(socket: &TcpStream) -> io::Result<()> {
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
    host: &Host,
    at: &str,
) -> Result<Stream, ConnectError> {
    framing::write_ssl_request(&mut socket).await.map_err(|e| ConnectError::wire(at, &e))?;
    // Exactly one byte: what follows it in clear must reach the TLS session and break it, not us.
    match socket.read_u8().await.map_err(|e| ConnectError::io(at, &e))? {
        b'S' => {}
        b'N' if info.sslmode == SslMode::Prefer => return Ok(Stream::Tcp(socket)),
        b'N' => return Err(ConnectError::NoTls { at: at.to_owned() }),
        b'E' => return Err(refusal(&mut socket, at).await),
        _ => return Err(ConnectError::protocol(at, "the server is no Postgres server")),
    }
    let connector = TlsConnector::from(Arc::clone(tls));
    match connector.connect(tls::server_name(&host.name), socket).await {
        Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
        Err(error) => Err(ConnectError::io(at, &error)),
    }
}

async fn refusal(socket: &mut TcpStream, at: &str) -> ConnectError {
    let mut read = async || {
        let length = socket.read_u32().await?.saturating_sub(4) as usize;
        let mut payload = vec![0; length.min(ERROR_BYTES_MAX)];
        socket.read_exact(&mut payload).await?;
        Ok(payload)
    };
    match read().await {
        Ok(payload) => ConnectError::server(at, &payload),
        Err(error) => ConnectError::io(at, &error),
    }
}

/// A connected socket while the runtime still has it.
pub(in crate::source) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// The address decides, not the name: a name may mean anything.
    fn is_exposed(&self) -> bool {
        match self {
            Stream::Tls(_) | Stream::Unix(_) => false,
            Stream::Tcp(socket) => {
                !socket.peer_addr().is_ok_and(|at| at.ip().to_canonical().is_loopback())
            }
        }
    }

    /// Takes the socket out of the runtime.
    pub(in crate::source) fn into_transport(self) -> io::Result<Transport> {
        match self {
            Stream::Tcp(socket) => Transport::tcp(socket.into_std()?, None),
            Stream::Unix(socket) => Transport::unix(socket.into_std()?),
            Stream::Tls(stream) => {
                let (socket, session) = stream.into_inner();
                Transport::tcp(socket.into_std()?, Some(session))
            }
        }
    }
}

macro_rules! on_each {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Tcp($inner) => $call,
            Stream::Unix($inner) => $call,
            Stream::Tls($inner) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_each!(self, inner => Pin::new(inner).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        on_each!(self, inner => Pin::new(inner).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(self, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(self, inner => Pin::new(inner).poll_shutdown(cx))
    }
}
