//! The replication connection as the stream uses it.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use pgwire_replication::Lsn as WireLsn;
use pgwire_replication::protocol::replication::{
    encode_standby_status_update, unix_to_pg_timestamp,
};
use rustix::event::{PollFd, PollFlags};
use walrelay_core::source::stream::{BUFFER_BYTES, SentBytes, Wire};

use walrelay_base::lsn::Lsn;
use walrelay_base::os_ffi;
use walrelay_base::readiness::Readiness;
use walrelay_base::transport::{Transport, wait_for};

/// Above the sizes of Begin (51) and Commit (56), so that neither alone wakes the reader.
const LOW_WATER_BYTES: i32 = 64;
/// The bytes of a message that hold its kind and its length.
const HEADER_BYTES: usize = 5;

/// `transport` is in copy mode.
pub fn of(transport: Transport) -> io::Result<Box<dyn Wire + Send>> {
    if transport.is_loopback() {
        // A fixed buffer limits a long link; on loopback it keeps reads within the CPU cache.
        transport.set_receive_buffer(BUFFER_BYTES)?;
    }
    if !transport.is_tls() {
        os_ffi::set_receive_low_water(transport.as_fd(), LOW_WATER_BYTES)?;
    }
    Ok(Box::new(ReplicationLink(transport)))
}

/// A connection in copy mode.
struct ReplicationLink(Transport);

impl Wire for ReplicationLink {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }

    fn has_buffered(&self) -> bool {
        self.0.has_buffered()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn report(&mut self, flushed: Lsn, now_unix_us: i64, reply_requested: bool) -> io::Result<()> {
        let (lsn, now) = (WireLsn::from_u64(flushed.to_wire()), unix_to_pg_timestamp(now_unix_us));
        let status = encode_standby_status_update(lsn, now, reply_requested);
        let mut message = Vec::with_capacity(HEADER_BYTES + status.len());
        message.push(b'd');
        message.extend_from_slice(&(status.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(&status);
        self.0.write(&message)
    }

    fn sent(&self) -> SentBytes {
        SentBytes { written: self.0.written_bytes(), acknowledged: self.0.acknowledged_bytes() }
    }

    fn send_copy_done(&mut self) -> io::Result<()> {
        self.0.write(&[b'c', 0, 0, 0, 4])
    }

    fn wait(&mut self, timeout: Duration, other: Option<Readiness<'_>>) -> io::Result<()> {
        let writing = self.0.pending_write();
        self.0.wait_with(timeout, writing, other.map(poll_fd))?;
        if writing { self.0.flush() } else { Ok(()) }
    }

    fn pause(&mut self, length: Duration, other: Option<Readiness<'_>>) {
        let Some(other) = other else { return std::thread::sleep(length) };
        let mut sockets = [poll_fd(other)];
        // A socket that cannot be waited for is found broken by whoever reads it.
        if wait_for(&mut sockets, length).is_err() {
            std::thread::sleep(length);
        }
    }
}

fn poll_fd(readiness: Readiness<'_>) -> PollFd<'_> {
    let wanted = if readiness.wants_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    PollFd::from_borrowed_fd(readiness.socket, wanted)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_wait_ends_when_the_sink_can_write() {
        const HOUR: Duration = Duration::from_secs(3600);
        let (near, _far) = UnixStream::pair().unwrap();
        let (sink, _broker) = UnixStream::pair().unwrap();
        let mut link = ReplicationLink(Transport::new(near, None).unwrap());
        let readiness = |wants_write| Some(Readiness { socket: sink.as_fd(), wants_write });
        link.wait(HOUR, readiness(true)).unwrap();
        link.pause(HOUR, readiness(true));
        // WHEN it has nothing to write THEN it is waited for something to read
        let other = readiness(false).map(poll_fd);
        assert!(!link.0.wait_with(Duration::ZERO, false, other).unwrap());
    }
}
