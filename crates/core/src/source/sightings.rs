//! Sightings of the slot while this process held it: the session and the slot watch write it, and
//! whoever judges a move of the slot compares with it.
//!
//! While the slot is free or another process holds it, only the peer that is there is noted: changes of
//! the slot from that time must be judged.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::server::{ServerRun, ServerStart};
use super::slot_state::HeldSlot;
use super::walsender::Walsender;
use crate::base::lock::locked;
use crate::base::lsn::Lsn;

/// A peer that was seen at most this long before the last look, was there when that was made: it
/// may be between two sessions, and does not run the statement that shows it all the time.
pub const PEER_SEEN_WITHIN: Duration = Duration::from_secs(10);
/// A peer that was seen so long ago may have come back, and have had the slot between two looks. A
/// walsender of this relay's last process looks like a peer, so that is not remembered for ever.
pub const PEER_REMEMBERED: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Default)]
pub struct Sightings(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// The walsender of this process that holds the slot, or held it last.
    holder: Option<Walsender>,
    last: Option<Sighting>,
    /// When another relay of the slot was seen last, whoever has held it, and on whichever server.
    peer_at: Option<Instant>,
    /// When the slot was looked at last.
    looked_at: Option<Instant>,
}

impl Noted {
    fn saw_peer_within(&self, time: Duration, now: Instant) -> bool {
        self.peer_at.is_some_and(|seen_at| now.saturating_duration_since(seen_at) <= time)
    }
}

/// The slot in the hands of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub at: Instant,
    pub run: ServerRun,
    pub decoded: Option<i64>,
    pub confirmed: Lsn,
    /// When another relay of this slot was seen last, at that time or later.
    pub peer_at: Option<Instant>,
    /// When the slot was looked at last, whoever has held it.
    pub looked_at: Instant,
}

impl Sightings {
    /// A session holds the slot.
    pub fn opened(&self, holder: Walsender) {
        let mut noted = self.noted();
        noted.last = noted.last.take().filter(|last| last.run.start == holder.server);
        noted.holder = Some(holder);
    }

    /// The walsender of the last session.
    pub fn walsender(&self) -> Option<Walsender> {
        self.noted().holder.clone()
    }

    /// The server of the last session.
    pub fn server(&self) -> Option<ServerStart> {
        self.walsender().map(|walsender| walsender.server)
    }

    pub fn look(&self, slot: &HeldSlot, at: Instant) {
        let mut noted = self.noted();
        noted.looked_at = Some(at);
        noted.peer_at = slot.has_peer.then_some(at).or(noted.peer_at);
        let is_held_by = |own: &Walsender| {
            own.server == slot.run.start && slot.holder.as_ref().is_some_and(|it| it.pid == own.pid)
        };
        let is_own = noted.holder.as_ref().is_some_and(is_held_by);
        // A move of the slot after another program has held it is not taken for a peer's.
        let is_program = !is_own && slot.holder.as_ref().is_some_and(|it| !it.peer);
        let before = noted.last.as_ref().and_then(|last| last.peer_at);
        let peer_at = slot.has_peer.then_some(at).or(before).filter(|_| !is_program);
        if is_own {
            let (run, decoded, confirmed) = (slot.run.clone(), slot.decoded, slot.confirmed_flush);
            noted.last = Some(Sighting { at, run, decoded, confirmed, peer_at, looked_at: at });
        } else if let Some(last) = &mut noted.last {
            (last.peer_at, last.looked_at) = (peer_at, at);
        }
    }

    /// Another relay of this slot was there at the last look.
    pub fn has_peer(&self) -> bool {
        let noted = self.noted();
        noted.looked_at.is_some_and(|at| noted.saw_peer_within(PEER_SEEN_WITHIN, at))
    }

    /// Another relay of this slot was seen, and may have come back.
    pub fn remembers_peer(&self, now: Instant) -> bool {
        self.noted().saw_peer_within(PEER_REMEMBERED, now)
    }

    pub fn last(&self) -> Option<Sighting> {
        self.noted().last.clone()
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        locked(&self.0)
    }
}

#[cfg(test)]
#[path = "sightings_tests.rs"]
mod tests;
