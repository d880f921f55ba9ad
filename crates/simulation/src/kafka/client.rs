//! A client of the cluster: what librdkafka's threads do with the records that were handed over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use walrelay_core::base::event::Sequence;
use walrelay_core::base::random::Random;
use walrelay_core::sink::kafka::Code;
use walrelay_core::sink::kafka::port::{ProducerAnswers, ProducerKind, TopicDescription, TopicId};

use super::batch::{Batch, FRAME_BYTES, Message};
use super::cluster::{Request, Topic};
use super::known_topics::{KnownTopics, shows_change};
use crate::broker::Record;
use crate::life::Life;

/// Before a request is sent again.
const RETRY_US: u64 = 50_000;
const NORMAL_IN_FLIGHT_MAX: usize = 2;

/// Topic and partition.
pub(super) type Place = (usize, usize);

/// The records that a client has for one partition.
#[derive(Debug)]
struct Lane {
    producer: u64,
    /// The number of the next record of a new batch.
    next: u64,
    /// Sent before, in order: they go first.
    again: VecDeque<Arc<Batch>>,
    again_at_us: u64,
    queue: VecDeque<Message>,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.again.is_empty() && self.queue.is_empty()
    }
}

#[derive(Debug)]
struct Sent {
    request: u64,
    broker: usize,
    place: Place,
    batch: Arc<Batch>,
}

/// The answer of the broker to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Stored,
    /// librdkafka sends it again.
    Retriable,
    OutOfOrder,
    Refused(Code),
}

#[derive(Debug)]
pub(super) enum Arrival {
    Answer {
        request: u64,
        outcome: Outcome,
        /// The number of the topic.
        made: u128,
    },
    /// The connection to this broker is lost.
    Lost { broker: usize },
}

/// The parts of the world that a client works with.
pub(super) struct Net<'a> {
    pub(super) topics: &'a [Topic],
    pub(super) wire: &'a mut VecDeque<Request>,
    pub(super) random: &'a mut Random,
    pub(super) ids: &'a mut u64,
    pub(super) now_us: u64,
    pub(super) is_away: bool,
    pub(super) cluster: u64,
    pub(super) brokers: usize,
    /// It must not send.
    pub(super) is_muted: bool,
}

pub(super) struct Client {
    pub(super) id: u64,
    pub(super) relay: usize,
    sink: u64,
    life: Arc<Life>,
    kind: ProducerKind,
    batch_bytes_max: usize,
    /// The cluster that it is connected to.
    pub(super) cluster: Option<u64>,
    /// How many partitions each topic has, as far as it knows; none where there is no such topic.
    pub(super) counts: Vec<Option<usize>>,
    /// As far as its relay knows: it compares their ids from the first description on.
    known: KnownTopics,
    /// Topics that are others than before, as its relay will hear with the next answers.
    changed: Vec<usize>,
    /// Topics whose partitions it wants to know again.
    stale: Vec<bool>,
    /// The messages to topics whose partitions are not known.
    unassigned: Vec<VecDeque<(Message, Option<i32>)>>,
    lanes: BTreeMap<Place, Lane>,
    sent: VecDeque<Sent>,
    pub(super) arrivals: VecDeque<Arrival>,
    held: usize,
    /// Records that it has confirmed without an answer, and that a new topic may not have stored.
    pub(super) assumed: Vec<Record>,
    /// Each has a producer number of its own.
    lanes_made: u64,
    pub(super) answers: ProducerAnswers,
    pub(super) fatal: Option<(Code, String)>,
    pub(super) asked: Vec<(TopicId, usize)>,
    pub(super) asked_limits: Vec<usize>,
    is_down: bool,
}

/// Any hash will do.
pub(super) fn partition_of(key: &[u8], count: usize) -> usize {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, step);
    (hash >> 7) as usize % count.max(1)
}

impl Client {
    pub(super) fn new(
        id: u64,
        (relay, sink): (usize, u64),
        life: &Arc<Life>,
        kind: ProducerKind,
        batch_bytes_max: usize,
        topics: &[Topic],
    ) -> Client {
        Client {
            id,
            relay,
            sink,
            life: Arc::clone(life),
            kind,
            batch_bytes_max,
            cluster: None,
            counts: vec![None; topics.len()],
            known: KnownTopics::default(),
            changed: Vec::new(),
            stale: vec![true; topics.len()],
            unassigned: topics.iter().map(|_| VecDeque::new()).collect(),
            lanes: BTreeMap::new(),
            sent: VecDeque::new(),
            arrivals: VecDeque::new(),
            held: 0,
            assumed: Vec::new(),
            lanes_made: 0,
            answers: ProducerAnswers::default(),
            fatal: None,
            asked: Vec::new(),
            asked_limits: Vec::new(),
            is_down: false,
        }
    }

    /// Whether it takes a record.
    pub(super) fn check_room(
        &self,
        topic: usize,
        partition: Option<i32>,
        queue_max: usize,
    ) -> Result<(), Code> {
        let is_known = !self.stale[topic];
        match self.counts[topic] {
            _ if self.fatal.is_some() => Err(Code::Fatal),
            _ if self.held >= queue_max => Err(Code::QueueFull),
            None if is_known => Err(Code::UnknownTopic),
            Some(count) if partition.is_some_and(|it| it as usize >= count) => {
                Err(Code::UnknownPartition)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn take(
        &mut self,
        (topic, made): (usize, u128),
        sequence: Sequence,
        record: Record,
        asked: bool,
        partition: Option<i32>,
    ) {
        let place = partition.map(|partition| (topic, partition as usize));
        let confirmed = place.and_then(|place| self.known.confirmed(place));
        let undescribed = Some(made).filter(|_| !self.known.is_described(topic));
        let message = Message { sequence, record, asked, undescribed, confirmed };
        self.held += 1;
        match self.counts[topic] {
            None => self.unassigned[topic].push_back((message, partition)),
            Some(count) => self.queue(topic, count, message, partition),
        }
    }

    fn queue(&mut self, topic: usize, count: usize, message: Message, partition: Option<i32>) {
        let key = message.record.key;
        let by_key = || key.map(|key| partition_of(key, count));
        let spread = message.sequence as usize % count.max(1);
        let partition = partition.map(|it| it as usize).or_else(by_key).unwrap_or(spread);
        if partition >= count {
            return self.fail(&message, partition, Code::UnknownPartition);
        }
        self.lane((topic, partition)).queue.push_back(message);
    }

    fn lane(&mut self, place: Place) -> &mut Lane {
        self.lanes_made += 1;
        let producer = self.id << 24 | self.lanes_made;
        self.lanes.entry(place).or_insert_with(|| Lane {
            producer,
            next: 0,
            again: VecDeque::new(),
            again_at_us: 0,
            queue: VecDeque::new(),
        })
    }

    fn fail(&mut self, message: &Message, partition: usize, code: Code) {
        self.held -= 1;
        let record = message.given_back(partition);
        self.answers.failed.push((message.sequence, code, record));
    }

    fn fail_batch(&mut self, batch: &Batch, partition: usize, code: Code) {
        for message in &batch.messages {
            let is_innocent = code == Code::InvalidRecord && !message.record.is_poison();
            let code = if is_innocent { Code::InvalidDifferentRecord } else { code };
            self.fail(message, partition, code);
        }
    }

    /// It is unusable from now on: nothing more is sent.
    pub(super) fn give_up(&mut self, code: Code, text: &str) {
        if self.fatal.is_some() {
            return;
        }
        self.fatal = Some((code, text.to_owned()));
        self.answers.errors.push((Code::Fatal, text.to_owned()));
        self.purge_queues();
    }

    fn purge_queues(&mut self) {
        for topic in 0..self.unassigned.len() {
            for (message, _) in std::mem::take(&mut self.unassigned[topic]) {
                self.fail(&message, 0, Code::PurgeQueue);
            }
        }
        for (place, lane) in std::mem::take(&mut self.lanes) {
            for batch in &lane.again {
                self.fail_batch(batch, place.1, Code::PurgeInflight);
            }
            for message in &lane.queue {
                self.fail(message, place.1, Code::PurgeQueue);
            }
        }
    }

    pub(super) fn purge(&mut self) {
        self.hear(0);
        self.purge_queues();
        for sent in std::mem::take(&mut self.sent) {
            self.fail_batch(&sent.batch, sent.place.1, Code::PurgeInflight);
        }
    }

    /// Does the work of the client's threads.
    pub(super) fn work(&mut self, net: &mut Net<'_>) {
        if self.life.is_dead() {
            return;
        }
        self.connect(net);
        self.hear(net.now_us);
        if !net.is_away {
            self.learn(net);
            if !net.is_muted {
                self.send(net);
            }
        }
    }

    fn connect(&mut self, net: &Net<'_>) {
        if !net.is_away {
            (self.is_down, self.cluster) = (false, Some(net.cluster));
        } else if !std::mem::replace(&mut self.is_down, true) {
            self.connections_lost(true);
        }
    }

    fn connections_lost(&mut self, all: bool) {
        let text = "Connect to broker failed: Connection refused".to_owned();
        self.answers.errors.push((Code::BrokerTransportFailure, text));
        if all {
            let text = "1/1 brokers are down".to_owned();
            self.answers.errors.push((Code::AllBrokersDown, text));
        }
    }

    /// Takes what the brokers have answered.
    fn hear(&mut self, now_us: u64) {
        while let Some(arrival) = self.arrivals.pop_front() {
            match arrival {
                Arrival::Answer { request, outcome, made } => {
                    let found = self.sent.iter().position(|it| it.request == request);
                    let sent = found.and_then(|index| self.sent.remove(index));
                    let Some(sent) = sent else { continue };
                    if outcome == Outcome::Stored {
                        self.known.note_confirmed(sent.place, made);
                    }
                    self.answered(sent, outcome, made, now_us);
                }
                Arrival::Lost { broker } => {
                    let all = std::mem::take(&mut self.sent);
                    for sent in all {
                        match sent.broker == broker {
                            true => self.send_again(sent.place, sent.batch, now_us),
                            false => self.sent.push_back(sent),
                        }
                    }
                    self.connections_lost(false);
                }
            }
        }
    }

    fn answered(&mut self, sent: Sent, outcome: Outcome, made: u128, now_us: u64) {
        let Sent { place, batch, .. } = sent;
        match outcome {
            Outcome::Stored => {
                self.confirm_earlier(place, &batch, made);
                self.confirm(place, &batch);
            }
            Outcome::OutOfOrder if !self.is_behind(place, batch.first) => {
                self.refused(place, &batch, Code::OutOfOrderSequenceNumber);
            }
            Outcome::Retriable | Outcome::OutOfOrder => {
                self.stale[place.0] = true;
                self.send_again(place, batch, now_us);
            }
            Outcome::Refused(code) => self.refused(place, &batch, code),
        }
    }

    fn confirm(&mut self, place: Place, batch: &Batch) {
        self.held -= batch.messages.len();
        let confirmed = batch.messages.iter().map(|it| (it.sequence, place.1 as i32));
        self.answers.confirmed.extend(confirmed);
    }

    /// A partition stores no batch before those with lower numbers: librdkafka takes the answer for one
    /// as the answer for those that it would send again.
    fn confirm_earlier(&mut self, place: Place, stored: &Batch, made: u128) {
        let Some(lane) = self.lanes.get_mut(&place) else { return };
        let count = lane.again.partition_point(|it| it.first < stored.first);
        let earlier: Vec<_> = lane.again.drain(..count).collect();
        for batch in &earlier {
            if stored.is_for_earlier(made) || batch.is_placed_in_earlier(made) {
                self.assumed.extend(batch.messages.iter().map(|it| it.record.clone()));
            }
            self.confirm(place, batch);
        }
    }

    /// An earlier batch is not answered.
    fn is_behind(&self, place: Place, first: u64) -> bool {
        let mut again = self.lanes.get(&place).into_iter().flat_map(|lane| &lane.again);
        let mut sent = self.sent.iter();
        again.any(|it| it.first < first)
            || sent.any(|it| it.place == place && it.batch.first < first)
    }

    fn refused(&mut self, place: Place, batch: &Batch, code: Code) {
        self.fail_batch(batch, place.1, code);
        match self.kind {
            ProducerKind::Normal => {
                self.give_up(Code::GaplessGuarantee, "a batch was refused");
            }
            // It begins to count anew.
            ProducerKind::Isolated => {
                self.lanes_made += 1;
                let producer = self.id << 24 | self.lanes_made;
                let lane = self.lane(place);
                (lane.producer, lane.next) = (producer, 0);
            }
        }
    }

    /// How many records for this topic were sent and not answered.
    pub(super) fn unanswered(&self, topic: usize) -> u64 {
        let sent = self.sent.iter().map(|it| (it.place.0, &it.batch));
        let lanes = self
            .lanes
            .iter()
            .flat_map(|(place, lane)| lane.again.iter().map(|batch| (place.0, batch)));
        let of_topic = sent.chain(lanes).filter(|(it, _)| *it == topic);
        of_topic.map(|(_, batch)| batch.messages.len() as u64).sum()
    }

    fn send_again(&mut self, place: Place, batch: Arc<Batch>, now_us: u64) {
        if self.fatal.is_some() {
            return self.fail_batch(&batch, place.1, Code::PurgeInflight);
        }
        let lane = self.lane(place);
        let index = lane.again.partition_point(|it| it.first < batch.first);
        lane.again.insert(index, batch);
        lane.again_at_us = now_us + RETRY_US;
    }

    /// Metadata arrives. It is renewed less often than the relay takes answers.
    fn learn(&mut self, net: &mut Net<'_>) {
        let is_due = self.answers.failed.is_empty();
        for topic in (0..self.counts.len()).filter(|_| is_due) {
            let is_used = !self.unassigned[topic].is_empty() || self.counts[topic].is_some();
            if is_used && (self.stale[topic] || net.random.number().is_multiple_of(128)) {
                self.learn_topic(topic, net.topics[topic].count());
            }
        }
        for (id, topic) in std::mem::take(&mut self.asked) {
            let (count, made) = (net.topics[topic].count(), net.topics[topic].made);
            let is_answered = !net.random.number().is_multiple_of(8);
            let described = |partitions| TopicDescription { topic: id, partitions, id: made };
            let answer = count.filter(|_| is_answered).map(described);
            if answer.is_some() && self.known.note_described(topic, made) {
                self.changed.push(topic);
            }
            self.answers.topics.extend(answer);
        }
        for topic in std::mem::take(&mut self.asked_limits) {
            let Topic { name, batch_bytes_max, .. } = &net.topics[topic];
            let limit = batch_bytes_max.filter(|_| !net.random.number().is_multiple_of(4));
            self.answers.record_limits.extend(limit.map(|limit| ((*name).to_owned(), limit)));
        }
    }

    pub(super) fn learn_topic(&mut self, topic: usize, count: Option<usize>) {
        (self.counts[topic], self.stale[topic]) = (count, false);
        let mut failed = Vec::new();
        for (message, partition) in std::mem::take(&mut self.unassigned[topic]) {
            match count {
                Some(count) => self.queue(topic, count, message, partition),
                None => failed.push((message, 0)),
            }
        }
        let is_gone = |place: &&Place| place.0 == topic && place.1 >= count.unwrap_or(0);
        let gone: Vec<Place> = self.lanes.keys().filter(is_gone).copied().collect();
        for place in gone {
            let Some(lane) = self.lanes.remove(&place) else { continue };
            let sent = lane.again.iter().flat_map(|batch| batch.messages.iter().cloned());
            failed.extend(sent.chain(lane.queue).map(|message| (message, place.1)));
        }
        let code = if count.is_some() { Code::UnknownPartition } else { Code::UnknownTopic };
        for (message, partition) in failed {
            self.changed.extend(Some(topic).filter(|_| shows_change(code, message.asked)));
            self.fail(&message, partition, code);
        }
    }

    /// The relay takes the answers.
    pub(super) fn take_answers(&mut self) -> ProducerAnswers {
        std::mem::take(&mut self.changed).into_iter().for_each(|topic| self.known.forget(topic));
        self.known.take_descriptions();
        std::mem::take(&mut self.answers)
    }

    /// The relay is refused an event for this reason.
    pub(super) fn refused_room(&mut self, topic: usize, code: Code, asked: bool) {
        if shows_change(code, asked) {
            self.known.forget(topic);
        }
    }

    fn send(&mut self, net: &mut Net<'_>) {
        if self.lanes.is_empty() {
            return;
        }
        let in_flight_max = match self.kind {
            ProducerKind::Normal => NORMAL_IN_FLIGHT_MAX,
            ProducerKind::Isolated => 1,
        };
        let start = net.random.number() as usize % self.lanes.len();
        let lanes = self.lanes.iter().skip(start).chain(self.lanes.iter().take(start));
        let with_records = lanes.filter(|(_, lane)| !lane.is_empty());
        let places: Vec<Place> = with_records.map(|(place, _)| *place).collect();
        if places.is_empty() {
            return;
        }
        for broker in 0..net.brokers {
            let mut in_flight = self.sent.iter().filter(|it| it.broker == broker).count();
            // Each partition has its turn before the first has another one.
            for _ in 0..in_flight_max {
                for place in &places {
                    let is_leader = net.topics[place.0].leader(place.1) == Some(broker);
                    // An earlier leader answers first.
                    let is_earlier = |it: &Sent| it.place == *place && it.broker != broker;
                    if is_leader && in_flight < in_flight_max && !self.sent.iter().any(is_earlier) {
                        let Some(batch) = self.next_batch(*place, net.now_us) else { continue };
                        in_flight += 1;
                        self.send_batch(*place, batch, broker, net);
                    }
                }
            }
        }
    }

    fn next_batch(&mut self, place: Place, now_us: u64) -> Option<Arc<Batch>> {
        let records_max = if self.kind == ProducerKind::Isolated { 1 } else { 10_000 };
        let bytes_max = self.batch_bytes_max;
        let lane = self.lanes.get_mut(&place)?;
        if !lane.again.is_empty() {
            return if now_us < lane.again_at_us { None } else { lane.again.pop_front() };
        }
        let mut bytes = FRAME_BYTES;
        let fits = |message: &&Message| {
            bytes += message.bytes();
            bytes <= bytes_max
        };
        let count = lane.queue.iter().take(records_max).take_while(fits).count();
        let count = count.max(1).min(lane.queue.len());
        if count == 0 {
            return None;
        }
        let first = lane.next;
        lane.next += count as u64;
        Some(Arc::new(Batch { first, messages: lane.queue.drain(..count).collect() }))
    }

    fn send_batch(&mut self, place: Place, batch: Arc<Batch>, broker: usize, net: &mut Net<'_>) {
        *net.ids += 1;
        let request = *net.ids;
        let producer = self.lane(place).producer;
        if self.life.has_effect() {
            net.wire.push_back(Request {
                id: request,
                client: self.id,
                relay: self.relay,
                sink: self.sink,
                producer,
                broker,
                place,
                batch: Arc::clone(&batch),
                sent_us: net.now_us,
            });
        }
        self.sent.push_back(Sent { request, broker, place, batch });
    }
}
