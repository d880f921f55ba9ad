//! How one event comes in: extracted from its row or message, shaped into its payload, and handed
//! to the sink, as it is or as a dead letter.
//!
//! What is no event, and what has killed the process before, goes to the dead-letter topic as far
//! as its fields can be read. Nothing here remembers an event: the feed admits it after the sink
//! has taken it.

use super::crash::CrashGuard;
use super::failure_policy::{FailurePolicy, Moment, Reason, SendAs};
use super::faults;
use super::formats::Formats;
use crate::base::error::Fault;
use crate::base::event::{HeaderSlots, Outbound, Position, Sequence, brief};
use crate::base::lsn::Lsn;
use crate::dead_letter::writer::{CLASS_CRASH, DeadLetterCause};
use crate::metrics::PassMeter;
use crate::outbox::{CommitStamp, ExtractScratch, MessagePlan, Plan, RowError};
use crate::pgoutput::cursor::DecodeError;
use crate::pgoutput::message::Tuple;
use crate::sink::{Disposition, Failure, PublishError, Sink};

/// What may become an event.
pub(super) enum Candidate<'a> {
    Row(&'a Plan, Tuple<'a>),
    /// A logical message: its LSN and its content.
    Message(&'a MessagePlan, Lsn, &'a [u8]),
}

/// The name under which the sink will report on an event, and where the event stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventNumber {
    pub(super) sequence: Sequence,
    pub(super) position: Position,
    /// Its number among the events that the crash file was told of together.
    pub(super) crash_ordinal: u64,
}

/// What became of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    /// The sink has taken it; so many bytes count towards the window.
    Taken { bytes: usize, commit_unix_us: i64 },
    /// There is no room for it; offer it again.
    Full,
    /// The sink has failed as a whole.
    SinkBroken,
}

/// What a candidate passes on its way to the sink.
pub(super) struct Admission<'a> {
    pub(super) admitter: &'a mut Admitter,
    pub(super) policy: &'a mut FailurePolicy,
    pub(super) sink: &'a mut dyn Sink,
    pub(super) meter: &'a mut PassMeter,
}

/// Makes events of candidates. Its buffers are kept from event to event.
pub(super) struct Admitter {
    pub(super) transaction: CommitStamp,
    pub(super) crash: CrashGuard,
    scratch: ExtractScratch,
    formats: Formats,
    /// Where candidates come from, for faults.
    origin: String,
}

impl Admitter {
    pub(super) fn new(crash: CrashGuard, formats: Formats, origin: String) -> Admitter {
        let (transaction, scratch) = (CommitStamp::default(), ExtractScratch::default());
        Admitter { transaction, crash, scratch, formats, origin }
    }

    /// Offers a candidate to the sink.
    #[inline]
    pub(super) fn offer(
        &mut self,
        candidate: &Candidate<'_>,
        number: EventNumber,
        policy: &mut FailurePolicy,
        sink: &mut dyn Sink,
    ) -> Result<Offered, Fault> {
        let handover = Handover { number, policy, sink };
        let offered = match self.crash.takes(number.crash_ordinal) {
            None => self.publish(candidate, handover),
            Some(deaths) => {
                let text = format!("the process has died on it {deaths} times");
                let attempts = u32::try_from(deaths).unwrap_or(u32::MAX);
                let reason = Reason { class: CLASS_CRASH, text: &text, attempts };
                self.give_up(candidate, reason, handover)
            }
        };
        self.crash.lets_go();
        self.scratch.give_back();
        offered
    }

    #[inline]
    fn publish(
        &mut self,
        candidate: &Candidate<'_>,
        mut handover: Handover<'_>,
    ) -> Result<Offered, Fault> {
        let Admitter { transaction, scratch, formats, .. } = self;
        let mut headers = HeaderSlots::new();
        let (extracted, format) = match candidate {
            Candidate::Row(plan, tuple) => (
                plan.extract(*tuple, transaction, scratch, &mut headers),
                formats.of_table(plan.outbox_index()),
            ),
            Candidate::Message(plan, lsn, content) => (
                plan.extract(*lsn, content, transaction, scratch, &mut headers)
                    .map_err(RowError::Event),
                formats.of_messages(),
            ),
        };
        let error = match extracted {
            Ok(event) => match format.shape(event, |event| handover.publish(event)) {
                Ok(offered) => return offered,
                Err(error) => error,
            },
            Err(RowError::Event(error)) => error,
            Err(RowError::Decode(error)) => return Err(self.unreadable(&error)),
        };
        let (class, text) = (error.class(), error.to_string());
        self.give_up(candidate, Reason { class, text: &text, attempts: 0 }, handover)
    }

    /// What can be read of a candidate that must not, or cannot, be published.
    #[cold]
    fn give_up(
        &mut self,
        candidate: &Candidate<'_>,
        reason: Reason<'_>,
        mut handover: Handover<'_>,
    ) -> Result<Offered, Fault> {
        if handover.policy.gate.halts() {
            let Reason { class, text, .. } = reason;
            let at = handover.number.position.commit_lsn;
            return Err(faults::unpublishable(class, text, at));
        }
        let Admitter { transaction, scratch, .. } = self;
        let mut headers = HeaderSlots::new();
        let remains = match candidate {
            Candidate::Row(plan, tuple) => plan.salvage(*tuple, transaction, scratch, &mut headers),
            Candidate::Message(plan, _, content) => {
                Ok(plan.salvage(content, transaction, scratch, &mut headers))
            }
        };
        match remains {
            Ok(remains) => handover.dead_letter(&remains, reason, true),
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    fn unreadable(&self, error: &DecodeError) -> Fault {
        faults::protocol(&error.to_string(), &self.origin)
    }

    #[cfg(test)]
    pub(super) fn set_formats(&mut self, formats: Formats) {
        self.formats = formats;
    }
}

/// One event on its way to the sink.
struct Handover<'a> {
    number: EventNumber,
    policy: &'a mut FailurePolicy,
    sink: &'a mut dyn Sink,
}

impl Handover<'_> {
    #[inline]
    fn publish(&mut self, event: &Outbound<'_>) -> Result<Offered, Fault> {
        let EventNumber { sequence, position, .. } = self.number;
        let outcome = match self.policy.route(sequence, event, position) {
            SendAs::Normal => self.sink.publish(sequence, event),
            SendAs::Isolated => self.sink.publish_alone(sequence, event),
            SendAs::DeadLetter(cause) => return self.write(event, cause),
        };
        let commit_unix_us = event.commit_unix_us;
        match outcome {
            Ok(()) => Ok(Offered::Taken { bytes: event.size_bytes(), commit_unix_us }),
            Err(PublishError::QueueFull) => Ok(Offered::Full),
            Err(PublishError::Failed(failure)) => self.refused(event, &failure),
        }
    }

    #[cold]
    fn refused(&mut self, event: &Outbound<'_>, failure: &Failure) -> Result<Offered, Fault> {
        let offered = match failure.disposition {
            Disposition::Outage => Ok(Offered::SinkBroken),
            Disposition::Halt => Err(faults::unable(failure)),
            Disposition::Transient | Disposition::Terminal if self.policy.gate.halts() => {
                Err(faults::refused(failure, self.number.position.commit_lsn, 1))
            }
            Disposition::Transient | Disposition::Terminal => {
                let text = &failure.reason;
                self.dead_letter(event, Reason { class: &failure.class, text, attempts: 1 }, false)
            }
        };
        // An event that finds no room is offered again, and would be counted each time.
        if offered != Ok(Offered::Full) {
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
        let EventNumber { sequence, position, .. } = self.number;
        let cause = self.policy.cause(sequence, event.key, reason, position, Moment::now());
        self.write(event, DeadLetterCause { incomplete, ..cause })
    }

    /// Publishes the dead letter of an event in its place: behind all older events, and alone in
    /// its request, so that the answer is about it.
    fn write(&mut self, event: &Outbound<'_>, cause: DeadLetterCause) -> Result<Offered, Fault> {
        let Handover { number: EventNumber { sequence, .. }, policy, sink } = self;
        if !policy.allow(*sequence, &cause)? {
            return Ok(Offered::Full);
        }
        let (outcome, bytes) = policy.gate.writer().compose(event, &cause, |letter| {
            (sink.publish_dead_letter(*sequence, letter), letter.size_bytes())
        });
        match outcome {
            Ok(()) => {
                let subject = format!("event {}, topic {}", brief(event.id), brief(event.topic));
                policy.dead_lettered(*sequence, event.key, &subject, cause);
                Ok(Offered::Taken { bytes, commit_unix_us: event.commit_unix_us })
            }
            Err(PublishError::QueueFull) => Ok(Offered::Full),
            Err(PublishError::Failed(failure)) => Err(policy.dead_letter_refused(&failure)),
        }
    }
}
