//! As much of AMQP 0-9-1 as tests and benchmarks need: blocking, by hand, one channel.
//!
//! The relay's own client library is under test with it, so nothing here stands on it. There are
//! no heartbeats: a broker that is frozen is waited for, one that is dead resets its sockets.

pub(crate) mod frames;
pub(crate) mod wire;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

pub use self::wire::{Properties, Value};

use self::frames::{Content, Frame, Frames, Method, put_frame, put_method};
use self::wire::{Reader, put_long, put_short, put_table};
use crate::kit::{KitError, KitResult};

const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// A broker under load may think for a while; a declaration of a quorum queue elects a leader.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 64 * 1024;
const CHANNEL: u16 = 1;
/// Bytes of a frame beside what it carries.
const FRAME_OVERHEAD_BYTES: usize = 8;

const START: Method = (10, 10);
const START_OK: Method = (10, 11);
const TUNE: Method = (10, 30);
const TUNE_OK: Method = (10, 31);
const OPEN: Method = (10, 40);
const OPEN_OK: Method = (10, 41);
const CLOSE: Method = (10, 50);
const CLOSE_OK: Method = (10, 51);
const CHANNEL_OPEN: Method = (20, 10);
const CHANNEL_OPEN_OK: Method = (20, 11);
const CHANNEL_CLOSE: Method = (20, 40);
const CHANNEL_CLOSE_OK: Method = (20, 41);
pub(crate) const PUBLISH: Method = (60, 40);
pub(crate) const RETURN: Method = (60, 50);
const DELIVER: Method = (60, 60);
pub(crate) const ACK: Method = (60, 80);
pub(crate) const NACK: Method = (60, 120);
pub(crate) const CONFIRM_SELECT: Method = (85, 10);

/// Where a broker is and who asks.
struct Place {
    address: String,
    user: String,
    password: String,
    vhost: String,
}

impl Place {
    /// `amqp://user:password@host:port/vhost`, as this kit's services give it.
    fn parse(url: &str) -> Option<Place> {
        let (login, rest) = url.strip_prefix("amqp://")?.rsplit_once('@')?;
        let (user, password) = login.split_once(':')?;
        let (address, vhost) = rest.split_once('/')?;
        Some(Place {
            address: address.into(),
            user: decoded(user),
            password: decoded(password),
            vhost: decoded(vhost),
        })
    }
}

fn decoded(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let byte = piece.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.extend(byte);
        bytes.extend(piece.get(2..).unwrap_or_default().bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A message as a queue gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The consumer's.
    pub consumer: String,
    /// What it is acknowledged by.
    pub tag: u64,
    /// It was given before, perhaps.
    pub redelivered: bool,
    /// Where it was published to.
    pub exchange: String,
    /// And under which key.
    pub routing_key: String,
    /// What came with it.
    pub properties: Properties,
    /// Its body.
    pub body: Vec<u8>,
}

/// What the broker says unasked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    Delivery(Box<Delivery>),
    /// A confirm: tag, all up to it too, taken.
    Confirm(u64, bool, bool),
    /// A message that could not be routed came back.
    Returned(String),
}

/// A message whose frames are not complete yet.
struct Partial {
    method: Method,
    arguments: Vec<u8>,
    content: Option<(Properties, u64)>,
    body: Vec<u8>,
}

/// A connection with one open channel.
pub(crate) struct Client {
    stream: TcpStream,
    frames: Frames,
    frame_bytes_max: usize,
    partial: Option<Partial>,
    words: VecDeque<Word>,
    out: Vec<u8>,
    answer_limit: Duration,
}

impl Client {
    /// Logs in and opens a channel.
    pub(crate) fn open(url: &str) -> KitResult<Client> {
        Client::open_within(url, ANSWER_LIMIT)
    }

    /// The same, with a limit for each answer.
    pub(crate) fn open_within(url: &str, answer_limit: Duration) -> KitResult<Client> {
        let place = Place::parse(url)
            .ok_or_else(|| KitError::Other("not amqp://user:password@host:port/vhost".into()))?;
        let found = place.address.to_socket_addrs().map_err(KitError::io("find the broker"))?;
        let address = found.last();
        let address = address.ok_or_else(|| KitError::Other("no address".into()))?;
        let connecting = TcpStream::connect_timeout(&address, CONNECT_LIMIT);
        let stream = connecting.map_err(KitError::io("connect to RabbitMQ"))?;
        stream.set_nodelay(true).map_err(KitError::io("set up a socket"))?;
        let mut client = Client {
            stream,
            frames: Frames::default(),
            frame_bytes_max: 4096,
            partial: None,
            words: VecDeque::new(),
            out: b"AMQP\x00\x00\x09\x01".to_vec(),
            answer_limit,
        };
        client.log_in(&place)?;
        Ok(client)
    }

    fn log_in(&mut self, place: &Place) -> KitResult<()> {
        self.flush()?;
        self.answer(START)?;
        let mut told = Vec::new();
        // Refusals in words, and all kinds of confirms.
        let yes = Value::Flag(true);
        let able = ["authentication_failure_close", "publisher_confirms", "basic.nack"];
        let able = able.map(|name| (name.to_owned(), yes.clone()));
        put_table(&mut told, [("capabilities", &Value::Table(able.into()))]);
        put_short(&mut told, "PLAIN");
        put_long(&mut told, format!("\0{}\0{}", place.user, place.password).as_bytes());
        put_short(&mut told, "en_US");
        self.say(0, START_OK, &told)?;
        let mut tune = self.answer(TUNE)?;
        let mut limits = Reader(&tune);
        limits.take(2);
        if let Some(bytes @ 1..) = limits.u32() {
            self.frame_bytes_max = bytes as usize;
        }
        // Channels and frame size as offered, no heartbeat.
        tune.truncate(6);
        tune.extend([0, 0]);
        self.say(0, TUNE_OK, &tune)?;
        let mut open = Vec::new();
        put_short(&mut open, &place.vhost);
        open.extend([0, 0]);
        self.say(0, OPEN, &open)?;
        self.answer(OPEN_OK)?;
        self.open_channel()
    }

    fn open_channel(&mut self) -> KitResult<()> {
        self.say(CHANNEL, CHANNEL_OPEN, &[0])?;
        self.answer(CHANNEL_OPEN_OK).map(drop)
    }

    fn say(&mut self, channel: u16, method: Method, arguments: &[u8]) -> KitResult<()> {
        put_method(&mut self.out, channel, method, arguments);
        self.flush()
    }

    /// Says something that nobody answers.
    pub(crate) fn tell(&mut self, method: Method, arguments: &[u8]) -> KitResult<()> {
        self.say(CHANNEL, method, arguments)
    }

    /// Asks on the channel; the arguments of the answer. A refusal leaves a new channel.
    pub(crate) fn call(
        &mut self,
        method: Method,
        arguments: &[u8],
        wanted: Method,
    ) -> KitResult<Vec<u8>> {
        self.say(CHANNEL, method, arguments)?;
        self.answer(wanted)
    }

    /// Appends a message to what is sent at the next flush.
    pub(crate) fn publish(
        &mut self,
        (exchange, routing_key): (&str, &str),
        properties: &Properties,
        body: &[u8],
        mandatory: bool,
    ) {
        let mut arguments = vec![0, 0];
        put_short(&mut arguments, exchange);
        put_short(&mut arguments, routing_key);
        arguments.push(u8::from(mandatory));
        put_method(&mut self.out, CHANNEL, PUBLISH, &arguments);
        put_frame(&mut self.out, 2, CHANNEL, |out| {
            out.extend([0, 60, 0, 0]);
            out.extend((body.len() as u64).to_be_bytes());
            properties.write(out);
        });
        for piece in body.chunks(self.frame_bytes_max - FRAME_OVERHEAD_BYTES) {
            put_frame(&mut self.out, 3, CHANNEL, |out| out.extend(piece));
        }
    }

    /// Sends what was appended.
    pub(crate) fn flush(&mut self) -> KitResult<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(KitError::io("send to RabbitMQ"))
    }

    /// The next thing said unasked, within `patience`.
    pub(crate) fn word(&mut self, patience: Duration) -> KitResult<Option<Word>> {
        let began = Instant::now();
        loop {
            if let Some(word) = self.words.pop_front() {
                return Ok(Some(word));
            }
            let left = patience.saturating_sub(began.elapsed());
            let Some(frame) = self.frame(left)? else { return Ok(None) };
            if let Some((method, _)) = self.hear(frame)? {
                return Err(KitError::Other(format!("RabbitMQ said {method:?} unasked")));
            }
        }
    }

    fn answer(&mut self, wanted: Method) -> KitResult<Vec<u8>> {
        let began = Instant::now();
        loop {
            let left = self.answer_limit.saturating_sub(began.elapsed());
            let Some(frame) = self.frame(left)? else {
                let what = format!("RabbitMQ's answer {wanted:?}");
                return Err(KitError::Timeout { what, waited: self.answer_limit });
            };
            match self.hear(frame)? {
                Some((method, arguments)) if method == wanted => return Ok(arguments),
                Some((method, _)) => {
                    let what = format!("RabbitMQ said {method:?}, not {wanted:?}");
                    return Err(KitError::Other(what));
                }
                None => {}
            }
        }
    }

    /// Takes a frame in: an answer, or nothing when it belongs to something unasked.
    fn hear(&mut self, frame: Frame) -> KitResult<Option<(Method, Vec<u8>)>> {
        match frame.content {
            Content::Method(CLOSE, arguments) => {
                // The reason is worth more than a farewell that arrives.
                drop(self.say(0, CLOSE_OK, &[]));
                Err(refusal(&arguments))
            }
            Content::Method(CHANNEL_CLOSE, arguments) => {
                self.partial = None;
                self.say(CHANNEL, CHANNEL_CLOSE_OK, &[])?;
                self.open_channel()?;
                Err(refusal(&arguments))
            }
            Content::Method(method @ (DELIVER | RETURN), arguments) => {
                self.partial = Some(Partial { method, arguments, content: None, body: vec![] });
                Ok(None)
            }
            Content::Method(method @ (ACK | NACK), arguments) => {
                let mut reader = Reader(&arguments);
                let (tag, bits) = reader.u64().zip(reader.u8()).unwrap_or_default();
                self.words.push_back(Word::Confirm(tag, bits & 1 != 0, method == ACK));
                Ok(None)
            }
            Content::Method(method, arguments) => Ok(Some((method, arguments))),
            Content::Header(properties, bytes) => {
                if let Some(partial) = &mut self.partial {
                    partial.content = Some((properties, bytes));
                }
                self.complete();
                Ok(None)
            }
            Content::Body(piece) => {
                if let Some(partial) = &mut self.partial {
                    partial.body.extend(piece);
                }
                self.complete();
                Ok(None)
            }
            Content::Heartbeat => Ok(None),
        }
    }

    fn complete(&mut self) {
        let whole = |partial: &mut Partial| {
            partial.content.as_ref().is_some_and(|(_, bytes)| partial.body.len() as u64 >= *bytes)
        };
        let Some(Partial { method, arguments, content, body }) = self.partial.take_if(whole) else {
            return;
        };
        let (properties, _) = content.unwrap_or_default();
        self.words.push_back(match method {
            RETURN => Word::Returned(properties.message_id.unwrap_or_default()),
            _ => {
                let mut reader = Reader(&arguments);
                Word::Delivery(Box::new(Delivery {
                    consumer: reader.short().unwrap_or_default(),
                    tag: reader.u64().unwrap_or_default(),
                    redelivered: reader.u8().unwrap_or_default() != 0,
                    exchange: reader.short().unwrap_or_default(),
                    routing_key: reader.short().unwrap_or_default(),
                    properties,
                    body,
                }))
            }
        });
    }

    fn frame(&mut self, patience: Duration) -> KitResult<Option<Frame>> {
        let began = Instant::now();
        let mut buffer = [0; READ_BYTES];
        loop {
            let garbled = |_| KitError::Other("RabbitMQ does not speak AMQP".into());
            if let Some(frame) = self.frames.next().map_err(garbled)? {
                return Ok(Some(frame));
            }
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left)).map_err(KitError::io("set up a socket"))?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(KitError::Other("RabbitMQ ended the connection".into())),
                Ok(count) => self.frames.push(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(KitError::io("read from RabbitMQ")(error)),
            }
        }
    }

    /// Says goodbye. A connection that is only dropped is one that broke, to the broker's log.
    pub(crate) fn close(mut self) {
        if self.say(0, CLOSE, b"\0\xc8\0\0\0\0\0").is_ok() {
            drop(self.answer(CLOSE_OK));
        }
    }
}

fn refusal(arguments: &[u8]) -> KitError {
    let mut reader = Reader(arguments);
    let code = reader.u16().unwrap_or_default();
    KitError::Amqp { code, text: reader.short().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_hold_escaped_characters() {
        let place = Place::parse("amqp://a%40b:p%25%2F@127.0.0.1:5672/%2f").unwrap();
        assert_eq!((place.user.as_str(), place.password.as_str()), ("a@b", "p%/"));
        assert_eq!((place.address.as_str(), place.vhost.as_str()), ("127.0.0.1:5672", "/"));
        assert!(Place::parse("http://x").is_none());
    }
}
