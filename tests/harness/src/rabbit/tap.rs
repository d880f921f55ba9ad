//! What passes between a publisher and RabbitMQ, and when: a proxy that reads along.
//!
//! A queue does not say when it got a message. The tap does: it notes each publish before the
//! broker can have it, and each confirm before the publisher can. Whatever acts on a confirm acts
//! later than that. Bytes pass unchanged; a broker that stops reading stops the publisher.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::amqp::frames::{Content, Frame, Frames};
use crate::amqp::{ACK, CONFIRM_SELECT, NACK, PUBLISH};
use crate::consumer::Record;
use crate::kit::{KitError, KitResult, now_us};

const BUFFER_BYTES: usize = 64 * 1024;
/// What a client says before its first frame.
const GREETING_BYTES: usize = 8;

/// One publish of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Message id.
    pub id: String,
    /// When it came by, on its way to the broker.
    pub published_us: i64,
    /// When the broker's confirm came by; none for what was nacked, returned or never answered.
    pub confirmed_us: Option<i64>,
    /// It was sent back.
    pub returned: bool,
}

/// A proxy in front of a broker, for as long as the process lives.
pub struct Tap {
    port: u16,
    log: Arc<Mutex<Vec<Passed>>>,
    links: Arc<Mutex<Vec<TcpStream>>>,
}

impl Tap {
    /// Listens on a port of its own.
    pub fn start(broker_port: u16) -> KitResult<Tap> {
        let listening = || KitError::io("listen in front of RabbitMQ");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(listening())?;
        let port = listener.local_addr().map_err(listening())?.port();
        let tap = Tap { port, log: Arc::default(), links: Arc::default() };
        let (log, links) = (tap.log.clone(), tap.links.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // A broker that is away: dropping `near` tells the publisher.
                drop(join(near, broker_port, &log, &links));
            }
        });
        Ok(tap)
    }

    /// The same broker's URL, through here.
    pub fn amqp_url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port)
    }

    /// Cuts every connection, whatever is on its way.
    pub fn cut(&self) {
        for link in lock(&self.links).drain(..) {
            // One that has ended by itself cannot be cut.
            drop(link.shutdown(Shutdown::Both));
        }
    }

    /// Every publish so far, in the order in which they came by.
    pub fn passed(&self) -> Vec<Passed> {
        lock(&self.log).clone()
    }

    /// Sets the time of each record to that of its publish: the appearances of an event in a queue
    /// are its last publishes, for the last one of all was confirmed.
    pub fn stamp_published(&self, records: &mut [Record]) {
        let mut publishes: HashMap<String, Vec<i64>> = HashMap::new();
        for passed in self.passed() {
            publishes.entry(passed.id).or_default().push(passed.published_us);
        }
        for record in records.iter_mut().rev() {
            let published = publishes.get_mut(&record.id).and_then(Vec::pop);
            record.timestamp_ms = published.map_or(-1, |us| us / 1_000);
        }
    }

    /// Sets the time of each record to that of its event's first confirm, and to the end of time
    /// where there was none. Cut off to milliseconds, as brokers do.
    pub fn stamp_confirmed(&self, records: &mut [Record]) {
        let mut confirms: HashMap<String, i64> = HashMap::new();
        for passed in self.passed() {
            if let Some(us) = passed.confirmed_us {
                let first = confirms.entry(passed.id).or_insert(us);
                *first = us.min(*first);
            }
        }
        for record in records {
            // Compared in microseconds, so leave room for that.
            let never = i64::MAX / 1_000;
            record.timestamp_ms = confirms.get(&record.id).map_or(never, |us| us / 1_000);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join(
    near: TcpStream,
    broker_port: u16,
    log: &Arc<Mutex<Vec<Passed>>>,
    links: &Mutex<Vec<TcpStream>>,
) -> std::io::Result<()> {
    let far = TcpStream::connect((Ipv4Addr::LOCALHOST, broker_port))?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let mut known = lock(links);
    // Those that have ended are of no use.
    known.retain(|link| link.peer_addr().is_ok());
    known.extend([near.try_clone()?, far.try_clone()?]);
    drop(known);
    let (near_back, far_back) = (near.try_clone()?, far.try_clone()?);
    let out = Arc::new(Mutex::new(Link { channels: HashMap::new(), log: log.clone() }));
    let back = out.clone();
    std::thread::spawn(move || {
        copy(near, far, GREETING_BYTES, |frame| lock(&out).published(frame));
    });
    std::thread::spawn(move || {
        copy(far_back, near_back, 0, |frame| lock(&back).answered(frame));
    });
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut skip: usize, mut look: impl FnMut(Frame)) {
    let mut frames = Frames::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..length];
        let skipped = skip.min(length);
        skip -= skipped;
        frames.push(&bytes[skipped..]);
        // What is not understood passes all the same; then nothing more is noted, and a test that
        // counts on the notes fails.
        while let Ok(Some(frame)) = frames.next() {
            look(frame);
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

/// One connection.
struct Link {
    channels: HashMap<u16, Channel>,
    log: Arc<Mutex<Vec<Passed>>>,
}

#[derive(Default)]
struct Channel {
    /// The last publish's; none without confirm mode.
    tag: Option<u64>,
    /// The last method began a message.
    begun: bool,
    /// Where in the log each unanswered publish is.
    unanswered: BTreeMap<u64, usize>,
}

impl Link {
    /// A frame from the publisher.
    fn published(&mut self, frame: Frame) {
        let channel = self.channels.entry(frame.channel).or_default();
        match frame.content {
            Content::Method(CONFIRM_SELECT, _) => channel.tag = Some(0),
            Content::Method(method, _) => channel.begun = method == PUBLISH,
            Content::Header(properties, _) if std::mem::take(&mut channel.begun) => {
                let mut log = lock(&self.log);
                if let Some(tag) = &mut channel.tag {
                    *tag += 1;
                    channel.unanswered.insert(*tag, log.len());
                }
                log.push(Passed {
                    id: properties.message_id.unwrap_or_default(),
                    published_us: now_us(),
                    confirmed_us: None,
                    returned: false,
                });
            }
            Content::Header(..) | Content::Body(_) | Content::Heartbeat => {}
        }
    }

    /// A frame from the broker.
    fn answered(&mut self, frame: Frame) {
        let channel = self.channels.entry(frame.channel).or_default();
        let mut log = lock(&self.log);
        match frame.content {
            Content::Method(method @ (ACK | NACK), arguments) => {
                let Some((tag, rest)) = arguments.split_first_chunk() else { return };
                let tag = u64::from_be_bytes(*tag);
                let multiple = rest.first().is_some_and(|bits| bits & 1 != 0);
                let later = channel.unanswered.split_off(&tag.saturating_add(1));
                let mut settled = std::mem::replace(&mut channel.unanswered, later);
                if !multiple {
                    let one = settled.remove(&tag);
                    channel.unanswered.append(&mut settled);
                    settled.extend(one.map(|at| (tag, at)));
                }
                for at in settled.into_values().filter(|_| method == ACK) {
                    let passed = &mut log[at];
                    passed.confirmed_us = (!passed.returned).then(now_us);
                }
            }
            Content::Header(properties, _) => {
                let id = properties.message_id.unwrap_or_default();
                let mut of_id = channel.unanswered.values().filter(|at| log[**at].id == id);
                if let Some(&at) = of_id.next_back() {
                    log[at].returned = true;
                }
            }
            Content::Method(..) | Content::Body(_) | Content::Heartbeat => {}
        }
    }
}
