//! AMQP 0-9-1 for tests and benchmarks: blocking, one channel. The codec is `amq-protocol`.
//!
//! [`Wire`] is one end of a connection, and a scripted broker may hold it as well. There are no
//! heartbeats: a broker that is frozen is waited for, one that is dead resets its sockets.

mod wire;

use std::collections::VecDeque;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use amq_protocol::frame::{AMQPContentHeader, AMQPFrame, ProtocolVersion};
use amq_protocol::protocol::{AMQPClass, basic, channel, connection};

pub(crate) use self::wire::{Frames, table};
pub use self::wire::{Properties, Value, Wire};

use crate::{HarnessError, Result};

const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// A broker under load may think for a while; a declaration of a quorum queue elects a leader.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const CHANNEL: u16 = 1;
const FRAME_OVERHEAD_BYTES: usize = 8;
const BASIC: u16 = 60;

struct Address {
    address: String,
    user: String,
    password: String,
    vhost: String,
}

impl Address {
    /// `amqp://user:password@host:port/vhost`, as this kit's services give it.
    fn parse(url: &str) -> Option<Address> {
        let (login, rest) = url.strip_prefix("amqp://")?.rsplit_once('@')?;
        let (user, password) = login.split_once(':')?;
        let (address, vhost) = rest.split_once('/')?;
        Some(Address {
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delivery {
    pub consumer: String,
    pub tag: u64,
    pub redelivered: bool,
    pub exchange: String,
    pub routing_key: String,
    pub properties: Properties,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Delivery(Box<Delivery>),
    /// A confirm: tag, all up to it too, taken.
    Confirm(u64, bool, bool),
    /// The id of a message that could not be routed and came back.
    Returned(String),
}

struct Partial {
    is_return: bool,
    delivery: Delivery,
    body_bytes: Option<u64>,
}

pub(crate) struct Client {
    wire: Wire,
    frame_bytes_max: usize,
    partial: Option<Partial>,
    events: VecDeque<Event>,
    answer_limit: Duration,
}

impl Client {
    pub(crate) fn open(url: &str) -> Result<Client> {
        Client::open_within(url, ANSWER_LIMIT)
    }

    pub(crate) fn open_within(url: &str, answer_limit: Duration) -> Result<Client> {
        let place = Address::parse(url).ok_or_else(|| {
            HarnessError::Other("not amqp://user:password@host:port/vhost".into())
        })?;
        let found = place.address.to_socket_addrs().map_err(HarnessError::io("find the broker"))?;
        let address = found.last().ok_or_else(|| HarnessError::Other("no address".into()))?;
        let connecting = TcpStream::connect_timeout(&address, CONNECT_LIMIT);
        let stream = connecting.map_err(HarnessError::io("connect to RabbitMQ"))?;
        let wire = Wire::new(stream).map_err(HarnessError::io("set up a socket"))?;
        let (partial, events) = (None, VecDeque::new());
        let mut client = Client { wire, frame_bytes_max: 4096, partial, events, answer_limit };
        client.log_in(&place)?;
        Ok(client)
    }

    fn log_in(&mut self, place: &Address) -> Result<()> {
        use connection::AMQPMethod as Method;
        self.wire.write(&AMQPFrame::ProtocolHeader(ProtocolVersion::amqp_0_9_1()));
        self.flush()?;
        self.answer((10, 10))?;
        // Refusals in words, and all kinds of confirms.
        let able = ["authentication_failure_close", "publisher_confirms", "basic.nack"];
        let able = able.map(|name| (name.to_owned(), Value::Flag(true)));
        let capabilities = Value::Other(table(able).into());
        let start = connection::StartOk {
            client_properties: table([("capabilities".to_owned(), capabilities)]),
            mechanism: "PLAIN".into(),
            response: format!("\0{}\0{}", place.user, place.password).into(),
            locale: "en_US".into(),
        };
        self.send(0, AMQPClass::Connection(Method::StartOk(start)))?;
        let AMQPClass::Connection(Method::Tune(tune)) = self.answer((10, 30))? else {
            return Err(HarnessError::Other("RabbitMQ does not tune".into()));
        };
        let connection::Tune { channel_max, frame_max, .. } = tune;
        if frame_max > 0 {
            self.frame_bytes_max = frame_max as usize;
        }
        let tune = connection::TuneOk { channel_max, frame_max, heartbeat: 0 };
        self.send(0, AMQPClass::Connection(Method::TuneOk(tune)))?;
        let open = connection::Open { virtual_host: place.vhost.as_str().into() };
        self.send(0, AMQPClass::Connection(Method::Open(open)))?;
        self.answer((10, 41))?;
        self.open_channel()
    }

    fn open_channel(&mut self) -> Result<()> {
        let open = channel::AMQPMethod::Open(channel::Open {});
        self.call(AMQPClass::Channel(open)).map(drop)
    }

    fn send(&mut self, channel: u16, method: AMQPClass) -> Result<()> {
        self.wire.write(&AMQPFrame::Method(channel, method));
        self.flush()
    }

    pub(crate) fn tell(&mut self, method: basic::AMQPMethod) -> Result<()> {
        self.send(CHANNEL, AMQPClass::Basic(method))
    }

    /// Asks on the channel; the answer's number is the next. A refusal leaves a new channel.
    pub(crate) fn call(&mut self, method: AMQPClass) -> Result<AMQPClass> {
        let answer = (method.get_amqp_class_id(), method.get_amqp_method_id() + 1);
        self.send(CHANNEL, method)?;
        self.answer(answer)
    }

    pub(crate) fn publish(
        &mut self,
        (exchange, routing_key): (&str, &str),
        properties: &Properties,
        body: &[u8],
        mandatory: bool,
    ) {
        let publish = basic::Publish {
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            mandatory,
            immediate: false,
        };
        let method = AMQPClass::Basic(basic::AMQPMethod::Publish(publish));
        self.wire.write(&AMQPFrame::Method(CHANNEL, method));
        let (body_size, properties) = (body.len() as u64, properties.into());
        let header = AMQPContentHeader { class_id: BASIC, body_size, properties };
        self.wire.write(&AMQPFrame::Header(CHANNEL, header));
        for piece in body.chunks(self.frame_bytes_max - FRAME_OVERHEAD_BYTES) {
            self.wire.write(&AMQPFrame::Body(CHANNEL, piece.to_vec()));
        }
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.wire.flush().map_err(HarnessError::io("send to RabbitMQ"))
    }

    /// The next thing sent unasked, within `patience`.
    pub(crate) fn event(&mut self, patience: Duration) -> Result<Option<Event>> {
        let began = Instant::now();
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let left = patience.saturating_sub(began.elapsed());
            let Some(frame) = self.frame(left)? else { return Ok(None) };
            if let Some(method) = self.take(frame)? {
                return Err(HarnessError::Other(format!("RabbitMQ said {method:?} unasked")));
            }
        }
    }

    fn answer(&mut self, wanted: (u16, u16)) -> Result<AMQPClass> {
        let began = Instant::now();
        loop {
            let left = self.answer_limit.saturating_sub(began.elapsed());
            let Some(frame) = self.frame(left)? else {
                let what = format!("RabbitMQ's answer {wanted:?}");
                return Err(HarnessError::Late { what, limit: self.answer_limit });
            };
            if let Some(method) = self.take(frame)? {
                let found = (method.get_amqp_class_id(), method.get_amqp_method_id());
                let wrong =
                    || HarnessError::Other(format!("RabbitMQ said {method:?}, not {wanted:?}"));
                return if found == wanted { Ok(method) } else { Err(wrong()) };
            }
        }
    }

    /// The next frame; nothing when none comes in time, or none is left and there is no time.
    fn frame(&mut self, patience: Duration) -> Result<Option<AMQPFrame>> {
        let reading = || HarnessError::io("read from RabbitMQ");
        if patience.is_zero() {
            return self.wire.buffered().map_err(reading());
        }
        self.wire.read(patience).map_err(reading())
    }

    /// An answer, or nothing when the frame belongs to something unasked.
    fn take(&mut self, frame: AMQPFrame) -> Result<Option<AMQPClass>> {
        match frame {
            AMQPFrame::Method(_, AMQPClass::Connection(connection::AMQPMethod::Close(close))) => {
                // The reason is worth more than a farewell that arrives.
                let ok = connection::AMQPMethod::CloseOk(connection::CloseOk {});
                drop(self.send(0, AMQPClass::Connection(ok)));
                Err(refusal(close.reply_code, close.reply_text.as_str()))
            }
            AMQPFrame::Method(_, AMQPClass::Channel(channel::AMQPMethod::Close(close))) => {
                self.partial = None;
                let ok = channel::AMQPMethod::CloseOk(channel::CloseOk {});
                self.send(CHANNEL, AMQPClass::Channel(ok))?;
                self.open_channel()?;
                Err(refusal(close.reply_code, close.reply_text.as_str()))
            }
            AMQPFrame::Method(_, AMQPClass::Basic(method)) => Ok(self.basic(method)),
            AMQPFrame::Method(_, method) => Ok(Some(method)),
            AMQPFrame::Header(_, header) => {
                if let Some(partial) = &mut self.partial {
                    partial.delivery.properties = header.properties.into();
                    partial.body_bytes = Some(header.body_size);
                }
                self.complete();
                Ok(None)
            }
            AMQPFrame::Body(_, piece) => {
                if let Some(partial) = &mut self.partial {
                    partial.delivery.body.extend(piece);
                }
                self.complete();
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn basic(&mut self, method: basic::AMQPMethod) -> Option<AMQPClass> {
        use basic::AMQPMethod::{Ack, Deliver, Nack, Return};
        match method {
            Deliver(it) => {
                let delivery = Delivery {
                    consumer: it.consumer_tag.to_string(),
                    tag: it.delivery_tag,
                    redelivered: it.redelivered,
                    exchange: it.exchange.to_string(),
                    routing_key: it.routing_key.to_string(),
                    ..Delivery::default()
                };
                self.partial = Some(Partial { is_return: false, delivery, body_bytes: None });
            }
            Return(_) => {
                let delivery = Delivery::default();
                self.partial = Some(Partial { is_return: true, delivery, body_bytes: None });
            }
            Ack(it) => {
                self.events.push_back(Event::Confirm(it.delivery_tag, it.multiple, true));
            }
            Nack(it) => {
                self.events.push_back(Event::Confirm(it.delivery_tag, it.multiple, false));
            }
            other => return Some(AMQPClass::Basic(other)),
        }
        None
    }

    fn complete(&mut self) {
        let whole = |partial: &mut Partial| {
            partial.body_bytes.is_some_and(|bytes| partial.delivery.body.len() as u64 >= bytes)
        };
        let Some(Partial { is_return, delivery, .. }) = self.partial.take_if(whole) else { return };
        self.events.push_back(if is_return {
            Event::Returned(delivery.properties.message_id.unwrap_or_default())
        } else {
            Event::Delivery(Box::new(delivery))
        });
    }

    /// Says goodbye. A connection that is only dropped is one that broke, to the broker's log.
    pub(crate) fn close(mut self) {
        let close = connection::Close { reply_code: 200, ..connection::Close::default() };
        let method = AMQPClass::Connection(connection::AMQPMethod::Close(close));
        if self.send(0, method).is_ok() {
            drop(self.answer((10, 51)));
        }
    }
}

fn refusal(code: u16, text: &str) -> HarnessError {
    HarnessError::Amqp { code, text: text.to_owned() }
}

#[test]
fn a_url_may_hold_escaped_characters() {
    let place = Address::parse("amqp://a%40b:p%25%2F@127.0.0.1:5672/%2f").expect("a URL");
    assert_eq!((place.user.as_str(), place.password.as_str()), ("a@b", "p%/"));
    assert_eq!((place.address.as_str(), place.vhost.as_str()), ("127.0.0.1:5672", "/"));
    assert!(Address::parse("http://x").is_none());
}
