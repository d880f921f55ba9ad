//! What follows a failure, by its disposition: one match, for events and for letters.

use std::time::Duration;

use super::{Dying, Fate, Moment, Reason, Undertaker};
use crate::base::error::Fault;
use crate::base::event::{Position, Sequence};
use crate::dead_letter::writer::CLASS_PARKED;
use crate::delivery::retry::Attempts;
use crate::relay::faults;
use crate::sink::{Disposition, Failure, Sink};

impl Undertaker {
    /// The sink could not publish an event that it keeps, or its letter.
    pub(crate) fn failed(
        &mut self,
        sequence: Sequence,
        failure: Failure,
        position: Position,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<Fate, Fault> {
        self.note_unknown(&failure);
        if self.buried.contains_key(&sequence) {
            return self.letter_failed(sequence, failure, sink, now);
        }
        match failure.disposition {
            Disposition::Outage => return Ok(Fate::Outage(failure.reason)),
            Disposition::Halt => return Err(self.hopeless_over(faults::unable(&failure))),
            Disposition::Transient | Disposition::Terminal => {}
        }
        // What only waited behind a buried event was not tried.
        if failure.class != CLASS_PARKED {
            let attempts = self.retries.failed(sequence, now.unix_us);
            if failure.disposition == Disposition::Transient {
                if !self.retries.is_exhausted(attempts) {
                    let wait = self.wait(sequence, &failure, attempts, now);
                    let (attempts, reason) = (attempts.count, failure.reason);
                    return Ok(Fate::Waits { attempts, wait, reason });
                }
                self.metrics.retry_exhaustions.inc();
            }
        }
        self.give_up(Dying { sequence, failure, position }, sink, now)
    }

    /// The event's key waits for its next attempt; other keys flow.
    fn wait(
        &mut self,
        sequence: Sequence,
        failure: &Failure,
        attempts: Attempts,
        now: Moment,
    ) -> Duration {
        let wait = self.retries.wait(sequence, now.instant);
        if let Some(untold) = self.retry_lines.permit(now.instant) {
            tracing::warn!(
                class = failure.class,
                subject = failure.subject,
                attempts = attempts.count,
                retry_in_ms = wait.as_millis() as u64,
                untold,
                "the broker refuses an event for now: {}; to mend it: {}",
                failure.reason,
                failure.mend
            );
        }
        wait
    }

    pub(super) fn give_up(
        &mut self,
        dying: Dying,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<Fate, Fault> {
        let Dying { sequence, failure, position } = &dying;
        if self.halts() {
            let attempts = self.retries.so_far(*sequence, now.unix_us);
            let fault = faults::refused(failure, position.commit_lsn, attempts.count);
            return Err(self.hopeless_over(fault));
        }
        let reason = Reason { class: &failure.class, text: &failure.reason, attempts: 0 };
        let key = failure.key.as_deref();
        let cause = self.cause(*sequence, key, reason, *position, now);
        match self.allow(*sequence, &cause) {
            Ok(true) => {}
            Ok(false) => {
                self.dying.push(dying);
                return Ok(Fate::Decided);
            }
            Err(fault) => return Err(self.hopeless_over(fault)),
        }
        sink.bury(*sequence, &self.mailbox, &cause);
        let parks = self.buried(*sequence, key, &failure.subject, cause);
        Ok(if parks { Fate::KeyParked } else { Fate::Decided })
    }

    fn letter_failed(
        &mut self,
        sequence: Sequence,
        failure: Failure,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<Fate, Fault> {
        if failure.class == CLASS_PARKED {
            // A letter that waited behind an event of its key which has been buried meanwhile.
            sink.retry(sequence);
            return Ok(Fate::Decided);
        }
        self.metrics.dlq_publish_failed.inc();
        match failure.disposition {
            // The sink has kept the letter, and what else it has is none the worse for it.
            Disposition::Outage | Disposition::Transient => {
                self.retries.failed(sequence, now.unix_us);
                self.retries.wait(sequence, now.instant);
                Ok(Fate::LetterWaits(failure.reason))
            }
            Disposition::Terminal | Disposition::Halt => {
                Err(self.hopeless_over(faults::letter_refused(&failure)))
            }
        }
    }

    /// One event more will never be confirmed, and the relay stops over it.
    fn hopeless_over(&mut self, fault: Fault) -> Fault {
        self.hopeless = self.hopeless.saturating_add(1);
        fault
    }

    /// Nothing in flight will be confirmed any more.
    pub(crate) fn unable(&mut self, failure: &Failure) -> Fault {
        self.hopeless = usize::MAX;
        faults::unable(failure)
    }

    /// The sink did not even take a letter.
    pub(crate) fn letter_refused(&mut self, failure: &Failure) -> Fault {
        self.note_unknown(failure);
        self.metrics.dlq_publish_failed.inc();
        faults::letter_refused(failure)
    }

    /// An answer that nobody has decided about must not go unseen.
    pub(crate) fn note_unknown(&self, failure: &Failure) {
        if !failure.known {
            self.metrics.unknown_errors.inc();
            tracing::warn!(
                class = failure.class,
                subject = failure.subject,
                "an answer that this release does not know: {}",
                failure.reason
            );
        }
    }
}
