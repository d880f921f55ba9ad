//! How one event comes in: recognised, offered to the sink as it is or as a letter, and admitted
//! when it was taken.

use super::faults;
use crate::base::error::Fault;
use crate::base::event::{Outbound, Position, Sequence, brief};
use crate::dead_letter::writer::DeadLetterCause;
use crate::delivery::admitted::Admitted;
use crate::delivery::window::Window;
use crate::relay::failure_policy::{Moment, Reason, Undertaker, Way};
use crate::sink::{Disposition, Failure, Refused, Sink};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is done with.
    Yes,
    /// It is done with, and the server wants to hear from us.
    ReplyWanted,
    /// There is no room for it; offer it again.
    Full,
    /// It can be read from a stream in text mode only.
    TextWanted,
    /// The catalog has to be read before it can be judged; offer it again then.
    LookAgain,
    /// The sink has failed as a whole.
    SinkBroken,
}

/// Who numbers events, and remembers those that were taken.
pub(super) trait Intake {
    /// What becomes of the next event before it is even looked at; nothing when it is new and
    /// there is room for it.
    fn unless_new(&mut self) -> Option<Taken>;

    /// The number of the next event.
    fn next(&self) -> Sequence;

    /// Where the next event stands.
    fn position(&self) -> Position;

    /// What it is called beside others that the crash guard was told of together.
    fn crash_ordinal(&self) -> u64 {
        self.position().ordinal
    }

    /// The sink has taken the next event.
    fn admit(&mut self, bytes: usize, commit_unix_us: i64);
}

/// Events as they come from the stream.
pub(super) struct Streamed<'a> {
    pub(super) window: &'a mut Window,
    pub(super) admitted: &'a mut Admitted,
}

impl Intake for Streamed<'_> {
    #[inline]
    fn unless_new(&mut self) -> Option<Taken> {
        if self.admitted.is_repeat() {
            self.admitted.advance();
            return Some(Taken::Yes);
        }
        if !self.window.has_room() {
            return Some(Taken::Full);
        }
        if self.window.next_is_confirmed() {
            self.window.pass_over();
            self.admitted.advance();
            return Some(Taken::Yes);
        }
        None
    }

    #[inline]
    fn next(&self) -> Sequence {
        self.window.next()
    }

    #[inline]
    fn position(&self) -> Position {
        self.admitted.next().unwrap_or_default()
    }

    #[inline]
    fn admit(&mut self, bytes: usize, commit_unix_us: i64) {
        self.window.admit(bytes, commit_unix_us);
        self.admitted.advance();
    }
}

/// Where the next event goes in.
pub(super) struct Gate<'a, I> {
    pub(super) intake: I,
    pub(super) undertaker: &'a mut Undertaker,
    pub(super) sink: &'a mut dyn Sink,
}

impl<I: Intake> Gate<'_, I> {
    /// Offers an event to the sink, and admits it when the sink has taken it.
    #[inline]
    pub(super) fn publish(&mut self, event: &Outbound<'_>) -> Result<Taken, Fault> {
        let sequence = self.intake.next();
        let outcome = match self.undertaker.way(sequence, event, self.intake.position()) {
            Way::Healthy => self.sink.publish(sequence, event),
            Way::Alone => self.sink.publish_alone(sequence, event),
            Way::Dead(cause) => return self.letter(sequence, event, cause),
        };
        match outcome {
            Ok(()) => {
                self.intake.admit(event.size_bytes(), event.commit_unix_us);
                Ok(Taken::Yes)
            }
            Err(Refused::Full) => Ok(Taken::Full),
            Err(Refused::Failed(failure)) => self.refused(event, &failure),
        }
    }

    /// A row or message that must not be handed over: `remains` is what can be told of it.
    #[cold]
    pub(super) fn unfit(
        &mut self,
        remains: &Outbound<'_>,
        reason: Reason<'_>,
    ) -> Result<Taken, Fault> {
        if self.undertaker.halts() {
            return Err(faults::unpublishable(
                reason.class,
                reason.text,
                self.intake.position().commit_lsn,
            ));
        }
        self.bury(remains, reason, true)
    }

    #[cold]
    fn refused(&mut self, event: &Outbound<'_>, failure: &Failure) -> Result<Taken, Fault> {
        let taken = match failure.disposition {
            Disposition::Outage => Ok(Taken::SinkBroken),
            Disposition::Halt => Err(faults::unable(failure)),
            Disposition::Transient | Disposition::Terminal if self.undertaker.halts() => {
                Err(faults::refused(failure, self.intake.position().commit_lsn, 1))
            }
            Disposition::Transient | Disposition::Terminal => {
                let text = &failure.reason;
                self.bury(event, Reason { class: &failure.class, text, attempts: 1 }, false)
            }
        };
        // Offered again and again, it is still one answer.
        if !matches!(taken, Ok(Taken::Full)) {
            self.undertaker.note_unknown(failure);
        }
        taken
    }

    fn bury(
        &mut self,
        event: &Outbound<'_>,
        reason: Reason<'_>,
        incomplete: bool,
    ) -> Result<Taken, Fault> {
        let (sequence, position, now) = (self.intake.next(), self.intake.position(), Moment::now());
        let cause = self.undertaker.cause(sequence, event.key, reason, position, now);
        self.letter(sequence, event, DeadLetterCause { incomplete, ..cause })
    }

    /// Publishes the letter of an event in its place: behind all that is older, and the answer is
    /// about it alone.
    fn letter(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
        cause: DeadLetterCause,
    ) -> Result<Taken, Fault> {
        if !self.undertaker.allow(sequence, &cause)? {
            return Ok(Taken::Full);
        }
        let Gate { sink, undertaker, .. } = self;
        let (outcome, bytes) = undertaker.mailbox().compose(event, &cause, |letter| {
            (sink.publish_letter(sequence, letter), letter.size_bytes())
        });
        match outcome {
            Ok(()) => {
                let subject = format!("event {}, topic {}", brief(event.id), brief(event.topic));
                self.undertaker.buried(sequence, event.key, &subject, cause);
                self.intake.admit(bytes, event.commit_unix_us);
                Ok(Taken::Yes)
            }
            Err(Refused::Full) => Ok(Taken::Full),
            Err(Refused::Failed(failure)) => Err(self.undertaker.letter_refused(&failure)),
        }
    }
}
