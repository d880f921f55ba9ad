//! Where events come from: a replication slot, or claimed rows of a table.

pub mod claims;
pub mod slot;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::admit::Admitter;
use super::failure_policy::FailurePolicy;
use super::ports::{Clock, PassMeter, Recorder};
use crate::base::error::Fault;
use crate::base::event::Sequence;
use crate::delivery::flight::Flight;
use crate::delivery::flights::NotInFlight;
use crate::delivery::prefix::ConfirmedPrefix;
use crate::health::Pass;
use crate::sink::Sink;
use crate::sink::driver::SinkDriver;

/// The parts of the loop behind the feed: they publish candidates and judge failures.
pub struct Downstream {
    pub admitter: Admitter,
    pub policy: FailurePolicy,
    pub driver: SinkDriver,
    pub meter: Box<dyn PassMeter>,
    pub recorder: Box<dyn Recorder>,
    pub clock: Arc<dyn Clock>,
    /// When this pass began to hand events to the sink.
    pub read_at: Option<Instant>,
}

/// A source of events. It numbers them, and keeps those that are not settled.
pub trait Feed {
    /// Longest wait for confirms while nothing can be read.
    const UNREADABLE_TICK: Duration;
    /// How long the broker may confirm nothing before a relay that stops after a failure no longer
    /// waits for it.
    const LAST_CONFIRM_WITHIN: Duration;
    /// Whether the stages of a pass are measured.
    const TIMES_STAGES: bool;
    /// Whether a settled event may be received again: when a peer has had the slot before it was reported.
    const RECEIVES_SETTLED: bool;

    /// Slot or table, for faults.
    fn origin(&self) -> String;

    /// Opens a connection if there is none, and takes answers from other threads.
    fn ensure_session(&mut self, down: &mut Downstream, now: Instant) -> Result<(), Fault>;

    /// Why what the sink holds must not be published any more, if that is so: another process may
    /// publish the same and later events. `missed` is the time before `now` that the clock has missed.
    fn withdrawal(&mut self, now: Instant, missed: Duration) -> Option<String>;

    /// Until when nobody else can publish the same events.
    fn send_until(&self) -> Instant;

    /// Hands events to the sink until it takes no more. True when there is probably more to read.
    /// With `closing`, only the open transaction is read to its end.
    fn intake(&mut self, down: &mut Downstream, now: Instant, closing: bool)
    -> Result<bool, Fault>;

    /// Reading is held on purpose, so the feed's silence does not mean a dead connection.
    fn hold(&mut self, _now: Instant) {}

    /// Waits at most `tick` for something to read, or until the sink has something to report; false
    /// when nothing may be read now.
    fn wait(&mut self, tick: Duration, sink: Option<&dyn Sink>, now: Instant) -> bool;

    fn awaits_confirms(&self) -> bool;

    /// The broker has confirmed this event, or its dead letter. Returns what was known of the event.
    fn settle(&mut self, event: Sequence) -> Result<Flight, NotInFlight>;

    /// Lets `decide` judge an event that the sink has.
    fn update<T>(
        &mut self,
        event: Sequence,
        decide: impl FnOnce(&mut Flight) -> T,
    ) -> Result<T, NotInFlight>;

    /// The events that become dead letters once the dead-letter topic has been read, in order.
    fn given_up(&self) -> Vec<Sequence>;

    /// The part of a transaction that was confirmed since the last call.
    fn confirmed_prefix(&mut self) -> Option<ConfirmedPrefix> {
        None
    }

    /// Another broker confirms from here on: what was confirmed before counts for no prefix.
    fn forget_prefix(&mut self) {}

    /// The event has failed and will be tried again.
    fn retrying(&mut self, _event: Sequence, _attempts: u32, _wait: Duration, _reason: &str) {}

    /// The number of the next new event, and whether there is room for it.
    fn next(&self) -> (Sequence, bool);

    /// There is a new sink: everything that is not settled is handed over again, in order.
    fn rewind(&mut self, policy: &mut FailurePolicy);

    /// Reports to the database what is settled.
    fn report(&mut self, down: &mut Downstream, now: Instant);

    /// Events that the sink has and that are not settled.
    fn in_flight(&self) -> usize;

    /// Unsettled events that wait while the broker confirms later ones, oldest first, and for how long.
    fn overtaken(&self, now: Instant) -> (Vec<Sequence>, Duration);

    /// The facts of the pass that the feed knows; the loop adds what it knows of the sink.
    fn status(&self, now: Instant) -> Pass;

    /// Notes a peer that is there in the state file, so that the next process knows it.
    fn note_peer(&self, _down: &mut Downstream) {}

    /// The relay stops: no new events are wanted.
    fn close(&mut self);

    /// Whether a transaction is half read: the next process would publish its first part again.
    fn is_mid_transaction(&self) -> bool {
        false
    }

    /// Whether more is to be received before all that is settled can be reported.
    fn is_incomplete(&self) -> bool {
        false
    }

    /// Whether an event in flight can only be confirmed after another attempt.
    fn awaits_retries(&self) -> bool {
        false
    }

    /// Reports everything that is settled by now, and ends the connection. Returns how many events
    /// the next process will publish again.
    fn finish(&mut self, down: &mut Downstream, fault: Option<&Fault>) -> usize;
}
