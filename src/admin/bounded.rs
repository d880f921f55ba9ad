//! A listener whose clients cannot pile up, nor keep others waiting.
//!
//! A fixed number of connections is served at once. Where that many are
//! open, the one that has been idle longest is closed for the next one, so
//! a probe never waits behind other clients. A connection whose request is
//! being handled is closed last; before it, one that follows events, because few may; before that, one
//! that has sent the token.
//!
//! Each connection is also closed at a fixed age. The age counts and not the idle time, because a
//! client that sends or takes a byte a second is never idle. A client that has sent the token gets
//! more time, because reading a long log takes a while, and so does one that follows events.

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

/// How much longer the connection of a client that has sent the token, or follows events, may last.
const AGE_MORE: Duration = Duration::from_secs(60);
/// Pause after a failed accept (no file descriptors left), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a closed connection may take to end before the next one is closed, too.
const CLOSE_WAIT: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) connections_max: usize,
    /// Greatest age of a connection without the head of a request.
    pub(super) head_max: Duration,
    pub(super) age_max: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        // Ten seconds are the timeout of a scrape in Prometheus.
        let [head_max, age_max] = [2, 10].map(Duration::from_secs);
        Bounds { connections_max: 64, head_max, age_max }
    }
}

/// Shared by a connection, its watchdog and the listener.
#[derive(Debug)]
struct ConnectionState {
    accepted_at: Instant,
    /// When a byte was last read or written.
    active_at: Instant,
    /// The head of the request was read.
    has_asked: bool,
    /// The request is being handled.
    is_under_way: bool,
    /// The client has sent the token.
    is_let_in: bool,
    /// The client follows events.
    is_following: bool,
    /// A second descriptor of the socket, to close it from outside; none once it was closed.
    socket: Option<Socket>,
}

impl ConnectionState {
    /// Wakes the tasks that read and write: reading ends, writing fails.
    fn close(&mut self) {
        if let Some(socket) = self.socket.take() {
            let _already_gone = socket.shutdown(Shutdown::Both).is_err();
        }
    }
}

type SharedState = Mutex<ConnectionState>;

fn locked(state: &SharedState) -> MutexGuard<'_, ConnectionState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes a connection that has grown too old for what its client has done by then.
async fn close_when_old(connection: Weak<SharedState>, bounds: Bounds) {
    let may_stay = |earned: fn(&ConnectionState) -> bool| {
        let connection = connection.upgrade()?;
        let mut state = locked(&connection);
        if !earned(&state) {
            state.close();
        }
        state.socket.is_some().then_some(state.accepted_at)
    };
    sleep(bounds.head_max).await;
    let Some(accepted_at) = may_stay(|state| state.has_asked) else { return };
    sleep_until(accepted_at + bounds.age_max).await;
    if may_stay(|state| state.is_let_in || state.is_following).is_some() {
        sleep(AGE_MORE).await;
        may_stay(|_| false);
    }
}

#[derive(Clone, Debug)]
pub(super) struct AdminClient {
    pub(super) addr: SocketAddr,
    connection: Arc<SharedState>,
}

impl AdminClient {
    /// The client has sent the token: its connection may last longer.
    pub(super) fn let_in(&self) {
        locked(&self.connection).is_let_in = true;
    }

    /// The client is sent events while they happen: its connection may last longer, and gives way late.
    /// The caller limits how many there are, or a probe would have to wait.
    pub(super) fn follows(&self) {
        locked(&self.connection).is_following = true;
    }

    /// The client has sent a request, which is being handled until the guard is dropped.
    pub(super) fn asks(&self) -> RequestUnderWay {
        let mut state = locked(&self.connection);
        (state.has_asked, state.is_under_way) = (true, true);
        RequestUnderWay(Arc::clone(&self.connection))
    }
}

pub(super) struct RequestUnderWay(Arc<SharedState>);

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        let mut state = locked(&self.0);
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
    open: Vec<Weak<SharedState>>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener, bounds: Bounds) -> Bounded {
        let permits = Arc::new(Semaphore::new(bounds.connections_max));
        Bounded { listener, permits, bounds, open: Vec::new() }
    }

    /// A permit for one more connection; if need be, another one is closed for it.
    async fn permit(&mut self) -> OwnedSemaphorePermit {
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
        let open = open.filter(|connection| locked(connection).socket.is_some());
        let idlest = open.min_by_key(|connection| {
            let state = locked(connection);
            (state.is_under_way, state.is_following, state.is_let_in, state.active_at)
        });
        idlest.map(|connection| locked(&connection).close()).is_some()
    }

    async fn accept_one(&mut self) -> io::Result<(AdminConnection, SocketAddr)> {
        let (stream, addr) = self.listener.accept().await?;
        let socket = Some(SockRef::from(&stream).try_clone()?);
        let permit = self.permit().await;
        let now = Instant::now();
        let shared = Arc::new(Mutex::new(ConnectionState {
            accepted_at: now,
            active_at: now,
            has_asked: false,
            is_under_way: false,
            is_let_in: false,
            is_following: false,
            socket,
        }));
        self.open.push(Arc::downgrade(&shared));
        let watchdog = tokio::spawn(close_when_old(Arc::downgrade(&shared), self.bounds));
        let connection =
            AdminConnection { stream, shared, watchdog: watchdog.abort_handle(), _permit: permit };
        Ok((connection, addr))
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

pub(super) struct AdminConnection {
    stream: TcpStream,
    shared: Arc<SharedState>,
    watchdog: AbortHandle,
    _permit: OwnedSemaphorePermit,
}

impl AdminConnection {
    pub(super) fn client(&self, addr: SocketAddr) -> AdminClient {
        AdminClient { addr, connection: Arc::clone(&self.shared) }
    }

    fn active<T>(&self, outcome: Poll<T>) -> Poll<T> {
        if outcome.is_ready() {
            locked(&self.shared).active_at = Instant::now();
        }
        outcome
    }
}

impl Drop for AdminConnection {
    /// An [`AdminClient`] that is still alive must not keep the socket open.
    fn drop(&mut self) {
        self.watchdog.abort();
        locked(&self.shared).socket = None;
    }
}

impl AsyncRead for AdminConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.active(outcome)
    }
}

impl AsyncWrite for AdminConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.active(outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
