//! The seam between the core and a broker, which offers deliveries to the lanes and takes copies.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::lanes::Lanes;
use crate::message::Message;
use crate::{InboxError, Settings};

/// A kind of broker.
pub(crate) trait Broker: Send + Sync + 'static {
    /// Stands for one delivery at the broker.
    type Mark: Copy + Send + Sync + 'static;
    type Copies: Copies;
    /// `messaging.system` of OpenTelemetry.
    const SYSTEM: &'static str;
    /// A replayed dead letter goes to the exchange of the consumer, and not to that of the message, to
    /// which others are bound, too.
    const HAS_EXCHANGES: bool;

    /// Makes what is missing of the consumer's topics, queues, exchanges and bindings.
    fn init(&self, settings: &Settings) -> impl Future<Output = Result<(), InboxError>> + Send;

    fn copies(&self, settings: &Settings) -> Result<Self::Copies, InboxError>;

    /// Offers deliveries until a stop is requested, and reconnects for as long. Returns when
    /// all that had begun is settled at the broker, at the latest `settings.stop_within` after the
    /// request. An error is one that a new connection would not mend.
    fn consume(
        &self,
        settings: &Settings,
        lanes: Lanes<Self::Mark>,
        stop: Stop,
    ) -> impl Future<Output = Result<(), InboxError>> + Send;
}

/// Publishes copies of messages.
pub(crate) trait Copies: Send + Sync + 'static {
    /// Sends the copy once, and returns when the broker has confirmed it, however long that takes.
    /// The future may be dropped.
    fn send(&self, copy: &Outgoing<'_>) -> impl Future<Output = Result<(), Unconfirmed>> + Send;
}

/// Why a copy was not confirmed.
#[derive(Debug)]
pub(crate) enum Unconfirmed {
    /// The broker will never take it, for example because it is too large.
    Refused(String),
    /// It is to be sent again.
    Outage(String),
}

/// A copy of a message on its way to a retry level or to the dead letters. Key, event type,
/// content type and id are those of the message.
pub(crate) struct Outgoing<'m> {
    pub(crate) message: &'m Message,
    pub(crate) destination: Destination,
    /// All headers of the copy, but those that only this broker needs.
    pub(crate) headers: Vec<(String, Bytes)>,
    /// The value of the message, or what fits of it.
    pub(crate) value: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A retry level, by its time. The copy waits there no longer than the level lasts.
    Level {
        level: Duration,
        wait: Duration,
    },
    DeadLetters,
}

/// Tells when to stop.
#[derive(Clone)]
pub(crate) struct Stop(pub(crate) watch::Receiver<bool>);

impl Stop {
    /// Also when nobody waits for the inbox any more: then `run` was dropped.
    pub(crate) fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits for the request.
    pub(crate) async fn requested(&mut self) {
        // An error means that the inbox is gone.
        let _gone = self.0.wait_for(|stop| *stop).await.is_err();
    }
}
