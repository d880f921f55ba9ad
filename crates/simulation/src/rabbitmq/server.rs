//! The broker: what it stores of the messages that reach it, and what it answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use walrelay_core::base::random::Random;
use walrelay_core::sink::rabbitmq::answer::{Answer, ReturnedMessage};
use walrelay_core::sink::rabbitmq::connection_loss::ConnectionLoss;
use walrelay_core::sink::rabbitmq::exchanges::Existence;
use walrelay_core::sink::rabbitmq::port::{AmqpEvent, ConnectionFacts};

use super::connection::{Channel, Connection, Frame, Phase, Publish, Unanswered};
use super::EXCHANGE;
use super::counts::RabbitCounts;
use crate::broker::{Broker, DEAD_LETTERS, Record};
use crate::life::Life;
use crate::postgres::TOPICS;

/// A connection attempt that is not answered is given up.
const CONNECT_WITHIN_US: u64 = 5_000_000;
/// Each end gives up a connection on which it hears nothing for so long.
const HEARTBEATS_US: u64 = 6_000_000;
/// So long a channel waits for a queue that does not know it, and then nacks.
const REGISTERS_WITHIN_US: u64 = 5_000_000;
const FRAME_BYTES: usize = 32 * 1024;

/// Why a queue does not store what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It has no majority: it stores and confirms nothing.
    Silent,
    /// It is deleted.
    Gone,
}

/// A queue, and the routing key that leads to it.
#[derive(Debug, Default)]
struct Queue {
    trouble: Option<Trouble>,
    /// Messages without a majority: the connection, the channel and the tag of each.
    pending: VecDeque<(u64, u16, u64, Record)>,
}

/// How the broker is while it takes messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mood {
    /// It refuses what is in order.
    pub(crate) refuses: bool,
    /// Confirms come late.
    pub(crate) lingers: bool,
}

/// What happens in a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) now_us: u64,
    /// What is under way since before has arrived.
    pub(crate) late_us: u64,
    pub(crate) is_away: bool,
    pub(crate) mood: Mood,
}

pub(crate) struct Server {
    random: Random,
    pub(super) connections: BTreeMap<u64, Connection>,
    ids: u64,
    cluster: u64,
    queues: BTreeMap<&'static str, Queue>,
    missing_exchange: Option<&'static str>,
    /// The reason for which it takes no messages.
    alarm: Option<&'static str>,
    refuses_logins: bool,
    channels_max: usize,
    /// The channels of all connections of the user.
    user_channels_max: usize,
    hides_exchanges: bool,
    /// By relay: its processes stand still.
    frozen: Vec<bool>,
    /// Stored since they were taken out last.
    stored: Vec<Record>,
    /// Repetitions that a lost connection or a refusal explains.
    explained: u64,
    counts: RabbitCounts,
    /// What it has done, if that is told.
    pub(crate) story: Option<Vec<String>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("queues", &self.queues).finish_non_exhaustive()
    }
}

pub(super) fn below(random: &mut Random, bound: usize) -> usize {
    random.number() as usize % bound.max(1)
}

impl Server {
    pub(crate) fn new(seed: u64) -> Server {
        let mut random = Random::new(seed);
        let names = TOPICS.into_iter().chain([DEAD_LETTERS]);
        Server {
            connections: BTreeMap::new(),
            ids: 0,
            cluster: 1,
            queues: names.map(|name| (name, Queue::default())).collect(),
            missing_exchange: None,
            alarm: None,
            refuses_logins: false,
            channels_max: [1, 2, 4, 64][below(&mut random, 4)],
            user_channels_max: [6, usize::MAX, usize::MAX][below(&mut random, 3)],
            hides_exchanges: below(&mut random, 4) == 0,
            frozen: vec![false; 3],
            stored: Vec::new(),
            explained: 0,
            counts: RabbitCounts::default(),
            story: None,
            random,
        }
    }

    /// What happens from here on follows from this.
    pub(crate) fn draw_from(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    pub(super) fn draw(&mut self, bound: usize) -> usize {
        below(&mut self.random, bound)
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(text());
        }
    }

    /// The processes of this relay stand still, or go on.
    pub(crate) fn freeze(&mut self, relay: usize, is_frozen: bool) {
        self.frozen[relay] = is_frozen;
    }

    /// Another cluster is at the same address.
    pub(crate) fn replace(&mut self) {
        self.cluster += 1;
        self.connections.clear();
        self.queues.values_mut().for_each(|queue| queue.pending.clear());
    }

    /// Nothing is under way to a queue.
    pub(crate) fn is_quiet(&self) -> bool {
        let has_held = |it: &Connection| it.channels.values().any(|it| !it.held.is_empty());
        let is_busy = |it: &Connection| !it.up.is_empty() || has_held(it);
        self.queues.values().all(|queue| queue.pending.is_empty())
            && !self.connections.values().any(is_busy)
    }

    pub(super) fn connect(
        &mut self,
        by: (usize, u64),
        life: &Arc<Life>,
        host: usize,
        now_us: u64,
    ) -> u64 {
        self.ids += 1;
        self.connections.insert(self.ids, Connection::new(by, life, host, now_us));
        self.ids
    }

    pub(super) fn lets_in(&self) -> bool {
        !self.refuses_logins && self.channels_used() < self.user_channels_max
    }

    /// What the relay hears next of a connection.
    pub(super) fn next(&mut self, id: u64) -> Option<AmqpEvent> {
        let (event, explained) = self.connections.get_mut(&id)?.next()?;
        self.explained += explained;
        Some(event)
    }

    /// The relay ends a connection over which it has more to send.
    pub(super) fn leave(&mut self, id: u64) -> Vec<(u16, Answer)> {
        let arrives = self.draw(4);
        let Some(connection) = self.connections.get_mut(&id) else { return Vec::new() };
        if !connection.down_is_cut {
            (0..arrives).for_each(|_| connection.deliver());
        }
        let (answers, explained) = connection.leave();
        self.explained += explained;
        answers
    }

    /// Takes out how many repetitions something has explained.
    pub(crate) fn take_explained(&mut self) -> u64 {
        self.counts.explained += self.explained;
        std::mem::take(&mut self.explained)
    }

    pub(crate) fn counts(&self) -> RabbitCounts {
        self.counts
    }

    fn channels_used(&self) -> usize {
        let open = self.connections.values().filter(|it| it.phase == Phase::Open);
        open.map(|it| it.channels.len()).sum()
    }

    /// Lets the relay in, or says why not.
    pub(super) fn log_in(&mut self, id: u64, now_us: u64) -> Result<ConnectionFacts, ConnectionLoss> {
        if self.refuses_logins {
            let text = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN";
            return Err(ConnectionLoss::refused(403, text));
        }
        if self.channels_used() >= self.user_channels_max {
            return Err(self.too_many_channels());
        }
        let (cluster, channels_max) = (self.cluster, self.channels_max);
        let Some(connection) = self.connections.get_mut(&id) else {
            return Err(ConnectionLoss::of("the connection is gone"));
        };
        connection.phase = Phase::Open;
        connection.channels.insert(1, Channel::default());
        (connection.broker_heard_us, connection.relay_heard_us) = (now_us, now_us);
        Ok(ConnectionFacts {
            broker: 1_000 + cluster,
            host: connection.host,
            frame_bytes: FRAME_BYTES,
            channels: vec![1],
            channels_max,
        })
    }

    fn too_many_channels(&self) -> ConnectionLoss {
        let most = self.user_channels_max;
        ConnectionLoss::refused(
            530,
            &format!(
                "NOT_ALLOWED - number of channels opened for user 'relay' has reached the maximum allowed user limit of ({most})"
            ),
        )
    }

    /// The broker ends a connection; the relay hears of it, if it hears anything.
    pub(super) fn end(&mut self, id: u64, loss: ConnectionLoss, now_us: u64) {
        let overtakes = self.draw(2) == 0;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let last = match connection.phase {
            Phase::Connecting { .. } => AmqpEvent::ConnectFailed(loss.clone()),
            Phase::Ended => return,
            Phase::Open => AmqpEvent::Lost(loss.clone()),
        };
        if connection.phase == Phase::Open && overtakes {
            connection.answer(now_us, 0, Answer::Closed(loss));
        }
        connection.phase = Phase::Ended;
        connection.up.clear();
        connection.channels.clear();
        connection.tell(now_us, last);
        self.counts.lost += 1;
        // What a queue without a majority has of it may be there later, or not.
        let Server { queues, random, .. } = self;
        for queue in queues.values_mut() {
            queue.pending.retain(|it| it.0 != id || below(random, 2) == 0);
        }
    }

    /// A connection is lost: some of what is under way to the broker is stored, and some of its answers
    /// do not arrive.
    pub(super) fn cut(&mut self, id: u64, loss: ConnectionLoss, now_us: u64) {
        let reads = self.draw(4);
        if self.connections.get(&id).is_none_or(|it| it.phase == Phase::Ended) {
            return;
        }
        for _ in 0..reads {
            self.read_one(id, now_us, Mood::default());
        }
        let keeps = self.draw(4);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.down.truncate(keeps);
        }
        self.end(id, loss, now_us);
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.connections.keys().copied().collect()
    }

    fn round(&mut self, round: Round) {
        let Round { now_us, is_away, .. } = round;
        if !is_away {
            self.recover();
        }
        for id in self.ids() {
            let relay = self.connections[&id].relay;
            if !self.frozen[relay] {
                self.work(id, round);
            }
            if !is_away {
                self.serve(id, round);
            }
            self.time_out(id, now_us);
        }
        let late = self.connections.values_mut().map(|it| std::mem::take(&mut it.late_answers));
        self.counts.late += late.sum::<u64>();
        self.connections.retain(|_, it| !it.is_over());
    }

    /// What the thread of a relay's connection does.
    fn work(&mut self, id: u64, Round { now_us, late_us, is_away, .. }: Round) {
        let answers = self.draw(2) == 0;
        let arrives = self.draw(4);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_left || connection.life.is_dead() {
            return;
        }
        match connection.phase {
            Phase::Connecting { .. } if is_away => {
                let loss = ConnectionLoss::of("Connection refused");
                return self.end(id, loss, now_us);
            }
            Phase::Connecting { since_us } if answers || since_us < late_us => {
                match self.log_in(id, now_us) {
                    Ok(facts) => {
                        let Some(connection) = self.connections.get_mut(&id) else { return };
                        connection.arrived.push_back(AmqpEvent::Connected(facts));
                    }
                    Err(loss) => self.end(id, loss, now_us),
                }
                return;
            }
            _ => {}
        }
        if connection.phase == Phase::Open {
            connection.write(now_us);
        }
        if connection.down_is_cut {
            return;
        }
        let is_late = |it: &Connection| it.down.front().is_some_and(|(at, _)| *at < late_us);
        for _ in 0..arrives {
            connection.deliver();
        }
        while is_late(connection) {
            connection.deliver();
        }
    }

    /// What the broker does for a connection.
    fn serve(&mut self, id: u64, Round { now_us, late_us, mood, .. }: Round) {
        let mut reads = if self.draw(2) == 0 { self.draw(5) } else { 0 };
        loop {
            let Some(connection) = self.connections.get(&id) else { return };
            let Some((at, _)) = connection.up.front() else { break };
            let stands = connection.is_told || connection.up_is_cut;
            if stands || connection.phase != Phase::Open || (*at >= late_us && reads == 0) {
                break;
            }
            reads = reads.saturating_sub(1);
            self.read_one(id, now_us, mood);
        }
        self.release_held(id, now_us, mood);
        self.confirm(id, now_us, late_us, mood);
    }

    /// Notices that nothing is heard of the other end.
    fn time_out(&mut self, id: u64, now_us: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_alive = !self.frozen[connection.relay] && !connection.life.is_dead();
        if !connection.up_is_cut && is_alive {
            connection.broker_heard_us = now_us;
        }
        if !connection.down_is_cut {
            connection.relay_heard_us = now_us;
        }
        if connection.phase == Phase::Open
            && now_us.saturating_sub(connection.broker_heard_us) > HEARTBEATS_US
        {
            return self.end(id, ConnectionLoss::of("the broker closed the connection"), now_us);
        }
        let is_silent = now_us.saturating_sub(connection.relay_heard_us) > HEARTBEATS_US;
        let gives_up = match connection.phase {
            Phase::Connecting { since_us } => now_us.saturating_sub(since_us) > CONNECT_WITHIN_US,
            _ => is_silent,
        };
        if !gives_up || connection.is_left || std::mem::replace(&mut connection.is_timed_out, true) {
            return;
        }
        let loss = ConnectionLoss::of("no heartbeat was received");
        let event = match connection.phase {
            Phase::Connecting { .. } => AmqpEvent::ConnectFailed(loss),
            _ => AmqpEvent::Lost(loss),
        };
        self.counts.half_open += 1;
        connection.arrived.push_back(event);
    }

    /// Reads the next frame of a connection.
    fn read_one(&mut self, id: u64, now_us: u64, mood: Mood) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some((_, frame)) = connection.up.pop_front() else { return };
        match frame {
            Frame::Publish(channel, publish) => {
                let (relay, is_left) = (connection.relay, connection.is_left);
                if !is_left {
                    // What is left of its earlier connections was there before.
                    self.flush(now_us, |other| other.relay == relay && other.is_left);
                }
                self.take(id, channel, *publish, now_us, mood);
                self.block(id, now_us);
            }
            Frame::AskExchange(name) => {
                let existence = match () {
                    () if name.is_empty() => Existence::There,
                    () if self.hides_exchanges => Existence::Hidden,
                    () if self.missing_exchange == Some(&name) => Existence::Missing,
                    () => Existence::There,
                };
                connection.tell(now_us, AmqpEvent::ExchangeAnswered(Ok(existence)));
            }
            Frame::OpenChannel => self.open_channel(id, now_us),
        }
    }

    /// While there is an alarm, the first message of a connection is its last.
    fn block(&mut self, id: u64, now_us: u64) {
        let Some(reason) = self.alarm else { return };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !std::mem::replace(&mut connection.is_told, true) {
            self.counts.blocked += 1;
            connection.tell(now_us, AmqpEvent::Blocked(reason.to_owned()));
        }
    }

    pub(super) fn end_alarm(&mut self, now_us: u64) {
        self.alarm = None;
        for connection in self.connections.values_mut() {
            if std::mem::take(&mut connection.is_told) {
                connection.tell(now_us, AmqpEvent::Unblocked);
            }
        }
    }

    fn open_channel(&mut self, id: u64, now_us: u64) {
        if self.channels_used() >= self.user_channels_max {
            let loss = self.too_many_channels();
            return self.end(id, loss, now_us);
        }
        let is_refused = self.draw(16) == 0;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let number = connection.channels.len() as u16 + 1;
        if is_refused || usize::from(number) > self.channels_max {
            return connection.tell(now_us, AmqpEvent::ChannelRefused);
        }
        connection.channels.insert(number, Channel::default());
        connection.tell(now_us, AmqpEvent::ChannelOpened(number));
    }

    /// What these connections have under way arrives at its queues now.
    fn flush(&mut self, now_us: u64, mut is_meant: impl FnMut(&Connection) -> bool) {
        for id in self.ids() {
            let Some(connection) = self.connections.get_mut(&id).filter(|it| is_meant(it)) else {
                continue;
            };
            if connection.up_is_cut {
                connection.up.clear();
            }
            while self.connections.get(&id).is_some_and(|it| !it.up.is_empty()) {
                self.read_one(id, now_us, Mood::default());
            }
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let numbers: Vec<u16> = connection.channels.keys().copied().collect();
            for number in numbers {
                while let Some(publish) = self.next_held(id, number) {
                    self.route(id, number, publish, now_us, Mood::default());
                }
            }
        }
    }

    fn next_held(&mut self, id: u64, number: u16) -> Option<Publish> {
        self.connections.get_mut(&id)?.channels.get_mut(&number)?.held.pop_front()
    }

    /// A channel takes a message.
    fn take(&mut self, id: u64, number: u16, publish: Publish, now_us: u64, mood: Mood) {
        let is_silent = self.is_silent(&publish.record.topic);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(channel) = connection.channels.get_mut(&number).filter(|it| !it.is_closed) else {
            return;
        };
        let is_known = channel.queues.contains(&publish.record.topic);
        if !channel.held.is_empty() || is_silent && !is_known {
            if channel.held.is_empty() {
                channel.held_since_us = now_us;
            }
            return channel.held.push_back(publish);
        }
        self.route(id, number, publish, now_us, mood);
    }

    fn is_silent(&self, topic: &str) -> bool {
        self.queues.get(topic).is_some_and(|queue| queue.trouble == Some(Trouble::Silent))
    }

    /// A channel that waits for a queue goes on when that answers, or gives up.
    fn release_held(&mut self, id: u64, now_us: u64, mood: Mood) {
        let numbers: Vec<u16> = match self.connections.get(&id) {
            Some(connection) => connection.channels.keys().copied().collect(),
            None => return,
        };
        for number in numbers {
            while let Some(channel) =
                self.connections.get(&id).and_then(|it| it.channels.get(&number))
                && let Some(first) = channel.held.front()
            {
                let is_silent = self.is_silent(&first.record.topic);
                let is_known = channel.queues.contains(&first.record.topic);
                let waited = now_us.saturating_sub(channel.held_since_us);
                if is_silent && !is_known && waited < REGISTERS_WITHIN_US {
                    break;
                }
                let Some(publish) = self.next_held(id, number) else { break };
                if is_silent && !is_known {
                    self.nack_held(id, number, now_us);
                } else {
                    self.route(id, number, publish, now_us, mood);
                }
            }
        }
    }

    fn nack_held(&mut self, id: u64, number: u16, now_us: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(channel) = connection.channels.get_mut(&number) else { return };
        channel.tag += 1;
        channel.held_since_us = now_us;
        channel.unanswered.insert(channel.tag, Unanswered { acked: Some(false), read_us: now_us });
    }

    /// A message goes to its queue, or back.
    fn route(&mut self, id: u64, number: u16, publish: Publish, now_us: u64, mood: Mood) {
        let Publish { exchange, record } = publish;
        let chance = if mood.refuses && !record.is_dead_letter() { self.draw(16) } else { 16 };
        let poison = if record.is_poison() { Poison::of(&record.id) } else { None };
        let is_missing = self.missing_exchange == Some(&exchange);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let by = (connection.relay, connection.sink);
        let Some(channel) = connection.channels.get_mut(&number).filter(|it| !it.is_closed) else {
            return;
        };
        let topic = record.topic.clone();
        let close = match (poison, chance) {
            _ if is_missing => {
                Some((404, format!("NOT_FOUND - no exchange '{exchange}' in vhost '/'")))
            }
            (Some(Poison::Closes), _) => {
                Some((406, "PRECONDITION_FAILED - invalid expiration".to_owned()))
            }
            (None, 0) => Some((
                403,
                format!(
                    "ACCESS_REFUSED - access to topic '{topic}' in exchange '{exchange}' in vhost '/' refused for user 'relay'"
                ),
            )),
            _ => None,
        };
        if let Some((code, text)) = close {
            channel.is_closed = true;
            channel.held.clear();
            self.counts.closed += 1;
            let loss = ConnectionLoss::refused(code, &text);
            connection.answer(now_us, number, Answer::Closed(loss));
            return self.tell(|| format!("channel {number} of {by:?} is closed: {text}"));
        }
        channel.tag += 1;
        let tag = channel.tag;
        channel.queues.insert(topic.clone());
        let Some(queue) = self.queues.get_mut(&*topic) else { return };
        let is_returned = matches!(poison, Some(Poison::Returned)) || matches!(chance, 1..=3);
        let is_nacked = matches!(poison, Some(Poison::Nacked)) || matches!(chance, 4..=7);
        let (acked, stores) = match queue.trouble {
            None if is_returned => (Some(true), false),
            Some(Trouble::Gone) => (Some(true), false),
            None if is_nacked => (Some(false), chance == 4),
            None => (Some(true), true),
            Some(Trouble::Silent) => (None, false),
        };
        channel.unanswered.insert(tag, Unanswered { acked, read_us: now_us });
        if acked == Some(true) && !stores {
            let returned = ReturnedMessage {
                id: record.id.clone(),
                code: 312,
                text: "NO_ROUTE".to_owned(),
            };
            connection.answer(now_us, number, Answer::Returned(returned));
            self.counts.returned += 1;
        }
        self.tell(|| format!("{} on channel {number} of {by:?}: {acked:?}", record.id));
        let record = Record { by, ..record };
        if acked.is_none() {
            if let Some(queue) = self.queues.get_mut(&*topic) {
                queue.pending.push_back((id, number, tag, record));
            }
        } else if stores {
            self.store(id, number, tag, record);
        }
    }

    fn store(&mut self, id: u64, channel: u16, tag: u64, record: Record) {
        let connection = self.connections.get_mut(&id);
        let is_sent_again = connection.is_some_and(|it| it.stored(channel, tag));
        // Of a connection that is over, nobody will hear.
        let is_over = !self.connections.contains_key(&id);
        self.explained += u64::from(is_sent_again || is_over);
        self.stored.push(record);
    }

    /// Queues that answer again take what has waited for them.
    fn recover(&mut self) {
        let names: Vec<&'static str> = self.queues.keys().copied().collect();
        for name in names {
            let Some(queue) = self.queues.get_mut(name) else { continue };
            let trouble = queue.trouble;
            if trouble == Some(Trouble::Silent) {
                continue;
            }
            for (id, channel, tag, record) in std::mem::take(&mut queue.pending) {
                let acked = trouble.is_none();
                if acked {
                    self.store(id, channel, tag, record);
                }
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.settle(channel, tag, acked);
                }
            }
        }
    }

    /// Confirms some of what is stored or refused, one by one or several at once.
    fn confirm(&mut self, id: u64, now_us: u64, late_us: u64, mood: Mood) {
        let Some(connection) = self.connections.get(&id).filter(|it| it.phase == Phase::Open)
        else {
            return;
        };
        let numbers: Vec<u16> = connection.channels.keys().copied().collect();
        for number in numbers {
            let mut answers = if mood.lingers { 0 } else { self.draw(4) };
            while let Some(channel) =
                self.connections.get(&id).and_then(|it| it.channels.get(&number))
                && !channel.is_closed
            {
                let known = channel.unanswered.iter().filter(|(_, it)| it.acked.is_some());
                let known: Vec<(u64, Unanswered)> = known.map(|(tag, it)| (*tag, *it)).collect();
                let is_late = known.iter().any(|(_, it)| it.read_us < late_us) && !mood.lingers;
                if known.is_empty() || answers == 0 && !is_late {
                    break;
                }
                answers = answers.saturating_sub(1);
                let (tag, Unanswered { acked, .. }) = known[self.draw(known.len())];
                self.confirm_one(id, number, (tag, acked == Some(true)), now_us);
            }
        }
    }

    fn confirm_one(&mut self, id: u64, number: u16, (tag, acked): (u64, bool), now_us: u64) {
        let wants_multiple = self.draw(2) == 0;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(channel) = connection.channels.get_mut(&number) else { return };
        let is_same = |it: &Unanswered| it.acked == Some(acked);
        let multiple = wants_multiple && channel.unanswered.range(..=tag).all(|(_, it)| is_same(it));
        let before = channel.unanswered.len();
        channel.unanswered.retain(|it, _| if multiple { *it > tag } else { *it != tag });
        let answered = (before - channel.unanswered.len()) as u64;
        connection.answer(now_us, number, Answer::Confirm { tag, multiple, acked });
        self.counts.several += u64::from(answered > 1);
        self.counts.nacked += u64::from(!acked);
    }

    pub(crate) fn refuse_logins(&mut self, refuses: bool) {
        self.refuses_logins = refuses;
    }

    pub(crate) fn raise_alarm(&mut self, reason: &'static str) {
        self.alarm = Some(reason);
    }

    pub(crate) fn delete_exchange(&mut self) {
        self.missing_exchange = Some(EXCHANGE);
    }

    pub(crate) fn declare_exchange(&mut self) {
        self.missing_exchange = None;
    }

    /// Connections lose what is sent in one direction or both, and no end knows.
    pub(crate) fn cut_directions(&mut self, up: bool, down: bool) {
        for id in self.ids() {
            let is_meant = self.draw(2) == 0;
            let connection = self.connections.get_mut(&id);
            if let Some(connection) = connection.filter(|it| is_meant && it.phase == Phase::Open) {
                (connection.up_is_cut, connection.down_is_cut) = (up, down);
            }
        }
    }

    /// A queue is in trouble, or no more.
    pub(crate) fn trouble(&mut self, topic: &str, trouble: Option<Trouble>) {
        if let Some(queue) = self.queues.get_mut(topic) {
            queue.trouble = trouble;
        }
    }

    pub(crate) fn end_troubles(&mut self, trouble: Trouble) {
        let queues = self.queues.values_mut().filter(|it| it.trouble == Some(trouble));
        queues.for_each(|queue| queue.trouble = None);
    }

    /// The sockets of a process are closed: some of what is under way arrives.
    pub(super) fn abandon(&mut self, id: u64, is_away: bool) {
        let arrives = self.draw(4);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.abandon();
        connection.up.truncate(if is_away || connection.up_is_cut { 0 } else { arrives });
    }
}

/// What the broker does with a message that it never takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poison {
    Closes,
    Returned,
    Nacked,
}

impl Poison {
    fn of(id: &str) -> Option<Poison> {
        let number: u64 = id.strip_prefix('e')?.parse().ok()?;
        Some([Poison::Closes, Poison::Returned, Poison::Nacked][(number % 3) as usize])
    }
}

impl Broker {
    /// A round of the connections to RabbitMQ, of its queues, and of the relays' ends.
    pub(crate) fn rabbitmq_round(&mut self, round: Round) {
        self.rabbitmq.round(round);
        self.store_rabbitmq();
    }

    fn store_rabbitmq(&mut self) {
        for record in std::mem::take(&mut self.rabbitmq.stored) {
            self.store(record);
        }
    }

    /// A relay gets the slot: what others have sent arrives before, where it can.
    pub(crate) fn rabbitmq_flush_ended(&mut self, relay: usize) {
        if !self.is_away {
            let now_us = self.now_us();
            self.rabbitmq.flush(now_us, |connection| connection.relay != relay);
            self.store_rabbitmq();
        }
    }

    pub(crate) fn end_rabbitmq_alarm(&mut self) {
        let now_us = self.now_us();
        self.rabbitmq.end_alarm(now_us);
    }

    /// Connections are lost, all or some of them.
    pub(crate) fn cut_rabbitmq(&mut self, all: bool, loss: &ConnectionLoss) {
        let now_us = self.now_us();
        for id in self.rabbitmq.ids() {
            if all || self.rabbitmq.draw(2) == 0 {
                self.rabbitmq.cut(id, loss.clone(), now_us);
            }
        }
        self.store_rabbitmq();
    }
}
