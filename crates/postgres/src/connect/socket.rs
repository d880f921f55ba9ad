//! A connected socket, with or without TLS, as long as it belongs to the async runtime.
//!
//! tokio-postgres answers any authentication request. It takes exactly one, as the very first
//! message of the server, so checking that message decides what is answered.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use crate::require_auth::{AuthMethod, RequireAuth};
use walrelay_base::transport::Transport;

/// Tag, length and code of an authentication request.
const HEAD_BYTES: usize = 9;

pub(crate) enum SocketKind {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

pub(crate) struct ServerSocket {
    kind: SocketKind,
    /// Without TLS to another machine: others can read what is sent.
    pub(crate) exposed: bool,
    /// With TLS to another machine.
    pub(crate) encrypted: bool,
    first_message: Option<FirstMessage>,
}

/// The head of the server's first message as far as it was received, and what it may ask for.
struct FirstMessage {
    rules: RequireAuth,
    head: Vec<u8>,
}

trait AsyncSocket: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> AsyncSocket for T {}

impl ServerSocket {
    pub(super) fn new(kind: SocketKind) -> ServerSocket {
        // The address decides, because a name may resolve to anything.
        let is_remote = |socket: &TcpStream| {
            !socket.peer_addr().is_ok_and(|at| at.ip().to_canonical().is_loopback())
        };
        let (exposed, encrypted) = match &kind {
            SocketKind::Unix(_) => (false, false),
            SocketKind::Tcp(socket) => (is_remote(socket), false),
            SocketKind::Tls(stream) => (false, is_remote(stream.get_ref().0)),
        };
        ServerSocket { kind, exposed, encrypted, first_message: None }
    }

    /// Fails the read of the first message unless `rules` allow to answer it.
    pub(crate) fn judged_by(mut self, rules: RequireAuth) -> ServerSocket {
        self.first_message = Some(FirstMessage { rules, head: Vec::new() });
        self
    }

    /// Takes the socket out of the async runtime.
    pub(super) fn into_transport(self) -> io::Result<Transport> {
        match self.kind {
            SocketKind::Tcp(socket) => Transport::new(socket.into_std()?, None),
            SocketKind::Unix(socket) => Transport::new(socket.into_std()?, None),
            SocketKind::Tls(stream) => {
                let (socket, session) = stream.into_inner();
                Transport::new(socket.into_std()?, Some(session))
            }
        }
    }

    fn inner(self: Pin<&mut Self>) -> Pin<&mut dyn AsyncSocket> {
        match &mut self.get_mut().kind {
            SocketKind::Tcp(socket) => Pin::new(socket),
            SocketKind::Unix(socket) => Pin::new(socket),
            SocketKind::Tls(socket) => Pin::new(&mut **socket),
        }
    }
}

impl FirstMessage {
    fn judge(&mut self, received: &[u8], exposed: bool) -> io::Result<()> {
        if self.head.len() == HEAD_BYTES {
            return Ok(());
        }
        let missing = HEAD_BYTES - self.head.len();
        self.head.extend(received.iter().take(missing));
        let Ok([b'R', _, _, _, _, code @ ..]) = <[u8; HEAD_BYTES]>::try_from(&*self.head) else {
            return Ok(());
        };
        match AuthMethod::of(i32::from_be_bytes(code)) {
            Some(asked) => self.rules.judge(asked, exposed).map_err(io::Error::other),
            None => Ok(()),
        }
    }
}

impl AsyncRead for ServerSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(self.as_mut().inner().poll_read(cx, buf))?;
        let exposed = self.exposed;
        Poll::Ready(match &mut self.first_message {
            Some(first) => first.judge(buf.filled().get(before..).unwrap_or_default(), exposed),
            None => Ok(()),
        })
    }
}

impl AsyncWrite for ServerSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(cx)
    }
}
