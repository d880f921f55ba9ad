//! A model of RabbitMQ and of the connection to it: the port of the real RabbitMQ sink.
//!
//! A connection takes frames; its thread, which the world lets work, gives them to the network, and
//! what comes back to the sink. The broker reads one connection in order, stores what it can route,
//! and confirms later, one by one or several at once. What a lost connection has under way may be
//! stored, and then nobody hears of it.
//!
//! The model assumes that a connection that its relay has given up is read to its end before the
//! relay's next one is, and before a relay that takes the slot over publishes. The documentation of
//! AMQP promises nothing of that kind, but a login takes longer than to read what has arrived.

mod connection;
mod counts;
mod letters;
mod queues;
mod server;
mod troubles;

use std::sync::Arc;
use std::time::{Duration, Instant};

use walrelay_core::base::event::{Outbound, Sequence};
use walrelay_core::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use walrelay_core::relay::ports::Clock as _;
use walrelay_core::sink::rabbitmq::connection_loss::AmqpAddress;
use walrelay_core::sink::rabbitmq::message::AmqpMessage;
use walrelay_core::sink::rabbitmq::port::{AmqpEvent, AmqpPort};
use walrelay_core::sink::rabbitmq::publish::RabbitSink;
use walrelay_core::sink::rabbitmq::publisher::Publisher;
use walrelay_core::sink::{PublishError, Sink, SinkReport};

use self::connection::{Frame, Publish};
pub use self::counts::RabbitCounts;
pub(crate) use self::server::{Mood, Round, Server, Trouble};
use crate::broker::{Broker, Record, SharedBroker};
use crate::life::Life;
use walrelay_core::base::lock::locked;

/// The exchange to which the relays publish.
pub(crate) const EXCHANGE: &str = "outbox.${aggregatetype}";
const HOSTS: usize = 2;

/// Builds the next sink of a process. The first has a connection before the relay begins, as the
/// program checks the broker at its start.
pub(crate) fn sink(
    relay: usize,
    life: &Arc<Life>,
    broker: &SharedBroker,
    is_first: bool,
    seed: u64,
) -> Box<dyn Sink> {
    let mut shared = locked(broker);
    let by = (relay, shared.next_sink(relay));
    let seed = seed ^ by.1;
    let mut publisher = Publisher::new(AmqpAddress::default(), seed);
    let mut connection = None;
    if is_first {
        let now_us = shared.now_us();
        let id = shared.rabbitmq.connect(by, life, 0, now_us);
        if let Ok(facts) = shared.rabbitmq.log_in(id, now_us) {
            connection = Some(id);
            publisher.handle(AmqpEvent::Connected(facts), life.instant());
        } else {
            shared.rabbitmq.abandon(id, true);
        }
    }
    drop(shared);
    let (life, broker) = (Arc::clone(life), Arc::clone(broker));
    let port = Port { by, life: Arc::clone(&life), broker, connection, publish_until: None };
    Box::new(SimulatedSink { life, sink: RabbitSink::new(publisher, port, seed) })
}

struct Port {
    /// The relay, and the number of its sink.
    by: (usize, u64),
    life: Arc<Life>,
    broker: SharedBroker,
    connection: Option<u64>,
    publish_until: Option<Instant>,
}

impl Port {
    fn send_frame(&mut self, frame: Frame) {
        if !self.life.has_effect() {
            return;
        }
        let mut broker = locked(&self.broker);
        let by = self.by;
        broker.rabbitmq.tell(|| format!("{by:?} sends {frame}"));
        let connections = &mut broker.rabbitmq.connections;
        if let Some(connection) = self.connection.and_then(|id| connections.get_mut(&id)) {
            connection.send(frame);
        }
    }

    fn abandon(&mut self) {
        let Some(id) = self.connection.take() else { return };
        let mut broker = locked(&self.broker);
        let is_away = broker.is_away;
        broker.rabbitmq.abandon(id, is_away);
    }
}

impl AmqpPort for Port {
    fn connect(&mut self, from: usize) {
        self.abandon();
        let mut broker = locked(&self.broker);
        let now_us = broker.now_us();
        let id = broker.rabbitmq.connect(self.by, &self.life, from % HOSTS, now_us);
        if let Some(connection) = broker.rabbitmq.connections.get_mut(&id) {
            connection.publish_until = self.publish_until;
        }
        self.connection = Some(id);
    }

    fn disconnect(&mut self) {
        if let Some(id) = self.connection {
            locked(&self.broker).rabbitmq.leave(id);
            self.abandon();
        }
    }

    fn send(&mut self, channel: u16, message: &AmqpMessage) {
        let exchange = message.exchange().to_owned();
        let record = message.with_outbound(Record::copy);
        self.send_frame(Frame::Publish(channel, Box::new(Publish { exchange, record })));
    }

    fn ask_exchange(&mut self, name: &str) {
        self.send_frame(Frame::AskExchange(name.to_owned()));
    }

    fn open_channel(&mut self) {
        self.send_frame(Frame::OpenChannel);
    }

    fn poll(&mut self, _now: Instant) -> Option<AmqpEvent> {
        locked(&self.broker).rabbitmq.next(self.connection?)
    }

    fn publish_until(&mut self, until: Instant) {
        self.publish_until = Some(until);
        let mut broker = locked(&self.broker);
        let connections = &mut broker.rabbitmq.connections;
        if let Some(connection) = self.connection.and_then(|id| connections.get_mut(&id)) {
            connection.publish_until = Some(until);
        }
    }
}

impl Drop for Port {
    /// Drops the messages that wait to be written; those that are sent may still arrive.
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Broker {
    /// Whether a relay that starts gets a connection.
    pub(crate) fn lets_in(&self) -> bool {
        !self.is_away && self.rabbitmq.lets_in()
    }
}

/// The sink of the core, and the waiting of its thread.
struct SimulatedSink {
    life: Arc<Life>,
    sink: RabbitSink<Port>,
}

impl Sink for SimulatedSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        self.sink.publish(sequence, event)
    }

    fn poll(&mut self, now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        let before = reports.len();
        self.sink.poll(now, patience, reports);
        if reports.len() == before {
            self.life.wait(patience);
        }
    }

    fn publish_dead_letter(
        &mut self,
        sequence: Sequence,
        dead_letter: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        self.sink.publish_dead_letter(sequence, dead_letter)
    }

    fn has_room_for(&self, event: &Outbound<'_>) -> bool {
        self.sink.has_room_for(event)
    }

    fn publish_until(&mut self, until: Instant) {
        self.sink.publish_until(until);
    }

    fn withdraw(&mut self, now: Instant, reports: &mut Vec<SinkReport>) {
        self.sink.withdraw(now, reports);
    }

    fn destination(&self, sequence: Sequence) -> Option<String> {
        self.sink.destination(sequence)
    }

    fn broker(&mut self) -> u64 {
        self.sink.broker()
    }

    fn retry(&mut self, sequence: Sequence) {
        self.sink.retry(sequence);
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        self.sink.replace_with_dead_letter(sequence, writer, cause);
    }
}
