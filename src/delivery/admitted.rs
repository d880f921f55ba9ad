//! What this process has admitted already, so that a new connection does not repeat it (G3).
//!
//! After a broken connection Postgres sends every transaction again that it has not been told to
//! forget, and after a crash even some that it has (it writes the slot lazily). Transactions come
//! in commit order and their rows always in the same order, so a position tells new from known.
//! That holds within one process, system, timeline and slot; whoever crosses one of them must
//! call [`Admitted::forget`] first, or events would be lost.

use crate::base::event::Position;
use crate::base::lsn::Lsn;

/// The newest position that was admitted.
#[derive(Debug, Default)]
pub struct Admitted {
    /// Everything before this position was admitted: all transactions with a lower commit LSN,
    /// and of this one the events below the ordinal.
    until: Position,
    open: Option<Position>,
}

/// What a Begin announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// All of it was admitted before; its commit is in the ledger already.
    Known,
    /// This many of its first events were admitted before.
    New {
        /// Events to pass over.
        already: u64,
    },
}

/// The ordinal after every event of a transaction.
const WHOLE: u64 = u64::MAX;

impl Admitted {
    /// A transaction begins.
    pub fn begin(&mut self, commit_lsn: Lsn) -> Transaction {
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

    /// Is the next event of the open transaction a repetition?
    #[must_use]
    pub fn is_repeat(&self) -> bool {
        self.open.is_some_and(|next| next < self.until)
    }

    /// Where the next event stands, when a transaction is open.
    #[must_use]
    pub fn next(&self) -> Option<Position> {
        self.open
    }

    /// The next event of the open transaction has been admitted or passed over.
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
        if let Some(next) = self.open.take() {
            self.until = self.until.max(next);
        }
    }

    /// Everything from `from` on must be admitted anew.
    pub fn rewind(&mut self, from: Position) {
        self.open = None;
        self.until = self.until.min(from);
    }

    /// The slot says that everything committed before `floor` is confirmed. A Postgres that crashes
    /// later forgets that and sends it again; it skips by the same rule while it remembers.
    pub fn starts_at(&mut self, floor: Lsn) {
        self.until = self.until.max(Position { commit_lsn: floor, ordinal: 0 });
    }

    /// Nothing is known any more: another timeline, another slot.
    pub fn forget(&mut self) {
        *self = Admitted::default();
    }
}

#[cfg(test)]
#[path = "admitted_tests.rs"]
mod tests;
