//! A listener whose clients cannot pile up.
//!
//! Each connection holds one of a fixed number of permits and dies at a fixed age, whatever it is
//! doing: waiting to send its request, or taking its answer one byte at a time. An age instead of
//! an idle time, because a client that sends a byte a second is never idle. Only a client that has
//! shown the token gets more: reading a long log takes a while.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Connections served at once; more wait in the kernel's backlog.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// Age at which a connection is cut: Prometheus' own default for a scrape.
pub(super) const AGE_MAX: Duration = Duration::from_secs(10);
/// What a client that was let in gets on top.
const AGE_MORE: Duration = Duration::from_secs(60);
/// Pause after a failed accept (no file descriptors left), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) addr: SocketAddr,
    let_in: Arc<AtomicBool>,
}

impl Client {
    fn new(addr: SocketAddr) -> Client {
        Client { addr, let_in: Arc::default() }
    }

    /// May stay longer.
    pub(super) fn let_in(&self) {
        self.let_in.store(true, Ordering::Relaxed);
    }
}

impl Connected<IncomingStream<'_, Bounded>> for Client {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> Client {
        stream.remote_addr().clone()
    }
}

pub(super) struct Bounded {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    age_max: Duration,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener) -> Bounded {
        Bounded::with_limits(listener, CONNECTIONS_MAX, AGE_MAX)
    }

    pub(super) fn with_limits(listener: TcpListener, connections: usize, age: Duration) -> Bounded {
        Bounded { listener, permits: Arc::new(Semaphore::new(connections)), age_max: age }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = Client;

    async fn accept(&mut self) -> (Connection, Client) {
        loop {
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                // Never closed; were it, no connection may be served.
                std::future::pending::<()>().await;
                continue;
            };
            match self.listener.accept().await {
                Ok((stream, addr)) => {
                    let age = Box::pin(sleep(self.age_max));
                    let client = Client::new(addr);
                    let let_in = Arc::clone(&client.let_in);
                    return (Connection { stream, age, let_in, _permit: permit }, client);
                }
                Err(error) => {
                    tracing::debug!(%error, "admin server could not accept");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Client> {
        self.listener.local_addr().map(Client::new)
    }
}

pub(super) struct Connection {
    stream: TcpStream,
    age: Pin<Box<Sleep>>,
    let_in: Arc<AtomicBool>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Only asked where the socket has nothing to give, so a ready socket is served first.
    fn too_old<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        ready!(self.age.as_mut().poll(cx));
        if self.let_in.swap(false, Ordering::Relaxed) {
            self.age.as_mut().reset(Instant::now() + AGE_MORE);
            ready!(self.age.as_mut().poll(cx));
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Pending => self.too_old(cx),
            ready => ready,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, buf) {
            Poll::Pending => self.too_old(cx),
            ready => ready,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => self.too_old(cx),
            ready => ready,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
