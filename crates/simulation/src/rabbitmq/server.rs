//! The broker: what it stores of the messages that reach it, and what it answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use walrelay_core::base::random::Random;
use walrelay_core::sink::rabbitmq::connection_loss::ConnectionLoss;
use walrelay_core::sink::rabbitmq::port::{AmqpEvent, ConnectionFacts};

use super::connection::{Channel, Connection, Frame, Phase, Publish, Unknown};
use super::counts::RabbitCounts;
use super::letters::MissingTold;
use crate::broker::{DEAD_LETTERS, Record};
use crate::life::Life;
use crate::world::RELAYS_MAX;

/// A connection attempt that is not answered is given up.
const CONNECT_WITHIN_US: u64 = 5_000_000;
/// Each end gives up a connection on which it hears nothing for so long.
const HEARTBEATS_US: u64 = 6_000_000;
/// So often may the connection of a sink be closed over the number of its channels, and once more each
/// time the relay looks whether the limit is gone.
const OVER_CHANNELS_MAX: u64 = 2;
const LIMIT_TRIED_US: u64 = 600_000_000;
const FRAME_BYTES: usize = 32 * 1024;
/// The names of the queues, and the routing keys that lead to them.
pub(super) const QUEUES: [&str; 3] = ["bills", "orders", DEAD_LETTERS];

/// Why a queue does not store what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It has no majority: it stores and confirms nothing.
    Silent,
    /// It is deleted, or its binding is.
    Gone,
    /// It has its most messages, and nacks (`overflow` is `reject-publish`).
    Full,
    /// It is a stream that its coordinator does not know: the channel is closed over each message.
    Failed,
}

/// A queue, and the routing key that leads to it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) trouble: Option<Trouble>,
    /// Messages without a majority: the connection, the channel and the tag of each.
    pub(super) pending: VecDeque<(u64, u16, u64, Record)>,
}

/// How the broker is while it takes messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mood {
    /// It refuses what is in order.
    pub(crate) refuses: bool,
    /// Confirms come late.
    pub(crate) lingers: bool,
}

/// The circumstances of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) now_us: u64,
    /// The time before which messages under way have arrived.
    pub(crate) late_us: u64,
    /// The number of the event that was committed last.
    pub(crate) newest: u64,
    /// Which relays stand still.
    pub(crate) stands_still: [bool; RELAYS_MAX],
    pub(crate) is_away: bool,
    pub(crate) mood: Mood,
}

pub(crate) struct Server {
    pub(super) random: Random,
    pub(super) connections: BTreeMap<u64, Connection>,
    ids: u64,
    /// When its last round was.
    pub(super) now_us: u64,
    cluster: u64,
    pub(super) queues: BTreeMap<&'static str, Queue>,
    pub(super) missing_exchange: Option<String>,
    /// The reason for which it takes no messages.
    pub(super) alarm: Option<&'static str>,
    pub(super) refuses_logins: bool,
    pub(super) channels_max: usize,
    /// The channels of all connections of the user.
    pub(super) user_channels_max: usize,
    pub(super) hides_exchanges: bool,
    /// Whether the processes of each relay stand still.
    frozen: Vec<bool>,
    /// How many messages the connections of each relay have written since they were taken out last.
    pub(super) written: [u64; RELAYS_MAX],
    /// Stored since they were taken out last.
    pub(super) stored: Vec<Record>,
    /// Repetitions that a lost connection or a refusal explains.
    pub(super) explained: u64,
    pub(super) counts: RabbitCounts,
    /// Events that it has refused.
    pub(super) refused: BTreeSet<String>,
    /// Where the login may not publish, by sink and routing key.
    pub(super) forbidden: BTreeMap<((usize, u64), String), Forbidden>,
    /// The topics whose exchange was missing at any time.
    pub(super) missed: BTreeSet<String>,
    pub(super) missing_told: [MissingTold; RELAYS_MAX],
    /// How often each sink has heard that its connection was closed because the user had opened too
    /// many channels.
    over_channels: BTreeMap<(usize, u64), u64>,
    /// The first complaint about a dead letter.
    pub(super) complaint: Option<String>,
    /// The acts of the broker, if a story is written.
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

/// A refusal over the right to publish with a routing key, as a sink has heard it.
#[derive(Debug)]
pub(super) struct Forbidden {
    /// The last connection on which it was refused.
    pub(super) connection: u64,
    pub(super) at_us: u64,
    /// Messages with this routing key were taken since, so one event was refused and not all; or the broker
    /// has not said which message was refused.
    pub(super) is_of_one: bool,
}

impl Server {
    pub(crate) fn new(seed: u64) -> Server {
        let mut random = Random::new(seed);
        Server {
            connections: BTreeMap::new(),
            ids: 0,
            now_us: 0,
            cluster: 1,
            queues: QUEUES.into_iter().map(|name| (name, Queue::default())).collect(),
            missing_exchange: None,
            alarm: None,
            refuses_logins: false,
            channels_max: [1, 2, 4, 64][below(&mut random, 4)],
            user_channels_max: [2, usize::MAX][below(&mut random, 2)],
            hides_exchanges: below(&mut random, 4) == 0,
            frozen: vec![false; RELAYS_MAX],
            written: [0; RELAYS_MAX],
            stored: Vec::new(),
            explained: 0,
            counts: RabbitCounts::default(),
            refused: BTreeSet::new(),
            forbidden: BTreeMap::new(),
            missed: BTreeSet::new(),
            missing_told: Default::default(),
            over_channels: BTreeMap::new(),
            complaint: None,
            story: None,
            random,
        }
    }

    /// Draws all further chances from this seed.
    pub(crate) fn draw_from(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    pub(super) fn draw(&mut self, bound: usize) -> usize {
        below(&mut self.random, bound)
    }

    pub(super) fn tell(&mut self, text: impl FnOnce() -> String) {
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

    /// Whether no message is under way to a queue.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_busy = |it: &Connection| !it.up.is_empty() || it.has_held();
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

    /// The next event of a connection for the relay.
    pub(super) fn next(&mut self, id: u64) -> Option<AmqpEvent> {
        let (event, explained) = self.connections.get_mut(&id)?.next()?;
        self.explained += explained;
        if let AmqpEvent::Closed(loss) = &event {
            self.hear_close(id, loss);
        }
        Some(event)
    }

    /// The relay hears where the login may not publish, which stream has failed, and that it has too many channels.
    fn hear_close(&mut self, id: u64, loss: &ConnectionLoss) {
        let now_us = self.now_us;
        let Some(connection) = self.connections.get(&id) else { return };
        let by = (connection.relay, connection.sink);
        if loss.is_over_channels() {
            self.note_over_channels(by);
        }
        let after = ["topic '", "queue '"].iter().find_map(|it| loss.text.split_once(it));
        let after = after.map(|(_, after)| after);
        if let Some((topic, _)) = after.and_then(|after| after.split_once('\'')) {
            let is_of_one = !loss.is_refused_publish();
            let heard = Forbidden { connection: id, at_us: now_us, is_of_one };
            self.forbidden.insert((by, topic.to_owned()), heard);
        }
    }

    /// The sink of this relay knows that the broker takes no messages for now.
    pub(crate) fn is_known_to_block(&self, relay: usize) -> bool {
        let mut all = self.connections.values().filter(|it| it.relay == relay && !it.is_left);
        all.any(|it| it.is_heard && it.phase == Phase::Open)
    }

    /// The relay ends a connection over which it has more to send.
    pub(super) fn leave(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Unknown { stored, returned } = connection.leave();
        self.explained += stored;
        self.counts.returned_only += returned;
        self.tell(|| format!("connection {id} is lost: {stored} stored, of which nobody hears"));
    }

    /// Takes out how many repetitions something has explained.
    pub(crate) fn take_explained(&mut self) -> u64 {
        self.counts.explained += self.explained;
        std::mem::take(&mut self.explained)
    }

    /// Takes out what is wrong with a dead letter, or with a relay.
    pub(crate) fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// How many messages are with the relays' connections or queues, which may store them yet.
    pub(crate) fn under_way(&self) -> u64 {
        let pending: usize = self.queues.values().map(|queue| queue.pending.len()).sum();
        pending as u64 + self.connections.values().map(Connection::under_way).sum::<u64>()
    }

    pub(crate) fn counts(&self) -> RabbitCounts {
        self.counts
    }

    fn channels_used(&self) -> usize {
        let open = self.connections.values().filter(|it| it.phase == Phase::Open);
        open.map(|it| it.channels.len()).sum()
    }

    /// Lets the relay in, or says why not.
    pub(super) fn log_in(
        &mut self,
        id: u64,
        now_us: u64,
    ) -> Result<ConnectionFacts, ConnectionLoss> {
        if self.refuses_logins {
            self.counts.logins_refused += 1;
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
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let last = match connection.phase {
            Phase::Connecting { .. } => AmqpEvent::ConnectFailed(loss),
            Phase::Ended => return,
            Phase::Open => AmqpEvent::Closed(loss),
        };
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
        // What it has read may have ended it, and the relay must hear of that.
        if let Some(connection) =
            self.connections.get_mut(&id).filter(|it| it.phase != Phase::Ended)
        {
            connection.down.truncate(keeps);
        }
        self.end(id, loss, now_us);
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.connections.keys().copied().collect()
    }

    /// The next connection behind this one.
    fn next_id(&self, id: u64) -> Option<u64> {
        self.connections.range(id + 1..).next().map(|(id, _)| *id)
    }

    /// The next channel of a connection behind this one.
    pub(super) fn next_channel(&self, id: u64, number: u16) -> Option<u16> {
        self.connections.get(&id)?.channels.range(number + 1..).next().map(|(number, _)| *number)
    }

    pub(super) fn round(&mut self, round: Round) {
        self.note_newest(&round);
        self.now_us = round.now_us;
        if !round.is_away {
            self.recover();
        }
        let mut last = 0;
        while let Some(id) = self.next_id(last) {
            last = id;
            let relay = self.connections[&id].relay;
            if !self.frozen[relay] {
                self.work(id, round);
            }
            if !round.is_away {
                self.serve(id, round);
            }
            self.time_out(id, round.now_us);
        }
        let late = self.connections.values_mut().map(|it| std::mem::take(&mut it.late_answers));
        self.counts.late += late.sum::<u64>();
        self.connections.retain(|_, it| !it.is_over());
    }

    /// Does the work of the thread of a relay's connection.
    fn work(&mut self, id: u64, Round { now_us, late_us, is_away, .. }: Round) {
        let answers = self.draw(2) == 0;
        let arrives = self.draw(4);
        let (takes, begins) = (self.draw(3), self.draw(2) == 0);
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
            let room = if connection.is_full { takes } else { usize::MAX };
            let (written, left) = connection.write(now_us, room, begins);
            self.counts.socket_full += left as u64;
            self.written[connection.relay] += written as u64;
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

    /// Does the work of the broker for a connection.
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
        if !gives_up || connection.is_left || std::mem::replace(&mut connection.is_timed_out, true)
        {
            return;
        }
        let loss = ConnectionLoss::of("no heartbeat was received");
        self.counts.half_open += 1;
        match connection.phase {
            Phase::Connecting { .. } => {
                // A login that is answered later belongs to no attempt any more.
                connection.phase = Phase::Ended;
                connection.arrived.push_back(AmqpEvent::ConnectFailed(loss));
            }
            _ => connection.lose(loss),
        }
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
                let relay = connection.relay;
                let answer = AmqpEvent::ExchangeAnswered(Ok(self.existence(&name, relay)));
                let Some(connection) = self.connections.get_mut(&id) else { return };
                connection.tell(now_us, answer);
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
                self.counts.unblocked += 1;
            }
        }
    }

    fn open_channel(&mut self, id: u64, now_us: u64) {
        if self.channels_used() >= self.user_channels_max {
            self.counts.channels_refused += 1;
            let loss = self.too_many_channels();
            return self.end(id, loss, now_us);
        }
        let is_refused = self.draw(16) == 0;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let number = connection.channels.len() as u16 + 1;
        if is_refused || usize::from(number) > self.channels_max {
            self.counts.channels_refused += 1;
            return connection.tell(now_us, AmqpEvent::ChannelRefused);
        }
        self.counts.further_channels += 1;
        connection.channels.insert(number, Channel::default());
        connection.tell(now_us, AmqpEvent::ChannelOpened(number));
    }

    /// A sink that is told how many channels its user may have does not open them again and again: each
    /// time everything in flight would be repeated.
    fn note_over_channels(&mut self, (relay, sink): (usize, u64)) {
        let most = OVER_CHANNELS_MAX + self.now_us / LIMIT_TRIED_US;
        let times = self.over_channels.entry((relay, sink)).or_default();
        *times += 1;
        if *times > most {
            self.complaint.get_or_insert(format!(
                "channels: relay {relay} has opened more channels than its user may have {times} times"
            ));
        }
    }

    /// Lets the messages of these connections that are under way arrive at their queues now.
    pub(super) fn flush(&mut self, now_us: u64, mut is_meant: impl FnMut(&Connection) -> bool) {
        let mut last = 0;
        while let Some(id) = self.next_id(last) {
            last = id;
            let Some(connection) = self.connections.get_mut(&id).filter(|it| is_meant(it)) else {
                continue;
            };
            if connection.up_is_cut {
                connection.up.clear();
            }
            while self.connections.get(&id).is_some_and(|it| !it.up.is_empty()) {
                self.read_one(id, now_us, Mood::default());
            }
            let mut last = 0;
            while let Some(number) = self.next_channel(id, last) {
                last = number;
                while let Some(publish) = self.next_held(id, number) {
                    self.route(id, number, publish, now_us, Mood::default());
                }
            }
        }
    }

    pub(super) fn next_held(&mut self, id: u64, number: u16) -> Option<Publish> {
        self.connections.get_mut(&id)?.channels.get_mut(&number)?.held.pop_front()
    }
}
