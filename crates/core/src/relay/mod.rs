//! The loop that carries events: the file to read first.
//!
//! ```text
//!  walsender ──▶ feed::slot ────┐                                  ┌──▶ sink ──▶ broker
//!  (socket)      decode, admit  ├─▶ admit: extract, shape, publish ┘       │
//!  table ──────▶ feed::claims ──┘                                          │ confirm
//!    ▲                                                                     ▼
//!    └── status update / verdicts ◀── feed: flights, transactions ◀──── collect
//! ```
//!
//! One thread does all of it, and never blocks on a broker or a database: sessions are opened on
//! the control runtime ([`control`]), the sink is polled, and the only waits are for the socket,
//! bounded by the next status update. So a sink that does not answer delays no report.
//!
//! # Why nothing is lost
//!
//! Postgres keeps every transaction that ends after the slot's `confirmed_flush_lsn`, and moves
//! that only to a position that this process has reported: in a status update, or with SQL once the
//! stream has ended. So it is enough that no position is reported too early:
//!
//! 1. An event gets a number when the sink takes it, in commit order, and stays in the table of
//!    [`crate::delivery::flights`] until the sink reports the broker's confirm under that number.
//!    An event that is refused, returned, timed out or unknown is not confirmed ([`crate::sink`]).
//! 2. An event that cannot be published counts as settled only once the dead-letter topic has
//!    confirmed its dead letter ([`failure_policy`]). Otherwise the relay stops before it.
//! 3. [`crate::delivery::transactions`] settles a transaction at a position within its commit record
//!    once it and all earlier ones are settled; that LSN may be reported. A keepalive's position is reported
//!    only while nothing is unsettled and no transaction is half received ([`crate::source::progress`]).
//! 4. The stream breaks: what is in flight stays in flight. Postgres sends again from its
//!    `confirmed_flush_lsn`, and what was admitted is recognised by its position and skipped
//!    ([`crate::delivery::transactions`]).
//! 5. The sink breaks: the session is given up and everything from the first unsettled event on is
//!    received again, under the same numbers; what was confirmed in the meantime is skipped.
//! 6. The process dies: the next one publishes again what follows the `confirmed_flush_lsn`, except
//!    what its [`state_file`] or the topics say ([`earlier`]).
//! 7. Somebody else moves the slot: what a peer confirmed is published. Any other move could skip
//!    events, and stops the relay ([`control`]).
//!
//! # Why nothing old is published behind a peer
//!
//! A relay that does not know any more that the slot is its own withdraws what is in flight, before a
//! peer can have taken over: it drops the sink with what that holds, and the session. It receives
//! everything again once it has the slot ([`Feed::withdrawal`]).
//!
//! A polled row stays unpublished in its table until its verdict is written, under a lease that
//! ends some time after its process has; points 1, 2, 5 and 6 hold in the same way.
//! The invariants are listed in [`crate::delivery`] and tested there against a model.

pub mod admit;
pub mod control;
pub mod dead_letter_gate;
pub mod earlier;
mod ending;
pub mod failure_policy;
pub mod faults;
pub mod feed;
mod parts;
pub mod ports;
pub mod read_back;
pub mod session_findings;
mod slot_history;
pub mod state_file;
pub mod stops;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use self::admit::Admitter;
use self::control::StopFlags;
use self::dead_letter_gate::DeadLetterGate;
use self::ending::Ending;
use self::failure_policy::{FailureOutcome, FailurePolicy};
pub use self::feed::slot::SlotFeed;
use self::feed::{Downstream, Feed};
pub use self::parts::Parts;
use self::ports::{Clock, Gauge, Meters};
pub use self::read_back::ReadBack;
use crate::base::clock::{Clocks, Moment};
use crate::base::error::Fault;
use crate::base::event::Sequence;
use crate::base::text::ShortText;
use crate::dead_letter::tail_event::{self, TailEvent};
use crate::delivery::flight::Flight;
use crate::health::{IntakeHold, Phase, SilentDestination};
use crate::metrics::Stage;
use crate::mutants::{Mutant, on};
use crate::sink::driver::SinkDriver;
use crate::sink::{Failure, Sink, SinkReport};

/// Longest wait while events are in flight: a sink without [`Sink::readiness`] does not wake the loop
/// when they are confirmed.
const IN_FLIGHT_TICK: Duration = Duration::from_millis(10);
/// Longest wait while such a sink holds events back until others are confirmed.
const HELD_BACK_TICK: Duration = Duration::from_millis(1);
/// Longest wait of an idle loop. It also bounds how late a keepalive is read that is shorter than
/// the socket's SO_RCVLOWAT.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Longest wait for a confirm while the relay stops.
const DRAIN_TICK: Duration = Duration::from_millis(2);
/// How often silent destinations are looked for.
const SILENCE_LOOK_EVERY: Duration = Duration::from_millis(500);

pub struct Relay<F> {
    feed: F,
    down: Downstream,
    tail_events: Option<Receiver<TailEvent>>,
    state: RunState,
    /// It was logged that the dead-letter topic must be read first.
    history_wait_logged: bool,
    drain_timeout: Duration,
    clocks: Clocks,
    silent: Option<SilentDestination>,
    silence_look_at: Instant,
    flags: Arc<StopFlags>,
    meters: Arc<dyn Meters>,
    clock: Arc<dyn Clock>,
}

enum RunState {
    Running,
    Draining(Ending),
    Stopped,
}

impl<F: Feed> Relay<F> {
    /// Opens the state file and the first sink.
    pub fn new(parts: Parts, feed: F) -> Result<Relay<F>, Fault> {
        let Parts { source, delivery, sink_factory, dead_letter_writer, meters, clock, .. } = parts;
        let (requests, mut random) = (parts.tail_requests, parts.random);
        let (writer, is_read) = (dead_letter_writer, parts.tail_events.is_some());
        let gate = DeadLetterGate::new(&delivery, writer, is_read, requests, &meters, parts.stops);
        let now = clock.now();
        let down = Downstream {
            admitter: Admitter::new(parts.state_file, parts.read_back, &source, feed.origin()),
            policy: FailurePolicy::new(&delivery, gate, parts.spans, &meters, random.number()),
            driver: SinkDriver::open(sink_factory, delivery.backoff(random.number()), now.instant)?,
            meter: parts.pass_meter,
            clock: Arc::clone(&clock),
            recorder: parts.recorder,
            read_at: None,
        };
        Ok(Relay {
            feed,
            down,
            tail_events: parts.tail_events,
            state: RunState::Running,
            history_wait_logged: false,
            drain_timeout: delivery.drain_timeout,
            clocks: Clocks::new(now),
            silent: None,
            silence_look_at: now.instant,
            flags: parts.flags,
            meters,
            clock,
        })
    }

    /// Carries events until a stop is requested, or until a fault stops the relay.
    pub fn run(mut self) -> Result<(), Fault> {
        loop {
            if let Some(outcome) = self.step() {
                return outcome;
            }
        }
    }

    /// One pass, and the wait behind it. How the loop has ended, once it has.
    pub fn step(&mut self) -> Option<Result<(), Fault>> {
        if let RunState::Draining(_) = self.state {
            return self.drain_step();
        }
        let carried = if self.flags.stop.load(Ordering::Relaxed) {
            Some(Ok(()))
        } else {
            let pass = self.pass();
            pass.and_then(|more| if more { Ok(()) } else { self.rest() }).err().map(Err)
        };
        if let Some(outcome) = carried {
            self.begin_drain(outcome);
        }
        None
    }

    /// Does everything that can be done without waiting. True when there is probably more.
    pub fn pass(&mut self) -> Result<bool, Fault> {
        let now = self.clock.instant();
        self.feed.ensure_session(&mut self.down, now)?;
        self.withdraw()?;
        self.ensure_sink()?;
        self.read_tail_events()?;
        self.retry_due(now);
        let more = self.feed.intake(&mut self.down, now, false)?;
        // The session may have ended.
        self.limit_sink();
        let collecting = self.clock.instant();
        if let Some(read_at) = self.down.read_at.take() {
            self.down.meter.stage(Stage::Publish, collecting - read_at);
        }
        self.collect(Duration::ZERO)?;
        if F::TIMES_STAGES {
            self.down.meter.stage(Stage::Confirm, self.clock.instant() - collecting);
        }
        self.feed.report(&mut self.down, now);
        self.publish_status();
        Ok(more)
    }

    /// Waits for the feed or the sink.
    pub fn rest(&mut self) -> Result<(), Fault> {
        let sink = self.down.driver.sink.as_deref();
        let tick = match sink {
            Some(sink) if sink.holds_back() => HELD_BACK_TICK,
            _ if self.feed.awaits_confirms() => IN_FLIGHT_TICK,
            _ => IDLE_TICK,
        };
        if self.feed.wait(tick, sink.map(|sink| sink as &dyn Sink), self.clock.instant()) {
            return Ok(());
        }
        self.collect(F::UNREADABLE_TICK)
    }

    /// Withdraws what is in flight when another process may have taken over. Called before anything
    /// is handed to the sink, so that a process that was frozen publishes nothing first.
    fn withdraw(&mut self) -> Result<(), Fault> {
        let moment = self.clock.now();
        let (now, missed) = (moment.instant, self.clocks.missed(moment));
        if let Some(reason) = self.feed.withdrawal(now, missed) {
            for report in self.down.driver.withdraw(&reason, self.feed.in_flight(), now) {
                if let SinkReport::Confirmed(sequence) = report {
                    self.confirmed(sequence, moment)?;
                }
            }
            self.down.admitter.state_file.marks.write();
        }
        self.limit_sink();
        Ok(())
    }

    /// Until when the sink may send.
    fn limit_sink(&mut self) {
        if let Some(sink) = &mut self.down.driver.sink {
            sink.publish_until(self.feed.send_until());
        }
    }

    /// Builds the next sink when it is due; after a withdrawal, before a session that was found is used.
    fn ensure_sink(&mut self) -> Result<(), Fault> {
        let now = self.clock.instant();
        let Downstream { driver, policy, recorder, .. } = &mut self.down;
        if driver.awaits_sink(now) {
            driver.rebuild(now)?.then(|| self.feed.rewind(policy));
            recorder.note(driver.outage());
            self.limit_sink();
        }
        Ok(())
    }

    fn read_tail_events(&mut self) -> Result<(), Fault> {
        let (events, now) = (self.tail_events.take(), self.clock.now());
        let outcome = events
            .iter()
            .flat_map(tail_event::waiting)
            .try_for_each(|event| self.on_tail_event(event, now));
        self.tail_events = events;
        outcome
    }

    /// Once the dead-letter topic was read, the events that were given up become dead letters. A sink
    /// that is yet to be built gets them as events. If a stop stands in the topic, they stay unsettled.
    pub fn on_tail_event(&mut self, event: TailEvent, now: Moment) -> Result<(), Fault> {
        let Downstream { policy, driver, .. } = &mut self.down;
        let waited = policy.gate.awaits_history();
        policy.gate.on_tail_event(event, now.unix_us)?;
        let Some(sink) = &mut driver.sink else { return Ok(()) };
        let mut outcome = Ok(());
        if waited && !policy.gate.awaits_history() {
            for sequence in self.feed.given_up() {
                let write =
                    |flight: &mut Flight| policy.write_awaited(sequence, flight, &mut **sink, now);
                let written = self.feed.update(sequence, write);
                let written = written.unwrap_or_else(|error| Err(faults::receipt(&error)));
                outcome = outcome.and(written.map(drop));
            }
        }
        outcome
    }

    /// Another process may publish later events: nothing that waits may be published now.
    fn is_cut_off(&self, now: Instant) -> bool {
        now >= self.feed.send_until()
    }

    /// Publishes again the events whose wait is over.
    fn retry_due(&mut self, now: Instant) {
        if self.is_cut_off(now) || on(Mutant::RetriesNeverDue) {
            return;
        }
        let Downstream { policy, driver, meter, .. } = &mut self.down;
        let Some(sink) = &mut driver.sink else { return };
        let (next, has_room) = self.feed.next();
        while let Some(sequence) = policy.retries.take_due(now, next, has_room) {
            meter.retried();
            sink.retry(sequence);
        }
    }

    /// Takes the sink's reports, and marks what they confirm before it can be reported to Postgres.
    fn collect(&mut self, timeout: Duration) -> Result<(), Fault> {
        let outcome = self.collect_all(timeout);
        let Downstream { admitter, driver, .. } = &mut self.down;
        let marks = &mut admitter.state_file.marks;
        if marks.has_unwritten() {
            if marks.broker(driver.broker()) {
                self.feed.forget_prefix();
            }
            marks.write();
        }
        if let Some(prefix) = self.feed.confirmed_prefix() {
            marks.prefix(prefix);
        }
        outcome
    }

    fn collect_all(&mut self, timeout: Duration) -> Result<(), Fault> {
        // When an event parks its key, those of the key that wait in the sink become dead letters
        // first, and only then a later event of the key is admitted. So they stay in order.
        let mut parked = self.collect_once(timeout)?;
        while parked {
            parked = self.collect_once(Duration::ZERO)?;
        }
        Ok(())
    }

    /// True when a key was parked.
    fn collect_once(&mut self, timeout: Duration) -> Result<bool, Fault> {
        if self.down.driver.sink.is_none() {
            self.clock.sleep(timeout);
        }
        let mut reports = self.down.driver.poll(timeout, self.clock.instant());
        let now = self.clock.now();
        let (mut outcome, mut broken, mut confirmed, mut parked) = (Ok(()), None, false, false);
        for item in reports.drain(..) {
            let Downstream { policy, driver, recorder, .. } = &mut self.down;
            match item {
                SinkReport::Confirmed(sequence) => {
                    confirmed = true;
                    outcome = outcome.and(self.confirmed(sequence, now));
                }
                SinkReport::Failed(..) if on(Mutant::NackForgotten) => {}
                SinkReport::Failed(sequence, _) if on(Mutant::NackIsAck) => {
                    outcome = outcome.and(self.confirmed(sequence, now));
                }
                SinkReport::Failed(sequence, failure) => {
                    match self.failed(sequence, failure, now) {
                        Ok(FailureOutcome::KeyParked) => parked = true,
                        Ok(FailureOutcome::SinkOutage(reason)) => broken = Some(reason),
                        Ok(_) => {}
                        Err(fault) => outcome = outcome.and(Err(fault)),
                    }
                }
                SinkReport::Suspect(sequence) => {
                    let position = self.feed.update(sequence, |flight| flight.position);
                    policy.suspects.extend(position);
                }
                SinkReport::Reachable => {
                    tracing::info!("the broker answers again");
                    recorder.note("");
                    driver.reachable();
                }
                SinkReport::Unreachable(reason) => recorder.note(driver.unreachable(reason)),
                SinkReport::LoginRefused(reason) => recorder.note(driver.login_refused(reason)),
                SinkReport::Broken(_) if on(Mutant::BrokenForgotten) => {}
                SinkReport::Broken(reason) => broken = Some(reason),
                SinkReport::Unable(failure) => outcome = outcome.and(Err(policy.unable(&failure))),
            }
        }
        self.down.driver.done(reports, confirmed, now.instant);
        // A fault comes first: a new sink would meet the same event again.
        if let Some(reason) = broken
            && outcome.is_ok()
        {
            self.down.recorder.note(&reason);
            self.down.driver.break_sink(&reason, self.feed.in_flight(), now.instant);
        }
        outcome.map(|()| parked)
    }

    /// The broker has the event, or its dead letter.
    pub fn confirmed(&mut self, sequence: Sequence, now: Moment) -> Result<(), Fault> {
        let Downstream { admitter, policy, driver, meter, recorder, .. } = &mut self.down;
        driver.settled(now.instant);
        let flight = match self.feed.settle(sequence) {
            Ok(flight) => flight,
            Err(_) if on(Mutant::LetterBeforeConfirm) => return Ok(()),
            Err(error) => return Err(faults::receipt(&error)),
        };
        if !F::RECEIVES_SETTLED && !policy.suspects.is_empty() {
            policy.suspects.remove(&flight.position);
        }
        let (mark, commit_unix_us) = (flight.mark(), flight.commit_unix_us);
        let cause = policy.settled(flight, now);
        if let Some(mark) = mark {
            admitter.state_file.marks.push(mark);
        }
        match cause {
            None => meter.published(commit_unix_us, now.unix_us),
            Some(_) => {
                meter.dead_lettered();
                if driver.dead_letter_confirmed() {
                    recorder.note("");
                }
            }
        }
        Ok(())
    }

    /// The sink could not publish an event that it keeps, or its dead letter.
    pub fn failed(
        &mut self,
        sequence: Sequence,
        failure: Failure,
        now: Moment,
    ) -> Result<FailureOutcome, Fault> {
        let Downstream { policy, driver, recorder, .. } = &mut self.down;
        let Some(sink) = &mut driver.sink else { return Ok(FailureOutcome::Handled) };
        let judge =
            |flight: &mut Flight| policy.failed(sequence, flight, failure, &mut **sink, now);
        let outcome = match self.feed.update(sequence, judge) {
            Ok(judged) => judged?,
            Err(_) if on(Mutant::LetterBeforeConfirm) => return Ok(FailureOutcome::Handled),
            Err(error) => return Err(faults::receipt(&error)),
        };
        if on(Mutant::LetterBeforeConfirm) && outcome == FailureOutcome::Handled {
            self.confirmed(sequence, now)?;
            return Ok(outcome);
        }
        match &outcome {
            FailureOutcome::Retrying { attempts, wait, reason } => {
                self.feed.retrying(sequence, *attempts, *wait, reason);
            }
            FailureOutcome::DeadLetterDelayed(reason) => {
                recorder.note(driver.dead_letter_delayed(reason));
            }
            _ => {}
        }
        Ok(outcome)
    }

    /// Finishes the open transaction, settles what is in flight and reports it. A transaction that
    /// would take longer is left as it is, in time to settle what is in flight of it. After a fault,
    /// what was admitted before it is still settled.
    fn begin_drain(&mut self, outcome: Result<(), Fault>) {
        // The machine may have been suspended since the last pass: how long shows only as long as the
        // clock of the system is not set.
        let outcome = outcome.and(self.withdraw());
        // The process may be killed before it has drained.
        self.feed.note_peer(&mut self.down);
        if let Err(fault) = &outcome {
            tracing::info!(reason = fault.code, "stopping: {}", fault.what);
            self.down.policy.gate.keep_stop_early(fault);
        }
        self.feed.close();
        let ending = Ending::new(outcome, self.drain_timeout, self.clock.instant());
        self.state = RunState::Draining(ending);
    }

    fn drain_step(&mut self) -> Option<Result<(), Fault>> {
        let Relay { feed, down, state, .. } = self;
        let RunState::Draining(ending) = state else { return None };
        let now = down.clock.instant();
        let has_sink = down.driver.sink.is_some();
        let reads = has_sink && feed.is_incomplete() && !on(Mutant::DrainInTransaction);
        let reading = reads && ending.reads(now);
        let has_settled = !has_sink || feed.in_flight() <= down.policy.unpublishable;
        // Events that wait behind a refused event of their key will never settle, nor do those that
        // may not be sent.
        let is_in_vain = feed.awaits_retries() || now >= feed.send_until();
        let patience = F::LAST_CONFIRM_WITHIN;
        let has_stalled = ending.has_stalled(&down.driver, now, patience, is_in_vain);
        if has_stalled || ending.is_late(now) || has_settled && !reading {
            let outcome = std::mem::replace(&mut ending.outcome, Ok(()));
            *state = RunState::Stopped;
            let outcome = self.end(outcome);
            self.publish_status();
            return Some(outcome);
        }
        let passed = self.drain_pass(reading);
        if let RunState::Draining(Ending { outcome: outcome @ Ok(()), .. }) = &mut self.state {
            if let Err(fault) = &passed {
                self.down.policy.gate.keep_stop_early(fault);
            }
            *outcome = passed;
        }
        None
    }

    /// Reports what is settled, and closes the source.
    fn end(&mut self, outcome: Result<(), Fault>) -> Result<(), Fault> {
        if outcome.is_ok() && self.feed.is_mid_transaction() {
            tracing::warn!(
                code = "stop.unfinished",
                "a transaction was not finished within three quarters of drain_timeout: the next start goes on within it as far as the state file, or the end of the topics, says what was published, and publishes the rest again"
            );
        }
        let is_cut_off = self.is_cut_off(self.clock.instant());
        let left = self.feed.finish(&mut self.down, outcome.as_ref().err());
        if outcome.is_ok() && left > 0 && is_cut_off {
            tracing::warn!(
                code = "stop.no-session",
                left,
                "the session ended while the relay stopped: what the broker has not confirmed is left to the next process"
            );
        } else if outcome.is_ok() && left > 0 {
            return Err(faults::drain_timed_out(left, self.drain_timeout));
        }
        outcome
    }

    fn drain_pass(&mut self, reading: bool) -> Result<(), Fault> {
        let now = self.clock.instant();
        self.withdraw()?;
        let more = if reading {
            self.feed.intake(&mut self.down, now, true)
        } else {
            self.feed.hold(now);
            Ok(false)
        };
        self.limit_sink();
        let tick = |more| if more { Duration::ZERO } else { DRAIN_TICK };
        let collected = more.and_then(|more| self.collect(tick(more)));
        self.retry_due(self.clock.instant());
        let read = collected.and_then(|()| self.read_tail_events());
        self.feed.report(&mut self.down, self.clock.instant());
        self.publish_status();
        read
    }

    /// Looks now and then for a destination that does not answer while others do.
    fn look_for_silence(&mut self) {
        let now = self.clock.instant();
        if now < self.silence_look_at {
            return;
        }
        self.silence_look_at = now + SILENCE_LOOK_EVERY;
        let (overtaken, waits_for) = self.feed.overtaken(now);
        let sink = self.down.driver.sink.as_ref();
        let mut destinations = overtaken.iter().filter_map(|event| sink?.destination(*event));
        let (name, events) = (destinations.next(), overtaken.len() as u64);
        let named =
            |name: String| SilentDestination { name: ShortText::new(&name), events, waits_for };
        self.silent = name.map(named);
    }

    pub fn publish_status(&mut self) {
        self.look_for_silence();
        let mut pass = self.feed.status(self.clock.instant());
        let is_connected = matches!(pass.phase, Phase::Streaming | Phase::Polling);
        self.meters.set(Gauge::Connected, u64::from(is_connected));
        let Downstream { policy, driver, meter, recorder, .. } = &mut self.down;
        meter.flush();
        policy.gate.update_breaker_gauge(self.clock.unix_us());
        let awaits_history = policy.gate.awaits_history();
        let unread = pass.hold == Some(IntakeHold::DeadLettersUnread);
        if unread && !self.history_wait_logged {
            tracing::info!("no event is taken in before the dead-letter topic has been read");
        }
        self.history_wait_logged = awaits_history && (self.history_wait_logged || unread);
        match self.state {
            RunState::Running => {}
            RunState::Draining(_) => pass.phase = Phase::Draining,
            RunState::Stopped => pass.phase = Phase::Stopped,
        }
        pass.silent = self.silent.filter(|_| pass.in_flight_events > 0);
        (pass.sink_reachable, pass.settled_events) = (driver.is_reachable(), driver.settled_events);
        pass.sink_login_refused = driver.is_login_refused();
        pass.dead_letter_unwritten = driver.has_dead_letter_outage();
        self.meters.set(Gauge::InFlightEvents, pass.in_flight_events);
        self.meters.set(Gauge::InFlightBytes, pass.in_flight_bytes);
        self.meters.set(Gauge::InFlightLimit, pass.in_flight_limit);
        recorder.pass(&pass, self.clock.instant());
    }
}

#[cfg(test)]
#[path = "surroundings_tests.rs"]
mod surroundings;

#[cfg(test)]
#[path = "loop_tests.rs"]
mod tests;
