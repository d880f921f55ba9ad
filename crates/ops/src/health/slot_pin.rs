//! Whether an open transaction keeps the slot's `restart_lsn` from moving.
//!
//! Postgres does not say so. What can be seen is that the same transaction has been the oldest for
//! long, that `restart_lsn` has stood for as long, and that the confirmed LSN has left it behind
//! meanwhile: then it is not the relay that holds the WAL. Within the limit the next record of running
//! transactions may just not have come, which Postgres writes every 15 s.

use std::time::{Duration, Instant};

use walrelay_base::figures::binary_size;
use walrelay_base::lsn::Lsn;
use walrelay_postgres::oldest_transaction::{OldestTransaction, PINNED_BYTES_MIN};
use walrelay_postgres::slot_state::SlotFacts;

/// A transaction that holds `restart_lsn`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotPin {
    pub by: OldestTransaction,
    pub age: Duration,
    pub restart_lsn: Lsn,
    /// WAL from `restart_lsn` to the confirmed LSN: nobody but the transaction needs it kept.
    pub bytes: u64,
}

impl SlotPin {
    /// A sentence with the SQL that mends it.
    pub fn text(&self) -> String {
        let (title, age_s, mend) = (self.by.title(), self.age.as_secs(), self.by.mend());
        let SlotPin { restart_lsn, bytes, .. } = self;
        format!(
            "{title} is open for {age_s} s and holds restart_lsn at {restart_lsn}: Postgres keeps \
             {} of WAL that is confirmed; to end it: {mend}",
            binary_size(*bytes)
        )
    }
}

#[derive(Debug)]
pub(super) struct PinWatch {
    limit: Duration,
    last: Option<Sighting>,
}

/// The oldest transaction as it was first seen, and the slot as it was when `restart_lsn` last moved.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    xid: u32,
    seen_at: Instant,
    restart_lsn: Lsn,
    confirmed_lsn: Lsn,
    stands_since: Instant,
}

impl PinWatch {
    pub(super) fn new(limit: Duration) -> PinWatch {
        PinWatch { limit, last: None }
    }

    pub(super) fn observe(
        &mut self,
        slot: &SlotFacts,
        oldest: Option<OldestTransaction>,
        now: Instant,
    ) -> Option<SlotPin> {
        let last = self.last.take();
        let by = oldest?;
        let (restart_lsn, confirmed_lsn) = (slot.restart_lsn, slot.confirmed_flush);
        let mut sighting = last.filter(|last| last.xid == by.xid).unwrap_or(Sighting {
            xid: by.xid,
            seen_at: now,
            restart_lsn,
            confirmed_lsn,
            stands_since: now,
        });
        if sighting.restart_lsn != restart_lsn {
            sighting = Sighting { restart_lsn, confirmed_lsn, stands_since: now, ..sighting };
        }
        self.last = Some(sighting);
        let since = |at: Instant| now.saturating_duration_since(at);
        let told = by.age_ms.map_or(Duration::ZERO, Duration::from_millis);
        let age = told.max(since(sighting.seen_at));
        let bytes = confirmed_lsn.bytes_since(restart_lsn);
        let holds = age >= self.limit
            && since(sighting.stands_since) >= self.limit
            && confirmed_lsn > sighting.confirmed_lsn
            && bytes >= PINNED_BYTES_MIN;
        holds.then_some(SlotPin { by, age, restart_lsn, bytes })
    }
}

#[cfg(test)]
#[path = "slot_pin_tests.rs"]
mod tests;
