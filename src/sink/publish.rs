//! What a sink does with events, and what it reports about them.
//!
//! A sink lives on the data thread and never blocks it. It fails closed: what it does not report
//! as confirmed is unconfirmed.

use std::fmt;
use std::time::Duration;

use crate::base::event::{Outbound, Sequence};
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};

/// Where events go.
pub trait Sink {
    /// Hands an event over. What comes back later under `sequence` is its receipt. Events of one
    /// key that are handed over in order must be kept in order by the sink, through its own retries
    /// and whatever their destinations.
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Refused>;

    /// Collects receipts and news, waiting at most `patience` for the first.
    fn poll(&mut self, patience: Duration, news: &mut Vec<News>);

    /// The same for an event that was [`News::Suspect`]: what comes back must be about it alone.
    fn publish_alone(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Refused> {
        self.publish(sequence, event)
    }

    /// The same for a dead letter, or what resolves one: it must never be impossible, so what the
    /// broker cannot carry of it is cut.
    fn publish_letter(&mut self, sequence: Sequence, letter: &Outbound<'_>) -> Result<(), Refused> {
        self.publish_alone(sequence, letter)
    }

    /// Does it hold events back that are sent from [`Sink::poll`] once others are answered? Then it
    /// wants to be polled more often.
    fn holds_back(&self) -> bool {
        false
    }

    /// Publishes once more what has failed under `sequence`. The sink has kept it, and later events
    /// of its key wait for it.
    fn retry(&mut self, sequence: Sequence);

    /// Publishes the dead letter of what has failed under `sequence` in its place; its receipt
    /// comes under the same number. When the cause parks the key, what waits behind it comes back
    /// as failed, in order, with the class [`crate::dead_letter::writer::CLASS_PARKED`].
    fn bury(&mut self, sequence: Sequence, writer: &DeadLetterWriter, cause: &DeadLetterCause);
}

/// The sink did not take an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its queue is full; try again after the next receipts.
    Full,
    /// It will not take it.
    Failed(Failure),
}

/// What a sink has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The broker has this event for good.
    Confirmed(Sequence),
    /// The broker does not have this event; the sink keeps it for [`Sink::retry`] or
    /// [`Sink::bury`].
    Failed(Sequence, Failure),
    /// This event was refused together with others, and perhaps because of them: it must be
    /// published alone before it is blamed. The sink is broken.
    Suspect(Sequence),
    /// The broker answers (again).
    Reachable,
    /// The broker does not answer; events wait.
    Unreachable(String),
    /// The sink can no longer say what became of anything in flight: build a new one.
    Broken(String),
    /// With these settings no event will ever pass, and a new sink would tell the same.
    Unable(Failure),
}

/// Why an event was not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What follows from it.
    pub disposition: Disposition,
    /// Is it an answer that this release knows?
    pub known: bool,
    /// Ordering key of the event, where it has one.
    pub key: Option<Box<[u8]>>,
    /// Stable name, e.g. `kafka.message-size-too-large`.
    pub class: String,
    /// Which event, as far as the sink can tell.
    pub subject: String,
    /// For people.
    pub reason: String,
    /// What mends it.
    pub mend: String,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The broker is unwell: no attempt is counted, everything unsettled is published again.
    Outage,
    /// This event may pass later.
    Transient,
    /// This event will never pass.
    Terminal,
    /// No event will pass with these settings, and waiting mends nothing: the relay stops.
    Halt,
}

impl fmt::Display for Disposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Disposition::Outage => "outage",
            Disposition::Transient => "transient",
            Disposition::Terminal => "terminal",
            Disposition::Halt => "halt",
        })
    }
}

/// An answer that a broker may give to a publish, and what follows from it: a line of
/// `docs/errors.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    /// As the protocol or the client library numbers or names it.
    pub code: String,
    /// For people.
    pub description: String,
    /// [`Failure::class`].
    pub class: String,
    /// [`Failure::disposition`].
    pub disposition: Disposition,
}
