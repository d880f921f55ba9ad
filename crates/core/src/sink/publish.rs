//! Contract of a sink: its acts on events, and its reports about them.
//!
//! A sink is called on the data thread and never blocks it. It fails closed: an event that it does
//! not report as confirmed is unconfirmed.
//!
//! If the broker cannot be used, a report says who keeps the events that are in flight:
//!
//! | Report | The sink | What follows |
//! |---|---|---|
//! | [`SinkReport::Unreachable`], [`SinkReport::LoginRefused`] | keeps them, connects again, and publishes again what may be missing | they wait |
//! | [`SinkReport::Broken`], [`SinkReport::Failed`] of an event with [`Disposition::Outage`] | is dropped | they are received again, and published to a new sink |
//! | [`PublishError::Failed`] with [`Disposition::Outage`] or [`Disposition::Delayed`] | is dropped, and did not accept the event | the same |
//! | [`SinkReport::Failed`] of a dead letter with one of these | keeps the dead letter | it is tried again |

use std::fmt;
use std::time::{Duration, Instant};

use crate::base::event::{Outbound, Sequence};
use crate::base::readiness::Readiness;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};

/// A broker as the relay publishes to it. What keeps its connection alive is done by
/// [`Sink::poll`], which is to be called at least every 500 ms while the sink is used.
pub trait Sink {
    /// Hands an event over; [`Sink::poll`] reports on it later, under `sequence`. The sink keeps
    /// events of one key in the order of their `publish` calls, through its own retries and
    /// whatever their destinations.
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError>;

    /// Appends what there is to report, waiting at most `patience` for the first.
    fn poll(&mut self, now: Instant, patience: Duration, reports: &mut Vec<SinkReport>);

    /// Publishes an event in a request of its own, so that the answer is about this event alone. The relay
    /// does so with one that was [`SinkReport::Suspect`], and a replay of dead letters with each.
    fn publish_alone(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        self.publish(sequence, event)
    }

    /// Publishes a dead letter or a record that resolves one. It must never be refused for its
    /// content: what the broker cannot carry is cut. If it is refused for good all the same, the relay stops.
    fn publish_dead_letter(
        &mut self,
        sequence: Sequence,
        dead_letter: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        self.publish_alone(sequence, dead_letter)
    }

    /// False if the event is too large for the broker, as far as that is known: a header that can be
    /// left out is not worth a dead letter.
    fn has_room_for(&self, _event: &Outbound<'_>) -> bool {
        true
    }

    /// True while the sink holds events back that only [`Sink::poll`] can send once others are
    /// answered, and has no [`Sink::readiness`]: it should be polled more often.
    fn holds_back(&self) -> bool {
        false
    }

    /// The socket that is ready when [`Sink::poll`] has something to do: a wait for anything else
    /// ends when it is. None where only time tells.
    fn readiness(&self) -> Option<Readiness<'_>> {
        None
    }

    /// Sends nothing after this time, until a later one is given, not even the rest of an event that the
    /// socket has taken in part: another process may publish later events then. A sink whose threads the
    /// relay cannot stop in time ignores it: what such a sink sends late may stand behind later events of a
    /// peer, so `withdraw` must stop as much as it can.
    fn publish_until(&mut self, _until: Instant) {}

    /// Drops everything that is not published, as far as that can still be stopped, and appends what
    /// is confirmed by now. The sink is dropped next.
    fn withdraw(&mut self, _now: Instant, _reports: &mut Vec<SinkReport>) {}

    /// Where an event goes that was sent and is not answered, in words; none if it was not sent, or
    /// if that is not known.
    fn destination(&self, _sequence: Sequence) -> Option<String> {
        None
    }

    /// Fingerprint of the broker that confirms events: of a name that two brokers of this kind do not
    /// share, not of an address. Zero as long as it is not known.
    fn broker(&mut self) -> u64 {
        0
    }

    /// Publishes again what failed under `sequence`. The sink has kept it, and later events of its
    /// key wait for it.
    fn retry(&mut self, sequence: Sequence);

    /// Publishes the dead letter of what failed under `sequence` in its place, under the same
    /// number. If the cause parks the key, the events of the key that wait behind it are
    /// reported as failed, in order, with the class [`crate::dead_letter::writer::CLASS_PARKED`].
    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    );
}

/// Why [`Sink::publish`] did not accept an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishError {
    /// Try again after the next reports.
    QueueFull,
    /// The broker will not accept this event. The relay publishes its dead letter at once, also if
    /// the failure is transient: a sink that can retry returns `Ok` and reports
    /// [`SinkReport::Failed`]. After an outage the relay builds a new sink instead.
    Failed(Failure),
}

/// A report of a sink from [`Sink::poll`]. After `Confirmed`, `Failed` or `Suspect` there is no other report
/// about the event until it is handed over again: a late answer is dropped. A broker that never answers is
/// for the sink to recognise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkReport {
    /// The broker has stored this event durably, or there is no doubt that it has: a later event of its
    /// partition is stored in a sequence without gaps.
    Confirmed(Sequence),
    /// The broker does not have this event. The sink keeps it for [`Sink::retry`] or
    /// [`Sink::replace_with_dead_letter`].
    Failed(Sequence, Failure),
    /// This event was refused in a batch, perhaps because of another event of the batch: it must be
    /// published alone before it counts as failed. The sink reports [`SinkReport::Broken`] soon after.
    Suspect(Sequence),
    /// Ends an `Unreachable` or a `LoginRefused`: the broker takes events again.
    Reachable,
    /// The broker does not answer; events wait.
    Unreachable(String),
    /// The broker does not accept user or password; events wait, as for `Unreachable`.
    LoginRefused(String),
    /// An outage of the sink as a whole: the state of everything in flight is unknown, and a new
    /// sink must be built.
    Broken(String),
    /// With these settings no event will ever be accepted, and a new sink would report the same.
    Unable(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub disposition: Disposition,
    /// Whether this release knows the answer of the broker.
    pub known: bool,
    /// Ordering key of the event. A failure without it parks no key.
    pub key: Option<Box<[u8]>>,
    /// Stable name, e.g. `kafka.message-size-too-large`.
    pub class: String,
    /// Event and topic, as far as the sink knows them.
    pub subject: String,
    pub reason: String,
    pub mend: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The broker is unavailable: no attempt is counted,
    /// and everything unsettled is published again.
    Outage,
    /// The events of its topic are refused for now and none is to blame: this one is tried again
    /// without end, no attempt is counted, and events of other keys are published.
    Delayed,
    /// This event may be accepted later.
    Transient,
    /// This event will never be accepted.
    Terminal,
    /// No event will be accepted with these settings, and waiting does not help: the relay stops.
    Halt,
}

impl fmt::Display for Disposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Disposition::Outage => "outage",
            Disposition::Delayed => "delayed",
            Disposition::Transient => "transient",
            Disposition::Terminal => "terminal",
            Disposition::Halt => "halt",
        })
    }
}

/// A row of docs/errors.md: an answer of a broker to a publish, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    /// The number or name in the protocol or client library.
    pub code: String,
    pub description: String,
    pub class: String,
    pub disposition: Disposition,
}
