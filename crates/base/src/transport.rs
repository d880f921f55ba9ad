//! A socket for one thread that decides when to read and to write, and never waits for either: that of
//! the replication stream, and that of publishes to RabbitMQ.
//!
//! The handshakes are done on an async runtime. Afterwards the runtime would wake the reader for
//! every message, which makes a walsender slow, so the socket is taken out of it.
//!
//! Invariants: no byte that was read from the socket is lost between two calls, with or without
//! TLS; a write is queued completely or not at all; the queue is bounded.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ClientConnection;
use socket2::Socket;

use crate::os_ffi;

/// Limit for bytes of [`Transport::write`] that wait for the socket; a status update has 39.
const OUTGOING_BYTES_MAX: usize = 64 * 1024;
/// The bytes that [`Transport::write_some`] encrypts at once: four TLS records.
const PLAINTEXT_BYTES: usize = 64 * 1024;
/// Several TLS records for one system call.
const CIPHERTEXT_BYTES: usize = 128 * 1024;

/// A connected socket, with or without TLS.
pub struct Transport {
    socket: Socket,
    tls: Option<Box<Tls>>,
    /// Bytes that wait for the socket, encrypted where TLS is used.
    outgoing: Vec<u8>,
    /// Bytes that the socket has taken.
    taken_bytes: u64,
}

struct Tls {
    session: ClientConnection,
    ciphertext: Box<[u8]>,
    /// The part of `ciphertext` that the session has not taken.
    unseen: std::ops::Range<usize>,
    /// Plaintext that the session holds.
    plain_bytes: usize,
    /// The end or an error behind plaintext that was returned: for the next read.
    ended: Option<io::Result<usize>>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("fd", &self.as_fd())
            .field("tls", &self.tls.is_some())
            .field("outgoing_bytes", &self.outgoing.len())
            .finish_non_exhaustive()
    }
}

impl Transport {
    /// Takes a connected TCP or Unix socket, with the TLS session if one was made on it.
    pub fn new(
        socket: impl Into<Socket>,
        session: Option<ClientConnection>,
    ) -> io::Result<Transport> {
        let socket = socket.into();
        socket.set_nonblocking(true)?;
        let tls = session.map(Tls::new).transpose()?.map(Box::new);
        Ok(Transport { socket, tls, outgoing: Vec::new(), taken_bytes: 0 })
    }

    pub const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Reads without blocking; 0 is the end of the stream.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return retried(|| self.socket.read(buf)) };
        let read = tls.read(&mut self.socket, buf);
        // A key update or an alert needs an answer, and nothing else would send it. What waits already
        // is left to the next write, which may have to be stopped.
        if tls.session.wants_write() {
            let is_first = self.outgoing.is_empty();
            let answered = tls.session.write_tls(&mut self.outgoing);
            let answered = answered.and_then(|_| if is_first { self.flush() } else { Ok(()) });
            // The bytes that were read come first; a broken socket will fail again.
            if !matches!(read, Ok(1..)) {
                answered?;
            }
        }
        read
    }

    /// True when a read would return something though the socket has nothing to read.
    pub fn has_buffered(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|tls| tls.plain_bytes > 0 || !tls.unseen.is_empty() || tls.ended.is_some())
    }

    /// Queues `bytes` and sends as much as the socket accepts.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.outgoing.len() + bytes.len() > OUTGOING_BYTES_MAX {
            self.flush()?;
            if self.outgoing.len() + bytes.len() > OUTGOING_BYTES_MAX {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        match &mut self.tls {
            None => self.outgoing.extend_from_slice(bytes),
            Some(tls) => tls.encrypt(bytes, &mut self.outgoing)?,
        }
        self.flush()
    }

    /// Sends as much of `bytes` as the socket accepts, and returns how much that was. Of TLS one part is
    /// taken at a time, and the rest of it may wait for the socket.
    pub fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        if self.pending_write() {
            return Ok(0);
        }
        if let Some(tls) = &mut self.tls {
            let part = &bytes[..bytes.len().min(PLAINTEXT_BYTES)];
            tls.encrypt(part, &mut self.outgoing)?;
            self.flush()?;
            return Ok(part.len());
        }
        match retried(|| self.socket.write(bytes)) {
            Ok(0) if !bytes.is_empty() => Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            written => {
                self.taken_bytes += *written.as_ref().unwrap_or(&0) as u64;
                written
            }
        }
    }

    /// The other end is closed, whatever is still to be read before that. A socket that cannot be
    /// asked is found closed by the next read.
    pub fn is_closed(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut sockets = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut sockets, Some(&now)).is_ok() && sockets[0].revents().intersects(closed)
    }

    pub fn pending_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends as much as the socket accepts; a full socket is no error.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.outgoing.len() {
            match retried(|| self.socket.write(&self.outgoing[sent..])) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.outgoing.drain(..sent);
        self.taken_bytes += sent as u64;
        Ok(())
    }

    /// Bytes since the socket was given to it, encrypted where TLS is used.
    pub fn written_bytes(&self) -> u64 {
        self.taken_bytes + self.outgoing.len() as u64
    }

    /// How many of them have arrived at the other end. A Unix socket loses nothing, and a system that does
    /// not tell what is under way has to be trusted.
    pub fn acknowledged_bytes(&self) -> u64 {
        let is_unix = self.socket.peer_addr().is_ok_and(|peer| peer.is_unix());
        let queued = if is_unix { Ok(0) } else { os_ffi::unacknowledged_bytes(self.as_fd()) };
        self.taken_bytes.saturating_sub(queued.unwrap_or(0))
    }

    /// Waits until a read (or, if wanted, a write) can go on; false after `timeout` or a signal.
    pub fn wait(&self, timeout: Duration, want_write: bool) -> io::Result<bool> {
        self.wait_with(timeout, want_write, None)
    }

    /// The same, and until `other` is ready.
    pub fn wait_with(
        &self,
        timeout: Duration,
        want_write: bool,
        other: Option<PollFd<'_>>,
    ) -> io::Result<bool> {
        if self.has_buffered() {
            return Ok(true);
        }
        let flags = if want_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let own = PollFd::new(&self.socket, flags);
        match other {
            None => wait_for(&mut [own], timeout),
            Some(other) => wait_for(&mut [own, other], timeout),
        }
    }

    /// True when the peer is on this machine.
    pub fn is_loopback(&self) -> bool {
        self.socket.peer_addr().is_ok_and(|peer| {
            let ip = peer.as_socket().map(|at| at.ip().to_canonical());
            peer.is_unix() || ip.is_some_and(|ip| ip.is_loopback())
        })
    }

    /// Fixes the size of the kernel's receive buffer, which limits the speed of a long link.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        self.socket.set_recv_buffer_size(bytes)
    }

    /// How long a close goes on sending what it has not sent; none if as long as it takes.
    pub fn set_linger(&self, length: Option<Duration>) -> io::Result<()> {
        self.socket.set_linger(length)
    }

    /// Flushes as much as possible and closes the sending side. Dropping closes the rest.
    pub fn shutdown(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.session.send_close_notify();
            while tls.session.wants_write() {
                tls.session.write_tls(&mut self.outgoing)?;
            }
        }
        self.flush()?;
        // Not both sides: unread input would cause a reset, which can overtake the last bytes sent.
        self.socket.shutdown(Shutdown::Write)
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Tls {
    fn new(mut session: ClientConnection) -> io::Result<Tls> {
        // Plaintext may have followed the last message of the handshake.
        let state = session.process_new_packets().map_err(invalid)?;
        Ok(Tls {
            plain_bytes: state.plaintext_bytes_to_read(),
            session,
            ciphertext: vec![0; CIPHERTEXT_BYTES].into_boxed_slice(),
            unseen: 0..0,
            ended: None,
        })
    }

    /// Fills `buf` until it is full or the socket is
    /// empty: a short read means that nothing is left.
    fn read(&mut self, socket: &mut Socket, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if let Some(ended) = self.ended.take() {
            return ended;
        }
        let mut filled = 0;
        loop {
            filled += self.take_plain(&mut buf[filled..])?;
            if filled == buf.len() {
                return Ok(filled);
            }
            match self.more(socket) {
                Ok(true) => {}
                end if filled == 0 => return end.map(|_| 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(filled),
                end => {
                    self.ended = Some(end.map(|_| 0));
                    return Ok(filled);
                }
            }
        }
    }

    fn take_plain(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut taken = 0;
        // The session returns one record at a time.
        while self.plain_bytes > 0 && taken < buf.len() {
            let n = self.session.reader().read(&mut buf[taken..])?;
            taken += n;
            self.plain_bytes -= n;
        }
        Ok(taken)
    }

    /// Moves ciphertext from the socket into the session; false at the end of the stream.
    fn more(&mut self, socket: &mut Socket) -> io::Result<bool> {
        if self.unseen.is_empty() {
            match retried(|| socket.read(&mut self.ciphertext)) {
                Ok(0) => return Ok(false),
                Ok(n) => self.unseen = 0..n,
                Err(error) => return Err(error),
            }
        }
        let mut unseen = &self.ciphertext[self.unseen.clone()];
        let seen = self.session.read_tls(&mut unseen)?;
        self.unseen.start += seen;
        let state = self.session.process_new_packets().map_err(invalid)?;
        self.plain_bytes = state.plaintext_bytes_to_read();
        if self.plain_bytes == 0 && (seen == 0 || state.peer_has_closed()) {
            // The peer has closed the session; whatever follows is ignored.
            self.unseen = 0..0;
            return Ok(false);
        }
        Ok(true)
    }

    fn encrypt(&mut self, mut bytes: &[u8], outgoing: &mut Vec<u8>) -> io::Result<()> {
        while !bytes.is_empty() {
            let n = self.session.writer().write(bytes)?;
            bytes = &bytes[n..];
            while self.session.wants_write() {
                self.session.write_tls(outgoing)?;
            }
        }
        Ok(())
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Waits until one of the sockets is ready; false after `timeout` or a signal.
pub fn wait_for(sockets: &mut [PollFd<'_>], timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(sockets, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Repeats a call that a signal has interrupted.
fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
