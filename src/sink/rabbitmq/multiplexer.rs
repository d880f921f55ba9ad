//! The broker's socket, shared by lapin and the publishes of some channels.
//!
//! lapin spends more CPU on a publish than the rest of the relay, and hangs a returned message on
//! any confirm. So it gets one end of a socket pair, for all but publishes: login, heartbeats,
//! questions, closes. A task passes whole frames between the other end and the broker, writes
//! publishes between those of lapin, and keeps the answers to them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::answer::Answer;
use super::answers::{Answers, FrameMeaning, HEARTBEAT, frame_length};
use super::connection_loss::ConnectionLoss;
use super::deadline::PublishDeadline;
use super::tls;
use crate::sink::PublishLimits;

/// Two AMQP frames.
const READ_BYTES: usize = 64 << 10;
/// A larger buffer is freed once it is empty.
const KEPT_BYTES: usize = 1 << 20;
/// lapin ends a connection on which it hears nothing for two heartbeats, which are seconds.
const LAPIN_HEARS_EVERY: Duration = Duration::from_millis(250);
/// How long the broker's reason is waited for after a write has failed.
const REASON_WITHIN: Duration = Duration::from_millis(100);

/// The number of the connection itself.
const NO_CHANNEL: u16 = 0;

pub(super) trait AmqpSocket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> AmqpSocket for T {}

/// Dropping it ends the task.
#[derive(Debug)]
pub(super) struct Multiplexer {
    shared: Arc<Shared>,
    pub(super) task: AbortHandle,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    answered: Notify,
    tls_failure: OnceLock<ConnectionLoss>,
}

#[derive(Debug, Default)]
struct State {
    /// Frames to be written.
    publishes: Vec<u8>,
    /// Those that are published on.
    channels: Vec<u16>,
    /// With their channels.
    answers: Vec<(u16, Answer)>,
    blocked: bool,
    /// No publish is written after it.
    deadline: PublishDeadline,
    /// As it was when the task was woken for it.
    deadline_seen: Option<PublishLimits>,
    cluster_name: String,
    frame_bytes_offered: u32,
    /// The broker reads no more publishes.
    closed: bool,
    /// The task, while it has nothing to write.
    idle: Option<Waker>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Multiplexer {
    /// Returns the plain socket for lapin.
    pub(super) fn over(broker: impl AmqpSocket + 'static) -> io::Result<(TcpStream, Multiplexer)> {
        let (theirs, ours) = StdUnixStream::pair()?;
        for end in [&theirs, &ours] {
            end.set_nonblocking(true)?;
        }
        let plain = TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(theirs)))?;
        let lapin = UnixStream::from_std(ours)?;
        let shared = Arc::<Shared>::default();
        let task = tokio::spawn(Forwarder::new(broker, lapin, Arc::clone(&shared)).run());
        Ok((plain, Multiplexer { shared, task: task.abort_handle() }))
    }

    /// The TLS error that ended the connection, if one did.
    pub(super) fn tls_failure(&self) -> Option<&ConnectionLoss> {
        self.shared.tls_failure.get()
    }

    /// From here on, answers to publishes on this channel are kept from lapin.
    pub(super) fn serve(&self, channel: u16) {
        self.shared.state().channels.push(channel);
    }

    /// Sends whole frames behind those given before, and empties the buffer.
    pub(super) fn publish(&self, frames: &mut Vec<u8>) {
        let mut state = self.shared.state();
        if !state.closed && state.publishes.is_empty() {
            std::mem::swap(&mut state.publishes, frames);
        } else if !state.closed {
            state.publishes.extend_from_slice(frames);
        }
        let idle = state.idle.take();
        drop(state);
        frames.clear();
        frames.shrink_to(KEPT_BYTES);
        if let Some(task) = idle {
            task.wake();
        }
    }

    /// From here on, publishes are written until this time, which the task reads before each write.
    /// To be called again when it has changed: what waits for a later one is written then.
    pub(super) fn publish_until(&self, deadline: &PublishDeadline) {
        let mut state = self.shared.state();
        let seen = deadline.get();
        let is_new = std::mem::replace(&mut state.deadline_seen, seen) != seen;
        state.deadline = deadline.clone();
        let is_awaited = is_new && !state.publishes.is_empty();
        let idle = state.idle.take_if(|_| is_awaited);
        drop(state);
        if let Some(task) = idle {
            task.wake();
        }
    }

    /// True while a resource alarm of the broker blocks publishers (`connection.blocked`).
    pub(super) fn is_blocked(&self) -> bool {
        self.shared.state().blocked
    }

    /// With which the server has introduced itself.
    pub(super) fn cluster_name(&self) -> String {
        self.shared.state().cluster_name.clone()
    }

    /// The largest frame that the server offers; 0 where it has not said so, or sets no limit.
    pub(super) fn frame_bytes_offered(&self) -> usize {
        self.shared.state().frame_bytes_offered as usize
    }

    /// Waits until there is an answer.
    pub(super) fn answered(&self) -> impl Future<Output = ()> + use<> {
        let shared = Arc::clone(&self.shared);
        async move { shared.answered.notified().await }
    }

    /// What the broker has answered since the last call, in its order, and on which channel.
    pub(super) fn answers(&self) -> Vec<(u16, Answer)> {
        std::mem::take(&mut self.shared.state().answers)
    }
}

impl Drop for Multiplexer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the task owns.
struct Forwarder<S> {
    broker: S,
    lapin: UnixStream,
    shared: Arc<Shared>,
    answers: Answers,
    from_broker: Vec<u8>,
    to_lapin: Vec<u8>,
    from_lapin: Vec<u8>,
    /// Whole frames, written up to `written`.
    to_broker: Vec<u8>,
    written: usize,
    /// They are publishes, and not lapin's.
    writes_publishes: bool,
    flushed: bool,
    lapin_has_ended: bool,
    lapin_heard_at: Instant,
}

impl<S: AmqpSocket> Forwarder<S> {
    fn new(broker: S, lapin: UnixStream, shared: Arc<Shared>) -> Forwarder<S> {
        Forwarder {
            broker,
            lapin,
            shared,
            answers: Answers::default(),
            from_broker: Vec::new(),
            to_lapin: Vec::new(),
            from_lapin: Vec::new(),
            to_broker: Vec::new(),
            written: 0,
            writes_publishes: false,
            flushed: true,
            lapin_has_ended: false,
            lapin_heard_at: Instant::now(),
        }
    }

    async fn run(mut self) {
        let mut ended = std::future::poll_fn(|context| self.pass(context)).await;
        if ended.is_err() {
            // A write fails when the broker has closed, although its reason was not read yet.
            let hearing = std::future::poll_fn(|context| self.read_rest(context));
            if let Ok(Err(last)) = timeout(REASON_WITHIN, hearing).await
                && tls::explain(&last).is_some()
            {
                ended = Err(last);
            }
        }
        let loss = match ended {
            // lapin has reported why.
            Ok(()) if self.lapin_has_ended => return,
            Ok(()) => ConnectionLoss::of("the broker closed the connection"),
            Err(error) => match tls::explain(&error) {
                Some(loss) => self.shared.tls_failure.get_or_init(|| loss).clone(),
                None => error.into(),
            },
        };
        self.shared.state().answers.push((NO_CHANNEL, Answer::Closed(loss)));
        self.shared.answered.notify_one();
    }

    /// Moves what can be moved. Ready once a side has ended.
    fn pass(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let read = self.read_lapin(context)?;
            let wrote = self.write_broker(context)?;
            if self.lapin_has_ended && self.to_broker.is_empty() && self.flushed {
                return Pin::new(&mut self.broker).poll_shutdown(context);
            }
            let heard = self.read_broker(context)?;
            if heard == Poll::Ready(false) {
                return Poll::Ready(Ok(()));
            }
            if read.is_pending() && wrote.is_pending() && heard.is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn read_lapin(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lapin_has_ended || self.from_lapin.len() >= READ_BYTES {
            return Poll::Pending;
        }
        self.from_lapin.reserve(READ_BYTES);
        let count = ready!(pin!(self.lapin.read_buf(&mut self.from_lapin)).poll(context))?;
        self.lapin_has_ended = count == 0;
        Poll::Ready(Ok(()))
    }

    fn write_broker(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.to_broker.is_empty() {
            self.take_next(context);
        }
        if self.to_broker.is_empty() {
            if self.flushed {
                return Poll::Pending;
            }
            ready!(Pin::new(&mut self.broker).poll_flush(context))?;
            self.flushed = true;
            return Poll::Ready(Ok(()));
        }
        if self.writes_publishes && self.shared.state().deadline.is_final() {
            // The rest of a frame that was begun would publish it.
            return Poll::Ready(Err(io::Error::other("the relay may not publish any more")));
        }
        self.flushed = false;
        let rest = &self.to_broker[self.written..];
        match ready!(Pin::new(&mut self.broker).poll_write(context, rest))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            count => self.written += count,
        }
        if self.written == self.to_broker.len() {
            self.to_broker.clear();
            self.to_broker.shrink_to(KEPT_BYTES);
            self.written = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what is written next: lapin's frames, or else publishes.
    fn take_next(&mut self, context: &Context<'_>) {
        let mut whole = 0;
        while let Some(length) = frame_length(&self.from_lapin[whole..]) {
            whole += length;
        }
        if whole > 0 {
            self.to_broker.extend(self.from_lapin.drain(..whole));
            self.writes_publishes = false;
            return;
        }
        let mut state = self.shared.state();
        let is_over = state.deadline.is_over();
        if !state.blocked && !is_over && !self.lapin_has_ended {
            std::mem::swap(&mut state.publishes, &mut self.to_broker);
            self.writes_publishes = true;
        }
        state.idle = self.to_broker.is_empty().then(|| context.waker().clone());
    }

    /// Ready when something was moved from the broker, with false when it has ended.
    fn read_broker(&mut self, context: &mut Context<'_>) -> io::Result<Poll<bool>> {
        if !self.to_lapin.is_empty() {
            let written = Pin::new(&mut self.lapin).poll_write(context, &self.to_lapin);
            return Ok(written.map(|written| {
                // What lapin has sent before it ended is still passed.
                let count = written.unwrap_or(self.to_lapin.len());
                self.to_lapin.drain(..count);
                true
            }));
        }
        self.from_broker.reserve(READ_BYTES);
        let read = pin!(self.broker.read_buf(&mut self.from_broker)).poll(context)?;
        Ok(read.map(|count| {
            self.forward_frames();
            count > 0
        }))
    }

    fn read_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while ready!(self.read_broker(context)?) {}
        Poll::Ready(Ok(()))
    }

    /// Keeps the answers to publishes, and gives lapin all else.
    fn forward_frames(&mut self) {
        let mut state = self.shared.state();
        let (mut at, known) = (0, state.answers.len());
        while let Some(length) = frame_length(&self.from_broker[at..]) {
            let frame = &self.from_broker[at..at + length];
            at += length;
            match self.answers.read_frame(frame, &state.channels) {
                FrameMeaning::Part => continue,
                FrameMeaning::Answer(channel, answer) => {
                    if !state.closed {
                        state.answers.push((channel, answer));
                    }
                    continue;
                }
                FrameMeaning::Blocked(blocked) => state.blocked = blocked,
                FrameMeaning::Started(cluster_name) => state.cluster_name = cluster_name,
                FrameMeaning::Tuned(frame_bytes) => state.frame_bytes_offered = frame_bytes,
                FrameMeaning::Closed(loss) => {
                    state.closed = true;
                    state.publishes.clear();
                    state.answers.push((NO_CHANNEL, Answer::Closed(loss)));
                }
                FrameMeaning::Other => {}
            }
            self.to_lapin.extend_from_slice(frame);
        }
        self.from_broker.drain(..at);
        if state.answers.len() > known {
            self.shared.answered.notify_one();
        }
        drop(state);
        let now = Instant::now();
        if self.to_lapin.is_empty() && now - self.lapin_heard_at > LAPIN_HEARS_EVERY {
            self.to_lapin.extend_from_slice(&HEARTBEAT);
        }
        if !self.to_lapin.is_empty() {
            self.lapin_heard_at = now;
        }
    }
}

#[cfg(test)]
#[path = "multiplexer_tests.rs"]
mod tests;
