//! Sightings of the slot while this process held it: the session and the slot watch write it, and
//! whoever judges a move of the slot compares with it.
//!
//! No sighting is noted while the slot is free or another process holds it: changes from that time
//! must be judged.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::server::{ServerRun, ServerStart};
use super::slot_state::HeldSlot;

#[derive(Debug, Default)]
pub struct Sightings(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    holder: Option<OwnHolder>,
    last: Option<Sighting>,
}

/// The walsender of this process that holds the slot, or held it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnHolder {
    pub pid: i32,
    pub server: ServerStart,
}

/// The slot in the hands of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub at: Instant,
    pub run: ServerRun,
    pub decoded: Option<i64>,
    /// When another relay of this slot was seen last.
    pub peer_at: Option<Instant>,
}

impl Sighting {
    /// Another relay of this slot was seen beside the session.
    pub fn has_peer(&self) -> bool {
        self.peer_at.is_some()
    }
}

impl Sightings {
    /// A session holds the slot.
    pub fn opened(&self, holder: OwnHolder) {
        let mut noted = self.noted();
        noted.last = noted.last.take().filter(|last| last.run.start == holder.server);
        noted.holder = Some(holder);
    }

    /// The server of the last session.
    pub fn server(&self) -> Option<ServerStart> {
        self.noted().holder.as_ref().map(|holder| holder.server.clone())
    }

    pub fn look(&self, server: &ServerStart, slot: &HeldSlot, at: Instant) {
        let mut noted = self.noted();
        let is_own = |own: &OwnHolder| {
            own.server == *server && slot.holder.as_ref().is_some_and(|it| it.pid == own.pid)
        };
        if !noted.holder.as_ref().is_some_and(is_own) {
            return;
        }
        let before = noted.last.as_ref().and_then(|last| last.peer_at);
        let peer_at = slot.has_peer.then_some(at).or(before);
        let run = slot.run_of(server);
        noted.last = Some(Sighting { at, run, decoded: slot.decoded, peer_at });
    }

    pub fn last(&self) -> Option<Sighting> {
        self.noted().last.clone()
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
