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
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};

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
/// How long a connection that was told to close may take before the next one is told, too.
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

/// What is known of a connection, to it and to the listener.
#[derive(Debug)]
struct State {
    accepted_at: Instant,
    /// When a byte was last read or written.
    active_at: Instant,
    /// The head of its request has come.
    has_asked: bool,
    /// Its request is being carried out.
    is_under_way: bool,
    /// It has shown the token.
    is_let_in: bool,
    /// It was told to close, for another one.
    is_closed: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Shared(Mutex<State>);

impl Shared {
    fn new() -> Arc<Shared> {
        let now = Instant::now();
        Arc::new(Shared(Mutex::new(State {
            accepted_at: now,
            active_at: now,
            has_asked: false,
            is_under_way: false,
            is_let_in: false,
            is_closed: false,
            waker: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Client {
    /// May stay longer.
    pub(super) fn let_in(&self) {
        self.shared.state().is_let_in = true;
    }

    /// Has asked; its request is under way until what is returned is dropped.
    pub(super) fn asks(&self) -> UnderWay {
        let mut state = self.shared.state();
        (state.has_asked, state.is_under_way) = (true, true);
        UnderWay(Arc::clone(&self.shared))
    }
}

/// A request that is under way.
pub(super) struct UnderWay(Arc<Shared>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.is_under_way, state.active_at) = (false, Instant::now());
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
    bounds: Bounds,
    open: Vec<Weak<Shared>>,
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

    /// Closes the connection that has been idle longest; false when all were told to close.
    fn close_idlest(&mut self) -> bool {
        self.open.retain(|shared| shared.strong_count() > 0);
        let open = self.open.iter().filter_map(Weak::upgrade);
        let idlest = open.filter(|shared| !shared.state().is_closed).min_by_key(|shared| {
            let state = shared.state();
            (state.is_under_way, state.is_let_in, state.active_at)
        });
        let Some(idlest) = idlest else { return false };
        let mut state = idlest.state();
        state.is_closed = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        true
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = Client;

    async fn accept(&mut self) -> (Connection, Client) {
        loop {
            match self.listener.accept().await {
                Ok((stream, addr)) => {
                    let permit = self.place().await;
                    let shared = Shared::new();
                    self.open.push(Arc::downgrade(&shared));
                    let age = Box::pin(sleep(self.bounds.head_max));
                    let client = Client { addr, shared: Arc::clone(&shared) };
                    let age_max = self.bounds.age_max;
                    let stage = Stage::Head;
                    let connection =
                        Connection { stream, age, stage, age_max, shared, _permit: permit };
                    return (connection, client);
                }
                Err(error) => {
                    tracing::debug!(%error, "admin server could not accept");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Client> {
        let addr = self.listener.local_addr()?;
        Ok(Client { addr, shared: Shared::new() })
    }
}

/// What the age of a connection is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The head of its request is to come.
    Head,
    /// It has asked.
    Any,
    /// It has shown the token, and got more.
    LetIn,
}

pub(super) struct Connection {
    stream: TcpStream,
    age: Pin<Box<Sleep>>,
    stage: Stage,
    age_max: Duration,
    shared: Arc<Shared>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Was it closed for another one?
    fn closed(&self) -> io::Result<()> {
        if self.shared.state().is_closed {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// What the socket has answered: it was active, or has to wait and may be too old.
    fn after<T>(
        &mut self,
        answer: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if answer.is_ready() {
            self.shared.state().active_at = Instant::now();
            return answer;
        }
        self.too_old(cx)
    }

    /// Only asked where the socket has nothing to give, so a ready socket is served first.
    fn too_old<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.shared.state().waker = Some(cx.waker().clone());
        loop {
            ready!(self.age.as_mut().poll(cx));
            let (accepted_at, has_asked, is_let_in) = {
                let state = self.shared.state();
                (state.accepted_at, state.has_asked, state.is_let_in)
            };
            let (stage, until) = match self.stage {
                Stage::Head if has_asked => (Stage::Any, accepted_at + self.age_max),
                Stage::Any if is_let_in => (Stage::LetIn, Instant::now() + AGE_MORE),
                _ => return Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            };
            self.stage = stage;
            self.age.as_mut().reset(until);
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.closed()?;
        let answer = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.after(answer, cx)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.closed()?;
        let answer = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.after(answer, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.closed()?;
        let answer = Pin::new(&mut self.stream).poll_flush(cx);
        self.after(answer, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
