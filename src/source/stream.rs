//! The reading half of the replication connection, and the status updates that go back.
//!
//! One buffer, parsed in place: a packet is looked at, and consumed only when the relay has taken
//! it, so a full window leaves it where it is. The buffer grows for a message larger than itself
//! and shrinks again.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use pgwire_replication::Lsn as WireLsn;
use pgwire_replication::protocol::replication::{
    encode_standby_status_update, unix_to_pg_timestamp,
};

use super::connect::ServerError;
use super::read_pacing::{LARGE_READ_BYTES, ReadPacing};
use super::transport::Transport;
use crate::base::lsn::Lsn;
use crate::pgoutput::cursor::DecodeError;
use crate::pgoutput::frame::Frame;

const BUFFER_BYTES: usize = 256 * 1024;
/// Begin is 51 bytes on the wire and Commit 56: neither wakes the reader alone.
const LOW_WATER_BYTES: i32 = 64;
/// Postgres values end at 1 GiB; a length beyond it is not a message.
const MESSAGE_BYTES_MAX: usize = (1 << 30) + (1 << 20);
const HEADER_BYTES: usize = 5;

/// An open replication stream.
pub struct Stream {
    transport: Transport,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    pacing: ReadPacing,
    nap: Option<Duration>,
    last_heard: Instant,
}

/// One message of the stream.
#[derive(Debug)]
pub enum Packet<'a> {
    /// Replication data.
    Frame(Frame<'a>),
    /// A warning of the server.
    Notice(Box<ServerError>),
    /// Something that does not concern us.
    Other,
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The server said why.
    #[error("{0}")]
    Server(Box<ServerError>),
    /// The server ended the stream in good order, as it does when it shuts down.
    #[error("the server ended the stream")]
    Ended,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    /// Bytes that are not the protocol.
    #[error("the stream is not pgoutput: {0}")]
    Protocol(#[from] DecodeError),
    /// A message of a length that cannot be.
    #[error("a message claims {0} bytes")]
    Oversized(usize),
}

impl Stream {
    /// Takes over a connection in copy mode.
    pub fn new(transport: Transport, now: Instant) -> std::io::Result<Stream> {
        if transport.is_loopback() {
            // A locked buffer caps a long link; on loopback it keeps gulps within the cache.
            transport.set_receive_buffer(BUFFER_BYTES)?;
        }
        if !transport.is_tls() {
            crate::base::os_ffi::set_receive_low_water(transport.as_fd(), LOW_WATER_BYTES)?;
        }
        Ok(Stream {
            transport,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            pacing: ReadPacing::new(now),
            nap: None,
            last_heard: now,
        })
    }

    /// The next message, if all of it is here, and its length for [`Stream::consume`].
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

    /// The message that was peeked at has been taken.
    pub fn consume(&mut self, length: usize) {
        self.start += length;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > BUFFER_BYTES {
                self.buffer = vec![0; BUFFER_BYTES];
            }
        }
    }

    /// Reads what is waiting, without blocking; true when there is probably more.
    pub fn fill(&mut self, now: Instant) -> Result<bool, StreamError> {
        self.make_room()?;
        let mut read = 0;
        while self.end < self.buffer.len() {
            match self.transport.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(StreamError::Io(ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => {
                    self.end += bytes;
                    read += bytes;
                    if !self.transport.has_buffered() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if read > 0 {
            self.last_heard = now;
        }
        self.nap = self.pacing.after_read(now, read);
        Ok(read >= LARGE_READ_BYTES)
    }

    /// Leaves the socket alone while a backlog gathers in it, or waits until it is readable or
    /// `timeout` has passed.
    pub fn wait(&mut self, timeout: Duration) -> std::io::Result<()> {
        if let Some(nap) = self.nap.take() {
            std::thread::sleep(nap);
            return Ok(());
        }
        if self.transport.has_buffered() {
            return Ok(());
        }
        let writing = self.transport.pending_write();
        self.transport.wait(timeout, writing)?;
        if writing { self.transport.flush() } else { Ok(()) }
    }

    /// Sends a status update. `flushed` is what Postgres may forget.
    pub fn report(
        &mut self,
        flushed: Lsn,
        now_unix_us: i64,
        reply_requested: bool,
    ) -> std::io::Result<()> {
        let lsn = WireLsn::from_u64(flushed.to_wire());
        let status =
            encode_standby_status_update(lsn, unix_to_pg_timestamp(now_unix_us), reply_requested);
        let mut message = Vec::with_capacity(HEADER_BYTES + status.len());
        message.push(b'd');
        message.extend_from_slice(&(status.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(&status);
        self.transport.write(&message)
    }

    /// Says that we are done, so that the server ends the stream and answers.
    pub fn say_done(&mut self) -> std::io::Result<()> {
        self.transport.write(&[b'c', 0, 0, 0, 4])
    }

    /// When bytes last arrived.
    pub fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// The stream was not read on purpose; its silence means nothing.
    pub fn excuse_silence(&mut self, now: Instant) {
        self.last_heard = now;
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

/// Length and tag of the message at the front, once its header is here.
fn message_length(waiting: &[u8]) -> Result<Option<(usize, u8)>, StreamError> {
    let [tag, a, b, c, d, ..] = *waiting else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
        return Err(StreamError::Oversized(length));
    }
    Ok(Some((length + 1, tag)))
}
