//! Who moved the slot while this relay did not hold it.
//!
//! A slot may be ahead of what this relay reported for two reasons. A peer, another relay on the
//! same slot, confirmed events: then they are published, and this relay goes on after them. Or
//! somebody advanced or re-created the slot, or consumed it with another program: then events were
//! skipped, and the relay must stop.
//!
//! Postgres keeps no record of who moved a slot. A move counts as a peer's when a peer was seen to
//! hold the slot: at the look before the move was seen, at that look itself, or a few seconds before
//! while nobody held it. A relay that was frozen, cut off or waiting for a server may have seen
//! nothing of a peer that took over, confirmed events and died. So a move that nobody was seen to
//! make is a peer's too
//!
//! * if a relay of this slot has a session now, for the slot is free only in between,
//! * or if one had a session shortly before this relay lost sight of the slot, unless the statistics
//!   of the slot show that nothing was decoded since: then the slot was advanced over whatever was
//!   committed.
//!
//! Statistics that go down show another slot of the same name. They end in a crash of Postgres, and
//! are compared only within the run of the server in which they were read. Positions count only
//! on the system and timeline on which they were seen.

use std::time::{Duration, Instant};

use crate::base::lsn::Lsn;
use crate::mutants::{Mutant, on};
use crate::source::progress::{self, TRACE_BYTES_MAX};
use crate::source::server::ServerRun;
use crate::source::sightings::{PEER_REMEMBERED, PEER_SEEN_WITHIN, Sighting};
use crate::source::slot_state::{HeldSlot, SlotHolder};

/// Looks usually follow each other much faster. After a longer gap more may have happened than a
/// peer's last report.
pub(super) const GAP_MAX: Duration = Duration::from_secs(10);
/// A peer that stops may still confirm its position over SQL this long after it was last seen.
const PEER_ENDS_WITHIN: Duration = Duration::from_secs(6);

/// Judges each look at the slot since this relay last held it.
#[derive(Debug, Default)]
pub(super) struct SlotHistory {
    place: Option<SystemTimeline>,
    own_pid: Option<i32>,
    /// The position up to which this relay itself knows everything to be confirmed.
    ours: Lsn,
    peers: Option<PeerProgress>,
    /// A peer has held the slot, or was there and may have without being seen.
    peer_may_have_held: bool,
    /// A peer was seen to hold the slot.
    peer_held: bool,
    mover: Option<Mover>,
    /// The slot when this relay held it last.
    held: Option<Sighting>,
    last: Option<LastLook>,
    /// When a peer was last seen to hold the slot, if nobody else has held it since.
    peer_at: Option<Instant>,
    /// The last position of a relay at which the slot was seen.
    signed: Lsn,
    /// The last sight before this session was requested: it may have ended before its first look.
    before: LastSight,
}

/// When the slot was seen last, and when a peer was.
#[derive(Clone, Copy, Debug, Default)]
struct LastSight {
    /// When this relay held the slot, or judged who had moved it.
    judged_at: Option<Instant>,
    peer_at: Option<Instant>,
    /// When the slot was looked at, also by the slot watch while this relay did not hold it.
    looked_at: Option<Instant>,
}

/// The range in which LSNs can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemTimeline {
    pub system_id: String,
    pub timeline: u32,
}

#[derive(Debug)]
struct LastLook {
    at: Instant,
    holder: Option<SlotHolder>,
    run: ServerRun,
    decoded: Option<i64>,
}

/// The progress of peers while this relay did not hold the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerProgress {
    /// Everything before this position is confirmed, and was not published again since.
    pub confirmed: Lsn,
    /// When that was seen, by the server's clock: all of it was committed before.
    pub seen_unix_us: i64,
    /// A part of it was confirmed during so long a gap between two looks.
    pub gap: Option<Duration>,
}

/// The facts that looks at the slot have shown since this relay last held it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The progress that other relays confirmed.
    pub peers: Option<PeerProgress>,
    /// Who moved the slot beyond that, if it was moved.
    pub mover: Mover,
    /// Another relay has held the slot, or was there and may have: it may have published events
    /// that it has not confirmed, or whose confirmation a crash of Postgres has lost.
    pub peer_may_have_held: bool,
    /// It was seen to hold the slot.
    pub peer_held: bool,
    /// The last position of a relay at which the slot was seen: its own ones are to be others. Zero for none.
    pub signed: Lsn,
}

/// Who moved the slot, as far as it was seen. Not a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mover {
    /// No holder was seen.
    Unseen,
    /// This program held it; an SQL session when the name is empty.
    Program(String),
    /// The slot is another one of the same name.
    Recreated,
}

impl SlotHistory {
    /// A session is requested; everything before `ours` is known to be confirmed. `held` is the slot
    /// as it was seen when this relay held it last.
    pub(super) fn begin(&mut self, ours: Lsn, held: Option<Sighting>) {
        *self = SlotHistory {
            place: self.place.take(),
            own_pid: self.own_pid,
            signed: self.signed,
            before: self.last_sight(),
            ours,
            held,
            ..SlotHistory::default()
        };
    }

    /// The next looks run on a new connection, to this place.
    pub(super) fn connected(&mut self, place: SystemTimeline) {
        if self.place.as_ref().is_some_and(|known| *known != place) {
            self.begin(Lsn::ZERO, None);
            // Its positions are of no use here, but it is still there.
            let peer_at = self.before.peer_at.filter(|_| !on(Mutant::PeerForgottenAfterFailover));
            self.before = LastSight { peer_at, ..LastSight::default() };
        }
        self.place = Some(place);
    }

    /// The slot watch may have looked at the slot since, and have seen a peer.
    pub(super) fn sighted(&mut self, last: &Sighting) {
        if let Some(held) = &mut self.held {
            held.peer_at = held.peer_at.max(last.peer_at);
            held.looked_at = held.looked_at.max(last.looked_at);
        }
    }

    /// The slot as seen at `now`.
    pub(super) fn look(&mut self, slot: &HeldSlot, now: Instant) {
        // A former walsender of this relay may take a while to end.
        let holder = slot.holder.as_ref().filter(|holder| !self.is_own(holder.pid));
        if slot.holder.as_ref().is_none_or(|holder| !self.is_own(holder.pid)) {
            // It has ended, and its process id may be given to another one.
            self.own_pid = None;
        }
        let is_there = slot.has_peer || self.peer_was_there();
        self.peer_held |= holder.is_some_and(|it| it.peer);
        self.peer_may_have_held |= self.peer_held;
        self.peer_may_have_held |= is_there && self.may_have_missed(slot, now);
        // A peer may have come and gone meanwhile, and have found no position for a trace.
        let is_without_room = progress::is_last_before_record(slot.confirmed_flush);
        self.peer_may_have_held |=
            is_without_room && self.was_out_of_sight(now) && self.had_peer(now);
        self.peer_may_have_held |= !self.is_same_run(slot) && self.had_peer(now);
        if let Some(peers) = self.peers.as_mut().filter(|_| holder.is_some_and(|it| it.peer)) {
            // Postgres has crashed, and the peer has begun again where that has put the slot.
            peers.confirmed = peers.confirmed.min(slot.confirmed_flush);
        }
        if self.ours == Lsn::ZERO && holder.is_some_and(|it| it.peer) {
            // A peer goes on with the slot, and may know more of it than this relay, which never had it.
            self.mover = None;
        }
        let earlier = self.peers.unwrap_or_default();
        if slot.confirmed_flush > self.ours.max(earlier.confirmed) && self.mover.is_none() {
            match self.judge(slot, holder, now) {
                Ok(gap) => {
                    let gap = earlier.gap.or(gap);
                    let (confirmed, seen_unix_us) = (slot.confirmed_flush, slot.at_unix_us);
                    self.peers = Some(PeerProgress { confirmed, seen_unix_us, gap });
                }
                Err(mover) => self.mover = Some(mover),
            }
        }
        if progress::is_trace(slot.confirmed_flush) {
            self.signed = slot.confirmed_flush;
        }
        let (holder, decoded, run) = (holder.cloned(), slot.decoded, slot.run.clone());
        if let Some(holder) = &holder {
            self.peer_at = holder.peer.then_some(now);
        }
        self.last = Some(LastLook { at: now, holder, run, decoded });
    }

    /// Checks whether a peer moved the slot since the last look; returns the gap between the two
    /// looks if it was long.
    fn judge(
        &self,
        slot: &HeldSlot,
        holder: Option<&SlotHolder>,
        now: Instant,
    ) -> Result<Option<Duration>, Mover> {
        let program = |holder: &SlotHolder| Mover::Program(holder.application.clone());
        if holder.is_some_and(|holder| holder.peer) {
            return Ok(None);
        }
        if let Some(other) = holder {
            return Err(program(other));
        }
        let (before, run_before) = match (&self.last, &self.held) {
            (Some(last), _) => (last.decoded, Some(&last.run)),
            (None, held) => {
                (held.as_ref().and_then(|it| it.decoded), held.as_ref().map(|it| &it.run))
            }
        };
        let is_comparable = run_before == Some(&slot.run) && slot.decoded.is_some();
        if is_comparable && slot.decoded < before {
            return Err(Mover::Recreated);
        }
        let ended_lately = |at| now.saturating_duration_since(at) <= PEER_ENDS_WITHIN;
        match self.last.as_ref().map(|last| (&last.holder, last.at)) {
            Some((Some(peer), at)) if peer.peer => {
                let gap = now.saturating_duration_since(at);
                return Ok(Some(gap).filter(|gap| *gap > GAP_MAX));
            }
            Some((Some(other), _)) => return Err(program(other)),
            Some((None, _)) if self.peer_at.is_some_and(ended_lately) => return Ok(None),
            _ => {}
        }
        let was_advanced = is_comparable && slot.decoded == before;
        if on(Mutant::PeerByHolderOnly) {
            return Err(Mover::Unseen);
        }
        let peer_was_there = self.peer_was_there();
        let is_by_peer_there = slot.has_peer || peer_was_there && !was_advanced;
        // Only a relay puts the slot where no record ends. What does not decode, and goes farther than a
        // trace, is a peer that has confirmed over SQL when it stopped, or somebody who chose such a
        // position.
        let distance = slot.confirmed_flush.bytes_since(self.ours);
        let is_chosen = was_advanced && distance > TRACE_BYTES_MAX && !peer_was_there;
        if is_by_peer_there || progress::is_trace(slot.confirmed_flush) && !is_chosen {
            let gap = self.last_sight().judged_at.map(|at| now.saturating_duration_since(at));
            return Ok(Some(gap.unwrap_or_default()));
        }
        Err(Mover::Unseen)
    }

    /// Whether a peer that is there may have had the slot, and nobody saw it. It leaves a trace, so the
    /// slot has moved, unless Postgres was restarted or has crashed since and has lost that, or no position was
    /// free for it: the latter counts only where the slot was out of sight for long, because a standby
    /// relay is there at every new session.
    fn may_have_missed(&self, slot: &HeldSlot, now: Instant) -> bool {
        slot.confirmed_flush > self.ours
            || !self.is_same_run(slot)
            || self.was_out_of_sight(now)
            || self.is_unsigned_since_held(slot)
    }

    fn was_out_of_sight(&self, now: Instant) -> bool {
        let is_long_ago = |at| now.saturating_duration_since(at) > GAP_MAX;
        self.last_sight().judged_at.is_none_or(is_long_ago)
    }

    /// Whether the slot has moved since this relay was seen to hold it, to a position that any relay reports
    /// while nothing is in flight: the last reports of this one may be lost.
    fn is_unsigned_since_held(&self, slot: &HeldSlot) -> bool {
        let position = slot.confirmed_flush;
        let has_moved = self.held.as_ref().is_some_and(|held| position > held.confirmed);
        has_moved && !progress::is_trace(position) && !on(Mutant::UnsignedTakenForOwn)
    }

    /// Whether Postgres has all that it had when this relay held the slot last.
    fn is_same_run(&self, slot: &HeldSlot) -> bool {
        self.held.as_ref().is_some_and(|held| held.run == slot.run)
    }

    /// Whether this process has seen a peer that may have come back.
    fn had_peer(&self, now: Instant) -> bool {
        let age = |seen_at| now.saturating_duration_since(seen_at);
        self.last_sight().peer_at.is_some_and(|seen_at| age(seen_at) <= PEER_REMEMBERED)
    }

    /// Whether a peer had a session when the slot was seen last.
    fn peer_was_there(&self) -> bool {
        let LastSight { looked_at, peer_at, .. } = self.last_sight();
        peer_at.zip(looked_at).is_some_and(|(peer_at, looked_at)| {
            looked_at.saturating_duration_since(peer_at) <= PEER_SEEN_WITHIN
        })
    }

    fn last_sight(&self) -> LastSight {
        let held = self.held.as_ref();
        let judged_at = self.last.as_ref().map(|last| last.at).or(held.map(|held| held.at));
        let judged_at = judged_at.max(self.before.judged_at);
        LastSight {
            judged_at,
            peer_at: self.peer_at.max(held.and_then(|it| it.peer_at)).max(self.before.peer_at),
            looked_at: judged_at.max(held.map(|it| it.looked_at)).max(self.before.looked_at),
        }
    }

    /// A session of this relay holds the slot.
    pub(super) fn opened(&mut self, own_pid: i32) {
        self.own_pid = Some(own_pid);
    }

    /// Whether this is the walsender of a session of this relay.
    pub(super) fn is_own(&self, pid: i32) -> bool {
        self.own_pid == Some(pid)
    }

    /// Ends the looks, and returns the facts that were seen before this relay held the slot at
    /// `place`.
    pub(super) fn end(&mut self, place: &SystemTimeline) -> Seen {
        let here = self.place.as_ref() == Some(place);
        let mover = self.mover.take().unwrap_or(Mover::Unseen);
        Seen {
            peers: self.peers.take().filter(|_| here),
            mover,
            peer_may_have_held: self.peer_may_have_held,
            peer_held: self.peer_held,
            signed: self.signed,
        }
    }
}

#[cfg(test)]
#[path = "slot_history_tests.rs"]
mod tests;
