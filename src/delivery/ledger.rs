//! Which transactions are wholly confirmed, in the order in which they were committed.
//!
//! A transaction settles at its commit *end* LSN, and only when it and all before it are settled.
//! Its events are consecutive in the window, so one number closes it: the first event that is not
//! its own. Transactions without events fold into the one before, so the ledger never holds more
//! entries than the window holds events.

use std::collections::VecDeque;

use crate::lsn::Lsn;
use crate::message::{Position, Sequence};

/// Transactions that were received and are not yet settled.
#[derive(Debug, Default)]
pub struct Ledger {
    settled: Lsn,
    closed: VecDeque<Closed>,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    commit_lsn: Lsn,
    first: Sequence,
}

#[derive(Clone, Copy, Debug)]
struct Closed {
    commit_lsn: Lsn,
    end_lsn: Lsn,
    first: Sequence,
    /// Settled when every event below this one is.
    below: Sequence,
}

impl Ledger {
    /// A transaction begins whose events start at `next`. `already` of its events were admitted
    /// over an earlier connection: it stayed open here when that broke, and begins once more.
    pub fn begin(&mut self, commit_lsn: Lsn, next: Sequence, already: u64) {
        self.open = Some(Open { commit_lsn, first: next - already });
    }

    /// The open transaction ends; `next` is the first number that is not one of its events.
    pub fn commit(&mut self, end_lsn: Lsn, next: Sequence) {
        let Some(open) = self.open.take() else { return };
        if let Some(last) = self.closed.back_mut().filter(|last| last.below == next) {
            last.end_lsn = end_lsn;
            return;
        }
        self.closed.push_back(Closed {
            commit_lsn: open.commit_lsn,
            end_lsn,
            first: open.first,
            below: next,
        });
    }

    /// Everything committed before `floor` was confirmed by another relay: a transaction that was
    /// cut before it is not sent again, and ends there with the events it has.
    pub fn close_below(&mut self, floor: Lsn, next: Sequence) {
        if self.open.is_some_and(|open| open.commit_lsn < floor) {
            self.commit(floor, next);
        }
    }

    /// Every event below `settled_below` is confirmed; returns the LSN that Postgres may forget.
    pub fn settle(&mut self, settled_below: Sequence) -> Lsn {
        while let Some(first) = self.closed.front().filter(|first| first.below <= settled_below) {
            self.settled = first.end_lsn;
            self.closed.pop_front();
        }
        self.settled
    }

    /// Is nothing unconfirmed and nothing half received? Only then may a keepalive's position be
    /// reported.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.closed.is_empty() && self.open.is_none()
    }

    /// Where the first event stood that is not settled in order, if it was admitted at all.
    #[must_use]
    pub fn position_of(&self, settled_below: Sequence) -> Option<Position> {
        let at = self.closed.partition_point(|entry| entry.below <= settled_below);
        let closed = self.closed.get(at);
        let (commit_lsn, first) = match (closed, self.open) {
            (Some(entry), _) => (entry.commit_lsn, entry.first),
            (None, Some(open)) => (open.commit_lsn, open.first),
            (None, None) => return None,
        };
        Some(Position { commit_lsn, ordinal: settled_below.saturating_sub(first) })
    }

    /// Forgets what is unsettled: it will be received and admitted anew.
    pub fn rewind(&mut self) {
        self.closed.clear();
        self.open = None;
    }

    /// Forgets everything: the positions of another timeline mean nothing here.
    pub fn forget(&mut self) {
        *self = Ledger::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lsn(value: u64) -> Lsn {
        Lsn::from_wire(value)
    }

    #[test]
    fn a_transaction_settles_at_its_end_lsn_and_only_whole() {
        let mut ledger = Ledger::default();
        ledger.begin(lsn(100), 0, 0);
        assert!(!ledger.is_clear(), "half received");
        assert_eq!(ledger.settle(2), Lsn::ZERO, "its commit has not been seen");
        ledger.commit(lsn(110), 2);
        assert_eq!(ledger.settle(1), Lsn::ZERO);
        assert_eq!(ledger.settle(2), lsn(110));
        assert!(ledger.is_clear());
    }

    #[test]
    fn a_later_transaction_waits_for_the_earlier() {
        let mut ledger = Ledger::default();
        ledger.begin(lsn(100), 0, 0);
        ledger.commit(lsn(110), 1);
        ledger.begin(lsn(200), 1, 0);
        ledger.commit(lsn(210), 2);
        assert_eq!(ledger.settle(0), Lsn::ZERO);
        assert_eq!(ledger.settle(1), lsn(110));
        assert_eq!(ledger.settle(2), lsn(210));
    }

    #[test]
    fn empty_transactions_fold_and_wait_for_what_is_before_them() {
        let mut ledger = Ledger::default();
        ledger.begin(lsn(100), 0, 0);
        ledger.commit(lsn(110), 1);
        for n in 0..1000 {
            ledger.begin(lsn(200 + n), 1, 0);
            ledger.commit(lsn(201 + n), 1);
        }
        assert_eq!(ledger.closed.len(), 1);
        assert_eq!(ledger.settle(0), Lsn::ZERO);
        assert_eq!(ledger.settle(1), lsn(1200));
    }

    #[test]
    fn an_interrupted_transaction_goes_on_where_it_was_cut() {
        let mut ledger = Ledger::default();
        ledger.begin(lsn(100), 0, 0);
        assert_eq!(ledger.settle(3), Lsn::ZERO, "three of its events are confirmed, it is not");
        assert!(!ledger.is_clear());
        ledger.begin(lsn(100), 3, 3);
        assert_eq!(ledger.position_of(3), Some(Position { commit_lsn: lsn(100), ordinal: 3 }));
        ledger.commit(lsn(110), 5);
        assert_eq!(ledger.position_of(1), Some(Position { commit_lsn: lsn(100), ordinal: 1 }));
        assert_eq!(ledger.settle(5), lsn(110));
        assert_eq!(ledger.position_of(5), None);
    }

    #[test]
    fn a_cut_transaction_that_another_relay_confirmed_ends_with_what_it_has() {
        let mut ledger = Ledger::default();
        ledger.begin(lsn(100), 0, 0);
        ledger.close_below(lsn(100), 3);
        assert_eq!(ledger.position_of(0), Some(Position { commit_lsn: lsn(100), ordinal: 0 }));
        ledger.close_below(lsn(150), 3);
        assert!(!ledger.is_clear(), "its events are in flight");
        assert_eq!(ledger.position_of(2), Some(Position { commit_lsn: lsn(100), ordinal: 2 }));
        ledger.begin(lsn(200), 3, 0);
        ledger.commit(lsn(210), 4);
        assert_eq!(ledger.settle(3), lsn(150));
        assert_eq!(ledger.settle(4), lsn(210));
        assert!(ledger.is_clear());
    }
}
