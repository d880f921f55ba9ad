//! Whether the server's WAL grows while nothing of it is confirmed, although nothing is in flight, or
//! Postgres brings nothing and answers nothing.
//!
//! Settled events, a received position and the slot's confirmed LSN count as progress: a transaction
//! of ten million rows moves the confirmed LSN once, and one that only has rows of other tables
//! settles nothing. An idle database is not behind: its keepalives are confirmed.

use super::Phase;
use super::facts::Snapshot;
use walrelay_base::lsn::Lsn;

/// The positions that move as long as the relay works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moving {
    settled_events: u64,
    received_lsn: Lsn,
    confirmed_lsn: Lsn,
}

#[derive(Debug, Default)]
pub(super) struct WalGrowth {
    last: Option<Moving>,
    moved_ms: u64,
    /// When something last moved or everything was confirmed, and where WAL ended then.
    since_ms: u64,
    server_lsn: Lsn,
}

impl WalGrowth {
    /// For how long nothing has moved while WAL grew, and by how many bytes it did.
    pub(super) fn observe(&mut self, facts: &Snapshot, now_ms: u64) -> Option<(u64, u64)> {
        let Snapshot { pass, server_lsn, slot_confirmed_lsn, .. } = *facts;
        let now = Moving {
            settled_events: pass.settled_events,
            received_lsn: pass.received_lsn,
            confirmed_lsn: slot_confirmed_lsn,
        };
        let behind = pass.phase == Phase::Streaming && server_lsn > slot_confirmed_lsn;
        let moved = self.last != Some(now);
        if moved {
            self.moved_ms = now_ms;
        }
        if !behind || moved {
            *self = WalGrowth { last: Some(now), since_ms: now_ms, server_lsn, ..*self };
            return None;
        }
        let bytes = server_lsn.bytes_since(self.server_lsn);
        (bytes > 0).then(|| (now_ms.saturating_sub(self.since_ms), bytes))
    }

    /// For how long a question of the slot watch has had no answer while nothing has moved either. To
    /// be called after `observe`. An idle stream alone is no sign: it may bring nothing for long.
    pub(super) fn silent_for(&self, facts: &Snapshot, now_ms: u64) -> Option<u64> {
        // That the stream has begun was an answer as well.
        let asked_ms = facts.unanswered_since_ms?;
        let since_ms = asked_ms.max(self.moved_ms).max(facts.phase_since_ms);
        (facts.pass.phase == Phase::Streaming).then(|| now_ms.saturating_sub(since_ms))
    }
}

#[cfg(test)]
#[path = "wal_growth_tests.rs"]
mod tests;
