//! The events that a connection to a broker hands to the sink, and the requests of the sink and its publisher.

use std::time::{Duration, Instant};

use super::answer::Answer;
use super::connection_loss::ConnectionLoss;
use super::exchanges::Existence;
use super::message::AmqpMessage;
use crate::base::readiness::Readiness;

/// The facts that a login has agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// Fingerprint of the broker: of cluster and virtual host, not of the address.
    pub broker: u64,
    /// The number of the host.
    pub host: usize,
    /// The largest frame.
    pub frame_bytes: usize,
    /// The channels in confirm mode that are open.
    pub channels: Vec<u16>,
    /// How many channels the broker lets a connection publish on, beside those of questions.
    pub channels_max: usize,
}

/// An event of a connection. Events are handed over in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AmqpEvent {
    Connected(ConnectionFacts),
    /// No host accepts the login.
    ConnectFailed(ConnectionLoss),
    /// The connection has taken the last byte of so many more messages, in the order in which they
    /// were handed over: the broker can answer them from here on.
    Written(usize),
    /// The answers of the broker to publishes, each with its channel.
    Answers(Vec<(u16, Answer)>),
    /// A channel or the connection is closed: no more answers follow on any channel.
    Closed(ConnectionLoss),
    /// The answer to [`AmqpPort::ask_exchange`], or the reason for which the connection must end.
    ExchangeAnswered(Result<Existence, ConnectionLoss>),
    /// In answer to [`AmqpPort::open_channel`].
    ChannelOpened(u16),
    /// The server allows no more channels, and the connection keeps those that it has. A server that
    /// refuses one that it allows closes the connection.
    ChannelRefused,
    /// The broker takes no messages for now, with its reason.
    Blocked(String),
    Unblocked,
}

/// Moves bytes between a publisher and a broker. Only [`AmqpPort::wait`] waits; the outcome of a request is an
/// [`AmqpEvent`] that [`AmqpPort::poll`] returns.
pub trait AmqpPort {
    /// Connects to the first host that accepts the login, beginning with number `from`, which may
    /// be larger than there are hosts and then counts on from the first.
    fn connect(&mut self, from: usize);

    /// Ends the connection: no further event of it follows.
    fn disconnect(&mut self);

    /// Sends a message on a channel, behind all that was sent before.
    fn send(&mut self, channel: u16, message: &AmqpMessage);

    /// Asks whether the exchange exists, while confirms go on. Without a name it asks anything that
    /// the broker answers with [`Existence::There`]. One question is outstanding at a time.
    fn ask_exchange(&mut self, name: &str);

    /// Opens one more channel in confirm mode.
    fn open_channel(&mut self);

    /// The next event that has happened by now.
    fn poll(&mut self, now: Instant) -> Option<AmqpEvent>;

    /// Until when what was handed to [`AmqpPort::send`] may go out, and the rest of a message that the socket
    /// has taken in part.
    fn publish_until(&mut self, until: Instant);

    /// Writes what was handed over, as far as the connection takes it.
    fn flush(&mut self, _now: Instant) {}

    /// The socket that is ready when something has happened or can be written, while there is a
    /// connection.
    fn readiness(&self) -> Option<Readiness<'_>> {
        None
    }

    /// Waits until something has happened, at most `patience`, and returns the time then; none if
    /// this port does not wait.
    fn wait(&mut self, _patience: Duration) -> Option<Instant> {
        None
    }

    /// Ends the connection in good order: nothing is in flight on it.
    fn close(&mut self) {}
}
