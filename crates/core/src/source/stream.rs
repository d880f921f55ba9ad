//! Reads the replication stream and sends status updates.
//!
//! There is one buffer, which is parsed in place: a packet is peeked at, and consumed only when the
//! relay has taken it, so that a full window leaves it in the buffer. The buffer grows for a
//! message larger than itself and shrinks again.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use super::read_pacing::{LARGE_READ_BYTES, ReadPacing};
use super::server::ServerError;
use crate::base::clock::Moment;
use crate::base::lsn::Lsn;
use crate::base::readiness::Readiness;
use crate::mutants::{Mutant, on};
use crate::pgoutput::cursor::DecodeError;
use crate::pgoutput::frame::Frame;

/// The bytes that are read at once.
pub const BUFFER_BYTES: usize = 256 * 1024;
/// The buffer of a session that has not yet received this much at once.
const FIRST_BUFFER_BYTES: usize = LARGE_READ_BYTES;
/// A value of Postgres has at most 1 GiB; the rest is room for the other fields.
const MESSAGE_BYTES_MAX: usize = (1 << 30) + (1 << 20);
const HEADER_BYTES: usize = 5;

/// The bytes that were written to a connection since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentBytes {
    pub written: u64,
    /// So many of them have arrived at the other end, or are not known to be under way.
    pub acknowledged: u64,
}

/// The connection in copy mode. Nothing of it blocks, except for the waits.
pub trait Wire {
    /// Reads what has arrived; 0 is the end of the stream. A read that leaves room has taken everything
    /// that had arrived.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// True when a read would return something though the socket has nothing to read.
    fn has_buffered(&self) -> bool;

    /// The server has closed its end, whatever is still to be read before that.
    fn is_closed(&self) -> bool;

    /// Sends a status update: Postgres may remove the WAL before `flushed`.
    fn report(&mut self, flushed: Lsn, now_unix_us: i64, reply_requested: bool) -> io::Result<()>;

    fn sent(&self) -> SentBytes;

    /// Sends CopyDone, so that the server ends the stream and answers.
    fn send_copy_done(&mut self) -> io::Result<()>;

    /// Waits until there is something to read, until what waits to be sent can be sent, until `other` is
    /// ready, or until `timeout` has passed.
    fn wait(&mut self, timeout: Duration, other: Option<Readiness<'_>>) -> io::Result<()>;

    /// Waits while a backlog gathers in the socket, or until `other` is ready.
    fn pause(&mut self, length: Duration, other: Option<Readiness<'_>>);
}

pub struct Stream {
    wire: Box<dyn Wire + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    pacing: ReadPacing,
    /// How long the next wait pauses.
    pause: Option<Duration>,
    /// The time before which no byte is read, so that a backlog gathers.
    paused_until: Option<Instant>,
    last_received: Instant,
    /// When the socket was last found empty.
    empty_at: Instant,
    lived_at: Instant,
    /// When the newest status update was sent of those that are known to have arrived.
    delivered_at: Option<Instant>,
    /// A status update that is not: where it ends among the bytes that were written, and when it was
    /// sent. Later ones are not looked at before it has arrived.
    under_way: Option<(u64, Instant)>,
}

/// One message of the stream.
#[derive(Debug)]
pub enum Packet<'a> {
    Frame(Frame<'a>),
    Notice(Box<ServerError>),
    Other,
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("{0}")]
    Server(Box<ServerError>),
    /// For example because the server shuts down.
    #[error("the server ended the stream")]
    Ended,
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("the stream is not pgoutput: {0}")]
    Protocol(#[from] DecodeError),
    #[error("a message claims {0} bytes")]
    Oversized(usize),
}

impl Stream {
    pub fn new(wire: Box<dyn Wire + Send>, now: Instant) -> Stream {
        Stream {
            wire,
            buffer: vec![0; FIRST_BUFFER_BYTES],
            start: 0,
            end: 0,
            pacing: ReadPacing::new(now),
            pause: None,
            paused_until: None,
            last_received: now,
            empty_at: now,
            lived_at: now,
            delivered_at: None,
            under_way: None,
        }
    }

    /// The next message, if it was received completely, and its length for [`Stream::consume`].
    pub fn peek(&self) -> Result<Option<(Packet<'_>, usize)>, StreamError> {
        let waiting = &self.buffer[self.start..self.end];
        let Some((length, tag)) = message_length(waiting)? else { return Ok(None) };
        if waiting.len() < length {
            return Ok(None);
        }
        let body = &waiting[HEADER_BYTES..length];
        let packet = match tag {
            b'd' => Packet::Frame(Frame::parse(body)?),
            b'N' => Packet::Notice(Box::new(ServerError::parse(body))),
            b'E' => return Err(StreamError::Server(Box::new(ServerError::parse(body)))),
            b'c' | b'C' | b'Z' => return Err(StreamError::Ended),
            _ => Packet::Other,
        };
        Ok(Some((packet, length)))
    }

    pub fn consume(&mut self, length: usize) {
        self.start += length;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > BUFFER_BYTES {
                self.buffer = vec![0; BUFFER_BYTES];
            }
        }
    }

    /// How long the broker takes to confirm what was read: pauses between reads follow it.
    pub fn set_confirm_time(&mut self, time: Duration) {
        self.pacing.confirm_time = time;
    }

    /// Reads without blocking; true when there is probably more to read.
    pub fn fill(&mut self, now: Instant) -> Result<bool, StreamError> {
        if self.paused_until.is_some_and(|until| now < until) {
            return Ok(false);
        }
        self.paused_until = None;
        self.make_room()?;
        let (mut read, mut is_empty) = (0, false);
        while self.end < self.buffer.len() {
            match self.wire.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(StreamError::Io(ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => {
                    self.end += bytes;
                    read += bytes;
                    if !self.wire.has_buffered() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    is_empty = true;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if read > 0 {
            self.last_received = now;
            self.lived_at = if on(Mutant::LeaseByOldBytes) { now } else { self.empty_at };
        }
        if is_empty || self.end < self.buffer.len() {
            self.empty_at = now;
        }
        self.pause = self.pacing.after_read(now, read);
        if self.end == self.buffer.len() && self.end < BUFFER_BYTES {
            self.buffer.resize(BUFFER_BYTES, 0);
        }
        Ok(read >= LARGE_READ_BYTES)
    }

    /// The server has closed the connection: the slot may be another relay's by now.
    pub fn is_closed(&self) -> bool {
        self.wire.is_closed()
    }

    /// The error that the server has sent behind what was not consumed yet, if it has arrived. For a
    /// walsender that has ended: what it sent is read until the socket is empty.
    pub fn find_error(&mut self, now: Instant) -> Option<StreamError> {
        loop {
            let waiting = self.end - self.start;
            self.paused_until = None;
            if self.end == self.buffer.len() {
                self.buffer.resize(2 * self.end, 0);
            }
            // The end of the connection is found once more behind what was received.
            let filled = self.fill(now);
            if filled.is_err() || self.end - self.start == waiting {
                break;
            }
        }
        let mut waiting = &self.buffer[self.start..self.end];
        while let Ok(Some((length, tag))) = message_length(waiting) {
            let (message, rest) = waiting.split_at_checked(length)?;
            if tag == b'E' {
                let error = ServerError::parse(&message[HEADER_BYTES..]);
                return Some(StreamError::Server(Box::new(error)));
            }
            waiting = rest;
        }
        None
    }

    /// Pauses while a backlog gathers in the socket, or waits until it is readable or `timeout` has
    /// passed. Either ends early when `sink` is ready; a pause goes on with the next wait.
    pub fn wait(
        &mut self,
        timeout: Duration,
        sink: Option<Readiness<'_>>,
        now: Instant,
    ) -> io::Result<()> {
        if let Some(pause) = self.pause.take() {
            self.paused_until = Some(now + pause);
        }
        if let Some(until) = self.paused_until.filter(|until| now < *until) {
            let left = until - now;
            self.wire.pause(if sink.is_some() { left.min(timeout) } else { left }, sink);
            return Ok(());
        }
        if self.wire.has_buffered() { Ok(()) } else { self.wire.wait(timeout, sink) }
    }

    /// Sends a status update. Postgres may remove the WAL before `flushed`.
    pub fn report(&mut self, flushed: Lsn, now: Moment, reply_requested: bool) -> io::Result<()> {
        self.wire.report(flushed, now.unix_us, reply_requested)?;
        self.under_way.get_or_insert_with(|| (self.wire.sent().written, now.instant));
        Ok(())
    }

    /// When the newest status update was sent of those that are known to have arrived; None if no such
    /// update has.
    pub fn delivered_at(&mut self) -> Option<Instant> {
        if let Some((end, sent_at)) = self.under_way
            && self.wire.sent().acknowledged >= end
        {
            (self.delivered_at, self.under_way) = (Some(sent_at), None);
        }
        self.delivered_at
    }

    /// Sends CopyDone, so that the server ends the stream and answers.
    pub fn send_copy_done(&mut self) -> io::Result<()> {
        self.wire.send_copy_done()
    }

    pub fn last_received(&self) -> Instant {
        self.last_received
    }

    /// The server was alive at this time or later: what was read last may have waited in the socket
    /// since that was empty.
    pub fn lived_at(&self) -> Instant {
        self.lived_at
    }

    /// Counts silence from `now` on, after a time in which the stream was not read on purpose.
    pub fn reset_silence(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// Moves a partial message to the front, and grows for one that is larger than the buffer.
    fn make_room(&mut self) -> Result<(), StreamError> {
        let waiting = &self.buffer[self.start..self.end];
        let wanted = message_length(waiting)?.map_or(HEADER_BYTES, |(length, _)| length);
        if self.start > 0
            && (self.start + wanted > self.buffer.len() || self.end == self.buffer.len())
        {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if wanted > self.buffer.len() {
            self.buffer.resize(wanted.max(BUFFER_BYTES), 0);
        }
        Ok(())
    }
}

/// Length and tag of the first message, once its header was received.
fn message_length(waiting: &[u8]) -> Result<Option<(usize, u8)>, StreamError> {
    let [tag, a, b, c, d, ..] = *waiting else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
        return Err(StreamError::Oversized(length));
    }
    Ok(Some((length + 1, tag)))
}

#[cfg(test)]
#[path = "stream_tests.rs"]
pub(crate) mod tests;
