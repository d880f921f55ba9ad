//! A raw AMQP publisher: the least that a client can cost a broker's machine.
//!
//! One blocking socket, frames copied from a template, many messages to a write, confirms counted
//! and nothing else done with them. What it reaches is the broker's ceiling.

mod shape;

use std::collections::VecDeque;
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use walrelay_amqp::frame::Frame;
use walrelay_amqp::login::{Agreed, Login, LoginRequest};
use walrelay_amqp::method::Mechanism;
use walrelay_amqp::session::{Event, Session};

pub(crate) use self::shape::Shape;

use walrelay_harness::{HarnessError, Result};

/// A broker that says nothing for this long is stuck.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 * 1024;
/// The one channel.
const CHANNEL: u16 = 1;

/// A connection whose one channel confirms.
pub(crate) struct Publisher {
    socket: Socket,
    session: Session,
    out: Vec<u8>,
    sent: u64,
    confirmed: u64,
    /// Is it confirmed? From the oldest that is not; confirms need not come in order.
    open: VecDeque<bool>,
}

/// A blocking socket, and what was read of it.
struct Socket {
    stream: TcpStream,
    /// The bytes that were read; those that are no whole frame yet are at its beginning.
    read: Vec<u8>,
    kept: usize,
}

impl Publisher {
    /// Logs in as `guest`.
    pub(crate) fn open(port: u16) -> Result<Publisher> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(socket)?;
        stream.set_nodelay(true).map_err(socket)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT)).map_err(socket)?;
        let mut socket = Socket { stream, read: vec![0; READ_BYTES], kept: 0 };
        let mut out = Vec::new();
        let agreed = log_in(&mut socket, &mut out)?;
        let session = Session::new(agreed, Instant::now());
        let (sent, confirmed, open) = (0, 0, VecDeque::new());
        let mut publisher = Publisher { socket, session, out, sent, confirmed, open };
        publisher.session.open_channel(&mut publisher.out);
        publisher.flush()?;
        loop {
            match publisher.event()? {
                Some(Event::ChannelOpened(CHANNEL)) => return Ok(publisher),
                Some(other) => return Err(HarnessError::Other(format!("RabbitMQ said {other:?}"))),
                None => publisher.socket.fill(true)?,
            }
        }
    }

    /// The first event of what was read.
    fn event(&mut self) -> Result<Option<Event>> {
        let mut event = None;
        let (session, out) = (&mut self.session, &mut self.out);
        while event.is_none()
            && self.socket.take(|frame| {
                event = session.take(frame, out).map_err(malformed)?;
                Ok(())
            })?
        {}
        Ok(event)
    }

    /// Appends a message to what the next [`Publisher::flush`] sends.
    pub(crate) fn append(&mut self, shape: &mut Shape, body: &[u8]) {
        self.sent += 1;
        self.open.push_back(false);
        shape.put(self.sent, body, &mut self.out);
    }

    /// Sends what was appended.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let now = Instant::now();
        self.session.put_heartbeat(now, &mut self.out);
        if !self.out.is_empty() {
            self.session.note_write(now);
        }
        self.socket.write(&mut self.out)
    }

    /// Confirmed since the start.
    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Sent and not confirmed.
    pub(crate) fn unconfirmed(&self) -> u64 {
        self.sent - self.confirmed
    }

    /// Takes the confirms that are there; with `wait`, at least a piece of one.
    pub(crate) fn hear(&mut self, wait: bool) -> Result<()> {
        self.socket.fill(wait)?;
        self.session.note_read(Instant::now());
        while let Some(event) = self.event()? {
            let Event::Confirm { tag, multiple, acked: true, .. } = event else {
                // A message that came back or was refused ends the measurement.
                return Err(HarnessError::Other(format!("RabbitMQ said {event:?}")));
            };
            let first = self.sent - self.open.len() as u64 + 1;
            let place = tag.checked_sub(first).map(|place| place as usize);
            self.confirm(place, multiple);
        }
        Ok(())
    }

    fn confirm(&mut self, place: Option<usize>, multiple: bool) {
        let Some(place) = place.filter(|place| *place < self.open.len()) else { return };
        let from = if multiple { 0 } else { place };
        for confirmed in self.open.range_mut(from..=place) {
            self.confirmed += u64::from(!std::mem::replace(confirmed, true));
        }
        while self.open.front() == Some(&true) {
            self.open.pop_front();
        }
    }
}

impl Socket {
    fn write(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let sent = self.stream.write_all(out);
        out.clear();
        sent.map_err(socket)
    }

    /// Passes the first frame of what was read, if there is one.
    fn take(&mut self, look: impl FnOnce(Frame<'_>) -> Result<()>) -> Result<bool> {
        let Some((frame, length)) = Frame::split(&self.read[..self.kept]).map_err(malformed)?
        else {
            return Ok(false);
        };
        look(frame)?;
        self.read.copy_within(length..self.kept, 0);
        self.kept -= length;
        Ok(true)
    }

    fn fill(&mut self, wait: bool) -> Result<()> {
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let outcome = rustix::net::recv(&self.stream, &mut self.read[self.kept..], flags);
        match outcome.map_err(std::io::Error::from) {
            Ok((0, _)) => Err(HarnessError::Other("RabbitMQ ended the connection".into())),
            Ok((count, _)) => {
                self.kept += count;
                Ok(())
            }
            Err(error) if !wait && error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(socket(error)),
        }
    }
}

fn log_in(socket: &mut Socket, out: &mut Vec<u8>) -> Result<Agreed> {
    let request = LoginRequest {
        mechanism: Mechanism::Plain("guest".into(), "guest".into()),
        vhost: "/".into(),
        frame_max: 0,
        heartbeat_s: 0,
        connection_name: "bare publisher".into(),
    };
    let mut login = Login::begin(request, out);
    let mut agreed = None;
    while agreed.is_none() {
        socket.write(out)?;
        let taken = socket.take(|frame| {
            let refused = |error| HarnessError::Other(format!("RabbitMQ refuses: {error:?}"));
            agreed = login.take(frame, out).map_err(refused)?;
            Ok(())
        })?;
        if !taken {
            socket.fill(true)?;
        }
    }
    agreed.ok_or_else(|| HarnessError::Other("RabbitMQ agrees on nothing".into()))
}

fn malformed(malformed: walrelay_amqp::wire::Malformed) -> HarnessError {
    HarnessError::Other(malformed.to_string())
}

fn socket(source: std::io::Error) -> HarnessError {
    HarnessError::Io { doing: "the bare publisher's socket".into(), source }
}
