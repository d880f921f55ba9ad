//! Which events this process has admitted already, so that a new connection does not repeat them.
//!
//! After a broken connection Postgres sends every transaction again that was not
//! confirmed to it, and after a crash even some that were, because it writes the
//! slot's position to disk only now and then. Transactions come in commit order, and
//! their rows always in the same order, so a position tells new events from known
//! ones. That holds within one process, system, timeline and slot. When one of them
//! changes, [`Admitted::forget`] must be called first, or events would be lost. Whether the same
//! transactions are sent again is checked by [`super::history`] before the first event of each.

use super::history::{CommitHistory, CommitId, OtherHistory};
use crate::base::event::Position;
use crate::base::lsn::Lsn;
use crate::mutants::{Mutant, on};

#[derive(Debug, Default)]
pub struct Admitted {
    history: CommitHistory,
    /// Everything before this position was admitted: all transactions with a lower commit LSN,
    /// and of this one the events below the ordinal.
    until: Position,
    /// Position of the next event of the open transaction.
    open: Option<Position>,
    /// The open transaction, until its first event has come; none if it is known by its identity.
    unchecked: Option<CommitId>,
}

/// What Begin starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// All of it was admitted before; its commit is in the ledger already.
    Known,
    /// Its first `already` events were admitted before.
    New { already: u64 },
}

/// The ordinal after every event of a transaction.
const WHOLE: u64 = u64::MAX;

impl Admitted {
    /// A session begins, in which the server sends what was committed at `from` or later.
    pub fn begins_at(&mut self, from: Lsn) {
        self.history.begins_at(from);
    }

    pub fn begin(&mut self, commit: CommitId) -> Transaction {
        let commit_lsn = commit.commit_lsn;
        self.unchecked = Some(commit).filter(|commit| !self.history.recognises(*commit));
        self.open = Some(Position { commit_lsn, ordinal: 0 });
        let all = Position { commit_lsn, ordinal: WHOLE };
        if all <= self.until {
            Transaction::Known
        } else if self.until.commit_lsn == commit_lsn {
            Transaction::New { already: self.until.ordinal }
        } else {
            Transaction::New { already: 0 }
        }
    }

    /// An event of the open transaction comes: it must be the transaction that it was before. Those
    /// without events may come or not, as the publication was when they were decoded.
    #[inline]
    pub fn check(&mut self) -> Result<(), OtherHistory> {
        let Some(commit) = self.unchecked.take() else { return Ok(()) };
        // Then it had no event: with one it would be known by its identity.
        let was_received = Position { commit_lsn: commit.commit_lsn, ordinal: WHOLE } <= self.until;
        if on(Mutant::SkipByLsnAlone) {
            return Ok(());
        }
        self.history.meets(commit, was_received)
    }

    /// The server has sent everything before `position` in this session.
    pub fn passes(&self, position: Lsn) -> Result<(), OtherHistory> {
        if on(Mutant::SkipByLsnAlone) { Ok(()) } else { self.history.passes(position) }
    }

    /// Whether the next event of the open transaction was admitted before.
    pub fn is_repeat(&self) -> bool {
        self.open.is_some_and(|next| next < self.until)
    }

    /// Position of the next event, if a transaction is open.
    pub fn next(&self) -> Option<Position> {
        self.open
    }

    /// The next event of the open transaction was admitted or skipped.
    pub fn advance(&mut self) {
        if let Some(next) = &mut self.open {
            next.ordinal += 1;
        }
    }

    /// The open transaction ends; true when its commit is new.
    pub fn commit(&mut self) -> bool {
        let Some(Position { commit_lsn, .. }) = self.open.take() else { return false };
        let all = Position { commit_lsn, ordinal: WHOLE };
        let new = all > self.until;
        self.until = self.until.max(all);
        new
    }

    /// The connection broke.
    pub fn interrupt(&mut self) {
        if let Some(next) = self.open.take()
            && !on(Mutant::InterruptForgotten)
        {
            self.until = self.until.max(next);
        }
    }

    /// Everything from `from` on must be admitted again.
    pub fn rewind(&mut self, from: Position) {
        self.open = None;
        self.until = self.until.min(from);
    }

    /// Everything committed before `floor` is confirmed, and was committed until `until_us`. A Postgres
    /// that crashes later may send it again; while it remembers the position, it skips by the same
    /// rule. Everything before `received` was received by this process.
    pub fn starts_at(&mut self, floor: Lsn, until_us: i64, received: Lsn) {
        self.history.starts_at(floor, until_us, received);
        self.until = self.until.max(Position { commit_lsn: floor, ordinal: 0 });
    }

    /// Another timeline, or another slot.
    pub fn forget(&mut self) {
        *self = Admitted::default();
    }
}

#[cfg(test)]
#[path = "admitted_tests.rs"]
mod tests;
