//! A message for unit tests that are about where it goes, and not about what it holds; and a port that
//! notes what it is asked for.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::limits::Limits;
use super::message::AmqpMessage;
use super::port::{AmqpEvent, AmqpPort, ConnectionFacts};
use crate::base::event::Outbound;

pub(super) fn empty_message(exchange: &str, routing_key: &str, id: &str) -> AmqpMessage {
    let event = Outbound { exchange, topic: routing_key, id, ..Outbound::default() };
    AmqpMessage::event(&event, &Limits::default(), None).unwrap()
}

/// Makes the event of a login at broker 9.
pub(super) fn connected(channels: &[u16], channels_max: usize) -> AmqpEvent {
    let channels = channels.to_vec();
    let (broker, host, frame_bytes) = (9, 0, 16_384);
    AmqpEvent::Connected(ConnectionFacts { broker, host, frame_bytes, channels, channels_max })
}

#[derive(Debug, Default)]
pub(super) struct NotedPort {
    pub(super) connects: Vec<usize>,
    pub(super) disconnects: usize,
    /// With their channels, the ids of messages.
    pub(super) sent: Vec<(u16, String)>,
    pub(super) asked: Vec<String>,
    pub(super) opened: usize,
    pub(super) until: Option<Instant>,
    /// The socket takes no message.
    pub(super) is_full: bool,
    /// How many messages wait for the socket.
    pub(super) unwritten: usize,
    /// The events that have arrived, and those that arrive during the next wait.
    pub(super) events: VecDeque<AmqpEvent>,
    pub(super) awaited: VecDeque<AmqpEvent>,
    /// The time of a port that waits, and how long it has waited.
    pub(super) now: Option<Instant>,
    pub(super) waited: Vec<Duration>,
    pub(super) flushes: usize,
    /// The connection was ended in good order.
    pub(super) is_closed: Rc<Cell<bool>>,
}

impl AmqpPort for NotedPort {
    fn connect(&mut self, from: usize) {
        self.connects.push(from);
    }

    fn disconnect(&mut self) {
        self.disconnects += 1;
        self.unwritten = 0;
    }

    fn send(&mut self, channel: u16, message: &AmqpMessage) {
        self.sent.push((channel, message.id().to_owned()));
        self.unwritten += 1;
    }

    fn ask_exchange(&mut self, name: &str) {
        self.asked.push(name.to_owned());
    }

    fn open_channel(&mut self) {
        self.opened += 1;
    }

    fn poll(&mut self, _now: Instant) -> Option<AmqpEvent> {
        self.events.pop_front()
    }

    fn publish_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    fn flush(&mut self, _now: Instant) {
        self.flushes += 1;
    }

    fn close(&mut self) {
        self.is_closed.set(true);
    }

    fn wait(&mut self, patience: Duration) -> Option<Instant> {
        self.waited.push(patience);
        self.events.append(&mut self.awaited);
        self.now = self.now.map(|now| now + patience);
        self.now
    }
}
