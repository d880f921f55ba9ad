//! Who moved the slot while this relay did not hold it.
//!
//! A slot may be ahead of what this relay reported for two reasons. A peer, another relay on the
//! same slot, confirmed events: then they are published, and this relay goes on after them. Or
//! somebody advanced or re-created the slot, or consumed it with another program: then events were
//! skipped, and the relay must stop.
//!
//! A move counts as a peer's only when a peer was seen to hold the slot: at the look before the
//! move was seen, at that look itself, or a few seconds before while nobody held it. Positions
//! count only on the system and timeline on which they were seen.

use std::time::{Duration, Instant};

use crate::base::lsn::Lsn;
use crate::source::slot_state::{HeldSlot, SlotHolder};

/// Looks usually follow each other much faster. After a longer gap more may have happened than a
/// peer's last report.
const GAP_MAX: Duration = Duration::from_secs(10);
/// A peer that stops may still confirm its position over SQL this long after it was last seen.
const PEER_ENDS_WITHIN: Duration = Duration::from_secs(6);

/// What looks at the slot have shown since this relay last held it.
#[derive(Debug, Default)]
pub(super) struct SlotHistory {
    place: Option<SystemTimeline>,
    own_pid: Option<i32>,
    /// The position up to which this relay itself knows everything to be confirmed.
    ours: Lsn,
    peers: Option<PeerProgress>,
    mover: Option<Mover>,
    last: Option<LastLook>,
    /// When a peer was last seen to hold the slot, if nobody else has held it since.
    peer_at: Option<Instant>,
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
    decoded: Option<i64>,
    /// The next look runs on the same connection.
    continuous: bool,
}

/// What peers confirmed while this relay did not hold the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerProgress {
    /// Everything before this position is confirmed.
    pub confirmed: Lsn,
    /// A part of it was confirmed during so long a gap between two looks.
    pub gap: Option<Duration>,
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
    /// A session is requested; everything before `ours` is known to be confirmed.
    pub(super) fn begins(&mut self, ours: Lsn) {
        *self = SlotHistory {
            place: self.place.take(),
            own_pid: self.own_pid,
            ours,
            ..SlotHistory::default()
        };
    }

    /// The next looks run on a new connection, to this place.
    pub(super) fn connected(&mut self, place: SystemTimeline) {
        if self.place.as_ref().is_some_and(|known| *known != place) {
            self.begins(Lsn::ZERO);
        }
        self.place = Some(place);
        if let Some(last) = &mut self.last {
            last.continuous = false;
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
        let earlier = self.peers.unwrap_or_default();
        if slot.confirmed_flush > self.ours.max(earlier.confirmed) && self.mover.is_none() {
            match self.judge(slot, holder, now) {
                Ok(gap) => {
                    let (confirmed, gap) = (slot.confirmed_flush, earlier.gap.or(gap));
                    self.peers = Some(PeerProgress { confirmed, gap });
                }
                Err(mover) => self.mover = Some(mover),
            }
        }
        let (holder, decoded) = (holder.cloned(), slot.decoded);
        if let Some(holder) = &holder {
            self.peer_at = holder.peer.then_some(now);
        }
        self.last = Some(LastLook { at: now, holder, decoded, continuous: true });
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
        let Some(last) = &self.last else { return Err(holder.map_or(Mover::Unseen, program)) };
        if last.continuous && slot.decoded < last.decoded {
            return Err(Mover::Recreated);
        }
        let ended_lately = |at| now.saturating_duration_since(at) <= PEER_ENDS_WITHIN;
        match &last.holder {
            Some(peer) if peer.peer => {
                let gap = now.saturating_duration_since(last.at);
                Ok(Some(gap).filter(|gap| *gap > GAP_MAX))
            }
            None if holder.is_none() && self.peer_at.is_some_and(ended_lately) => Ok(None),
            before => Err(holder.or(before.as_ref()).map_or(Mover::Unseen, program)),
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

    /// What was seen before this relay held the slot at `place`.
    pub(super) fn ends(&mut self, place: &SystemTimeline) -> (Option<PeerProgress>, Mover) {
        let here = self.place.as_ref() == Some(place);
        let mover = self.mover.take().unwrap_or(Mover::Unseen);
        (self.peers.take().filter(|_| here), mover)
    }
}

#[cfg(test)]
#[path = "slot_history_tests.rs"]
mod tests;
