//! Which relays have seen that there is another one.

use walrelay_core::source::sightings::PEER_SEEN_WITHIN;

use super::Postgres;

impl Postgres {
    /// A relay has seen a peer now.
    pub(super) fn see_peer(&mut self, relay: usize, now_unix_us: i64) {
        self.looks.insert(relay, (now_unix_us, Some(now_unix_us)));
        self.see_peers.insert(relay);
    }

    /// A relay sees that another one has the slot.
    pub(crate) fn see_holder(&mut self, relay: usize, now_unix_us: i64) {
        self.see_peer(relay, now_unix_us);
        self.unseen_holder.remove(&relay);
    }

    /// Notes that a relay has the slot. True if a crash or a restore has taken back positions since it had it last.
    pub(crate) fn note_begun(&mut self, relay: usize) -> bool {
        self.took_back.insert(relay, false).unwrap_or_default()
    }

    /// The process of a relay has made a step: it has noted what it has seen.
    pub(crate) fn remember_peers(&mut self, relay: usize) {
        if self.see_peers.remove(&relay) {
            self.know_peers.insert(relay);
        }
    }

    /// Whether a process of the relay has ever noted that there is another relay.
    pub(crate) fn knows_peer(&self, relay: usize) -> bool {
        self.know_peers.contains(&relay)
    }

    pub(crate) fn has_seen_peer(&self, relay: usize) -> bool {
        self.looks.get(&relay).is_some_and(|(_, peer)| peer.is_some())
    }

    /// Whether a relay has seen a peer shortly before its last look.
    pub(crate) fn had_peer(&self, relay: usize) -> bool {
        let Some((looked, Some(peer))) = self.looks.get(&relay) else { return false };
        looked - peer <= PEER_SEEN_WITHIN.as_micros() as i64
    }

    /// Whether another one has had the slot since the relay has looked at it last.
    pub(crate) fn has_missed_holder(&self, relay: usize) -> bool {
        self.unseen_holder.contains(&relay)
    }

    /// The process of a relay is gone.
    pub(crate) fn forget_peers(&mut self, relay: usize) {
        self.see_peers.remove(&relay);
        self.looks.remove(&relay);
    }
}
