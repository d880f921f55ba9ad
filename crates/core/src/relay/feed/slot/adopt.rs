//! Begins to use a session that was opened.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::session::{self, Continuation, KnownSlot, SessionStart};
use super::{Connection, SlotFeed};
use crate::base::error::Fault;
use crate::base::lsn::Lsn;
use crate::mutants::{Mutant, on};
use crate::relay::control::{OpenedSession, SystemTimeline, Walsender};
use crate::relay::failure_policy::FailurePolicy;
use crate::relay::feed::Downstream;
use crate::relay::state_file::marks::SlotSession;
use crate::source::server::ServerRun;
use crate::source::stream::Stream;

impl SlotFeed {
    /// Checks that a session is of the same slot of the same system, and that the publication is not in
    /// doubt.
    fn judge(
        &self,
        opened: &OpenedSession,
        policy: &mut FailurePolicy,
    ) -> Result<SessionStart, Fault> {
        let (source, stops) = (&self.source, &self.stops);
        let known = self.slot.as_ref().map(|slot| (slot, self.replication.progress.reported()));
        let seen = self.replication.progress.seen();
        let last = stops.last_place();
        stops.note_system(&opened.place.system_id);
        let start = session::judge(source, known, seen, opened, last.as_ref())?;
        if let Some(doubt) = opened.in_doubt.clone() {
            policy.gate.publication_in_doubt(doubt)?;
        }
        stops.note_reading(&opened.place);
        Ok(start)
    }

    /// Begins to use a session, after checking that it is of the same slot of the same system.
    pub(super) fn adopt(
        &mut self,
        mut opened: OpenedSession,
        down: &mut Downstream,
        now: Instant,
    ) -> Result<(), Fault> {
        let peer_seen = opened.seen.peer_may_have_held;
        opened.seen.peer_may_have_held |= self.may_have_lost_a_peer(&opened, down);
        self.stopping_since = None;
        self.flags.source_stopping.store(false, Ordering::Relaxed);
        let start = self.judge(&opened, &mut down.policy)?;
        let seen = self.replication.progress.seen();
        let Downstream { admitter, policy, .. } = &mut *down;
        let (floor, until_us) = (start.floor, start.committed_until_us(&opened));
        let (is_takeover, peer_held) = (start.is_takeover(&opened), opened.seen.peer_held);
        match start.continuation {
            Continuation::OtherTimeline => self.replication.forget(admitter, policy),
            _ if is_takeover && !on(Mutant::PeerConfirmsOnly) => {
                self.replication.taken_over(floor, admitter, policy)
            }
            Continuation::First | Continuation::Same | Continuation::AfterPeers => {}
        }
        if start.reads_topics(is_takeover) {
            admitter.earlier.topics.start(floor..opened.wal_end);
        }
        if is_takeover && !on(Mutant::LettersUnreadAfterPeer) {
            policy.gate.read_again();
        }
        // Also after a rewind, which may have set the position back behind the floor.
        self.replication.start_at(floor, start.known, until_us, opened.looked_unix_us, seen);
        if is_takeover || start.continuation != Continuation::Same {
            self.replication.untraced = Some(floor);
            self.replication.sign_unlike([opened.slot_confirmed, opened.seen.signed]);
        } else if !on(Mutant::TraceNotRepeated) {
            // A Postgres that has crashed may not have the trace any more.
            let found = self.slot.as_ref().map_or(Lsn::ZERO, |slot| slot.found);
            self.replication.trace_again(found, opened.slot_confirmed);
        }
        let OpenedSession { wire, walsender, place, slot_confirmed, heard_at, opened_at, .. } =
            opened;
        let wal_sender_timeout = opened.wal_sender_timeout;
        let run = self.run_of_server(&walsender);
        let session = SlotSession {
            confirmed: slot_confirmed,
            run: run.fingerprint(),
            // The state file remembers a peer for a day from when it was seen, not from this session on.
            peer_seen: peer_seen || self.sightings.has_peer(),
            unix_us: self.clock.unix_us(),
        };
        self.take_over_marks(&place, session, peer_held, down);
        down.policy.gate.learn_system(&place.system_id);
        let (own_pid, timeline) = (walsender.pid, place.timeline);
        let found = self.found_at(&place, slot_confirmed);
        self.slot = Some(KnownSlot { place, run, own_pid, floor, found, peer_held: false });
        self.status_updates.connected(wal_sender_timeout);
        self.replication.connected(!self.text_only, opened.catalog, slot_confirmed);
        self.lease.begin(walsender.clone(), wal_sender_timeout, heard_at, opened_at);
        self.trace.connected(walsender.clone(), now);
        let host = walsender.host.name.clone();
        self.stall.connected(walsender);
        tracing::info!(slot = self.source.slot, host, timeline, confirmed = %slot_confirmed, "streaming");
        // The loop may have stood still since.
        let begins_at = if on(Mutant::SessionBegunWhenSeen) { now } else { opened_at };
        self.connection = Connection::Open(Stream::new(wire, begins_at));
        down.recorder.note(down.driver.outage());
        // After a crash Postgres may have an older position than this relay knows.
        self.send_status(down, false);
        Ok(())
    }

    /// The run of the server whose walsender holds the slot for this relay.
    fn run_of_server(&self, walsender: &Walsender) -> ServerRun {
        let sighting = self.sightings.last();
        let run = sighting.map(|sighting| sighting.run);
        run.unwrap_or_else(|| ServerRun::new(walsender.server.clone(), None))
    }

    /// Where this process has found the slot at the lowest, which stands at `slot_confirmed` now: a crash of
    /// Postgres may have set it back.
    fn found_at(&self, place: &SystemTimeline, slot_confirmed: Lsn) -> Lsn {
        let found = self.known_at(place).map(|slot| slot.found);
        let found = found.filter(|it| *it <= slot_confirmed || on(Mutant::FoundBeforeCrash));
        found.unwrap_or(slot_confirmed)
    }

    /// The slot as the last session has left it, if that was on the same system and timeline.
    fn known_at(&self, place: &SystemTimeline) -> Option<&KnownSlot> {
        self.slot.as_ref().filter(|slot| slot.place == *place)
    }

    /// Takes over the marks of the state file, and what they claim of a transaction.
    fn take_over_marks(
        &mut self,
        place: &SystemTimeline,
        session: SlotSession,
        peer_held: bool,
        Downstream { admitter, driver, .. }: &mut Downstream,
    ) {
        let marks = &mut admitter.state_file.marks;
        marks.signature(self.replication.signature());
        if marks.broker(driver.broker()) {
            self.replication.prefixes.forget_prefix();
        }
        if peer_held {
            marks.peer_held();
        }
        let restores = if on(Mutant::MarksAfterRestore) { 0 } else { self.stops.restores() };
        let system = (place.system_id.as_str(), place.timeline);
        let claim = admitter.take_over(system, &self.source.slot, restores, session);
        claim.into_iter().for_each(|claim| self.replication.prefixes.claim(claim));
    }

    /// Whether the slot stands where another relay has left it.
    pub(super) fn is_left_by_another(&self, opened: &OpenedSession) -> bool {
        self.known_at(&opened.place).is_some_and(|slot| {
            self.replication.own_positions(slot.found).exclude(opened.slot_confirmed)
        })
    }

    /// Whether Postgres has crashed since the last session and may have lost the trace of a peer, which this
    /// process or an earlier one has seen.
    fn may_have_lost_a_peer(&self, opened: &OpenedSession, down: &Downstream) -> bool {
        let sighting = self.sightings.last();
        let has_crashed =
            |slot: &KnownSlot| sighting.is_some_and(|sighting| sighting.run != slot.run);
        self.known_at(&opened.place).is_some_and(has_crashed)
            && self.has_seen_peer(down)
            && !on(Mutant::PeerForgottenInCrash)
    }

    pub(super) fn has_seen_peer(&self, down: &Downstream) -> bool {
        session::remembers_peer(&down.admitter.state_file.marks, &self.sightings, self.clock.now())
    }

    /// Whether a peer has had the slot, or may have, and this relay has events in flight. A slot that
    /// has moved shows it, also when the peer was not seen and has left no more than its trace.
    pub(super) fn follows_a_peer(&self, opened: &OpenedSession, down: &Downstream) -> bool {
        let ours = self.replication.progress.reported();
        let OpenedSession { slot_confirmed, seen, .. } = opened;
        let is_behind = seen.peers.is_some_and(|peers| peers.confirmed > ours);
        let may_have_held = seen.peer_may_have_held || self.may_have_lost_a_peer(opened, down);
        let follows = is_behind || *slot_confirmed > ours || may_have_held;
        follows && !self.replication.flights.is_empty() && !on(Mutant::FollowsWithoutWithdrawal)
    }
}

#[cfg(test)]
#[path = "adopt_tests.rs"]
mod tests;
