//! The replication stream's socket: non-blocking, for one thread that decides itself when to read.
//!
//! The handshakes are done on an async runtime; afterwards a runtime would only wake the reader for
//! every message, which is what makes a walsender slow. So the socket is taken out of it.
//!
//! Invariants: no byte that was read off the socket is lost between two calls, in plain or in TLS; what
//! is written is either queued whole or not at all; the queue is bounded.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ClientConnection;
use socket2::SockRef;

/// Most bytes that wait for the socket; a status update has 39.
const OUTGOING_BYTES_MAX: usize = 64 * 1024;
/// One gulp of ciphertext: several TLS records for one system call.
const CIPHERTEXT_BYTES: usize = 128 * 1024;

/// A connected socket, in plain or under TLS.
pub struct Transport {
    socket: Socket,
    tls: Option<Box<Tls>>,
    /// Bytes as they go onto the wire.
    outgoing: Vec<u8>,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

struct Tls {
    session: ClientConnection,
    ciphertext: Box<[u8]>,
    /// The part of `ciphertext` that the session has not seen.
    unseen: std::ops::Range<usize>,
    /// Plaintext inside the session.
    plain_bytes: usize,
    /// Met after plaintext had been handed out: told by the next read.
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
    /// A TCP connection, with the TLS session if one was made on it.
    pub fn tcp(socket: TcpStream, session: Option<ClientConnection>) -> io::Result<Transport> {
        socket.set_nonblocking(true)?;
        let tls = session.map(Tls::new).transpose()?.map(Box::new);
        Ok(Transport { socket: Socket::Tcp(socket), tls, outgoing: Vec::new() })
    }

    /// Is there a TLS session between the socket and us?
    pub const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// A Unix socket.
    pub fn unix(socket: UnixStream) -> io::Result<Transport> {
        socket.set_nonblocking(true)?;
        Ok(Transport { socket: Socket::Unix(socket), tls: None, outgoing: Vec::new() })
    }

    /// Reads what is there, as much as fits; 0 is the end of the stream.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return retried(|| self.socket.read(buf)) };
        let read = tls.read(&mut self.socket, buf);
        // A key update or an alert wants an answer, and nobody else would send it.
        if tls.session.wants_write() {
            let answered = tls.session.write_tls(&mut self.outgoing).and_then(|_| self.flush());
            // Bytes in hand go first; a broken socket will say so again.
            if !matches!(read, Ok(1..)) {
                answered?;
            }
        }
        read
    }

    /// True when a read would give bytes though the socket may be silent.
    pub fn has_buffered(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|tls| tls.plain_bytes > 0 || !tls.unseen.is_empty() || tls.ended.is_some())
    }

    /// Queues `bytes` and sends what the socket takes.
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

    /// True while written bytes wait for the socket.
    pub fn pending_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends what the socket takes; a full socket is no error.
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
        Ok(())
    }

    /// Waits until a read (or, if asked, a write) can go on; false when `timeout` or a signal came first.
    pub fn wait(&self, timeout: Duration, want_write: bool) -> io::Result<bool> {
        if self.has_buffered() {
            return Ok(true);
        }
        let flags = if want_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(self, flags)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// True when the peer is on this machine.
    pub fn is_loopback(&self) -> bool {
        match &self.socket {
            Socket::Tcp(socket) => {
                socket.peer_addr().is_ok_and(|at| at.ip().to_canonical().is_loopback())
            }
            Socket::Unix(_) => true,
        }
    }

    /// Fixes the kernel's receive buffer. On a long link that caps the speed: leave it alone there.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(self).set_recv_buffer_size(bytes)
    }

    /// Says goodbye: flushes what can be flushed and closes the sending side. Dropping closes the rest.
    pub fn shutdown(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.session.send_close_notify();
            while tls.session.wants_write() {
                tls.session.write_tls(&mut self.outgoing)?;
            }
        }
        self.flush()?;
        // Not both sides: that would turn unread input into a reset, which can overtake the last bytes sent.
        match &self.socket {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Socket::Unix(socket) => socket.shutdown(Shutdown::Write),
        }
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

impl Tls {
    fn new(mut session: ClientConnection) -> io::Result<Tls> {
        // Plaintext may have come in behind the last message of the handshake.
        let state = session.process_new_packets().map_err(invalid)?;
        Ok(Tls {
            plain_bytes: state.plaintext_bytes_to_read(),
            session,
            ciphertext: vec![0; CIPHERTEXT_BYTES].into_boxed_slice(),
            unseen: 0..0,
            ended: None,
        })
    }

    /// Fills `buf` until it is full or the socket is empty: a short read must mean "no more there".
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
        // The session hands out one record at a time.
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
            // Goodbye was said; whatever follows it is not for us.
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

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(buf),
            Socket::Unix(socket) => socket.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(buf),
            Socket::Unix(socket) => socket.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A signal is not an end.
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
