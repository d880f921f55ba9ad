//! Where events come from: a replication slot, or claimed rows of a table.

mod claimed_rows;
pub(super) mod claims;
pub(super) mod slot;

use std::time::{Duration, Instant};

use super::admit::Admitter;
use super::failure_policy::FailurePolicy;
use super::sink_driver::SinkDriver;
use crate::base::error::Fault;
use crate::base::event::{Position, Sequence};
use crate::base::lsn::Lsn;
use crate::dead_letter::writer::DeadLetterCause;
use crate::delivery::window::NotInFlight;
use crate::health::{Phase, Recorder};
use crate::metrics::PassMeter;

/// The way from a candidate to the broker and back, the same for every feed.
pub(crate) struct Downstream {
    pub(super) admitter: Admitter,
    pub(super) policy: FailurePolicy,
    pub(super) driver: SinkDriver,
    pub(super) meter: PassMeter,
    pub(super) recorder: Recorder,
    /// When this pass had read what it hands to the sink.
    pub(super) read_at: Option<Instant>,
}

/// How a feed stands, for metrics, probes and people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeedStatus {
    pub(super) phase: Phase,
    pub(super) connected: bool,
    /// Events that could be read are held back.
    pub(super) held: bool,
    pub(super) in_flight_events: usize,
    pub(super) in_flight_bytes: usize,
    pub(super) received_lsn: Lsn,
    pub(super) sent_lsn: Lsn,
    pub(super) confirmed_lsn: Lsn,
    /// For how long Postgres has been decoding without sending an event.
    pub(super) decoding_for: Option<Duration>,
}

/// A source of events. It numbers them, and remembers those that are not settled.
pub(crate) trait Feed {
    /// Longest wait for confirms while the feed cannot be waited for.
    const CONFIRM_TICK: Duration;
    /// At the end, after a failure: how long the broker may confirm nothing before the relay stops
    /// waiting for it.
    const LAST_CONFIRM_WITHIN: Duration;

    /// Are the stages of a pass timed?
    const TIMES_STAGES: bool;

    /// Slot or table, for faults.
    fn origin(&self) -> String;

    /// Opens a connection when there is none, and takes note of what has come from other threads.
    fn ensure_session(&mut self, down: &mut Downstream, now: Instant) -> Result<(), Fault>;

    /// Hands over to the sink what it takes. True when there is probably more. `closing` when only
    /// the open transaction is still wanted.
    fn intake(&mut self, down: &mut Downstream, now: Instant, closing: bool)
    -> Result<bool, Fault>;

    /// Nothing is read now on purpose: that the feed is silent means nothing.
    fn hold(&mut self, _now: Instant) {}

    /// Waits at most `tick` for something to read; false when there is nothing to be read now.
    fn wait(&mut self, tick: Duration, has_sink: bool) -> bool;

    /// Does the feed wait for confirms?
    fn awaits_confirms(&self) -> bool;

    /// The broker has confirmed this event, or its dead letter for this cause. Returns when the
    /// event was committed, in microseconds since the Unix epoch.
    fn confirmed(
        &mut self,
        event: Sequence,
        cause: Option<&DeadLetterCause>,
    ) -> Result<i64, NotInFlight>;

    /// The event has failed and will be tried again.
    fn retrying(&mut self, _event: Sequence, _attempts: u32, _wait: Duration, _reason: &str) {}

    /// Where the event stands.
    fn position_of(&self, event: Sequence) -> Position;

    /// The number of the next new event, and whether there is room for it.
    fn next(&self) -> (Sequence, bool);

    /// There is a new sink: everything that is not settled is handed over again, in order.
    fn rewind(&mut self, policy: &mut FailurePolicy);

    /// Tells the database what is settled.
    fn report(&mut self, down: &mut Downstream, now: Instant);

    fn status(&self) -> FeedStatus;

    /// No new events are wanted: the relay stops.
    fn close(&mut self);

    /// Is a transaction half read? The next process would repeat its first part.
    fn is_mid_transaction(&self) -> bool;

    /// Is something in flight that will only be confirmed after another attempt?
    fn awaits_retries(&self) -> bool {
        false
    }

    /// Says goodbye to the database, with everything that is settled by now. Returns how many
    /// events the next process will publish again.
    fn finish(&mut self, down: &mut Downstream, fault: Option<&Fault>) -> usize;
}
