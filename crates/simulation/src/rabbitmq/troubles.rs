//! Troubles of the broker, and the acts of the world in them.

use walrelay_core::sink::rabbitmq::connection_loss::ConnectionLoss;
use walrelay_core::sink::rabbitmq::exchanges::Existence;

use super::connection::{Connection, Phase};
use super::server::{Round, Server, Trouble};
use crate::broker::{Broker, Record};

/// A refused event is tried again so much later at most.
const ATTEMPTS_WITHIN_US: u64 = 30_000_000;

impl Server {
    pub(crate) fn refuse_logins(&mut self, refuses: bool) {
        self.refuses_logins = refuses;
    }

    /// The user may have any number of channels. A relay that has no slot keeps those that it has
    /// opened, and would leave another one without any.
    pub(crate) fn lift_user_limit(&mut self) {
        self.user_channels_max = usize::MAX;
    }

    pub(crate) fn raise_alarm(&mut self, reason: &'static str) {
        self.alarm = Some(reason);
    }

    /// The exchange for this topic is deleted.
    pub(crate) fn delete_exchange(&mut self, topic: &str) {
        self.missing_exchange = Some(format!("outbox.{topic}"));
        self.missed.insert(topic.to_owned());
    }

    /// The answer to a relay's question for an exchange.
    pub(super) fn existence(&mut self, exchange: &str, relay: usize) -> Existence {
        match () {
            () if exchange.is_empty() => Existence::There,
            () if self.hides_exchanges => Existence::Hidden,
            () if self.missing_exchange.as_deref() == Some(exchange) => {
                self.missing_told[relay].note(self.now_us);
                Existence::Missing
            }
            () => Existence::There,
        }
    }

    /// A relay has heard that messages for this topic are refused, and their next attempts may be far, or
    /// an exchange is missing, and it may remember that.
    pub(crate) fn is_in_doubt(&self, topic: &str) -> bool {
        let mut refusals = self.forbidden.iter().filter(|((_, key), _)| key == topic);
        let is_missing = self.missing_exchange.is_some();
        let is_near = |at: u64| self.now_us < at + ATTEMPTS_WITHIN_US;
        refusals.any(|(_, it)| is_missing || is_near(it.at_us))
            || is_missing && self.missed.contains(topic)
    }

    pub(crate) fn misses_exchange(&self) -> bool {
        self.missing_exchange.is_some()
    }

    pub(crate) fn declare_exchange(&mut self) {
        self.missing_exchange = None;
    }

    /// It takes logins and messages, and this relay and it hear each other.
    pub(crate) fn is_well(&self, relay: usize) -> bool {
        let mut own = self.connections.values().filter(|it| it.relay == relay && !it.is_left);
        let is_bad = |it: &Connection| {
            it.up_is_cut || it.down_is_cut || it.is_told || it.is_blocked || it.is_full
        };
        self.alarm.is_none() && !self.refuses_logins && !own.any(is_bad)
    }

    /// Whether this relay cannot have a channel for each destination.
    pub(crate) fn shares_channels(&self, relay: usize) -> bool {
        let destinations = self.queues.len();
        let own = self.connections.values().filter(|it| it.relay == relay && !it.is_left);
        let channels = own.map(|it| it.channels.len()).max().unwrap_or_default();
        let is_limited = self.channels_max < destinations || self.counts.channels_refused > 0;
        channels < destinations && is_limited
    }

    /// A channel holds this message behind one for a silent queue.
    pub(crate) fn holds(&self, id: &str) -> bool {
        self.held().any(|record| record.id == id)
    }

    /// The messages that a relay has published, and that no queue has confirmed or refused.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Record> {
        let channels = self.connections.values().flat_map(|it| it.channels.values());
        channels.flat_map(|it| &it.held).map(|publish| &publish.record)
    }

    /// Whether messages to the queue of the topic are not stored, or not always.
    pub(crate) fn is_troubled(&self, topic: &str) -> bool {
        self.queues.get(topic).is_some_and(|queue| queue.trouble.is_some())
    }

    pub(crate) fn has_silent_queue(&self) -> bool {
        self.queues.values().any(|queue| queue.trouble == Some(Trouble::Silent))
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

    /// Some sockets take little from here on.
    pub(crate) fn fill_sockets(&mut self) {
        for id in self.ids() {
            let is_full = self.draw(4) > 0;
            self.connections.get_mut(&id).into_iter().for_each(|it| it.is_full = is_full);
        }
    }

    pub(crate) fn empty_sockets(&mut self) {
        self.connections.values_mut().for_each(|it| it.is_full = false);
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
        let stored = connection.abandon();
        // The next process knows nothing of them: the slot explains those.
        let stored = if connection.life.is_dead() { 0 } else { stored };
        self.explained += stored;
        connection.up.truncate(if is_away || connection.up_is_cut { 0 } else { arrives });
        self.tell(|| format!("connection {id} is closed: {stored} stored, of which nobody hears"));
    }
}

impl Broker {
    /// A round of the connections to RabbitMQ, of its queues, and of the relays' ends.
    pub(crate) fn rabbitmq_round(&mut self, round: Round) {
        self.rabbitmq.round(round);
        let written = std::mem::take(&mut self.rabbitmq.written);
        self.sent.iter_mut().zip(written).for_each(|(sent, written)| *sent += written);
        self.store_rabbitmq();
    }

    fn store_rabbitmq(&mut self) {
        for record in std::mem::take(&mut self.rabbitmq.stored) {
            let complaint = self.rabbitmq.complaint(&record);
            self.rabbitmq.complaint = self.rabbitmq.complaint.take().or(complaint);
            self.store(record);
        }
    }

    /// A relay gets the slot: what others have sent arrives before, where it can, or never.
    pub(crate) fn rabbitmq_flush_ended(&mut self, relay: usize) {
        if !self.is_away {
            let now_us = self.now_us();
            self.rabbitmq.flush(now_us, |connection| connection.relay != relay);
            self.store_rabbitmq();
        }
        self.rabbitmq.refuse_pending(|by| by != relay);
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
