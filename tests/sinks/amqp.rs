//! A scripted AMQP 0-9-1 broker: it does what the script says, in the order the script says.
//!
//! Login, tuning, channels and passive declares are answered here; a script sees publishes and
//! decides what becomes of each. A script ends with its connection, whoever closed it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use amq_protocol::frame::{AMQPContentHeader, AMQPFrame};
use amq_protocol::protocol::basic::{Ack, Nack, Publish, Return};
use amq_protocol::protocol::{AMQPClass, BasicProperties, basic, channel, confirm, connection};
use amq_protocol::protocol::{exchange, queue};
use amq_protocol::types::{AMQPValue, FieldTable};

use walrelay_harness::amqp::Wire;

/// A broker on a loopback port. Dropping it ends all its connections.
pub(crate) struct Server {
    pub(crate) port: u16,
    stop: Arc<AtomicBool>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Server {
    /// `script` is run for each connection, with its number from 0.
    pub(crate) fn start(
        script: impl Fn(usize, TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, sockets) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
        let (script, own_stop, own) = (Arc::new(script), Arc::clone(&stop), Arc::clone(&sockets));
        std::thread::spawn(move || {
            for (number, socket) in listener.incoming().flatten().enumerate() {
                if own_stop.load(Ordering::SeqCst) {
                    return;
                }
                own.lock().unwrap().push(socket.try_clone().unwrap());
                let script = Arc::clone(&script);
                // An error is the end of the connection, which is the client's to notice.
                std::thread::spawn(move || drop(script(number, socket)));
            }
        });
        Server { port, stop, sockets }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        for socket in self.sockets.lock().unwrap().drain(..) {
            drop(socket.shutdown(Shutdown::Both));
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// Counts the messages of the connection. Each channel has tags of its own, which a script need
    /// not know.
    pub(crate) tag: u64,
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) mandatory: bool,
    pub(crate) properties: BasicProperties,
    pub(crate) body: Vec<u8>,
}

impl Published {
    pub(crate) fn id(&self) -> &str {
        self.properties.message_id().as_ref().expect("a message id").as_str()
    }

    pub(crate) fn key(&self) -> String {
        let headers = self.properties.headers().as_ref().expect("headers").inner();
        match headers.get("key") {
            Some(AMQPValue::LongString(key)) => key.to_string(),
            other => panic!("a key that is {other:?}"),
        }
    }
}

/// A client that has logged in.
pub(crate) struct Peer {
    wire: Wire,
    /// The channels in confirm mode, and how many messages came on each.
    confirming: Vec<(u16, u64)>,
    /// The channel and the delivery tag of each message, by its number on the connection.
    tags: Vec<(u16, u64)>,
    /// The channel was closed by us: what comes on it is passed over.
    closed: bool,
    partial: Option<(Published, u64)>,
    pub(crate) missing: BTreeSet<String>,
    /// Nobody is told whether an exchange exists.
    pub(crate) hides_exchanges: bool,
}

impl Peer {
    /// Takes the client's greeting and lets it in.
    pub(crate) fn welcome(socket: TcpStream) -> io::Result<Peer> {
        Peer::tuned(socket, 2047, 128 * 1024)
    }

    /// The same with this many channels at most.
    pub(crate) fn welcome_with(socket: TcpStream, channel_max: u16) -> io::Result<Peer> {
        Peer::tuned(socket, channel_max, 128 * 1024)
    }

    /// The same with frames of so many bytes at most.
    pub(crate) fn welcome_with_frames(socket: TcpStream, frame_max: u32) -> io::Result<Peer> {
        Peer::tuned(socket, 2047, frame_max)
    }

    fn tuned(socket: TcpStream, channel_max: u16, frame_max: u32) -> io::Result<Peer> {
        let mut wire = Wire::new(socket)?;
        loop {
            match wire.read(LOGIN)?.ok_or(io::ErrorKind::TimedOut)? {
                AMQPFrame::ProtocolHeader(_) => {
                    let start = connection::Start {
                        version_major: 0,
                        version_minor: 9,
                        server_properties: capabilities(),
                        mechanisms: "PLAIN EXTERNAL".into(),
                        locales: "en_US".into(),
                    };
                    wire.connection(connection::AMQPMethod::Start(start));
                }
                AMQPFrame::Method(0, AMQPClass::Connection(method)) => match method {
                    connection::AMQPMethod::StartOk(told) => {
                        assert_eq!(told.mechanism.as_str(), "PLAIN");
                        assert_eq!(told.response.as_bytes(), b"\0guest\0guest");
                        let tune = connection::Tune { channel_max, frame_max, heartbeat: 60 };
                        wire.connection(connection::AMQPMethod::Tune(tune));
                    }
                    connection::AMQPMethod::TuneOk(_) => {}
                    connection::AMQPMethod::Open(_) => {
                        wire.connection(connection::AMQPMethod::OpenOk(connection::OpenOk {}));
                        let mut peer = Peer {
                            wire,
                            confirming: Vec::new(),
                            tags: Vec::new(),
                            closed: false,
                            partial: None,
                            missing: BTreeSet::new(),
                            hides_exchanges: false,
                        };
                        peer.flush()?;
                        return Ok(peer);
                    }
                    other => panic!("{other:?} in a login"),
                },
                other => panic!("{other:?} in a login"),
            }
            wire.flush()?;
        }
    }

    pub(crate) fn next(&mut self) -> io::Result<Published> {
        loop {
            if let Some(published) = self.next_within(Duration::from_secs(3600))? {
                return Ok(published);
            }
        }
    }

    pub(crate) fn next_within(&mut self, patience: Duration) -> io::Result<Option<Published>> {
        let deadline = Instant::now() + patience;
        loop {
            self.flush()?;
            let left = deadline.saturating_duration_since(Instant::now());
            match self.wire.read(left.min(HEARTBEAT))? {
                Some(frame) => {
                    if let Some(published) = self.take(frame)? {
                        return Ok(Some(published));
                    }
                }
                None if left.is_zero() => return Ok(None),
                None => self.wire.write(&AMQPFrame::Heartbeat),
            }
        }
    }

    fn take(&mut self, frame: AMQPFrame) -> io::Result<Option<Published>> {
        match frame {
            AMQPFrame::Heartbeat => {}
            AMQPFrame::Method(channel, class) => self.method(channel, class)?,
            AMQPFrame::Header(_, header) => {
                let Some((published, left)) = &mut self.partial else { return Ok(None) };
                published.properties = header.properties;
                *left = header.body_size;
            }
            AMQPFrame::Body(_, part) => {
                let Some((published, left)) = &mut self.partial else { return Ok(None) };
                published.body.extend_from_slice(&part);
                *left -= part.len() as u64;
            }
            other => panic!("{other:?} from a client"),
        }
        let whole = self.partial.take_if(|(_, left)| *left == 0);
        Ok(whole.map(|(published, _)| published))
    }

    fn method(&mut self, channel: u16, class: AMQPClass) -> io::Result<()> {
        let answer = match class {
            AMQPClass::Channel(channel::AMQPMethod::Open(_)) => {
                AMQPClass::Channel(channel::AMQPMethod::OpenOk(channel::OpenOk {}))
            }
            AMQPClass::Channel(channel::AMQPMethod::Close(_)) => {
                AMQPClass::Channel(channel::AMQPMethod::CloseOk(channel::CloseOk {}))
            }
            AMQPClass::Confirm(confirm::AMQPMethod::Select(_)) => {
                self.confirming.push((channel, 0));
                AMQPClass::Confirm(confirm::AMQPMethod::SelectOk(confirm::SelectOk {}))
            }
            AMQPClass::Exchange(exchange::AMQPMethod::Declare(it)) => {
                assert!(it.passive, "the relay makes no exchange");
                if self.hides_exchanges {
                    channel_close(403, "ACCESS_REFUSED - configure access to exchange refused")
                } else if self.missing.contains(it.exchange.as_str()) {
                    let text = format!("NOT_FOUND - no exchange '{}' in vhost '/'", it.exchange);
                    channel_close(404, &text)
                } else {
                    AMQPClass::Exchange(exchange::AMQPMethod::DeclareOk(exchange::DeclareOk {}))
                }
            }
            AMQPClass::Queue(queue::AMQPMethod::Declare(it)) => {
                let queue = it.queue;
                let told = queue::DeclareOk { queue, message_count: 0, consumer_count: 0 };
                AMQPClass::Queue(queue::AMQPMethod::DeclareOk(told))
            }
            AMQPClass::Basic(basic::AMQPMethod::Publish(publish)) => {
                self.publish(channel, publish);
                return Ok(());
            }
            AMQPClass::Connection(connection::AMQPMethod::Close(_)) => {
                AMQPClass::Connection(connection::AMQPMethod::CloseOk(connection::CloseOk {}))
            }
            AMQPClass::Channel(channel::AMQPMethod::CloseOk(_))
            | AMQPClass::Connection(connection::AMQPMethod::CloseOk(_)) => return Ok(()),
            other => panic!("{other:?} from a client"),
        };
        self.wire.write(&AMQPFrame::Method(channel, answer));
        Ok(())
    }

    fn publish(&mut self, channel: u16, publish: Publish) {
        let mut confirming = self.confirming.iter_mut();
        let confirming = confirming.find(|(number, _)| *number == channel);
        let (_, count) = confirming.expect("a publish on a channel in confirm mode");
        if self.closed {
            return;
        }
        *count += 1;
        self.tags.push((channel, *count));
        let published = Published {
            tag: self.tags.len() as u64,
            exchange: publish.exchange.to_string(),
            routing_key: publish.routing_key.to_string(),
            mandatory: publish.mandatory,
            properties: BasicProperties::default(),
            body: Vec::new(),
        };
        self.partial = Some((published, u64::MAX));
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.wire.flush()
    }

    fn basic(&mut self, channel: u16, method: basic::AMQPMethod) {
        self.wire.write(&AMQPFrame::Method(channel, AMQPClass::Basic(method)));
    }

    /// The channels and delivery tags that answer up to a message, or only for it. What was never
    /// sent is answered on the first channel, as it is.
    fn answered(&self, tag: u64, multiple: bool) -> BTreeMap<u16, u64> {
        let index = usize::try_from(tag).unwrap().wrapping_sub(1);
        match self.tags.get(index) {
            Some(_) if multiple => self.tags[..=index].iter().copied().collect(),
            Some(one) => BTreeMap::from([*one]),
            None => BTreeMap::from([(self.first(), tag)]),
        }
    }

    fn first(&self) -> u16 {
        self.confirming.first().map_or(0, |(channel, _)| *channel)
    }

    pub(crate) fn ack(&mut self, tag: u64, multiple: bool) {
        for (channel, delivery_tag) in self.answered(tag, multiple) {
            self.basic(channel, basic::AMQPMethod::Ack(Ack { delivery_tag, multiple }));
        }
    }

    pub(crate) fn nack(&mut self, tag: u64, multiple: bool) {
        for (channel, delivery_tag) in self.answered(tag, multiple) {
            let nack = Nack { delivery_tag, multiple, requeue: false };
            self.basic(channel, basic::AMQPMethod::Nack(nack));
        }
    }

    /// Sends a message back, as it came.
    pub(crate) fn send_back(&mut self, published: &Published, reply_code: u16) {
        let text = if reply_code == 312 { "NO_ROUTE" } else { "NO_CONSUMERS" };
        let (channel, _) = self.tags[usize::try_from(published.tag).unwrap() - 1];
        self.basic(
            channel,
            basic::AMQPMethod::Return(Return {
                reply_code,
                reply_text: text.into(),
                exchange: published.exchange.as_str().into(),
                routing_key: published.routing_key.as_str().into(),
            }),
        );
        let header = AMQPContentHeader {
            class_id: 60,
            body_size: published.body.len() as u64,
            properties: published.properties.clone(),
        };
        self.wire.write(&AMQPFrame::Header(channel, header));
        for part in published.body.chunks(BODY_BYTES) {
            self.wire.write(&AMQPFrame::Body(channel, part.to_vec()));
        }
    }

    /// Closes the channel of the last message; what the client sends from now on is passed over.
    pub(crate) fn close_channel(&mut self, code: u16, text: &str) -> io::Result<()> {
        self.closed = true;
        let channel = self.tags.last().map_or_else(|| self.first(), |(channel, _)| *channel);
        self.wire.write(&AMQPFrame::Method(channel, channel_close(code, text)));
        self.flush()
    }

    pub(crate) fn close_connection(&mut self, code: u16, text: &str) -> io::Result<()> {
        self.closed = true;
        let close = connection::Close {
            reply_code: code,
            reply_text: text.into(),
            class_id: 0,
            method_id: 0,
        };
        self.wire.connection(connection::AMQPMethod::Close(close));
        self.flush()
    }

    pub(crate) fn block(&mut self, reason: &str) -> io::Result<()> {
        let blocked = connection::Blocked { reason: reason.into() };
        self.wire.connection(connection::AMQPMethod::Blocked(blocked));
        self.flush()
    }

    pub(crate) fn unblock(&mut self) -> io::Result<()> {
        self.wire.connection(connection::AMQPMethod::Unblocked(connection::Unblocked {}));
        self.flush()
    }

    /// Listens, and passes over everything, until the client has gone.
    pub(crate) fn until_gone(&mut self) -> io::Result<()> {
        loop {
            self.next()?;
        }
    }

    /// Neither reads nor writes any more; the connection stays open as long as the server.
    pub(crate) fn fall_silent(mut self) {
        self.wire.fall_silent();
    }
}

const LOGIN: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_millis(250);
const BODY_BYTES: usize = 4096;

fn channel_close(code: u16, text: &str) -> AMQPClass {
    AMQPClass::Channel(channel::AMQPMethod::Close(channel::Close {
        reply_code: code,
        reply_text: text.into(),
        class_id: 60,
        method_id: 40,
    }))
}

fn capabilities() -> FieldTable {
    let mut able = FieldTable::default();
    for name in ["publisher_confirms", "basic.nack", "connection.blocked"] {
        able.insert(name.into(), AMQPValue::Boolean(true));
    }
    let mut properties = FieldTable::default();
    properties.insert("capabilities".into(), AMQPValue::FieldTable(able));
    properties
}
