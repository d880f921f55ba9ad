//! The sink on one thread, before a broker that confirms, nacks, returns, closes, blocks and vanishes
//! as a seed says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::base::event::{Outbound, Sequence};
use crate::base::random::Random;
use crate::sink::Disposition;
use crate::sink::rabbitmq::answer::{Answer, ReturnedMessage};
use crate::sink::rabbitmq::connection_loss::{AmqpAddress, ConnectionLoss};
use crate::sink::rabbitmq::exchanges::Existence;
use crate::sink::rabbitmq::message::AmqpMessage;
use crate::sink::rabbitmq::port::{AmqpEvent, ConnectionFacts};
use crate::testing::volume;

const EVENTS: u64 = 60;
const STEP: Duration = Duration::from_millis(300);
/// Over events with these numbers the broker closes, or returns or nacks them the first time.
const CLOSES: u64 = 12;
const RETURNED: u64 = 7;
const NACKED: u64 = 11;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stored,
    Nacked,
    Returned,
}

#[derive(Debug, Default)]
struct Channel {
    tag: u64,
    /// Without an answer, by tag.
    open: BTreeMap<u64, (u64, Fate)>,
}

/// A broker and the way to it.
#[derive(Debug, Default)]
struct ModelBroker {
    random: Random,
    is_calm: bool,
    is_connected: bool,
    is_connecting: bool,
    is_blocked: bool,
    is_asked: bool,
    is_opening: bool,
    channels: BTreeMap<u16, Channel>,
    /// Sent, and not read by the broker.
    on_the_way: VecDeque<(u16, u64)>,
    events: VecDeque<AmqpEvent>,
    /// In the order in which it came to be there.
    stored: Vec<u64>,
    refused_once: BTreeSet<u64>,
    publish_until: Option<Instant>,
}

impl ModelBroker {
    fn choice(&mut self, among: u64) -> u64 {
        self.random.number() % among
    }

    /// Does one thing.
    fn step(&mut self) {
        match self.choice(if self.is_calm { 8 } else { 12 }) {
            0 if self.is_connecting => self.log_in(),
            1 if self.is_asked => {
                self.is_asked = false;
                self.events.push_back(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
            }
            2 if self.is_opening => {
                self.is_opening = false;
                let number = self.channels.len() as u16 + 1;
                self.channels.insert(number, Channel::default());
                self.events.push_back(AmqpEvent::ChannelOpened(number));
            }
            3 | 4 if !self.is_blocked => (0..4).for_each(|_| self.read()),
            5 | 6 => self.confirm(),
            7 if self.is_blocked => {
                self.is_blocked = false;
                self.events.push_back(AmqpEvent::Unblocked);
            }
            8 if self.is_connected && !self.is_blocked => {
                self.is_blocked = true;
                self.events.push_back(AmqpEvent::Blocked("low on memory".to_owned()));
            }
            9 => {
                let closed = Answer::Closed(ConnectionLoss::of("reset"));
                self.vanish(AmqpEvent::Answers(vec![(0, closed)]));
            }
            10 if self.is_connecting => {
                self.is_connecting = false;
                let loss = ConnectionLoss::of("nobody is there");
                self.events.push_back(AmqpEvent::ConnectFailed(loss));
            }
            11 if self.is_opening => {
                self.is_opening = false;
                self.events.push_back(AmqpEvent::ChannelRefused);
            }
            _ => {}
        }
    }

    fn log_in(&mut self) {
        (self.is_connecting, self.is_connected) = (false, true);
        self.channels = BTreeMap::from([(1, Channel::default())]);
        self.events.push_back(AmqpEvent::Connected(ConnectionFacts {
            broker: 5,
            host: 0,
            frame_bytes: 32_768,
            channels: vec![1],
            channels_max: 3,
        }));
    }

    /// Reads one message that was sent.
    fn read(&mut self) {
        let Some((number, event)) = self.on_the_way.pop_front() else { return };
        if event == CLOSES {
            let loss = ConnectionLoss::refused(406, "PRECONDITION_FAILED - invalid expiration");
            return self.vanish(AmqpEvent::Answers(vec![(number, Answer::Closed(loss))]));
        }
        let is_first = self.refused_once.insert(event);
        let fate = match event {
            RETURNED if is_first => Fate::Returned,
            NACKED if is_first => Fate::Nacked,
            _ => Fate::Stored,
        };
        if fate == Fate::Stored {
            self.stored.push(event);
        }
        if fate == Fate::Returned {
            let returned =
                ReturnedMessage { id: event.to_string(), code: 312, text: "NO_ROUTE".to_owned() };
            let answers = vec![(number, Answer::Returned(returned))];
            self.events.push_back(AmqpEvent::Answers(answers));
        }
        let channel = self.channels.get_mut(&number).unwrap();
        channel.tag += 1;
        channel.open.insert(channel.tag, (event, fate));
    }

    /// Answers on some channel, for one message or for all up to it.
    fn confirm(&mut self) {
        let number = self.choice(3) as u16 + 1;
        let (pick, multiple) = (self.choice(4) as usize, self.choice(2) == 0);
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let Some((tag, (_, fate))) = channel.open.iter().nth(pick).map(|(tag, it)| (*tag, *it))
        else {
            return;
        };
        let is_same = |(_, other): &(u64, Fate)| (*other == Fate::Nacked) == (fate == Fate::Nacked);
        let multiple = multiple && channel.open.range(..=tag).all(|(_, it)| is_same(it));
        channel.open.retain(|it, _| if multiple { *it > tag } else { *it != tag });
        let answer = Answer::Confirm { tag, multiple, acked: fate != Fate::Nacked };
        self.events.push_back(AmqpEvent::Answers(vec![(number, answer)]));
    }

    /// The connection is gone, with what is on the way.
    fn vanish(&mut self, last: AmqpEvent) {
        if std::mem::take(&mut self.is_connected) {
            self.on_the_way.clear();
            self.channels.clear();
            (self.is_blocked, self.is_asked, self.is_opening) = (false, false, false);
            self.events.push_back(last);
        }
    }
}

impl AmqpPort for ModelBroker {
    fn connect(&mut self, _from: usize) {
        assert!(!self.is_connected && !self.is_connecting);
        self.is_connecting = true;
    }

    fn disconnect(&mut self) {
        self.vanish(AmqpEvent::Unblocked);
        self.events.clear();
    }

    fn send(&mut self, channel: u16, message: &AmqpMessage) {
        // What a connection is sent after its end is lost.
        if self.is_connected {
            assert!(self.channels.contains_key(&channel));
            self.on_the_way.push_back((channel, message.id().parse().unwrap()));
            self.events.push_back(AmqpEvent::Written(1));
        }
    }

    fn ask_exchange(&mut self, _name: &str) {
        assert!(!self.is_asked);
        self.is_asked = self.is_connected;
    }

    fn open_channel(&mut self) {
        assert!(!self.is_opening);
        self.is_opening = self.is_connected;
    }

    fn poll(&mut self, _now: Instant) -> Option<AmqpEvent> {
        self.events.pop_front()
    }

    fn publish_until(&mut self, until: Instant) {
        self.publish_until = Some(until);
    }
}

fn sink(seed: u64) -> RabbitSink<ModelBroker> {
    let publisher = Publisher::new(AmqpAddress::default(), seed);
    let broker = ModelBroker { random: Random::new(seed), ..ModelBroker::default() };
    RabbitSink::new(publisher, broker, seed)
}

fn publish(sink: &mut RabbitSink<ModelBroker>, number: u64) -> Result<(), PublishError> {
    let (key, topic, id) = (key(number), format!("topic.{}", number % 5), number.to_string());
    let event = Outbound {
        exchange: "e",
        topic: &topic,
        key: key.as_ref().map(|key| &key[..]),
        value: None,
        id: &id,
        event_type: None,
        content_type: None,
        headers: &[],
        commit_unix_us: 0,
        partition: None,
    };
    sink.publish(number, &event)
}

fn key(number: u64) -> Option<[u8; 1]> {
    let lane = (number % 4) as u8;
    (lane > 0).then_some([lane])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(volume(300, 3_000)))]

    #[test]
    fn every_event_is_confirmed_once_and_in_order_per_key(seed in any::<u64>()) {
        let mut sink = sink(seed);
        let (mut now, mut next, mut steps) = (Instant::now(), 0, 0_u32);
        let mut settled: BTreeMap<Sequence, bool> = BTreeMap::new();
        while (settled.len() as u64) < EVENTS {
            steps += 1;
            prop_assert!(steps < 20_000, "it settles: {settled:?}");
            sink.port().is_calm = steps > 2_000;
            now += STEP;
            if next < EVENTS && publish(&mut sink, next).is_ok() {
                next += 1;
            }
            sink.port().step();
            let mut reports = Vec::new();
            sink.poll(now, Duration::ZERO, &mut reports);
            for report in reports {
                match report {
                    SinkReport::Confirmed(it) => {
                        prop_assert!(sink.port().stored.contains(&it));
                        prop_assert_eq!(settled.insert(it, true), None);
                    }
                    SinkReport::Failed(it, failure) if failure.disposition == Disposition::Terminal => {
                        prop_assert_eq!((it, settled.insert(it, false)), (CLOSES, None));
                    }
                    SinkReport::Failed(it, _) => sink.retry(it),
                    _ => {}
                }
            }
        }
        prop_assert_eq!(settled.get(&CLOSES), Some(&false));
        let stored = &sink.port().stored;
        for lane in (0..4).map(key).filter(Option::is_some) {
            let mut seen = BTreeSet::new();
            let of_key = stored.iter().filter(|it| key(**it) == lane);
            let first: Vec<u64> = of_key.copied().filter(|it| seen.insert(*it)).collect();
            prop_assert!(first.is_sorted(), "{first:?}");
        }
    }
}

#[test]
fn the_sink_says_what_its_publisher_knows() {
    let mut sink = sink(0);
    let now = Instant::now();
    let mut reports = Vec::new();
    let mut poll = |sink: &mut RabbitSink<ModelBroker>, seconds| {
        sink.poll(now + Duration::from_secs(seconds), Duration::ZERO, &mut reports);
        std::mem::take(&mut reports)
    };
    poll(&mut sink, 0);
    assert_eq!(sink.broker(), 0);
    sink.port().log_in();
    publish(&mut sink, 1).unwrap();
    publish(&mut sink, 5).unwrap();
    poll(&mut sink, 0);
    assert_eq!(sink.broker(), 5);
    sink.port().events.push_back(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    sink.port().is_asked = false;
    for seconds in 1..5 {
        poll(&mut sink, seconds);
    }
    // THEN the first of the key is sent, and where it went is known after a while
    assert_eq!(sink.port().on_the_way, [(1, 1)]);
    assert_eq!(sink.destination(1).as_deref(), Some("routing key topic.1 of exchange e"));
    assert_eq!(sink.destination(5), None);
    // WHEN the broker is blocked THEN nothing is taken
    sink.port().events.push_back(AmqpEvent::Blocked("low on disk".to_owned()));
    assert!(matches!(&poll(&mut sink, 5)[..], [SinkReport::Unreachable(_)]));
    assert_eq!(publish(&mut sink, 2), Err(PublishError::QueueFull));
    // WHEN it is withdrawn THEN what is confirmed by now is known, and nothing is sent any more
    let port = sink.port();
    port.read();
    while !port.channels[&1].open.is_empty() {
        port.confirm();
    }
    let mut known = Vec::new();
    let at = now + Duration::from_secs(5);
    sink.withdraw(at, &mut known);
    assert_eq!(known, [SinkReport::Confirmed(1)]);
    assert_eq!(poll(&mut sink, 6), []);
    let port = sink.port();
    assert_eq!(port.publish_until, Some(at));
    assert!(port.on_the_way.is_empty());
}

/// A port whose broker refuses each connection, and which waits as long as it is told.
#[derive(Debug, Default)]
struct RefusingPort {
    waited: Vec<Duration>,
    now: Option<Instant>,
    is_connecting: bool,
}

impl AmqpPort for RefusingPort {
    fn connect(&mut self, _from: usize) {
        self.is_connecting = true;
    }

    fn disconnect(&mut self) {}

    fn send(&mut self, _channel: u16, _message: &AmqpMessage) {}

    fn ask_exchange(&mut self, _name: &str) {}

    fn open_channel(&mut self) {}

    fn poll(&mut self, _now: Instant) -> Option<AmqpEvent> {
        let refused = || AmqpEvent::ConnectFailed(ConnectionLoss::of("refused"));
        // The attempt takes a while.
        (!self.waited.is_empty() && std::mem::take(&mut self.is_connecting)).then(refused)
    }

    fn publish_until(&mut self, _until: Instant) {}

    fn wait(&mut self, patience: Duration) -> Option<Instant> {
        self.waited.push(patience);
        self.now = self.now.map(|now| now + patience);
        self.now
    }
}

#[test]
fn a_poll_waits_until_there_is_a_report_or_something_to_do() {
    let now = Instant::now();
    let port = RefusingPort { now: Some(now), ..RefusingPort::default() };
    let publisher = Publisher::new(AmqpAddress::default(), 1);
    let mut sink = RabbitSink::new(publisher, port, 1);
    // WHEN a connection is awaited THEN the whole patience is spent at once
    let mut reports = Vec::new();
    sink.poll(now, Duration::from_secs(1), &mut reports);
    assert_eq!(sink.port().waited, [Duration::from_secs(1)]);
    assert!(matches!(&reports[..], [SinkReport::Unreachable(_)]), "{reports:?}");
    // WHEN the next attempt is due sooner THEN the wait ends then, and the next poll makes it
    let later = now + Duration::from_secs(1);
    sink.port().waited.clear();
    sink.poll(later, Duration::from_secs(60), &mut Vec::new());
    let waited = sink.port().waited.clone();
    assert!(waited.len() == 1 && waited[0] < Duration::from_secs(5), "{waited:?}");
    assert!(!sink.port().is_connecting);
    sink.poll(later + waited[0], Duration::ZERO, &mut Vec::new());
    assert!(sink.port().is_connecting);
    // WHEN there is no patience THEN it does not wait
    sink.port().waited.clear();
    sink.poll(later, Duration::ZERO, &mut Vec::new());
    assert_eq!(sink.port().waited, []);
}
