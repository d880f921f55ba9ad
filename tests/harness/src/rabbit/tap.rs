//! A tap between a publisher and RabbitMQ: a proxy that notes each message and its time.
//!
//! A queue does not say when it got a message. The tap does: it notes each publish before the
//! broker can have it, and each confirm before the publisher can. Whatever acts on a confirm acts
//! later than that. Bytes pass unchanged; a broker that stops reading stops the publisher.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use amq_protocol::frame::AMQPFrame;
use amq_protocol::protocol::basic::AMQPMethod as Basic;
use amq_protocol::protocol::{AMQPClass, BasicProperties, confirm};

use crate::Result;
use crate::amqp::Frames;
use crate::consumer::Record;
use crate::kit::{lock, now_us};
use crate::proxy::{Look, Proxy};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    pub id: String,
    /// When it came by, on its way to the broker.
    pub published_us: i64,
    /// When the broker's confirm came by; none for what was nacked, returned or never answered.
    pub confirmed_us: Option<i64>,
    pub returned: bool,
}

/// A proxy in front of a broker, for as long as the process lives.
pub struct Tap {
    proxy: Proxy,
    log: Arc<Mutex<Vec<Passed>>>,
}

impl Tap {
    pub fn start(broker_port: u16) -> Result<Tap> {
        let log = Arc::<Mutex<Vec<Passed>>>::default();
        let own = log.clone();
        let proxy = Proxy::start_watched(broker_port, move || {
            let link = Link { channels: HashMap::new(), log: own.clone() };
            let out = Arc::new(Mutex::new(link));
            let back = out.clone();
            [
                frame_look(move |frame| lock(&out).published(frame)),
                frame_look(move |frame| lock(&back).answered(frame)),
            ]
        })?;
        Ok(Tap { proxy, log })
    }

    pub fn amqp_url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.proxy.port)
    }

    pub fn cut(&self) {
        self.proxy.cut();
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

/// Notes each frame. Bytes that are not understood pass all the same; then nothing more is noted,
/// and a test that counts on the notes fails.
fn frame_look(mut note: impl FnMut(AMQPFrame) + Send + 'static) -> Look {
    let mut frames = Frames::default();
    Box::new(move |bytes: &[u8]| {
        frames.push(bytes);
        while let Ok(Some(frame)) = frames.next() {
            note(frame);
        }
    })
}

struct Link {
    channels: HashMap<u16, Channel>,
    log: Arc<Mutex<Vec<Passed>>>,
}

#[derive(Default)]
struct Channel {
    /// The last publish's; none without confirm mode.
    tag: Option<u64>,
    begun: bool,
    /// Where in the log each unanswered publish is.
    unanswered: BTreeMap<u64, usize>,
}

impl Link {
    fn published(&mut self, frame: AMQPFrame) {
        match frame {
            AMQPFrame::Method(at, AMQPClass::Confirm(confirm::AMQPMethod::Select(_))) => {
                self.channel(at).tag = Some(0);
            }
            AMQPFrame::Method(at, method) => {
                self.channel(at).begun = matches!(method, AMQPClass::Basic(Basic::Publish(_)));
            }
            AMQPFrame::Header(at, header) => {
                let log = Arc::clone(&self.log);
                let channel = self.channel(at);
                if !std::mem::take(&mut channel.begun) {
                    return;
                }
                let mut log = lock(&log);
                if let Some(tag) = &mut channel.tag {
                    *tag += 1;
                    channel.unanswered.insert(*tag, log.len());
                }
                let (id, published_us) = (message_id(&header.properties), now_us());
                log.push(Passed { id, published_us, confirmed_us: None, returned: false });
            }
            _ => {}
        }
    }

    fn answered(&mut self, frame: AMQPFrame) {
        match frame {
            AMQPFrame::Method(at, AMQPClass::Basic(Basic::Ack(it))) => {
                self.confirmed(at, it.delivery_tag, it.multiple, true);
            }
            AMQPFrame::Method(at, AMQPClass::Basic(Basic::Nack(it))) => {
                self.confirmed(at, it.delivery_tag, it.multiple, false);
            }
            AMQPFrame::Header(at, header) => {
                let (id, log) = (message_id(&header.properties), Arc::clone(&self.log));
                let mut log = lock(&log);
                let mut of_id =
                    self.channel(at).unanswered.values().filter(|at| log[**at].id == id);
                if let Some(&at) = of_id.next_back() {
                    log[at].returned = true;
                }
            }
            _ => {}
        }
    }

    fn channel(&mut self, number: u16) -> &mut Channel {
        self.channels.entry(number).or_default()
    }

    fn confirmed(&mut self, channel: u16, tag: u64, multiple: bool, is_taken: bool) {
        let log = Arc::clone(&self.log);
        let channel = self.channel(channel);
        let later = channel.unanswered.split_off(&tag.saturating_add(1));
        let mut settled = std::mem::replace(&mut channel.unanswered, later);
        if !multiple {
            let one = settled.remove(&tag);
            channel.unanswered.append(&mut settled);
            settled.extend(one.map(|at| (tag, at)));
        }
        let mut log = lock(&log);
        for at in settled.into_values().filter(|_| is_taken) {
            let passed = &mut log[at];
            passed.confirmed_us = (!passed.returned).then(now_us);
        }
    }
}

fn message_id(properties: &BasicProperties) -> String {
    properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default()
}
