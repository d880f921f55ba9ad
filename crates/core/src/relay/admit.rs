//! Extracts an event from its row or message, shapes its payload, and hands it to the sink, as it
//! is or as a dead letter.
//!
//! A row that cannot be made into an event goes to the dead-letter topic, with the fields that can
//! be read of it. So does one that has killed the process before. Nothing is remembered here: the
//! feed admits an event after the sink has taken it.

use super::earlier::EarlierEvents;
use super::failure_policy::{FailurePolicy, Reason, SendAs};
use super::faults;
use super::ports::{Clock, PassMeter};
use super::read_back::ReadBack;
use super::state_file::StateFile;
use super::state_file::marks::{MarkRing, SlotSession};
use crate::base::encoding::path_encoded;
use crate::base::error::Fault;
use crate::base::event::{HeaderSlots, Outbound, Position, Sequence, give_back};
use crate::base::lsn::Lsn;
use crate::dead_letter::writer::{CLASS_CRASH, DeadLetterCause};
use crate::delivery::flight::{Extras, Flight, FlightState};
use crate::delivery::known::{Fingerprint, KnownEvents};
use crate::delivery::prefix::ConfirmedPrefix;
use crate::delivery::stored::Stored;
use crate::format::{self, CloudEvents};
use crate::health::IntakeHold;
use crate::metrics::KnownFrom;
use crate::outbox::settings::{Preset, Route};
use crate::outbox::{CommitStamp, EventError, ExtractScratch, MessagePlan, Plan, RowError};
use crate::pgoutput::cursor::DecodeError;
use crate::pgoutput::message::Tuple;
use crate::sink::{Disposition, Failure, PublishError, Sink};
use crate::source::settings::SourceSettings;
use crate::trace::span::PublishSpan;

/// A row or message that may become an event.
pub enum Candidate<'a> {
    Row(&'a Plan, Tuple<'a>),
    /// A logical message: its LSN and its content.
    Message(&'a MessagePlan, Lsn, &'a [u8]),
}

/// The number under which the sink will report on an event, and its position in the stream.
#[derive(Clone, Copy, Debug)]
pub struct EventNumber<'a> {
    pub sequence: Sequence,
    pub position: Position,
    /// Its number within the transaction that the crash guard was given.
    pub crash_ordinal: u64,
    /// The flight of the event that an earlier sink has left.
    pub earlier: Option<&'a Flight>,
}

#[derive(Debug)]
pub enum Offered {
    /// The sink has taken it.
    Taken(Flight),
    /// An earlier process has published it, and it must not be published again.
    Known(KnownFrom, Fingerprint),
    /// It cannot be taken for now; offer it again.
    Held(IntakeHold),
    /// The sink has failed as a whole.
    SinkBroken,
}

pub struct Admission<'a> {
    pub admitter: &'a mut Admitter,
    pub policy: &'a mut FailurePolicy,
    pub sink: &'a mut dyn Sink,
    pub meter: &'a mut dyn PassMeter,
    pub clock: &'a dyn Clock,
}

/// Turns candidates into events. Its buffers are kept from event to event.
pub struct Admitter {
    pub transaction: CommitStamp,
    pub state_file: StateFile,
    pub earlier: EarlierEvents,
    scratch: ExtractScratch,
    /// The payload format of each outbox table, and of messages.
    tables: Vec<EventFormat>,
    messages: EventFormat,
    /// Slot or table, for faults.
    origin: String,
}

impl Admitter {
    pub fn new(
        state_file: StateFile,
        read_back: ReadBack,
        source: &SourceSettings,
        origin: String,
    ) -> Admitter {
        let tables = source
            .outboxes
            .iter()
            .map(|outbox| EventFormat::new(&outbox.route, &outbox.to_string()));
        let messages = source.messages.as_ref().map(|it| EventFormat::new(&it.route, &it.prefix));
        Admitter {
            transaction: CommitStamp::default(),
            state_file,
            earlier: EarlierEvents { marked: KnownEvents::default(), topics: read_back },
            scratch: ExtractScratch::default(),
            tables: tables.collect(),
            messages: messages.unwrap_or_default(),
            origin,
        }
    }

    /// There is a new session. An earlier process has marked what it knew to be confirmed beyond the
    /// position of the slot. Returns what it claims of a transaction.
    pub fn take_over(
        &mut self,
        system: (&str, u32),
        slot: &str,
        restores: u64,
        session: SlotSession,
    ) -> Option<ConfirmedPrefix> {
        let left = self.state_file.take_over(system, slot, restores, Some(session));
        self.earlier.load(&left, session.confirmed)
    }

    /// Forgets the marks: an event that is received from here on repeats none that an earlier
    /// process has marked, and what this one has marked does not apply any more.
    pub fn forget(&mut self) {
        self.earlier.forget();
        self.state_file.marks.forget();
    }

    /// Forgets the marks if another relay was seen in the last day: the slot would not show whether that one
    /// has had it since they were made.
    pub fn forget_marks_beside_peer(&mut self, unix_us: i64) {
        if self.state_file.marks.remembers_peer(unix_us) {
            self.earlier.marked.forget();
            self.state_file.marks.forget();
        }
    }

    /// The events that follow are of this transaction.
    #[inline]
    pub fn begin(&mut self, commit_lsn: Lsn) {
        self.state_file.crash.begin(commit_lsn);
        self.earlier.begin(commit_lsn);
    }

    #[inline]
    pub fn offer(
        &mut self,
        candidate: &Candidate<'_>,
        number: EventNumber<'_>,
        policy: &mut FailurePolicy,
        sink: &mut dyn Sink,
        clock: &dyn Clock,
    ) -> Result<Offered, Fault> {
        let handover = Handover {
            number,
            is_marked: self.state_file.marks.is_on(),
            fingerprint: Fingerprint::NONE,
            span: None,
            adds_context: false,
            policy: &mut *policy,
            sink,
            clock,
        };
        let offered = match self.state_file.crash.take_in_hand(number.crash_ordinal) {
            None => self.publish(candidate, handover),
            Some(deaths) => {
                let text = format!("the process has died on it {deaths} times");
                let attempts = u32::try_from(deaths).unwrap_or(u32::MAX);
                let reason = Reason { class: CLASS_CRASH, text: &text, attempts };
                self.give_up(candidate, reason, handover)
            }
        };
        self.state_file.crash.release();
        let reserved = self.scratch.take_reserved_headers();
        if reserved > 0 && matches!(offered, Ok(Offered::Taken(_))) {
            policy.note_reserved_headers(reserved, number.position.commit_lsn);
        }
        self.scratch.give_back();
        offered
    }

    /// Takes note of an event that this process has admitted before, while it is known from topics
    /// which events were published: its record must not stand for another one. False if that topic
    /// must be read first.
    #[inline]
    pub fn recalls(
        &mut self,
        candidate: &Candidate<'_>,
        position: Position,
    ) -> Result<bool, Fault> {
        if !self.earlier.topics.covers(position.commit_lsn) {
            return Ok(true);
        }
        let Admitter { transaction, scratch, tables, messages, earlier, .. } = self;
        let mut headers = HeaderSlots::new();
        let (extracted, format) =
            extract(candidate, transaction, scratch, &mut headers, tables, messages);
        let recalled = extracted.map(|event| {
            let (topics, commit_lsn) = (&mut earlier.topics, position.commit_lsn);
            let found = format.shape(event, |event| topics.find(event, commit_lsn).is_some());
            // What cannot be an event has become a dead letter.
            found.unwrap_or(true)
        });
        self.scratch.give_back();
        match recalled {
            Ok(is_noted) => Ok(is_noted),
            Err(RowError::Event(_)) => Ok(true),
            Err(RowError::Decode(error)) => Err(self.unreadable(&error)),
        }
    }

    #[inline]
    fn publish(
        &mut self,
        candidate: &Candidate<'_>,
        mut handover: Handover<'_>,
    ) -> Result<Offered, Fault> {
        let Admitter { transaction, state_file, scratch, tables, messages, earlier, .. } = self;
        let marks = &mut state_file.marks;
        let mut headers = HeaderSlots::new();
        let (extracted, format) =
            extract(candidate, transaction, scratch, &mut headers, tables, messages);
        let error = match extracted {
            Ok(event) => {
                handover.adds_context = format.adds_context;
                match format.shape(event, |event| match handover.identify(event, earlier, marks) {
                    Some(offered) => Ok(offered),
                    None => handover.publish(event),
                }) {
                    Ok(offered) => return offered,
                    Err(error) => error,
                }
            }
            Err(RowError::Event(error)) => error,
            Err(RowError::Decode(error)) => return Err(self.unreadable(&error)),
        };
        let (class, text) = (error.class(), error.to_string());
        self.give_up(candidate, Reason { class, text: &text, attempts: 0 }, handover)
    }

    /// Writes the dead letter of a candidate that must not, or cannot, be published.
    #[cold]
    fn give_up(
        &mut self,
        candidate: &Candidate<'_>,
        reason: Reason<'_>,
        mut handover: Handover<'_>,
    ) -> Result<Offered, Fault> {
        if handover.policy.gate.halts() {
            let Reason { class, text, .. } = reason;
            // Somebody may have mended what kills the process.
            if class == CLASS_CRASH {
                self.state_file.crash.forget_one_death();
            }
            let at = handover.number.position.commit_lsn;
            return Err(faults::unpublishable(class, text, at));
        }
        let Admitter { transaction, state_file, scratch, earlier, .. } = self;
        let marks = &mut state_file.marks;
        let mut headers = HeaderSlots::new();
        let remains = match candidate {
            Candidate::Row(plan, tuple) => plan.salvage(*tuple, transaction, scratch, &mut headers),
            Candidate::Message(plan, _, content) => {
                Ok(plan.salvage(content, transaction, scratch, &mut headers))
            }
        };
        match remains {
            Ok(remains) => match handover.identify(&remains, earlier, marks) {
                Some(offered) => Ok(offered),
                None => handover.traced(&remains, |it, event| it.dead_letter(event, reason, true)),
            },
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    fn unreadable(&self, error: &DecodeError) -> Fault {
        faults::protocol(&error.to_string(), &self.origin)
    }
}

/// The event of a candidate, and the format of its payload.
#[inline]
fn extract<'a>(
    candidate: &Candidate<'a>,
    transaction: &'a CommitStamp,
    scratch: &'a mut ExtractScratch,
    headers: &'a mut HeaderSlots<'a>,
    tables: &'a mut [EventFormat],
    messages: &'a mut EventFormat,
) -> (Result<Outbound<'a>, RowError>, &'a mut EventFormat) {
    match candidate {
        Candidate::Row(plan, tuple) => {
            (plan.extract(*tuple, transaction, scratch, headers), &mut tables[plan.outbox_index()])
        }
        Candidate::Message(plan, lsn, content) => (
            plan.extract(*lsn, content, transaction, scratch, headers).map_err(RowError::Event),
            messages,
        ),
    }
}

/// A payload format; none where payloads are passed on unchanged.
#[derive(Default)]
struct EventFormat {
    format: Option<CloudEvents>,
    buffer: Vec<u8>,
    /// A record without a trace context gets that of its span.
    adds_context: bool,
}

impl EventFormat {
    fn new(route: &Route, origin: &str) -> EventFormat {
        let source = format!("/walrelay/{}", path_encoded(origin));
        let format = format::make(route.format, source, route.binding);
        let adds_context = route.preset == Preset::Walrelay;
        EventFormat { format, buffer: Vec::new(), adds_context }
    }

    /// Passes the shaped event to `publish`.
    #[inline]
    fn shape<T>(
        &mut self,
        event: Outbound<'_>,
        publish: impl FnOnce(&Outbound<'_>) -> T,
    ) -> Result<T, EventError> {
        let EventFormat { format: Some(format), buffer, .. } = self else {
            return Ok(publish(&event));
        };
        let mut headers = HeaderSlots::new();
        let outcome = format.shape(event, buffer, &mut headers).map(|event| publish(&event));
        give_back(buffer);
        outcome
    }
}

/// One event on its way to the sink.
struct Handover<'a> {
    number: EventNumber<'a>,
    /// Events are marked for the next process.
    is_marked: bool,
    /// None where events are not marked.
    fingerprint: Fingerprint,
    /// The span of a sampled event that is handed over for the first time.
    span: Option<Box<PublishSpan>>,
    adds_context: bool,
    policy: &'a mut FailurePolicy,
    sink: &'a mut dyn Sink,
    clock: &'a dyn Clock,
}

impl Handover<'_> {
    /// Decides about an event that an earlier process may have published; none if it must be
    /// published.
    #[inline]
    fn identify(
        &mut self,
        event: &Outbound<'_>,
        earlier: &mut EarlierEvents,
        marks: &mut MarkRing,
    ) -> Option<Offered> {
        let is_active = earlier.is_active();
        if !self.is_marked && !is_active {
            return None;
        }
        let position = self.number.position;
        self.fingerprint = Fingerprint::of(position, event);
        if !is_active {
            return None;
        }
        let EarlierEvents { marked, topics } = earlier;
        let stored = match marked.asks_topics(self.fingerprint) {
            true => topics.find(event, position.commit_lsn),
            false => Some(Stored::Unknown),
        };
        let Some(stored) = stored else { return Some(Offered::Held(IntakeHold::TopicUnread)) };
        let known = marked.pass_over(position, self.fingerprint, stored);
        if marked.take_overruled() {
            marks.forget();
        }
        known.map(|from| Offered::Known(from, self.fingerprint))
    }

    #[inline]
    fn publish(&mut self, event: &Outbound<'_>) -> Result<Offered, Fault> {
        if self.policy.spans.is_on() { self.traced(event, Self::send) } else { self.send(event) }
    }

    /// Hands the event over within its span, if it is sampled.
    fn traced(
        &mut self,
        event: &Outbound<'_>,
        send: impl FnOnce(&mut Self, &Outbound<'_>) -> Result<Offered, Fault>,
    ) -> Result<Offered, Fault> {
        let EventNumber { position, earlier, .. } = self.number;
        let known = earlier.and_then(Flight::span);
        let begun = self.policy.spans.begin(known, position, event, self.clock.unix_us());
        let Some(mut start) = begun else { return send(self, event) };
        self.span = start.span.take();
        let mut headers = HeaderSlots::new();
        let with_context = self.adds_context.then(|| start.add_to(event, &mut headers));
        let with_context = with_context.filter(|event| self.sink.has_room_for(event));
        send(self, with_context.as_ref().unwrap_or(event))
    }

    #[inline]
    fn send(&mut self, event: &Outbound<'_>) -> Result<Offered, Fault> {
        let EventNumber { sequence, position, earlier, .. } = self.number;
        let outcome = match self.policy.route(earlier, event, position, self.clock) {
            SendAs::Normal => self.sink.publish(sequence, event),
            SendAs::Isolated => self.sink.publish_alone(sequence, event),
            SendAs::DeadLetter(cause) => return self.write(event, cause),
        };
        match outcome {
            Ok(()) => Ok(self.taken(event, event.size_bytes(), FlightState::Sent)),
            Err(PublishError::QueueFull) => Ok(Offered::Held(IntakeHold::SinkFull)),
            Err(PublishError::Failed(failure)) => self.refused(event, &failure),
        }
    }

    #[inline]
    fn taken(&mut self, event: &Outbound<'_>, bytes: usize, state: FlightState) -> Offered {
        Offered::Taken(Flight {
            position: self.number.position,
            commit_unix_us: event.commit_unix_us,
            fingerprint: self.fingerprint,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            state,
            extras: Extras::of(None, self.span.take()),
        })
    }

    #[cold]
    fn refused(&mut self, event: &Outbound<'_>, failure: &Failure) -> Result<Offered, Fault> {
        let offered = match failure.disposition {
            Disposition::Outage | Disposition::Delayed => Ok(Offered::SinkBroken),
            Disposition::Halt => Err(faults::unable(failure)),
            Disposition::Transient | Disposition::Terminal if self.policy.gate.halts() => {
                Err(faults::refused(failure, self.number.position.commit_lsn, 1))
            }
            Disposition::Transient | Disposition::Terminal => {
                let text = &failure.reason;
                self.dead_letter(event, Reason { class: &failure.class, text, attempts: 1 }, false)
            }
        };
        // Without room the event is offered again, and is counted then.
        if !matches!(offered, Ok(Offered::Held(_))) {
            self.policy.note_unknown(failure);
        }
        offered
    }

    fn dead_letter(
        &mut self,
        event: &Outbound<'_>,
        reason: Reason<'_>,
        incomplete: bool,
    ) -> Result<Offered, Fault> {
        let EventNumber { position, earlier, .. } = self.number;
        let cause = self.policy.cause(earlier, event.key, reason, position, self.clock.now());
        self.write(event, DeadLetterCause { incomplete, ..cause })
    }

    /// Publishes the dead letter of an event in the event's place: behind all older events, and
    /// alone in its request, so that a failure concerns no other event.
    fn write(&mut self, event: &Outbound<'_>, cause: DeadLetterCause) -> Result<Offered, Fault> {
        let EventNumber { sequence, earlier, .. } = self.number;
        if !self.policy.allow(earlier, &cause)? {
            return Ok(Offered::Held(IntakeHold::DeadLettersUnread));
        }
        let Handover { policy, sink, .. } = self;
        let (outcome, bytes) = policy.gate.writer().compose(event, &cause, |letter| {
            (sink.publish_dead_letter(sequence, letter), letter.size_bytes())
        });
        match outcome {
            Ok(()) => {
                let span = self.span.as_deref().or(earlier.and_then(Flight::span));
                let trace_id = span.map(PublishSpan::trace_id);
                let state = self.policy.dead_lettered(earlier, event, cause, trace_id.as_deref());
                Ok(self.taken(event, bytes, state))
            }
            Err(PublishError::QueueFull) => Ok(Offered::Held(IntakeHold::SinkFull)),
            Err(PublishError::Failed(failure)) => Err(self.policy.dead_letter_refused(&failure)),
        }
    }
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
