//! The findings of a relay that opens a session, about its slot and its publication: those of the looks at a
//! slot that others hold, and those that go with the session.

use std::sync::Arc;
use std::time::Instant;

use super::control::PublicationInDoubt;
use super::slot_history::{Seen, SlotHistory, SystemTimeline};
use crate::base::error::Fault;
use crate::base::lsn::Lsn;
use crate::doctor::fingerprint::{Comparison, KnownPublication, PublicationLook};
use crate::source::settings::SourceSettings;
use crate::source::sightings::Sightings;
use crate::source::slot_state::{HeldSlot, SlotHolder};
use crate::source::walsender::Walsender;

/// Collects findings from one session to the next.
#[derive(Debug)]
pub struct SessionFindings {
    settings: Arc<SourceSettings>,
    known: Arc<KnownPublication>,
    sightings: Arc<Sightings>,
    history: SlotHistory,
    /// The preflight on the present connection has found no fault.
    is_checked: bool,
    /// The slot as it was seen on this connection, until the preflight says of which system and timeline
    /// it is.
    unplaced: Option<(HeldSlot, Instant)>,
    /// The count of what the slot had delivered before this process read it; the inner one as
    /// Postgres says.
    decoded_before: Option<Option<i64>>,
    /// Rows may be missing, and nothing is known of the publication before; with the position of the slot
    /// then. Whoever moves the slot has judged the publication.
    doubt: Option<(PublicationInDoubt, Lsn)>,
}

impl SessionFindings {
    pub fn new(
        settings: Arc<SourceSettings>,
        known: Arc<KnownPublication>,
        sightings: Arc<Sightings>,
    ) -> SessionFindings {
        SessionFindings {
            settings,
            known,
            sightings,
            history: SlotHistory::default(),
            is_checked: false,
            unplaced: None,
            decoded_before: None,
            doubt: None,
        }
    }

    /// A session is requested; everything before this position is known to be confirmed.
    pub fn requested(&mut self, confirmed: Lsn) {
        self.history.begin(confirmed, self.sightings.last());
    }

    /// The next looks run on a new connection.
    pub fn reconnected(&mut self) {
        (self.is_checked, self.unplaced) = (false, None);
    }

    /// Whether [`SessionFindings::checked`] was called since.
    pub fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// The preflight on this connection has found no fault. It leads to this place.
    pub fn checked(&mut self, place: SystemTimeline) {
        if std::mem::replace(&mut self.is_checked, true) {
            return;
        }
        self.history.connected(place);
        if let Some((slot, at)) = self.unplaced.take() {
            self.note(&slot, at);
        }
    }

    /// Compares the publication with what is known of it. Where nothing is known of a sound one, `doubt`
    /// compares it with the slot, which stands at `confirmed`, and of which it gets the count of what
    /// earlier processes were delivered.
    pub fn compare(
        &mut self,
        look: PublicationLook,
        is_sound: bool,
        confirmed: Lsn,
        doubt: impl FnOnce(Option<i64>) -> Option<Fault>,
    ) -> Result<(), Fault> {
        let digest = look.found.digest();
        match self.known.compare(look, &self.settings, is_sound) {
            Comparison::Fault(fault) => return Err(fault),
            Comparison::First if is_sound => {
                let fault = doubt(self.decoded_before.flatten());
                self.doubt = fault.map(|fault| (PublicationInDoubt { fault, digest }, confirmed));
            }
            Comparison::First | Comparison::InOrder => {}
        }
        Ok(())
    }

    /// The slot as it was seen while no session of this relay held it.
    pub fn look(&mut self, slot: &HeldSlot, at: Instant) {
        self.decoded_before.get_or_insert(slot.decoded);
        if self.is_checked {
            self.note(slot, at);
        } else {
            self.unplaced = Some((slot.clone(), at));
        }
    }

    /// The process that holds the slot, unless it is a former walsender of this relay.
    pub fn other_holder<'a>(&self, slot: &'a HeldSlot) -> Option<&'a SlotHolder> {
        slot.holder.as_ref().filter(|holder| !self.history.is_own(holder.pid))
    }

    /// A session of this relay holds the slot, which was seen then.
    pub fn opened(&mut self, holder: Walsender, slot: &HeldSlot, at: Instant) {
        self.history.opened(holder.pid);
        self.sightings.opened(holder);
        self.note(slot, at);
    }

    /// The sightings have each look, too: a relay that is asked to stop makes no further attempt, and
    /// learns from them that a peer is there.
    fn note(&mut self, slot: &HeldSlot, at: Instant) {
        if let Some(last) = self.sightings.last() {
            self.history.sighted(&last);
        }
        self.history.look(slot, at);
        self.sightings.look(slot, at);
        self.doubt.take_if(|(_, at)| slot.confirmed_flush > *at);
    }

    /// The findings that go with a session at this place.
    pub fn take(&mut self, place: &SystemTimeline) -> (Seen, Option<PublicationInDoubt>) {
        (self.history.end(place), self.doubt.take().map(|(doubt, _)| doubt))
    }
}

#[cfg(test)]
#[path = "session_findings_tests.rs"]
mod tests;
