//! Decides what follows when an event cannot be published: another attempt, a dead letter, or
//! stopping the relay. [`Retries`] counts attempts, and [`DeadLetterGate`] dead letters.
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
use crate::base::backoff::Backoff;
use crate::base::clock::Moment;
use crate::base::error::Fault;
use crate::base::event::{Outbound, Position, Sequence};
use crate::base::hash::HashMap;
use crate::base::lsn::Lsn;
use crate::dead_letter::tail_event::TailEvent;
use crate::dead_letter::writer::{CLASS_PARKED, DeadLetterCause};
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

/// What a failed publish means for the relay as a whole.
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

/// An event in the sink that will not be tried again.
#[derive(Debug)]
struct FailedEvent {
    sequence: Sequence,
    failure: Failure,
    position: Position,
}

/// Keeps what was decided about events that are not settled.
pub struct FailurePolicy {
    pub gate: DeadLetterGate,
    pub retries: Retries,
    /// Events whose dead letters are not confirmed yet.
    dead_lettered: HashMap<Sequence, DeadLetterCause>,
    /// Events that were refused together with others: each is published alone whenever it is received.
    /// Two relays of a slot would take turns to find them, if a relay forgot them when its peer has the
    /// slot.
    pub suspects: BTreeSet<Position>,
    /// Failed events that become dead letters once the dead-letter topic has been read.
    awaiting_history: Vec<FailedEvent>,
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
        let backoff = Backoff::seeded(delivery.backoff_base, delivery.backoff_cap, seed);
        FailurePolicy {
            gate,
            retries: Retries::new(delivery.attempts_max, delivery.retry_budget_percent, backoff),
            dead_lettered: HashMap::default(),
            suspects: BTreeSet::new(),
            awaiting_history: Vec::new(),
            unpublishable: 0,
            spans,
            meters: Arc::clone(meters),
        }
    }

    #[inline]
    pub fn route(
        &self,
        sequence: Sequence,
        event: &Outbound<'_>,
        position: Position,
        clock: &dyn Clock,
    ) -> SendAs {
        let none_written = self.dead_lettered.is_empty() && self.suspects.is_empty();
        if none_written && self.gate.is_open_to(event) {
            return SendAs::Normal;
        }
        self.route_of(sequence, event, position, clock)
    }

    #[cold]
    fn route_of(
        &self,
        sequence: Sequence,
        event: &Outbound<'_>,
        position: Position,
        clock: &dyn Clock,
    ) -> SendAs {
        if let Some(cause) = self.dead_lettered.get(&sequence) {
            SendAs::DeadLetter(cause.clone())
        } else if let Some((class, text)) = self.gate.diverts(event, position) {
            let reason = Reason { class, text, attempts: 0 };
            SendAs::DeadLetter(self.cause(sequence, event.key, reason, position, clock.now()))
        } else if self.suspects.contains(&position) {
            SendAs::Isolated
        } else {
            SendAs::Normal
        }
    }

    /// The cause of a dead letter. An event that is a dead letter already keeps its first cause.
    pub fn cause(
        &self,
        sequence: Sequence,
        key: Option<&[u8]>,
        reason: Reason<'_>,
        position: Position,
        now: Moment,
    ) -> DeadLetterCause {
        if let Some(cause) = self.dead_lettered.get(&sequence) {
            return cause.clone();
        }
        let before = self.retries.so_far(sequence, now.unix_us);
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
    pub fn allow(&mut self, sequence: Sequence, cause: &DeadLetterCause) -> Result<bool, Fault> {
        let counts = !self.dead_lettered.contains_key(&sequence);
        self.gate.allow(cause, counts)
    }

    /// The sink has taken the dead letter. Returns whether its key is parked now.
    pub fn dead_lettered(
        &mut self,
        sequence: Sequence,
        key: Option<&[u8]>,
        subject: &str,
        cause: DeadLetterCause,
    ) -> bool {
        if self.dead_lettered.contains_key(&sequence) {
            return false;
        }
        self.retries.given_up(sequence);
        let trace_id = self.spans.trace_id(sequence);
        let parks = self.gate.written(key, subject, &cause, trace_id.as_deref());
        self.dead_lettered.insert(sequence, cause);
        parks
    }

    /// The broker has the event or its dead letter. Returns the cause of a dead letter.
    #[inline]
    pub fn settled(&mut self, sequence: Sequence, now: Moment) -> Option<DeadLetterCause> {
        let failed = self.retries.settled(sequence);
        let nothing_failed = self.dead_lettered.is_empty();
        let cause = if nothing_failed { None } else { self.dead_lettered.remove(&sequence) };
        if cause.is_some() {
            self.meters.count(Counter::DeadLettered, 1);
        }
        if self.spans.is_on() {
            let attempts = |cause: &DeadLetterCause| cause.attempts.saturating_sub(1);
            let class = cause.as_ref().map(|cause| cause.class.as_str());
            let retries = cause.as_ref().map_or(failed, attempts);
            self.spans.end(sequence, retries, class, now.unix_us);
        }
        cause
    }

    pub fn on_tail_event(
        &mut self,
        event: TailEvent,
        sink: Option<&mut Box<dyn Sink>>,
        now: Moment,
    ) -> Result<(), Fault> {
        self.gate.on_tail_event(event, now.unix_us)?;
        let Some(sink) = sink.filter(|_| !self.gate.awaits_history()) else { return Ok(()) };
        let mut outcome = Ok(());
        for waiting in std::mem::take(&mut self.awaiting_history) {
            outcome = outcome.and(self.give_up(waiting, &mut **sink, now).map(drop));
        }
        outcome
    }

    /// Numbers from `next` on are reused for different events: drops what is known about them.
    pub fn forget(&mut self, next: Sequence) {
        self.retries.forget(next);
        self.dead_lettered.retain(|sequence, _| *sequence < next);
        self.spans.forget(next);
    }

    /// Everything committed before this position is confirmed.
    pub fn forget_suspects(&mut self, confirmed: Lsn) {
        if !self.suspects.is_empty() {
            self.suspects.retain(|suspect| suspect.commit_lsn >= confirmed);
        }
    }

    /// Every unsettled event will be handed to a new sink. What was decided about it stays decided,
    /// unless the numbers mean other events now.
    pub fn rewind(&mut self, renumbered: bool) {
        self.retries.rewind(renumbered);
        self.awaiting_history.clear();
        if renumbered {
            self.dead_lettered.clear();
            self.spans.forget(0);
        }
    }

    /// The sink could not publish an event or its dead letter, and still holds the one that failed.
    pub fn failed(
        &mut self,
        sequence: Sequence,
        failure: Failure,
        position: Position,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<FailureOutcome, Fault> {
        self.note_unknown(&failure);
        if self.dead_lettered.contains_key(&sequence) {
            return self.dead_letter_failed(sequence, failure, sink, now);
        }
        if on(Mutant::RefusalIsOutage) {
            return Ok(FailureOutcome::SinkOutage(failure.reason));
        }
        match failure.disposition {
            Disposition::Outage => return Ok(FailureOutcome::SinkOutage(failure.reason)),
            Disposition::Halt => return Err(self.count_unpublishable(faults::unable(&failure))),
            Disposition::Delayed => {
                let attempts = self.retries.delayed(sequence, now.unix_us);
                return Ok(self.retry_later(sequence, failure, attempts.count, now));
            }
            Disposition::Transient | Disposition::Terminal => {}
        }
        // No attempt was made for an event that waited behind a dead letter of its key.
        if failure.class != CLASS_PARKED {
            let attempts = self.retries.failed(sequence, now.unix_us);
            if failure.disposition == Disposition::Transient {
                if !self.retries.is_exhausted(attempts) {
                    return Ok(self.retry_later(sequence, failure, attempts.count, now));
                }
                self.meters.count(Counter::RetryExhausted, 1);
                if on(Mutant::ExhaustedForgotten) {
                    return Ok(FailureOutcome::Handled);
                }
            }
        }
        self.give_up(FailedEvent { sequence, failure, position }, sink, now)
    }

    /// The event's key waits for the next attempt; events of other keys are not held up.
    fn retry_later(
        &mut self,
        sequence: Sequence,
        failure: Failure,
        attempts: u32,
        now: Moment,
    ) -> FailureOutcome {
        let wait = self.retries.wait(sequence, now.instant);
        let Failure { class, subject, reason, mend, .. } = &failure;
        tracing::warn!(
            code = "event.retried",
            class,
            subject,
            trace_id = self.spans.trace_id(sequence),
            attempts,
            retry_in_ms = wait.as_millis() as u64,
            "the broker refused an event, which will be retried: {reason}; to mend it: {mend}"
        );
        FailureOutcome::Retrying { attempts, wait, reason: failure.reason }
    }

    fn give_up(
        &mut self,
        event: FailedEvent,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<FailureOutcome, Fault> {
        let FailedEvent { sequence, failure, position } = &event;
        if self.gate.halts() {
            let attempts = self.retries.so_far(*sequence, now.unix_us);
            let fault = faults::refused(failure, position.commit_lsn, attempts.count);
            return Err(self.count_unpublishable(fault));
        }
        let reason = Reason { class: &failure.class, text: &failure.reason, attempts: 0 };
        let key = failure.key.as_deref();
        let cause = self.cause(*sequence, key, reason, *position, now);
        match self.allow(*sequence, &cause) {
            Ok(true) => {}
            Ok(false) => {
                self.awaiting_history.push(event);
                return Ok(FailureOutcome::Handled);
            }
            Err(fault) => return Err(self.count_unpublishable(fault)),
        }
        sink.replace_with_dead_letter(*sequence, self.gate.writer(), &cause);
        let parks = self.dead_lettered(*sequence, key, &failure.subject, cause);
        Ok(if parks { FailureOutcome::KeyParked } else { FailureOutcome::Handled })
    }

    fn dead_letter_failed(
        &mut self,
        sequence: Sequence,
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
                self.retries.failed(sequence, now.unix_us);
                self.retries.wait(sequence, now.instant);
                Ok(FailureOutcome::DeadLetterDelayed(failure.reason))
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
