//! The brokers: what they store of the requests that reach them, and what they answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use walrelay_core::base::random::Random;
use walrelay_core::sink::kafka::Code;
use walrelay_core::sink::kafka::port::{ProducerAnswers, ProducerKind, TopicId};

use super::batch::Batch;
use super::client::{Arrival, Client, Net, Outcome, Place};
use crate::broker::{Broker, DEAD_LETTERS, Record};
use crate::life::Life;
use crate::postgres::TOPICS;
use crate::world::RELAYS_MAX;

/// A relay that may have lost its slot to a peer learns that within this time.
const NOTICED_WITHIN_US: u64 = 6_000_000;

/// The numbers of a producer that a partition has stored.
#[derive(Debug)]
struct Numbers {
    first: u64,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It has no leader.
    Leaderless,
    /// Its leader neither answers nor stores anything.
    Hangs,
}

#[derive(Debug)]
struct Partition {
    leader: usize,
    trouble: Option<Trouble>,
    producers: BTreeMap<u64, Numbers>,
}

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: &'static str,
    /// The id of the topic, a number that tells how often it was made.
    pub(super) made: u128,
    /// The partitions; none if the topic is not there.
    partitions: Vec<Partition>,
    pub(super) batch_bytes_max: Option<usize>,
}

impl Topic {
    fn new(
        name: &'static str,
        partitions: Vec<Partition>,
        batch_bytes_max: Option<usize>,
    ) -> Topic {
        Topic { name, made: 1, partitions, batch_bytes_max }
    }

    pub(super) fn count(&self) -> Option<usize> {
        Some(self.partitions.len()).filter(|count| *count > 0)
    }

    /// The broker that takes records for this partition, as clients know it.
    pub(super) fn leader(&self, partition: usize) -> Option<usize> {
        let partition = self.partitions.get(partition)?;
        Some(partition.leader).filter(|_| partition.trouble != Some(Trouble::Leaderless))
    }
}

pub(super) fn topic_index(topics: &[Topic], name: &str) -> Option<usize> {
    topics.iter().position(|topic| topic.name == name)
}

/// A batch on its way to a broker.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) client: u64,
    pub(super) relay: usize,
    pub(super) sink: u64,
    pub(super) producer: u64,
    pub(super) broker: usize,
    pub(super) place: Place,
    pub(super) batch: Arc<Batch>,
    pub(super) sent_us: u64,
}

/// How the brokers are while they take requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mood {
    /// They refuse what is in order.
    pub(crate) refuses: bool,
    /// Leaders change.
    pub(crate) is_unsteady: bool,
}

pub(crate) struct Cluster {
    pub(super) topics: Vec<Topic>,
    pub(super) clients: BTreeMap<u64, Client>,
    wire: VecDeque<Request>,
    random: Random,
    ids: u64,
    brokers: usize,
    /// Records that a client holds at most.
    pub(crate) queue_max: usize,
    cluster: u64,
    /// A batch was refused, and its producer cannot be used any more.
    pub(crate) has_refused: bool,
    /// The login may not write this topic.
    forbidden: Option<&'static str>,
    /// Whether the processes of each relay stand still; and until when it does not send,
    /// because it may not know that a peer has the slot.
    frozen: Vec<bool>,
    muted_until_us: Vec<u64>,
    /// The relay that has the slot or had it last, and the last client from the time of the one before.
    holder: Option<usize>,
    clients_before: u64,
    /// The acts of the cluster, if a story is written.
    pub(crate) story: Option<Vec<String>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("topics", &self.topics).finish_non_exhaustive()
    }
}

fn below(random: &mut Random, bound: usize) -> usize {
    random.number() as usize % bound.max(1)
}

fn partitions(random: &mut Random, count: usize, brokers: usize) -> Vec<Partition> {
    let new =
        |_| Partition { leader: below(random, brokers), trouble: None, producers: BTreeMap::new() };
    (0..count).map(new).collect()
}

impl Cluster {
    pub(crate) fn new(seed: u64) -> Cluster {
        let mut random = Random::new(seed);
        let brokers = 1 + below(&mut random, 3);
        let has_limits = below(&mut random, 4) == 0;
        let mut topics = Vec::new();
        for name in TOPICS {
            let count = 1 + below(&mut random, 3);
            let limit = 400 + below(&mut random, 1600);
            let partitions = partitions(&mut random, count, brokers);
            topics.push(Topic::new(name, partitions, has_limits.then_some(limit)));
        }
        topics.push(Topic::new(DEAD_LETTERS, partitions(&mut random, 1, brokers), None));
        Cluster {
            topics,
            clients: BTreeMap::new(),
            wire: VecDeque::new(),
            ids: 0,
            brokers,
            queue_max: [3, 1000, 1000, 1000][below(&mut random, 4)],
            cluster: 1,
            has_refused: false,
            forbidden: None,
            frozen: vec![false; RELAYS_MAX],
            muted_until_us: vec![0; RELAYS_MAX],
            holder: None,
            clients_before: 0,
            story: None,
            random,
        }
    }

    /// Draws all further chances from this seed.
    pub(crate) fn draw_from(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    pub(super) fn open(
        &mut self,
        by: (usize, u64),
        life: &Arc<Life>,
        kind: ProducerKind,
        batch_bytes_max: usize,
        is_away: bool,
    ) -> u64 {
        self.ids += 1;
        let id = self.ids;
        let mut client = Client::new(id, by, life, kind, batch_bytes_max, &self.topics);
        client.cluster = (!is_away && below(&mut self.random, 4) > 0).then_some(self.cluster);
        self.clients.insert(id, client);
        id
    }

    pub(super) fn close(&mut self, client: u64, is_away: bool) {
        self.clients.remove(&client);
        // What has reached a broker may be stored.
        let topics = &self.topics;
        let arrives = |request: &Request| !is_away && !hangs(topics, request);
        self.wire.retain(|request| request.client != client || arrives(request));
    }

    pub(super) fn answers(&mut self, client: u64) -> Option<ProducerAnswers> {
        Some(self.clients.get_mut(&client)?.take_answers())
    }

    pub(super) fn purge(&mut self, client: u64) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.purge();
        }
    }

    pub(super) fn ask_partitions(&mut self, client: u64, id: TopicId, name: &str) {
        if let Some(topic) = topic_index(&self.topics, name)
            && let Some(client) = self.clients.get_mut(&client)
        {
            client.asked.push((id, topic));
        }
    }

    pub(super) fn ask_record_limit(&mut self, client: u64, name: &str) {
        if let Some(topic) = topic_index(&self.topics, name)
            && let Some(client) = self.clients.get_mut(&client)
        {
            client.asked_limits.push(topic);
        }
    }

    pub(super) fn renew_metadata(
        &mut self,
        client: u64,
        name: Option<&str>,
        is_away: bool,
    ) -> bool {
        let Some(client) = self.clients.get_mut(&client).filter(|_| !is_away) else { return false };
        if let Some(topic) = name.and_then(|name| topic_index(&self.topics, name)) {
            client.learn_topic(topic, self.topics[topic].count());
        }
        client.cluster = Some(self.cluster);
        true
    }

    /// The threads of the clients work, except those that stand still.
    fn work(&mut self, now_us: u64, is_away: bool, may_work: impl Fn(usize) -> bool) {
        let Cluster { topics, clients, wire, random, ids, .. } = self;
        for client in clients.values_mut() {
            let relay = client.relay;
            if self.frozen[relay] || !may_work(relay) {
                continue;
            }
            client.work(&mut Net {
                topics,
                wire,
                random,
                ids,
                now_us,
                is_away,
                cluster: self.cluster,
                brokers: self.brokers,
                is_muted: now_us < self.muted_until_us[relay],
            });
        }
    }

    /// Whether this request is the next of its connection, and its partition answers.
    fn is_next(&self, index: usize) -> bool {
        let request = &self.wire[index];
        let is_same = |it: &Request| it.client == request.client && it.broker == request.broker;
        !hangs(&self.topics, request) && !self.wire.range(..index).any(is_same)
    }

    fn answer(&mut self, request: &Request, outcome: Outcome) {
        if let Some(story) = &mut self.story {
            let Request { client, relay, broker, place, batch, .. } = request;
            let ids: Vec<&str> = batch.messages.iter().map(|it| &*it.record.id).collect();
            let topic = self.topics[place.0].name;
            story.push(format!(
                "broker {broker}: {outcome:?} to client {client} of relay {relay}, {topic}/{} from {}: {ids:?}",
                place.1, batch.first
            ));
        }
        if let Some(client) = self.clients.get_mut(&request.client) {
            let made = self.topics[request.place.0].made;
            client.arrivals.push_back(Arrival::Answer { request: request.id, outcome, made });
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.wire.is_empty()
    }

    /// The processes of this relay stand still, or go on.
    pub(crate) fn freeze(&mut self, relay: usize, is_frozen: bool) {
        self.frozen[relay] = is_frozen;
    }

    /// Time has passed for processes that stand still.
    pub(crate) fn frozen_for(&mut self, us: u64) {
        for (relay, until) in self.muted_until_us.iter_mut().enumerate() {
            if self.frozen[relay] && *until > 0 {
                *until += us;
            }
        }
    }

    /// A partition of a topic is silent; of `None`, all are.
    pub(crate) fn silence(&mut self, topic: &str, all: bool) {
        let trouble = [Trouble::Leaderless, Trouble::Hangs][below(&mut self.random, 2)];
        let Some(topic) = topic_index(&self.topics, topic) else { return };
        let partitions = &mut self.topics[topic].partitions;
        let one = below(&mut self.random, partitions.len());
        for (index, partition) in partitions.iter_mut().enumerate() {
            if all || index == one {
                partition.trouble = Some(trouble);
            }
        }
    }

    pub(crate) fn forbid(&mut self, topic: &'static str) {
        self.forbidden = Some(topic);
    }

    /// All partitions of a topic are without a leader.
    pub(crate) fn unlead(&mut self, topic: &str) {
        let Some(topic) = topic_index(&self.topics, topic) else { return };
        let partitions = &mut self.topics[topic].partitions;
        partitions.iter_mut().for_each(|it| it.trouble = Some(Trouble::Leaderless));
    }

    pub(crate) fn end_silence(&mut self) {
        self.forbidden = None;
        let partitions = self.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        partitions.for_each(|partition| partition.trouble = None);
    }

    pub(crate) fn move_leaders(&mut self) {
        for partition in self.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            partition.leader = below(&mut self.random, self.brokers);
        }
    }

    /// Its records are gone, and it has other partitions; with `is_missing`, none yet.
    pub(crate) fn recreate(&mut self, topic: &str, is_missing: bool) {
        let Some(topic) = topic_index(&self.topics, topic) else { return };
        let (away, rest): (VecDeque<Request>, _) = std::mem::take(&mut self.wire)
            .into_iter()
            .partition(|request: &Request| request.place.0 == topic);
        self.wire = rest;
        for request in &away {
            self.answer(request, Outcome::Retriable);
        }
        let count = if is_missing { 0 } else { 1 + below(&mut self.random, 3) };
        self.topics[topic].partitions = partitions(&mut self.random, count, self.brokers);
        self.topics[topic].made += 1;
    }

    /// How many records for this topic were sent and not answered.
    pub(crate) fn unanswered(&self, topic: &str) -> u64 {
        let topic = topic_index(&self.topics, topic);
        topic.map_or(0, |topic| self.clients.values().map(|it| it.unanswered(topic)).sum())
    }

    pub(crate) fn create_missing(&mut self) {
        for topic in 0..self.topics.len() {
            if self.topics[topic].partitions.is_empty() {
                self.recreate(self.topics[topic].name, false);
            }
        }
    }

    /// Another cluster is at the same address.
    pub(crate) fn replace(&mut self) {
        self.cluster += 1;
        self.wire.clear();
        for topic in &mut self.topics {
            let count = topic.partitions.len();
            topic.partitions = partitions(&mut self.random, count, self.brokers);
        }
    }

    /// A topic whose end cannot be read now, or, with the partition that is left out, not all of it.
    pub(crate) fn is_readable(&self, topic: &str) -> bool {
        let topic = topic_index(&self.topics, topic).map(|topic| &self.topics[topic]);
        topic.is_none_or(|topic| {
            topic.count().is_some() && topic.partitions.iter().all(|it| it.trouble.is_none())
        })
    }
}

fn hangs(topics: &[Topic], request: &Request) -> bool {
    let partition = topics[request.place.0].partitions.get(request.place.1);
    partition.is_some_and(|it| it.trouble == Some(Trouble::Hangs))
}

impl Broker {
    /// A round of the clients and the brokers: what is under way for long has arrived, and so much
    /// else arrives.
    pub(crate) fn kafka_round(&mut self, sent_before_us: u64, arrives: usize, mood: Mood) {
        if self.kafka.clients.is_empty() && self.kafka.wire.is_empty() {
            return;
        }
        let now_us = self.now_us();
        self.kafka.work(now_us, self.is_away, |_| true);
        if self.is_away {
            return;
        }
        let mut index = 0;
        while index < self.kafka.wire.len() {
            let is_late = self.kafka.wire[index].sent_us < sent_before_us;
            if is_late && self.kafka.is_next(index) {
                self.handle(index, mood);
            } else {
                index += 1;
            }
        }
        for _ in 0..arrives {
            let length = self.kafka.wire.len();
            if length == 0 {
                break;
            }
            let index = below(&mut self.kafka.random, length);
            if self.kafka.is_next(index) {
                self.handle(index, mood);
            }
        }
    }

    /// A broker takes a request, and answers.
    fn handle(&mut self, index: usize, mood: Mood) {
        let Some(request) = self.kafka.wire.remove(index) else { return };
        let outcome = self.judge(&request, mood);
        self.kafka.answer(&request, outcome);
    }

    fn judge(&mut self, request: &Request, mood: Mood) -> Outcome {
        let Cluster { topics, random, has_refused, forbidden, .. } = &mut self.kafka;
        let batch = &*request.batch;
        let topic = &mut topics[request.place.0];
        let is_forbidden = Some(topic.name) == *forbidden;
        let Some(partition) = topic.partitions.get_mut(request.place.1) else {
            return Outcome::Retriable;
        };
        let is_led = partition.leader == request.broker && partition.trouble.is_none();
        let chance = below(random, 8);
        // Where the relay takes the partition for an earlier one, what is behind a batch would be taken for the first.
        let is_confused = batch.is_for_earlier(topic.made);
        let is_new = is_confused && !partition.producers.contains_key(&request.producer);
        if is_new {
            let numbers = Numbers { first: batch.first, next: batch.first };
            partition.producers.insert(request.producer, numbers);
        }
        if !is_led || mood.is_unsteady && chance < 2 && !is_new {
            return Outcome::Retriable;
        }
        let poison = batch.messages.iter().any(|it| it.record.is_poison());
        let limit = topic.batch_bytes_max.filter(|_| batch.messages.len() > 1);
        let is_too_large = limit.is_some_and(|limit| batch.bytes() > limit);
        let refusal = match below(random, 8) {
            _ if is_forbidden => Some(Code::TopicAuthorizationFailed),
            _ if is_too_large => Some(Code::MessageSizeTooLarge),
            _ if poison => Some(Code::InvalidRecord),
            0 | 1 if mood.refuses => Some(Code::InvalidTimestamp),
            2 if mood.refuses => Some(Code::TopicAuthorizationFailed),
            3 if mood.refuses && batch.messages.len() > 1 => Some(Code::MessageSizeTooLarge),
            _ => None,
        };
        if let Some(code) = refusal {
            *has_refused = true;
            return Outcome::Refused(code);
        }
        let end = batch.first + batch.messages.len() as u64;
        let known = partition.producers.entry(request.producer);
        let numbers = known.or_insert(Numbers { first: batch.first, next: batch.first });
        // A producer of which nothing is stored here may begin with any number.
        if !is_confused && numbers.first == numbers.next {
            *numbers = Numbers { first: batch.first, next: batch.first };
        }
        let is_before = end <= numbers.first;
        if batch.first >= numbers.first && end <= numbers.next {
            return Outcome::Stored;
        }
        if !is_before && batch.first != numbers.next {
            return Outcome::OutOfOrder;
        }
        numbers.first = numbers.first.min(batch.first);
        numbers.next = numbers.next.max(end);
        for message in &batch.messages {
            let by = (request.relay, request.sink);
            let partition = request.place.1 as i32;
            self.store(Record { by, partition, ..message.record.clone() });
        }
        // The leader changes before the others have the batch.
        if mood.is_unsteady && chance == 2 { Outcome::Retriable } else { Outcome::Stored }
    }

    /// Connections are lost: some of what is under way is stored, and nobody hears of it.
    pub(crate) fn cut_connections(&mut self, all: bool) {
        let mut cut = Vec::new();
        for client in self.kafka.clients.keys().copied().collect::<Vec<_>>() {
            for broker in 0..self.kafka.brokers {
                if all || below(&mut self.kafka.random, 2) == 0 {
                    cut.push((client, broker));
                }
            }
        }
        for (client, broker) in cut {
            self.cut_connection(client, broker);
        }
    }

    fn cut_connection(&mut self, client: u64, broker: usize) {
        let is_of = |it: &Request| it.client == client && it.broker == broker;
        let mut stores = below(&mut self.kafka.random, 3);
        while let Some(index) = self.kafka.wire.iter().position(is_of) {
            if stores > 0 && self.kafka.is_next(index) && !self.is_away {
                stores -= 1;
                if let Some(request) = self.kafka.wire.remove(index) {
                    self.judge(&request, Mood::default());
                }
            } else {
                self.kafka.wire.remove(index);
            }
        }
        if let Some(client) = self.kafka.clients.get_mut(&client) {
            client.arrivals.push_back(Arrival::Lost { broker });
        }
    }

    /// The brokers of the cluster are away.
    pub(crate) fn go_away(&mut self) {
        if !self.is_away {
            self.cut_connections(true);
        }
        self.is_away = true;
    }

    /// Producers are unusable, for no reason that lies in a record; some of what is under way is stored.
    pub(crate) fn break_producers(&mut self) {
        self.cut_connections(true);
        for client in self.kafka.clients.values_mut() {
            client.give_up(Code::UnknownProducerId, "the producer id is unknown");
        }
    }

    /// A relay gets the slot: what others have sent, and what waits in their clients, arrives before, or
    /// after they could have learned of it. What its own clients still have waits for its next step.
    pub(crate) fn kafka_flush_ended(&mut self, relay: usize) {
        let now_us = self.now_us();
        if self.kafka.holder.replace(relay).is_some_and(|it| it != relay) {
            self.kafka.clients_before = self.kafka.ids;
            self.kafka.freeze(relay, true);
        }
        for _ in 0..64 {
            self.kafka.work(now_us, self.is_away, |it| it != relay);
            if !self.take_sent(|it| it.relay != relay) {
                break;
            }
        }
        self.lose_sent(|it| it.relay != relay);
        let muted_until = |other| if other == relay { 0 } else { now_us + NOTICED_WITHIN_US };
        self.kafka.muted_until_us = (0..RELAYS_MAX).map(muted_until).collect();
    }

    /// A relay withdraws what its client has. If the relay has the slot again, and a peer has had it since the
    /// client began, what is sent is stored before the relay reads the topics, or never.
    pub(crate) fn kafka_withdraw(&mut self, client: u64) {
        self.kafka.purge(client);
        let relay = self.kafka.clients.get(&client).map(|it| it.relay);
        if relay.is_some() && relay == self.kafka.holder && client <= self.kafka.clients_before {
            self.take_sent(|it| it.client == client);
            self.lose_sent(|it| it.client == client);
        }
    }

    /// The brokers take all of these requests that they can take now. False if there is none.
    fn take_sent(&mut self, is_one: impl Fn(&Request) -> bool) -> bool {
        if self.is_away {
            return false;
        }
        let (mut index, mut takes) = (0, false);
        while let Some(request) = self.kafka.wire.get(index) {
            if is_one(request) && self.kafka.is_next(index) {
                self.handle(index, Mood::default());
                takes = true;
            } else {
                index += 1;
            }
        }
        takes
    }

    /// A request that a broker does not answer is lost: without transactions nothing fences it off, and
    /// it would be stored behind what the next relay publishes.
    fn lose_sent(&mut self, is_one: impl Fn(&Request) -> bool) {
        while let Some(request) =
            self.kafka.wire.iter().find(|it| is_one(it)).filter(|_| !self.is_away)
        {
            self.cut_connection(request.client, request.broker);
        }
    }
}
