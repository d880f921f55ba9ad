//! The reasons for which the intake of a slot waits, and those that end it.

use std::time::Instant;

use super::replication::IntakeStop;
use super::{Connection, SlotFeed};
use crate::base::error::{Exit, Fault};
use crate::health::IntakeHold;
use crate::mutants::{Mutant, on};
use crate::relay::faults;
use crate::relay::feed::{Downstream, Feed as _};
use crate::source::stream::StreamError;

impl SlotFeed {
    /// The reason for which the intake waits before it reads.
    pub(super) fn held_intake(&mut self, down: &mut Downstream) -> Option<IntakeHold> {
        if let Some(catalog) = self.catalog.as_ref().and_then(|link| link.answer()) {
            self.catalog = None;
            self.replication.refresh(catalog);
        }
        let reads_topic = down.admitter.earlier.awaits_topic(self.replication.progress.sent());
        let now = self.clock.instant();
        // A session that has just been opened may be open although its lease has expired: nothing is read, and
        // so no trace reported, before its first update has arrived.
        let is_unheard = self.is_connected() && self.lease.has_expired(now);
        if !down.policy.gate.admits() {
            Some(IntakeHold::DeadLettersUnread)
        } else if self.catalog.is_some() {
            Some(IntakeHold::CatalogUnread)
        } else if reads_topic {
            Some(IntakeHold::TopicUnread)
        } else if is_unheard || self.trace.is_awaited(now) {
            Some(IntakeHold::TraceAwaited)
        } else {
            (!self.replication.flights.has_room()).then_some(IntakeHold::WindowFull)
        }
    }

    /// The packet waits, or the session ends.
    pub(super) fn intake_stopped(&mut self, why: IntakeStop, down: &mut Downstream, now: Instant) {
        match why {
            IntakeStop::Held(why) => {
                self.hold = Some(why);
                self.hold(now);
            }
            IntakeStop::TextModeNeeded => {
                self.text_only = true;
                self.disconnect(Connection::Lost);
            }
            IntakeStop::CatalogNeeded => {
                self.catalog = Some(self.database.read_catalog());
                self.hold = Some(IntakeHold::CatalogUnread);
                self.hold(now);
            }
            IntakeStop::ClaimRefuted | IntakeStop::OtherEvent => {
                tracing::info!(
                    "what was confirmed of a transaction before is not what comes now: the slot is read again, and what was published may be repeated"
                );
                self.replication.forget(&mut down.admitter, &mut down.policy);
                self.slot = None;
                self.disconnect(Connection::Closed);
            }
            IntakeStop::SinkBroken => {
                let in_flight = self.replication.flights.events();
                down.driver.break_sink("it refuses every event", in_flight, now);
            }
        }
    }

    /// The stream has ended. Returns a fault if a new session would end in the same way.
    pub(super) fn ended(&mut self, error: &StreamError) -> Result<bool, Fault> {
        if let Some(fault) = self.fault_of(error) {
            return Err(fault);
        }
        self.lost(error);
        Ok(false)
    }

    /// The fault of an error if a new session would end in the same way.
    pub(super) fn fault_of(&mut self, error: &StreamError) -> Option<Fault> {
        // pgoutput sends a value as text only if its own type has no binary form: those of arrays and
        // composites have one, and their elements may not.
        if !self.text_only && matches!(error, StreamError::Server(it) if it.is_without_binary()) {
            tracing::info!(reason = %error, "reading columns in text form");
            self.text_only = true;
            return None;
        }
        faults::of_stream(error, &self.source)
    }

    /// A fault in the received data stops the relay. After a fault of the slot itself nothing may
    /// be reported to it: what settles from now on is of another history.
    pub(super) fn stopped(&mut self, fault: Fault) -> Result<bool, Fault> {
        if fault.exit == Exit::Slot && !on(Mutant::ReportsAfterFault) {
            self.disconnect(Connection::Closed);
        }
        Err(fault)
    }
}
