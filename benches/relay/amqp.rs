//! A raw AMQP publisher: the least that a client can cost a broker's machine.
//!
//! One blocking socket, frames copied from a template, many messages to a write, confirms counted
//! and nothing else done with them. What it reaches is the broker's ceiling.

mod shape;

use std::collections::VecDeque;
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use rustix::net::RecvFlags;

pub(crate) use self::shape::Shape;
use self::shape::{put_frame, put_long, put_short};

use walrelay_harness::{HarnessError, Result};

/// A broker that says nothing for this long is stuck.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 * 1024;
const HEAD_BYTES: usize = 7;
const METHOD_FRAME: u8 = 1;
/// The one channel.
const CHANNEL: u16 = 1;

type Method = (u16, u16);
const START: Method = (10, 10);
const START_OK: Method = (10, 11);
const TUNE: Method = (10, 30);
const TUNE_OK: Method = (10, 31);
const OPEN: Method = (10, 40);
const OPEN_OK: Method = (10, 41);
const CHANNEL_OPEN: Method = (20, 10);
const CHANNEL_OPEN_OK: Method = (20, 11);
const CONFIRM: Method = (85, 10);
const CONFIRM_OK: Method = (85, 11);
const ACK: Method = (60, 80);

/// A connection whose one channel confirms.
pub(crate) struct Publisher {
    stream: TcpStream,
    out: Vec<u8>,
    /// What was read and is no whole frame yet is at its beginning.
    read: Vec<u8>,
    kept: usize,
    sent: u64,
    confirmed: u64,
    /// Is it confirmed? From the oldest that is not; confirms need not come in order.
    open: VecDeque<bool>,
}

impl Publisher {
    /// Logs in as `guest`.
    pub(crate) fn open(port: u16) -> Result<Publisher> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(socket)?;
        stream.set_nodelay(true).map_err(socket)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT)).map_err(socket)?;
        let mut publisher = Publisher {
            stream,
            out: b"AMQP\x00\x00\x09\x01".to_vec(),
            read: vec![0; READ_BYTES],
            kept: 0,
            sent: 0,
            confirmed: 0,
            open: VecDeque::new(),
        };
        publisher.log_in()?;
        Ok(publisher)
    }

    fn log_in(&mut self) -> Result<()> {
        self.flush()?;
        self.answer(START)?;
        // No properties of the client, then how it logs in, as whom, and its language.
        let mut told = vec![0; 4];
        put_short(&mut told, "PLAIN");
        put_long(&mut told, b"\0guest\0guest");
        put_short(&mut told, "en_US");
        self.say(0, START_OK, &told)?;
        let mut tune = self.answer(TUNE)?;
        // Channels and frame size as offered, no heartbeat.
        tune.truncate(6);
        tune.extend([0, 0]);
        self.say(0, TUNE_OK, &tune)?;
        self.say(0, OPEN, b"\x01/\0\0")?;
        self.answer(OPEN_OK)?;
        self.say(CHANNEL, CHANNEL_OPEN, &[0])?;
        self.answer(CHANNEL_OPEN_OK)?;
        self.say(CHANNEL, CONFIRM, &[0])?;
        self.answer(CONFIRM_OK).map(drop)
    }

    fn say(&mut self, channel: u16, method: Method, arguments: &[u8]) -> Result<()> {
        put_frame(&mut self.out, METHOD_FRAME, channel, |out| {
            out.extend(method.0.to_be_bytes());
            out.extend(method.1.to_be_bytes());
            out.extend(arguments);
        });
        self.flush()
    }

    /// The arguments of the one answer that is expected.
    fn answer(&mut self, wanted: Method) -> Result<Vec<u8>> {
        loop {
            if let Some((method, arguments)) = frame(&self.read[..self.kept])? {
                let (arguments, length) =
                    (arguments.to_vec(), HEAD_BYTES + 4 + arguments.len() + 1);
                self.read.copy_within(length..self.kept, 0);
                self.kept -= length;
                let refusal = || HarnessError::Other(format!("RabbitMQ said {method:?}"));
                return if method == wanted { Ok(arguments) } else { Err(refusal()) };
            }
            self.fill(true)?;
        }
    }

    /// Appends a message to what the next [`Publisher::flush`] sends.
    pub(crate) fn append(&mut self, shape: &mut Shape, body: &[u8]) {
        self.sent += 1;
        self.open.push_back(false);
        shape.put(self.sent, body, &mut self.out);
    }

    /// Sends what was appended.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(socket)
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
        self.fill(wait)?;
        let mut done = 0;
        while let Some((method, arguments)) = frame(&self.read[done..self.kept])? {
            done += HEAD_BYTES + 4 + arguments.len() + 1;
            let Some((tag, bits)) = arguments.split_first_chunk::<8>() else { continue };
            if method != ACK {
                // A message that came back or was refused ends the measurement.
                return Err(HarnessError::Other(format!("RabbitMQ said {method:?}")));
            }
            let multiple = bits.first().is_some_and(|bits| bits & 1 != 0);
            let first = self.sent - self.open.len() as u64 + 1;
            let place = u64::from_be_bytes(*tag).checked_sub(first).map(|place| place as usize);
            self.confirm(place, multiple);
        }
        self.read.copy_within(done..self.kept, 0);
        self.kept -= done;
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

/// The first whole frame, which must hold a method: nobody consumes here.
fn frame(bytes: &[u8]) -> Result<Option<(Method, &[u8])>> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    let Some(payload) = rest.get(..size).filter(|_| rest.len() > size) else { return Ok(None) };
    match payload.split_first_chunk::<4>() {
        Some(([a, b, c, d], arguments)) if head[0] == METHOD_FRAME => {
            let method = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            Ok(Some((method, arguments)))
        }
        _ => Err(HarnessError::Other(format!("RabbitMQ sent a frame of type {}", head[0]))),
    }
}

fn socket(source: std::io::Error) -> HarnessError {
    HarnessError::Io { doing: "the bare publisher's socket".into(), source }
}
