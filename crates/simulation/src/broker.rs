//! A broker as its consumers see it, and a sink that speaks to it without a protocol: one event of a
//! key at a time, in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use walrelay_core::base::event::{Outbound, Sequence};
use walrelay_core::base::headers::Headers;
use walrelay_core::base::lock::locked;
use walrelay_core::dead_letter::parse::parse;
use walrelay_core::dead_letter::record::{LogEntry, LogRecord, PartitionOffset};
use walrelay_core::dead_letter::writer::{CLASS_PARKED, DeadLetterCause, DeadLetterWriter};
use walrelay_core::relay::ports::Clock as _;
use walrelay_core::sink::{Disposition, Failure, PublishError, Sink, SinkReport};

use crate::kafka::Cluster;
use crate::life::{Life, WorldClock};
use crate::postgres::{KEYS, PAYLOADS, TOPICS};
use crate::rabbitmq::Server;
use crate::scenarios::Reading;
use crate::world::RELAYS_MAX;

pub(crate) const DEAD_LETTERS: &str = "outbox.dlq";
/// A sink takes so many, or as many as may be in flight.
const HELD_MIN: usize = 64;

/// A record, as it was published or stored.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) content: Arc<Content>,
    pub(crate) commit_unix_us: i64,
    pub(crate) stored_unix_us: i64,
    pub(crate) partition: i32,
    /// The relay and the sink that published it.
    pub(crate) by: (usize, u64),
}

/// The content of a record, which does not change on its way: all its copies share it. The schedules
/// have few topics, keys and payloads, and the records refer to them.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) topic: &'static str,
    pub(crate) key: Option<&'static [u8]>,
    pub(crate) value: Option<&'static [u8]>,
    pub(crate) id: String,
    pub(crate) headers: Headers,
}

/// The one of these that is published. A relay has nothing else to publish.
fn known<T: PartialEq + Debug + ?Sized>(
    all: impl IntoIterator<Item = &'static T>,
    published: &T,
) -> &'static T {
    let known = all.into_iter().find(|it| *it == published);
    known.unwrap_or_else(|| panic!("{published:?} is published, which no event has"))
}

impl Deref for Record {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.content
    }
}

impl Record {
    pub(crate) fn copy(event: &Outbound<'_>) -> Record {
        let content = Content {
            topic: known(TOPICS.into_iter().chain([DEAD_LETTERS]), event.topic),
            key: event.key.map(|key| known(KEYS, key)),
            value: event.value.map(|value| known(PAYLOADS, value)),
            id: event.id.to_owned(),
            headers: Headers::copy(event.headers.iter().copied()),
        };
        Record {
            content: Arc::new(content),
            commit_unix_us: event.commit_unix_us,
            stored_unix_us: 0,
            partition: 0,
            by: (0, 0),
        }
    }

    /// As an event that asks for this partition, or as a record that was found in it.
    pub(crate) fn with_outbound<T>(
        &self,
        partition: Option<i32>,
        then: impl FnOnce(&Outbound<'_>) -> T,
    ) -> T {
        let headers: Vec<(&str, &[u8])> = self.headers.iter().collect();
        then(&Outbound {
            topic: self.topic,
            key: self.key,
            value: self.value,
            id: &self.id,
            headers: &headers,
            commit_unix_us: self.commit_unix_us,
            partition,
            ..Outbound::default()
        })
    }

    pub(crate) fn is_dead_letter(&self) -> bool {
        self.topic == DEAD_LETTERS
    }

    /// A dead letter for no other reason than that its key is parked.
    pub(crate) fn is_parked(&self) -> bool {
        let class = (b"dlq-error-class".as_slice(), CLASS_PARKED.as_bytes());
        self.is_dead_letter() && self.headers.parts().any(|header| header == class)
    }

    pub(crate) fn is_poison(&self) -> bool {
        self.has_poison() && !self.is_dead_letter()
    }

    /// The same of the event of a dead letter.
    pub(crate) fn has_poison(&self) -> bool {
        self.value == Some(PAYLOADS[1])
    }
}

/// The answer of the broker to a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Stored,
    Refused(Disposition),
}

/// On its way to the broker.
#[derive(Debug)]
pub(crate) struct Publish {
    pub(crate) sink: u64,
    pub(crate) relay: usize,
    pub(crate) sequence: Sequence,
    pub(crate) sent_us: u64,
    pub(crate) record: Record,
    answers: Answers,
}

type Answers = Arc<Mutex<VecDeque<(Sequence, Answer)>>>;

#[derive(Debug)]
pub(crate) struct Broker {
    clock: WorldClock,
    pub(crate) logs: BTreeMap<&'static str, Vec<Record>>,
    /// All records, in the order in which they were stored.
    pub(crate) stored: Vec<Record>,
    pub(crate) inbox: VecDeque<Publish>,
    pub(crate) kafka: Cluster,
    pub(crate) rabbitmq: Server,
    pub(crate) cluster: u64,
    /// It accepts and answers nothing.
    pub(crate) is_away: bool,
    /// Takes and answers nothing for this topic.
    pub(crate) silent_topic: Option<&'static str>,
    pub(crate) sinks: u64,
    /// The last one of each relay.
    pub(crate) last_sinks: [u64; RELAYS_MAX],
    /// How many records each relay has sent.
    pub(crate) sent: [u64; RELAYS_MAX],
    /// How many records were sent by sinks that are gone, and not answered.
    pub(crate) unanswered: u64,
    /// Sinks without a protocol that are in use.
    pub(crate) live: BTreeSet<u64>,
    /// Sinks whose state is lost.
    pub(crate) broken: BTreeSet<u64>,
    /// How the ends of its topics are read.
    pub(crate) reading: Reading,
    /// The records of the dead-letter topic that were read, and what they say.
    letters: Vec<(Record, LogRecord)>,
}

pub(crate) type SharedBroker = Arc<Mutex<Broker>>;

impl Broker {
    pub(crate) fn new(clock: &WorldClock, seed: u64) -> Broker {
        Broker {
            clock: clock.clone(),
            logs: BTreeMap::new(),
            stored: Vec::new(),
            inbox: VecDeque::new(),
            kafka: Cluster::new(seed),
            rabbitmq: Server::new(seed),
            cluster: 1,
            is_away: false,
            silent_topic: None,
            sinks: 0,
            last_sinks: [0; RELAYS_MAX],
            sent: [0; RELAYS_MAX],
            unanswered: 0,
            live: BTreeSet::new(),
            broken: BTreeSet::new(),
            reading: Reading::default(),
            letters: Vec::new(),
        }
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.clock.us()
    }

    pub(crate) fn store(&mut self, record: Record) {
        let record = Record { stored_unix_us: self.clock.unix_us(), ..record };
        self.logs.entry(record.topic).or_default().push(record.clone());
        self.stored.push(record);
    }

    /// Takes the publish at this place of the inbox; with `answer`, the sink hears of it.
    pub(crate) fn take(&mut self, index: usize, refusal: Option<Disposition>, answers: bool) {
        let Some(publish) = self.inbox.remove(index) else { return };
        let Publish { sequence, record, answers: to, relay, sink, .. } = publish;
        let record = Record { by: (relay, sink), ..record };
        let answer = match refusal {
            None if record.is_poison() => Answer::Refused(Disposition::Terminal),
            None => {
                self.store(record);
                Answer::Stored
            }
            Some(disposition) => Answer::Refused(disposition),
        };
        if answers {
            locked(&to).push_back((sequence, answer));
        }
    }

    pub(crate) fn next_sink(&mut self, relay: usize) -> u64 {
        self.sinks += 1;
        self.last_sinks[relay] = self.sinks;
        self.sinks
    }

    /// The places in the inbox of the publishes that the broker can take next.
    pub(crate) fn takeable(&self) -> impl Iterator<Item = usize> {
        let reached = if self.is_away { 0 } else { self.inbox.len() };
        (0..reached).filter(|index| self.is_reached(*index))
    }

    /// Lets the records arrive of which this is true, as far as the broker can be reached.
    pub(crate) fn arrive(&mut self, is_due: impl Fn(&Publish) -> bool) {
        loop {
            let due = self.takeable().find(|index| is_due(&self.inbox[*index]));
            let Some(index) = due else { return };
            self.take(index, None, true);
        }
    }

    /// A relay gets the slot: what others have sent arrives before, where it can, or never.
    pub(crate) fn flush_ended(&mut self, relay: usize) {
        self.kafka_flush_ended(relay);
        self.rabbitmq_flush_ended(relay);
        let mut index = 0;
        while index < self.inbox.len() {
            if self.inbox[index].relay == relay || self.is_away {
                index += 1;
            } else if self.is_reached(index) {
                self.take(index, None, true);
            } else if let Some(publish) = self.inbox.remove(index) {
                // Nothing would fence it off later.
                self.broken.insert(publish.sink);
            }
        }
    }

    /// The processes of this relay stand still, or go on.
    pub(crate) fn freeze(&mut self, relay: usize, is_frozen: bool) {
        self.kafka.freeze(relay, is_frozen);
        self.rabbitmq.freeze(relay, is_frozen);
    }

    /// Whether no record is under way to the topic.
    pub(crate) fn is_quiet(&self) -> bool {
        self.inbox.is_empty() && self.kafka.is_quiet() && self.rabbitmq.is_quiet()
    }

    fn is_reached(&self, index: usize) -> bool {
        !self.is_away && Some(self.inbox[index].record.topic) != self.silent_topic
    }

    /// The process is gone: what has not reached the broker never will.
    pub(crate) fn forget(&mut self, relay: usize) {
        let (is_away, silent) = (self.is_away, self.silent_topic);
        self.inbox.retain(|publish| {
            publish.relay != relay || !is_away && Some(publish.record.topic) != silent
        });
    }

    /// How many records the dead-letter topic has.
    pub(crate) fn letters(&self) -> usize {
        self.logs.get(DEAD_LETTERS).map_or(0, Vec::len)
    }

    /// Lets `take` have at most so many records of the dead-letter topic from this offset on. Returns how
    /// many those are. Several processes read each.
    pub(crate) fn read_letters(
        &mut self,
        from: usize,
        most: usize,
        mut take: impl FnMut(&LogRecord),
    ) -> usize {
        let Some(log) = self.logs.get(DEAD_LETTERS) else { return 0 };
        let parsed = from.min(self.letters.len());
        for (offset, record) in log.iter().enumerate().take(from + most).skip(parsed) {
            let is_read = |(known, _): &(Record, LogRecord)| {
                Arc::ptr_eq(&known.content, &record.content)
                    && known.stored_unix_us == record.stored_unix_us
            };
            if !self.letters.get(offset).is_some_and(is_read) {
                let letter = parse(entry(offset, record));
                self.letters.truncate(offset);
                self.letters.push((record.clone(), letter));
            }
            if offset >= from {
                take(&self.letters[offset].1);
            }
        }
        log.len().min(from + most).saturating_sub(from)
    }
}

fn entry(offset: usize, record: &Record) -> LogEntry {
    LogEntry {
        position: PartitionOffset { partition: 0, offset: offset as i64 },
        written_unix_us: record.stored_unix_us,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record.headers.to_vec(),
        ..LogEntry::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Sent,
    Failed,
}

struct Item {
    record: Record,
    state: State,
}

pub(crate) struct DirectSink {
    id: u64,
    relay: usize,
    life: Arc<Life>,
    broker: SharedBroker,
    items: BTreeMap<Sequence, Item>,
    answers: Answers,
    reports: Vec<SinkReport>,
    send_until: Option<Instant>,
    is_away: bool,
    held_max: usize,
}

impl DirectSink {
    pub(crate) fn new(
        relay: usize,
        life: &Arc<Life>,
        broker: &SharedBroker,
        window: usize,
    ) -> DirectSink {
        let id = {
            let mut broker = locked(broker);
            let id = broker.next_sink(relay);
            broker.live.insert(id);
            id
        };
        DirectSink {
            id,
            relay,
            life: Arc::clone(life),
            broker: Arc::clone(broker),
            items: BTreeMap::new(),
            answers: Answers::default(),
            reports: Vec::new(),
            send_until: None,
            is_away: false,
            held_max: window.max(HELD_MIN),
        }
    }

    fn answered(&mut self, reports: &mut Vec<SinkReport>) {
        let answers = std::mem::take(&mut *locked(&self.answers));
        for (sequence, answer) in answers {
            let Some(item) = self.items.get_mut(&sequence) else { continue };
            match answer {
                Answer::Stored => {
                    self.items.remove(&sequence);
                    reports.push(SinkReport::Confirmed(sequence));
                }
                Answer::Refused(disposition) => {
                    item.state = State::Failed;
                    let failure = failure(&item.record, disposition, "simulated.refusal");
                    reports.push(SinkReport::Failed(sequence, failure));
                }
            }
        }
    }

    fn send(&mut self) {
        if self.send_until.is_some_and(|until| self.life.instant() >= until) {
            return;
        }
        if self.items.values().all(|item| item.state != State::Waiting) {
            return;
        }
        // The first record of each key.
        let mut busy: Vec<&[u8]> = Vec::new();
        for (sequence, Item { record, state }) in &mut self.items {
            let record: &Record = record;
            let key = record.key;
            let is_free = key.is_none_or(|key| !busy.contains(&key));
            busy.extend(key.filter(|_| is_free));
            if !is_free || *state != State::Waiting || !self.life.has_effect() {
                continue;
            }
            *state = State::Sent;
            let mut broker = locked(&self.broker);
            broker.sent[self.relay] += 1;
            broker.inbox.push_back(Publish {
                sink: self.id,
                relay: self.relay,
                sequence: *sequence,
                sent_us: self.life.now_us(),
                record: record.clone(),
                answers: Arc::clone(&self.answers),
            });
        }
    }
}

fn failure(record: &Record, disposition: Disposition, class: &str) -> Failure {
    Failure {
        disposition,
        known: true,
        key: record.key.map(Box::from),
        class: class.to_owned(),
        subject: record.id.clone(),
        reason: "the broker refuses it".to_owned(),
        mend: String::new(),
    }
}

impl Sink for DirectSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        if self.items.len() >= self.held_max {
            return Err(PublishError::QueueFull);
        }
        self.items.insert(sequence, Item { record: Record::copy(event), state: State::Waiting });
        Ok(())
    }

    fn poll(&mut self, _now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        let before = reports.len();
        reports.append(&mut self.reports);
        self.answered(reports);
        let (is_broken, is_away) = {
            let mut broker = locked(&self.broker);
            (broker.broken.remove(&self.id), broker.is_away)
        };
        if is_broken {
            reports.push(SinkReport::Broken("the state of the sink is lost".to_owned()));
        } else {
            self.send();
        }
        if is_away != std::mem::replace(&mut self.is_away, is_away) {
            reports.push(match is_away {
                true => SinkReport::Unreachable("the broker is away".to_owned()),
                false => SinkReport::Reachable,
            });
        }
        if reports.len() == before {
            self.life.wait(patience);
        }
    }

    fn publish_until(&mut self, until: Instant) {
        self.send_until = Some(until);
    }

    fn withdraw(&mut self, _now: Instant, reports: &mut Vec<SinkReport>) {
        let mut known = Vec::new();
        self.answered(&mut known);
        reports.extend(known.into_iter().filter(|it| matches!(it, SinkReport::Confirmed(_))));
        if self.life.has_effect() {
            let mut broker = locked(&self.broker);
            broker.inbox.retain(|publish| publish.sink != self.id);
        }
    }

    fn destination(&self, sequence: Sequence) -> Option<String> {
        let item = self.items.get(&sequence).filter(|item| item.state == State::Sent)?;
        Some(format!("topic {}", item.record.topic))
    }

    fn broker(&mut self) -> u64 {
        locked(&self.broker).cluster
    }

    fn retry(&mut self, sequence: Sequence) {
        if let Some(item) = self.items.get_mut(&sequence) {
            item.state = State::Waiting;
        }
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        let Some(item) = self.items.get_mut(&sequence) else { return };
        let compose = |event: &Outbound<'_>| writer.compose(event, cause, Record::copy);
        item.record = item.record.with_outbound(None, compose);
        item.state = State::Waiting;
        let key = item.record.key;
        if !cause.parks_key || key.is_none() {
            return;
        }
        for (behind, item) in self.items.range_mut(sequence + 1..) {
            let waits = item.state == State::Waiting && !item.record.is_dead_letter();
            if item.record.key == key && waits {
                item.state = State::Failed;
                let failure = failure(&item.record, Disposition::Terminal, CLASS_PARKED);
                self.reports.push(SinkReport::Failed(*behind, failure));
            }
        }
    }
}

impl Drop for DirectSink {
    /// Drops the records that are not sent; those that are sent may still arrive.
    fn drop(&mut self) {
        let sent = self.items.values().filter(|item| item.state == State::Sent).count();
        let mut broker = locked(&self.broker);
        broker.unanswered += sent as u64;
        broker.live.remove(&self.id);
        drop(broker);
        self.items.clear();
    }
}
