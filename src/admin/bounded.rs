//! A listener whose clients cannot pile up, nor keep others waiting.
//!
//! A fixed number of connections is served at once. Where that many are open, the one that has been
//! idle longest is closed for the next one, so a probe never waits behind other clients. A
//! connection whose request is under way is idle last, before it one that has shown the token.
//!
//! Each connection also ends at a fixed age, whatever it is doing: waiting to send its request, or
//! taking its answer one byte at a time. An age instead of an idle time, because a client that sends
//! a byte a second is never idle. Only a client that has shown the token gets more: reading a long
//! log takes a while.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Connections served at once.
const CONNECTIONS_MAX: usize = 64;
/// Age at which a connection is cut that has not sent the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(2);
/// Age at which any connection is cut: Prometheus' own default for a scrape.
const AGE_MAX: Duration = Duration::from_secs(10);
/// What a client that was let in gets on top.
const AGE_MORE: Duration = Duration::from_secs(60);
/// Pause after a failed accept (no file descriptors left), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a connection that was closed may take to give its place up before the next is closed, too.
const CLOSE_WAIT: Duration = Duration::from_millis(20);

/// How many connections, and how old they may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) connections_max: usize,
    pub(super) head_max: Duration,
    pub(super) age_max: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { connections_max: CONNECTIONS_MAX, head_max: HEAD_MAX, age_max: AGE_MAX }
    }
}

/// What is known of a connection, to it, to its watchdog and to the listener.
#[derive(Debug)]
struct ConnectionState {
    accepted_at: Instant,
    /// When a byte was last read or written.
    active_at: Instant,
    /// The head of its request has come.
    has_asked: bool,
    /// Its request is being carried out.
    is_under_way: bool,
    /// It has shown the token.
    is_let_in: bool,
    /// A second descriptor of the socket, to close it from outside; none once it was closed.
    socket: Option<Socket>,
}

impl ConnectionState {
    /// Wakes reader and writer: the one gets an end of file, the other an error.
    fn close(&mut self) {
        if let Some(socket) = self.socket.take() {
            let _already_gone = socket.shutdown(Shutdown::Both).is_err();
        }
    }
}

#[derive(Debug)]
struct SharedConnection(Mutex<ConnectionState>);

impl SharedConnection {
    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a connection that has grown too old. It is given more time for what it has done by then.
async fn close_when_old(connection: Weak<SharedConnection>, bounds: Bounds) {
    let may_stay = |earned: fn(&ConnectionState) -> bool| {
        let connection = connection.upgrade()?;
        let mut state = connection.state();
        if !earned(&state) {
            state.close();
        }
        state.socket.is_some().then_some(state.accepted_at)
    };
    sleep(bounds.head_max).await;
    let Some(accepted_at) = may_stay(|state| state.has_asked) else { return };
    sleep_until(accepted_at + bounds.age_max).await;
    if may_stay(|state| state.is_let_in).is_some() {
        sleep(AGE_MORE).await;
        may_stay(|_| false);
    }
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub(super) struct AdminClient {
    pub(super) addr: SocketAddr,
    connection: Arc<SharedConnection>,
}

impl AdminClient {
    /// May stay longer.
    pub(super) fn let_in(&self) {
        self.connection.state().is_let_in = true;
    }

    /// Has asked; its request is under way until what is returned is dropped.
    pub(super) fn asks(&self) -> RequestUnderWay {
        let mut state = self.connection.state();
        (state.has_asked, state.is_under_way) = (true, true);
        RequestUnderWay(Arc::clone(&self.connection))
    }
}

/// A request that is under way.
pub(super) struct RequestUnderWay(Arc<SharedConnection>);

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.is_under_way, state.active_at) = (false, Instant::now());
    }
}

impl Connected<IncomingStream<'_, Bounded>> for AdminClient {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> AdminClient {
        stream.io().client(*stream.remote_addr())
    }
}

pub(super) struct Bounded {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    bounds: Bounds,
    open: Vec<Weak<SharedConnection>>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener, bounds: Bounds) -> Bounded {
        let permits = Arc::new(Semaphore::new(bounds.connections_max));
        Bounded { listener, permits, bounds, open: Vec::new() }
    }

    /// A place for one more connection, if need be that of another one.
    async fn place(&mut self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                return permit;
            }
            let is_last = !self.close_idlest();
            let freed = Arc::clone(&self.permits).acquire_owned();
            let freed = if is_last { Ok(freed.await) } else { timeout(CLOSE_WAIT, freed).await };
            if let Ok(Ok(permit)) = freed {
                return permit;
            }
        }
    }

    /// Closes the connection that has been idle longest; false when all were closed before.
    fn close_idlest(&mut self) -> bool {
        self.open.retain(|connection| connection.strong_count() > 0);
        let open = self.open.iter().filter_map(Weak::upgrade);
        let open = open.filter(|connection| connection.state().socket.is_some());
        let idlest = open.min_by_key(|connection| {
            let state = connection.state();
            (state.is_under_way, state.is_let_in, state.active_at)
        });
        idlest.map(|connection| connection.state().close()).is_some()
    }

    async fn accept_one(&mut self) -> io::Result<(AdminConnection, SocketAddr)> {
        let (stream, addr) = self.listener.accept().await?;
        let socket = Some(SockRef::from(&stream).try_clone()?);
        let permit = self.place().await;
        let now = Instant::now();
        let shared = Arc::new(SharedConnection(Mutex::new(ConnectionState {
            accepted_at: now,
            active_at: now,
            has_asked: false,
            is_under_way: false,
            is_let_in: false,
            socket,
        })));
        self.open.push(Arc::downgrade(&shared));
        let watchdog = tokio::spawn(close_when_old(Arc::downgrade(&shared), self.bounds));
        let watchdog = watchdog.abort_handle();
        Ok((AdminConnection { stream, shared, watchdog, _permit: permit }, addr))
    }
}

impl Listener for Bounded {
    type Io = AdminConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (AdminConnection, SocketAddr) {
        loop {
            match self.accept_one().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    tracing::debug!(%error, "admin server could not accept");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that notes when it was last active.
pub(super) struct AdminConnection {
    stream: TcpStream,
    shared: Arc<SharedConnection>,
    watchdog: AbortHandle,
    _permit: OwnedSemaphorePermit,
}

impl AdminConnection {
    pub(super) fn client(&self, addr: SocketAddr) -> AdminClient {
        AdminClient { addr, connection: Arc::clone(&self.shared) }
    }

    fn noted<T>(&self, answer: Poll<T>) -> Poll<T> {
        if answer.is_ready() {
            self.shared.state().active_at = Instant::now();
        }
        answer
    }
}

impl Drop for AdminConnection {
    /// Whoever still knows its client must not keep the socket open.
    fn drop(&mut self) {
        self.watchdog.abort();
        self.shared.state().socket = None;
    }
}

impl AsyncRead for AdminConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let answer = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.noted(answer)
    }
}

impl AsyncWrite for AdminConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let answer = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.noted(answer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
