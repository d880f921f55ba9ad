//! Decides what follows when an event cannot be published: another attempt, a dead letter, or
//! stopping the relay. What was decided is kept with the event ([`crate::delivery::flight`]).
//!
//! * An event that became a dead letter stays one. After the sink is rebuilt its dead letter is
//!   published again, but neither the breaker nor the parking of its key counts it twice.
//! * A dead letter that cannot be written for now is retried for ever, and the slot is held. One that
//!   the broker will never accept stops the relay.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::dead_letter_gate::DeadLetterGate;
use super::faults;
use super::ports::{Clock, Counter, Meters};
use crate::base::clock::Moment;
use crate::base::error::Fault;
use crate::base::event::{self, Outbound, Position, Sequence};
use crate::base::lsn::Lsn;
use crate::dead_letter::writer::{CLASS_PARKED, DeadLetterCause};
use crate::delivery::flight::{Attempts, Flight, FlightState};
use crate::delivery::retry::Retries;
use crate::delivery::settings::DeliverySettings;
use crate::mutants::{Mutant, on};
use crate::sink::{Disposition, Failure, Sink};
use crate::trace::event_spans::EventSpans;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendAs {
    Normal,
    /// In a request of its own.
    Isolated,
    DeadLetter(DeadLetterCause),
}

/// The consequence of a failed publish for the relay as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureOutcome {
    /// The failure concerned only its event; the relay goes on.
    Handled,
    /// The event will be tried again after `wait`, or later.
    Retrying { attempts: u32, wait: Duration, reason: String },
    /// The event became a dead letter. The sink will report
    /// the events of its key that wait behind it as failed.
    KeyParked,
    /// A dead letter cannot be written for now.
    DeadLetterDelayed(String),
    /// The sink must be rebuilt.
    SinkOutage(String),
}

/// Why an event is given up.
#[derive(Clone, Copy, Debug)]
pub struct Reason<'a> {
    pub class: &'a str,
    pub text: &'a str,
    /// Attempts to add to those counted so far.
    pub attempts: u32,
}

pub struct FailurePolicy {
    pub gate: DeadLetterGate,
    pub retries: Retries,
    /// Events that were refused together with others: each is published alone whenever it is received.
    /// Two relays of a slot would take turns to find them, if a relay forgot them when its peer has the
    /// slot.
    pub suspects: BTreeSet<Position>,
    /// Events that will never be confirmed, because of which the relay is about to stop.
    pub unpublishable: usize,
    pub spans: EventSpans,
    meters: Arc<dyn Meters>,
}

impl FailurePolicy {
    pub fn new(
        delivery: &DeliverySettings,
        gate: DeadLetterGate,
        spans: EventSpans,
        meters: &Arc<dyn Meters>,
        seed: u64,
    ) -> FailurePolicy {
        let backoff = delivery.backoff(seed);
        FailurePolicy {
            gate,
            retries: Retries::new(delivery.attempts_max, delivery.retry_budget_percent, backoff),
            suspects: BTreeSet::new(),
            unpublishable: 0,
            spans,
            meters: Arc::clone(meters),
        }
    }

    /// How the event is handed to the sink. `earlier` is what an earlier sink has left of it.
    #[inline]
    pub fn route(
        &self,
        earlier: Option<&Flight>,
        event: &Outbound<'_>,
        position: Position,
        clock: &dyn Clock,
    ) -> SendAs {
        let none_written =
            earlier.and_then(Flight::dead_letter).is_none() && self.suspects.is_empty();
        if none_written && self.gate.is_open_to(event) {
            return SendAs::Normal;
        }
        self.route_of(earlier, event, position, clock)
    }

    #[cold]
    fn route_of(
        &self,
        earlier: Option<&Flight>,
        event: &Outbound<'_>,
        position: Position,
        clock: &dyn Clock,
    ) -> SendAs {
        if let Some(cause) = earlier.and_then(Flight::dead_letter) {
            SendAs::DeadLetter(cause.clone())
        } else if let Some((class, text)) = self.gate.divert(event, position) {
            let reason = Reason { class, text, attempts: 0 };
            SendAs::DeadLetter(self.cause(earlier, event.key, reason, position, clock.now()))
        } else if self.suspects.contains(&position) {
            SendAs::Isolated
        } else {
            SendAs::Normal
        }
    }

    /// The cause of a dead letter. An event that is a dead letter already keeps its first cause.
    pub fn cause(
        &self,
        earlier: Option<&Flight>,
        key: Option<&[u8]>,
        reason: Reason<'_>,
        position: Position,
        now: Moment,
    ) -> DeadLetterCause {
        if let Some(cause) = earlier.and_then(Flight::dead_letter) {
            return cause.clone();
        }
        let before = earlier.and_then(Flight::attempts);
        let before = before.unwrap_or(Attempts::none(now.unix_us));
        DeadLetterCause {
            class: reason.class.to_owned(),
            reason: reason.text.to_owned(),
            attempts: before.count + reason.attempts,
            first_failed_unix_us: before.first_failed_unix_us,
            failed_unix_us: now.unix_us,
            position,
            incomplete: false,
            parks_key: key.is_some() && self.gate.parks(reason.class),
        }
    }

    /// Whether this dead letter may be written now: only once the dead-letter topic was read, or
    /// found unreadable. Returns a fault if there are too many. Events that follow a dead letter of
    /// their key do not count.
    pub fn allow(
        &mut self,
        earlier: Option<&Flight>,
        cause: &DeadLetterCause,
    ) -> Result<bool, Fault> {
        self.gate.allow(cause, earlier.and_then(Flight::dead_letter).is_none())
    }

    /// The sink has taken the dead letter in the place of its event.
    pub fn dead_lettered(
        &mut self,
        earlier: Option<&Flight>,
        event: &Outbound<'_>,
        cause: DeadLetterCause,
        trace_id: Option<&str>,
    ) -> FlightState {
        if earlier.and_then(Flight::dead_letter).is_none() {
            let subject = event::subject(event.id, event.topic);
            self.gate.note_dead_letter(event.key, &subject, &cause, trace_id);
        }
        FlightState::DeadLetter(Box::new(cause))
    }

    /// The broker has the event or its dead letter. Returns the cause of a dead letter.
    #[inline]
    pub fn settled(&mut self, mut flight: Flight, now: Moment) -> Option<DeadLetterCause> {
        let (attempts, span) = (flight.attempts(), flight.take_span());
        if attempts.is_some() {
            self.retries.refund();
        }
        let cause = match flight.state {
            FlightState::DeadLetter(cause) => Some(*cause),
            _ => None,
        };
        if cause.is_some() {
            self.meters.count(Counter::DeadLettered, 1);
        }
        if let Some(span) = span {
            let class = cause.as_ref().map(|cause| cause.class.as_str());
            let retries = match &cause {
                Some(cause) => cause.attempts.saturating_sub(1),
                None => attempts.map_or(0, |attempts| attempts.count),
            };
            self.spans.end(*span, retries, class, now.unix_us);
        }
        cause
    }

    /// Everything committed before this position is confirmed.
    pub fn forget_suspects(&mut self, confirmed: Lsn) {
        if !self.suspects.is_empty() {
            self.suspects.retain(|suspect| suspect.commit_lsn >= confirmed);
        }
    }

    /// The sink could not publish an event or its dead letter, and still holds the one that failed.
    pub fn failed(
        &mut self,
        sequence: Sequence,
        flight: &mut Flight,
        failure: Failure,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<FailureOutcome, Fault> {
        self.note_unknown(&failure);
        if flight.dead_letter().is_some() {
            return self.dead_letter_failed(sequence, flight, failure, sink, now);
        }
        let attempts = flight.attempts().unwrap_or(Attempts::none(now.unix_us));
        if on(Mutant::RefusalIsOutage) {
            return Ok(FailureOutcome::SinkOutage(failure.reason));
        }
        match failure.disposition {
            Disposition::Outage => return Ok(FailureOutcome::SinkOutage(failure.reason)),
            Disposition::Halt => return Err(self.count_unpublishable(faults::unable(&failure))),
            Disposition::Delayed => {
                return Ok(self.retry_later(sequence, flight, failure, attempts.delayed(), now));
            }
            Disposition::Transient | Disposition::Terminal => {}
        }
        // No attempt was made for an event that waited behind a dead letter of its key.
        if failure.class != CLASS_PARKED {
            let attempts = attempts.failed();
            if failure.disposition == Disposition::Transient {
                if !self.retries.is_exhausted(attempts) {
                    return Ok(self.retry_later(sequence, flight, failure, attempts, now));
                }
                self.meters.count(Counter::RetryExhausted, 1);
                if on(Mutant::ExhaustedForgotten) {
                    return Ok(FailureOutcome::Handled);
                }
            }
            flight.set_attempts(Some(attempts));
        }
        self.give_up(sequence, flight, failure, sink, now)
    }

    /// The event's key waits for the next attempt; events of other keys are not held up.
    fn retry_later(
        &mut self,
        sequence: Sequence,
        flight: &mut Flight,
        failure: Failure,
        attempts: Attempts,
        now: Moment,
    ) -> FailureOutcome {
        flight.set_attempts(Some(attempts));
        let wait = self.retries.wait(sequence, attempts, now.instant);
        let Failure { class, subject, reason, mend, .. } = &failure;
        tracing::warn!(
            code = "event.retried",
            class,
            subject,
            trace_id = flight.trace_id(),
            attempts = attempts.count,
            retry_in_ms = wait.as_millis() as u64,
            "the broker refused an event, which will be retried: {reason}; help: {mend}"
        );
        FailureOutcome::Retrying { attempts: attempts.count, wait, reason: failure.reason }
    }

    /// The event becomes a dead letter, or will once the dead-letter topic was read.
    fn give_up(
        &mut self,
        sequence: Sequence,
        flight: &mut Flight,
        failure: Failure,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<FailureOutcome, Fault> {
        let position = flight.position;
        if self.gate.halts() {
            let attempts = flight.attempts().map_or(0, |attempts| attempts.count);
            let fault = faults::refused(&failure, position.commit_lsn, attempts);
            return Err(self.count_unpublishable(fault));
        }
        let reason = Reason { class: &failure.class, text: &failure.reason, attempts: 0 };
        let key = failure.key.as_deref();
        let cause = self.cause(Some(flight), key, reason, position, now);
        match self.gate.allow(&cause, true) {
            Ok(true) => {}
            Ok(false) => {
                flight.state = FlightState::GivenUp(Box::new(failure));
                return Ok(FailureOutcome::Handled);
            }
            Err(fault) => return Err(self.count_unpublishable(fault)),
        }
        sink.replace_with_dead_letter(sequence, self.gate.writer(), &cause);
        let trace_id = flight.trace_id();
        let parks = self.gate.note_dead_letter(key, &failure.subject, &cause, trace_id.as_deref());
        flight.state = FlightState::DeadLetter(Box::new(cause));
        flight.set_attempts(None);
        Ok(if parks { FailureOutcome::KeyParked } else { FailureOutcome::Handled })
    }

    /// The dead-letter topic was read: an event that was given up becomes a dead letter.
    pub fn write_awaited(
        &mut self,
        sequence: Sequence,
        flight: &mut Flight,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<FailureOutcome, Fault> {
        match flight.take_given_up() {
            Some(failure) => self.give_up(sequence, flight, failure, sink, now),
            None => Ok(FailureOutcome::Handled),
        }
    }

    fn dead_letter_failed(
        &mut self,
        sequence: Sequence,
        flight: &mut Flight,
        failure: Failure,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<FailureOutcome, Fault> {
        if failure.class == CLASS_PARKED {
            // It waited behind an event of its key that has become a dead letter in the meantime.
            sink.retry(sequence);
            return Ok(FailureOutcome::Handled);
        }
        self.meters.count(Counter::DeadLetterRefused, 1);
        match failure.disposition {
            // The sink keeps the dead letter; other events in the sink are not affected.
            Disposition::Outage | Disposition::Delayed | Disposition::Transient => {
                let attempts = flight.attempts().unwrap_or(Attempts::none(now.unix_us)).failed();
                flight.set_attempts(Some(attempts));
                self.retries.wait(sequence, attempts, now.instant);
                let Failure { reason, mend, .. } = failure;
                let topic = &self.gate.writer().settings.address.topic;
                Ok(FailureOutcome::DeadLetterDelayed(format!(
                    "{reason} (dead-letter topic {topic}); help: {mend}; if something is missing: walrelay init"
                )))
            }
            Disposition::Terminal | Disposition::Halt => {
                Err(self.count_unpublishable(faults::dead_letter_refused(&failure)))
            }
        }
    }

    /// Counts an event that will never be confirmed, because of which the relay stops with `fault`.
    fn count_unpublishable(&mut self, fault: Fault) -> Fault {
        self.unpublishable = self.unpublishable.saturating_add(1);
        fault
    }

    pub fn unable(&mut self, failure: &Failure) -> Fault {
        self.unpublishable = usize::MAX;
        faults::unable(failure)
    }

    pub fn dead_letter_refused(&mut self, failure: &Failure) -> Fault {
        self.note_unknown(failure);
        self.meters.count(Counter::DeadLetterRefused, 1);
        faults::dead_letter_refused(failure)
    }

    /// Counts and logs headers of a row that are not published.
    #[cold]
    pub fn note_reserved_headers(&self, headers: u32, commit_lsn: Lsn) {
        self.meters.count(Counter::HeaderDropped, u64::from(headers));
        tracing::warn!(
            code = "event.header-dropped",
            headers,
            lsn = %commit_lsn,
            "headers of a row are not published: names that begin with dlq- or x-retry- are those of replays and of consumers"
        );
    }

    /// Counts and logs an answer that has no entry in the sink's table of errors.
    pub fn note_unknown(&self, failure: &Failure) {
        if !failure.known {
            self.meters.count(Counter::UnknownAnswer, 1);
            let Failure { class, subject, reason, .. } = failure;
            tracing::warn!(
                code = "sink.unknown-answer",
                class,
                subject,
                "the broker gave an error that this version does not know: {reason}"
            );
        }
    }
}

#[cfg(test)]
#[path = "failure_policy_tests.rs"]
pub(super) mod tests;
