//! One event in flight: what a sink has of it, and what its attempts have come to.

use super::known::{Fingerprint, Mark};
use crate::base::event::Position;
use crate::dead_letter::writer::{CLASS_PARKED, DeadLetterCause};
use crate::sink::Failure;
use crate::trace::span::PublishSpan;

/// An event from its first hand-over to a sink until its confirm. It fills one line of the processor's
/// cache: there are more of them than the cache holds, and a confirm finds one anywhere among them.
#[derive(Debug)]
pub struct Flight {
    pub position: Position,
    pub commit_unix_us: i64,
    /// None for an event that must not be marked.
    pub fingerprint: Fingerprint,
    /// Bytes that the sink holds of it.
    pub bytes: u32,
    pub state: FlightState,
    pub extras: Option<Box<Extras>>,
}

const _: () = assert!(size_of::<Flight>() <= 64);

/// The facts that few events have.
#[derive(Debug, Default)]
pub struct Extras {
    /// The failed attempts of the event, or of its dead letter.
    attempts: Option<Attempts>,
    /// The span of a sampled event.
    span: Option<Box<PublishSpan>>,
}

impl Extras {
    #[must_use]
    pub fn of(attempts: Option<Attempts>, span: Option<Box<PublishSpan>>) -> Option<Box<Extras>> {
        let has_any = attempts.is_some() || span.is_some();
        has_any.then(|| Box::new(Extras { attempts, span }))
    }
}

#[derive(Debug, Default)]
pub enum FlightState {
    /// A sink has it, or had it when the sink broke. If attempts have failed, another one follows.
    #[default]
    Sent,
    /// It is not tried again, and becomes a dead letter once the dead-letter topic has been read.
    GivenUp(Box<Failure>),
    /// Its dead letter is published in its place. It stays a dead letter in every further sink.
    DeadLetter(Box<DeadLetterCause>),
    /// The broker has the event or its dead letter.
    Settled,
}

/// The failed attempts of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    pub count: u32,
    /// The attempts that are not counted, because the event was not to blame.
    pub uncounted: u32,
    /// Microseconds since the Unix epoch.
    pub first_failed_unix_us: i64,
}

impl Attempts {
    /// No attempt has failed before `now_unix_us`.
    #[must_use]
    pub fn none(now_unix_us: i64) -> Attempts {
        Attempts { count: 0, uncounted: 0, first_failed_unix_us: now_unix_us }
    }

    /// An attempt has failed.
    #[must_use]
    pub fn failed(self) -> Attempts {
        Attempts { count: self.count.saturating_add(1), ..self }
    }

    /// An attempt has failed, and the event is not to blame: it is not counted, but the waits grow.
    #[must_use]
    pub fn delayed(self) -> Attempts {
        Attempts { uncounted: self.uncounted.saturating_add(1), ..self }
    }

    #[must_use]
    pub fn all(self) -> u32 {
        self.count.saturating_add(self.uncounted)
    }
}

impl Flight {
    /// An event that was settled before it came.
    pub(super) fn settled(position: Position) -> Flight {
        Flight {
            position,
            bytes: 0,
            commit_unix_us: 0,
            fingerprint: Fingerprint::NONE,
            state: FlightState::Settled,
            extras: None,
        }
    }

    /// The failed attempts of the event, or of its dead letter.
    #[must_use]
    pub fn attempts(&self) -> Option<Attempts> {
        self.extras.as_ref().and_then(|extras| extras.attempts)
    }

    pub fn set_attempts(&mut self, attempts: Option<Attempts>) {
        if attempts.is_some() || self.extras.is_some() {
            self.extras.get_or_insert_default().attempts = attempts;
        }
    }

    /// The span of a sampled event.
    #[must_use]
    pub fn span(&self) -> Option<&PublishSpan> {
        self.extras.as_ref().and_then(|extras| extras.span.as_deref())
    }

    pub fn take_span(&mut self) -> Option<Box<PublishSpan>> {
        self.extras.as_mut().and_then(|extras| extras.span.take())
    }

    /// Takes over what an earlier sink has left of the same event. A dead letter is handed over as one again;
    /// an event that has become one only now counts its attempts anew.
    pub fn resume(&mut self, earlier: &mut Flight) {
        let span = self.take_span().or(earlier.take_span());
        let keeps = matches!(self.state, FlightState::Sent) || earlier.dead_letter().is_some();
        let attempts = if keeps { earlier.attempts() } else { self.attempts() };
        self.extras = Extras::of(attempts, span);
    }

    /// Why it is a dead letter, if it is.
    #[must_use]
    pub fn dead_letter(&self) -> Option<&DeadLetterCause> {
        match &self.state {
            FlightState::DeadLetter(cause) => Some(cause),
            _ => None,
        }
    }

    /// The position from which its dead letter parks its key, if it does.
    #[must_use]
    pub fn parks_from(&self) -> Option<Position> {
        self.dead_letter().filter(|cause| cause.parks_key).map(|_| self.position)
    }

    /// Makes a dead letter of an event whose key was parked an event again. True if it was one.
    pub(super) fn take_parked(&mut self) -> bool {
        let is_parked = self.dead_letter().is_some_and(|cause| cause.class == CLASS_PARKED);
        if is_parked {
            self.state = FlightState::Sent;
        }
        is_parked
    }

    /// Why the event was given up, if its dead letter is still to be written.
    pub fn take_given_up(&mut self) -> Option<Failure> {
        if !matches!(self.state, FlightState::GivenUp(_)) {
            return None;
        }
        match std::mem::take(&mut self.state) {
            FlightState::GivenUp(failure) => Some(*failure),
            _ => None,
        }
    }

    /// For the state file; none for an event that must not be marked.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        let Flight { position, fingerprint, .. } = *self;
        let is_dead_letter = self.dead_letter().is_some();
        (fingerprint != Fingerprint::NONE).then_some(Mark { position, fingerprint, is_dead_letter })
    }

    /// For log lines about the event, if it is sampled.
    #[must_use]
    pub fn trace_id(&self) -> Option<String> {
        self.span().map(PublishSpan::trace_id)
    }
}

impl FlightState {
    pub fn is_settled(&self) -> bool {
        matches!(self, FlightState::Settled)
    }
}
