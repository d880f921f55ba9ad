//! What may become an event: a row, or a logical message.
//!
//! Extracted, shaped and handed to the gate. What is no event, or has killed the process before, is
//! handed over as what can be told of it.

use super::admission::{Gate, Intake, Taken};
use super::crash::CrashGuard;
use super::faults;
use super::shaping::Shaping;
use crate::base::error::Fault;
use crate::base::event::HeaderSlots;
use crate::base::lsn::Lsn;
use crate::dead_letter::writer::CLASS_CRASH;
use crate::outbox::{MessagePlan, Plan, RowError, Scratch, Transaction};
use crate::pgoutput::cursor::DecodeError;
use crate::pgoutput::message::Tuple;
use crate::relay::failure_policy::Reason;

/// As it came.
pub(super) enum Candidate<'a> {
    Row(&'a Plan, Tuple<'a>),
    /// Where it stands, and its content.
    Message(&'a MessagePlan, Lsn, &'a [u8]),
}

/// What an event is made with, and where it goes in.
pub(super) struct Entrance<'a, I> {
    pub(super) transaction: &'a Transaction,
    pub(super) scratch: &'a mut Scratch,
    pub(super) shaping: &'a mut Shaping,
    pub(super) crash: &'a mut CrashGuard,
    pub(super) gate: Gate<'a, I>,
    /// Slot and publication, for faults.
    pub(super) place: &'a str,
}

impl<I: Intake> Entrance<'_, I> {
    /// Takes it in, unless it is known or there is no room.
    #[inline]
    pub(super) fn offer(mut self, candidate: &Candidate<'_>) -> Result<Taken, Fault> {
        if let Some(taken) = self.gate.intake.unless_new() {
            return Ok(taken);
        }
        let deaths = self.crash.takes(self.gate.intake.crash_ordinal());
        let taken = match deaths {
            None => self.publish(candidate),
            Some(deaths) => self.deadly(candidate, deaths),
        };
        self.crash.lets_go();
        self.scratch.give_back();
        taken
    }

    #[inline]
    fn publish(&mut self, candidate: &Candidate<'_>) -> Result<Taken, Fault> {
        let Entrance { transaction, scratch, shaping, gate, .. } = self;
        let mut headers = HeaderSlots::new();
        let extracted = match candidate {
            Candidate::Row(plan, tuple) => plan.extract(*tuple, transaction, scratch, &mut headers),
            Candidate::Message(plan, lsn, content) => plan
                .extract(*lsn, content, transaction, scratch, &mut headers)
                .map_err(RowError::Event),
        };
        let shape = match candidate {
            Candidate::Row(plan, _) => shaping.of_table(plan.outbox_index()),
            Candidate::Message(..) => shaping.of_messages(),
        };
        let error = match extracted {
            Ok(event) => match shape.shape(event, |event| gate.publish(event)) {
                Ok(taken) => return taken,
                Err(error) => error,
            },
            Err(RowError::Event(error)) => error,
            Err(RowError::Decode(error)) => return Err(garbled(&error, self.place)),
        };
        let (class, text) = (error.class(), error.to_string());
        self.bury(candidate, Reason { class, text: &text, attempts: 0 })
    }

    /// The process has died on it again and again.
    #[cold]
    fn deadly(&mut self, candidate: &Candidate<'_>, deaths: u64) -> Result<Taken, Fault> {
        let text = format!("the process has died on it {deaths} times");
        let attempts = u32::try_from(deaths).unwrap_or(u32::MAX);
        self.bury(candidate, Reason { class: CLASS_CRASH, text: &text, attempts })
    }

    #[cold]
    fn bury(&mut self, candidate: &Candidate<'_>, reason: Reason<'_>) -> Result<Taken, Fault> {
        let Entrance { transaction, scratch, gate, place, .. } = self;
        let mut headers = HeaderSlots::new();
        let remains = match candidate {
            Candidate::Row(plan, tuple) => plan
                .salvage(*tuple, transaction, scratch, &mut headers)
                .map_err(|error| garbled(&error, place))?,
            Candidate::Message(plan, _, content) => {
                plan.salvage(content, transaction, scratch, &mut headers)
            }
        };
        gate.unfit(&remains, reason)
    }
}

fn garbled(error: &DecodeError, place: &str) -> Fault {
    faults::protocol(&error.to_string(), place)
}
