//! Which transactions are completely confirmed, in commit order.
//!
//! A transaction settles at its commit *end* LSN, and only when it and all before it are settled.
//! Its events are consecutive in the window, so one number says when: that of the first event after
//! it. A transaction without events extends the entry before it, so the ledger never holds more
//! entries than the window holds events.

use std::collections::VecDeque;

use crate::base::event::{Position, Sequence};
use crate::base::lsn::Lsn;
use crate::mutants::{Mutant, on};

/// Transactions that were received and are not yet settled.
#[derive(Debug, Default)]
pub struct Ledger {
    settled: Lsn,
    /// Their commit was received.
    committed: VecDeque<Committed>,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    commit_lsn: Lsn,
    first: Sequence,
}

#[derive(Clone, Copy, Debug)]
struct Committed {
    commit_lsn: Lsn,
    end_lsn: Lsn,
    first: Sequence,
    /// It is settled when every event below this one is.
    below: Sequence,
}

impl Ledger {
    /// A transaction begins, whose events start at `next`. `already` of its events were admitted
    /// over an earlier connection, which broke before its commit.
    pub fn begin(&mut self, commit_lsn: Lsn, next: Sequence, already: u64) {
        self.open = Some(Open { commit_lsn, first: next - already });
    }

    /// The open transaction ends; `next` is the first number that is not one of its events.
    pub fn commit(&mut self, end_lsn: Lsn, next: Sequence) {
        let Some(open) = self.open.take() else { return };
        if let Some(last) = self.committed.back_mut().filter(|last| last.below == next) {
            last.end_lsn = end_lsn;
            if on(Mutant::EmptySettles) {
                self.settled = end_lsn;
            }
            return;
        }
        self.committed.push_back(Committed {
            commit_lsn: open.commit_lsn,
            end_lsn,
            first: open.first,
            below: next,
        });
    }

    /// Every event below `settled_below` is confirmed. Returns the LSN that may be reported.
    pub fn settle(&mut self, settled_below: Sequence) -> Lsn {
        let is_settled = |it: &&Committed| {
            it.below <= settled_below || on(Mutant::AckFirstEvent) && it.first < settled_below
        };
        while let Some(first) = self.committed.front().filter(is_settled) {
            self.settled = first.end_lsn;
            self.committed.pop_front();
        }
        self.settled
    }

    /// Whether nothing is unconfirmed or half received. Only then may a keepalive's position be
    /// reported.
    pub fn is_clear(&self) -> bool {
        (self.committed.is_empty() || on(Mutant::KeepaliveUnconfirmed))
            && (self.open.is_none() || on(Mutant::KeepaliveInTransaction))
    }

    /// Position of the first event that is not settled in order, if it was admitted at all.
    pub fn position_of(&self, settled_below: Sequence) -> Option<Position> {
        let at = self.committed.partition_point(|entry| entry.below <= settled_below);
        let committed = self.committed.get(at);
        let (commit_lsn, first) = match (committed, self.open) {
            (Some(entry), _) => (entry.commit_lsn, entry.first),
            (None, Some(open)) => (open.commit_lsn, open.first),
            (None, None) => return None,
        };
        Some(Position { commit_lsn, ordinal: settled_below.saturating_sub(first) })
    }

    /// Forgets what is unsettled: it will be received and admitted again.
    pub fn rewind(&mut self) {
        self.committed.clear();
        self.open = None;
    }

    /// Another timeline, whose positions cannot be compared with these, or another relay has had the
    /// slot, and everything is received again.
    pub fn forget(&mut self) {
        *self = Ledger::default();
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
