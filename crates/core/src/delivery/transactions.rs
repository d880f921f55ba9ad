//! The transactions that are received: which of their events were admitted before, and which of them
//! are settled, so that their end may be reported.
//!
//! After a broken connection Postgres sends every transaction again that was not confirmed to it, and
//! after a crash even some that were, because it writes the slot's position to disk only now and then.
//! Transactions come in commit order, and their rows always in the same order, so a position tells new
//! events from known ones. That holds within one process, system, timeline and slot. When one of them
//! changes, [`Transactions::forget`] must be called first, or events would be lost. Whether the same
//! transactions are sent again is checked by [`super::history`] before the first event of each.
//!
//! A transaction settles at the position that is reported for it, behind the begin of its commit record
//! ([`crate::source::progress::Signature::sign`]), and only when it and all before it are settled. Its
//! events are consecutive in the table of what is in flight, so one number says when: that of the first
//! event after it. A transaction without events extends the entry before it, so there are never more
//! entries than events in flight.

use std::collections::VecDeque;

use super::history::{CommitHistory, CommitId, OtherHistory};
use crate::base::event::{Position, Sequence};
use crate::base::lsn::Lsn;
use crate::mutants::{Mutant, on};

#[derive(Debug, Default)]
pub struct Transactions {
    history: CommitHistory,
    /// Everything before this position was admitted: all transactions with a lower commit LSN,
    /// and of this one the events below the ordinal.
    until: Position,
    receiving: Option<Receiving>,
    /// A transaction has begun that is not known, and its commit was not received. That outlasts a
    /// broken connection.
    is_unfinished: bool,
    /// Transactions whose commit was received and that are not settled.
    committed: VecDeque<Committed>,
    settled: Lsn,
}

/// The transaction that is being received.
#[derive(Clone, Copy, Debug)]
struct Receiving {
    commit: CommitId,
    /// Its next event.
    ordinal: u64,
    /// It is the transaction that it was before, or the first at its position.
    is_checked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Committed {
    /// It is settled when every event below this one is.
    below: Sequence,
    reported_as: Lsn,
}

/// The ordinal after every event of a transaction.
const WHOLE: u64 = u64::MAX;

impl Transactions {
    /// A session begins, in which the server sends what was committed at `from` or later.
    pub fn begin_session(&mut self, from: Lsn) {
        self.history.begin_session(from);
    }

    pub fn begin(&mut self, commit: CommitId) {
        let is_checked = self.history.recognise(commit);
        self.receiving = Some(Receiving { commit, ordinal: 0, is_checked });
        self.is_unfinished |= all_of(commit.commit_lsn) > self.until;
    }

    /// An event of the open transaction comes: it must be the transaction that it was before. Those
    /// without events may come or not, as the publication was when they were decoded.
    #[inline]
    pub fn check(&mut self) -> Result<(), OtherHistory> {
        let Some(Receiving { commit, is_checked, .. }) = &mut self.receiving else { return Ok(()) };
        if std::mem::replace(is_checked, true) || on(Mutant::SkipByLsnAlone) {
            return Ok(());
        }
        // Then it had no event: with one it would be known by its identity. No transaction commits within
        // the commit record of another: the end of that one would be reported in front of its own.
        let last = self.committed.back().map_or(Lsn::ZERO, |it| it.reported_as).max(self.settled);
        let overlaps = commit.commit_lsn < last && !on(Mutant::OverlapUnseen);
        let was_received = all_of(commit.commit_lsn) <= self.until || overlaps;
        self.history.add_new(*commit, was_received)
    }

    /// The server has sent everything before `position` in this session.
    pub fn check_sent(&self, position: Lsn) -> Result<(), OtherHistory> {
        if on(Mutant::SkipByLsnAlone) { Ok(()) } else { self.history.check_sent(position) }
    }

    /// Whether all of the open transaction was admitted before.
    pub fn is_known(&self) -> bool {
        self.receiving.is_none_or(|it| all_of(it.commit.commit_lsn) <= self.until)
    }

    /// The open transaction.
    pub fn receiving(&self) -> Option<CommitId> {
        self.receiving.map(|receiving| receiving.commit)
    }

    /// Position of the next event, if a transaction is open.
    #[inline]
    pub fn next(&self) -> Option<Position> {
        let Receiving { commit, ordinal, .. } = self.receiving?;
        Some(Position { commit_lsn: commit.commit_lsn, ordinal })
    }

    /// Whether the next event of the open transaction was admitted before.
    #[inline]
    pub fn is_repeat(&self) -> bool {
        self.next().is_some_and(|next| next < self.until)
    }

    /// The next event of the open transaction was admitted or skipped.
    #[inline]
    pub fn advance(&mut self) {
        if let Some(receiving) = &mut self.receiving {
            receiving.ordinal += 1;
        }
    }

    /// The open transaction ends; `next` is the first number that is not one of its events. True when
    /// its commit is new.
    pub fn commit(&mut self, reported_as: Lsn, next: Sequence) -> bool {
        let Some(Receiving { commit, .. }) = self.receiving.take() else { return false };
        let all = all_of(commit.commit_lsn);
        if all <= self.until {
            return false;
        }
        self.until = all;
        self.is_unfinished = false;
        match self.committed.back_mut().filter(|last| last.below == next) {
            Some(last) => {
                last.reported_as = reported_as;
                if on(Mutant::EmptySettles) {
                    self.settled = reported_as;
                }
            }
            None => self.committed.push_back(Committed { below: next, reported_as }),
        }
        true
    }

    /// The connection broke.
    pub fn interrupt(&mut self) {
        if let Some(next) = self.next()
            && !on(Mutant::InterruptForgotten)
        {
            self.until = self.until.max(next);
        }
        self.receiving = None;
    }

    /// Every event below `settled_below` is confirmed. Returns the LSN that may be reported.
    pub fn settle(&mut self, settled_below: Sequence) -> Lsn {
        let settled_below = settled_below + Sequence::from(on(Mutant::AckBeforeLast));
        while let Some(first) = self.committed.front().filter(|it| it.below <= settled_below) {
            self.settled = first.reported_as;
            self.committed.pop_front();
        }
        self.settled
    }

    /// Whether a new transaction has begun and was not received to its end, in this session or before.
    pub fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Whether nothing is unconfirmed or half received. Only then may a keepalive's position be
    /// reported. Also a transaction that counts as known may turn out to be another one.
    pub fn is_clear(&self) -> bool {
        let is_between = !self.is_unfinished && self.receiving.is_none();
        (self.committed.is_empty() || on(Mutant::KeepaliveUnconfirmed))
            && (is_between || on(Mutant::KeepaliveInTransaction))
    }

    /// Everything from `from` on that is unsettled will be received and admitted again, in another session.
    pub fn rewind(&mut self, from: Option<Position>) {
        if let Some(from) = from {
            self.until = self.until.min(from);
        }
        self.is_unfinished = false;
        self.committed.clear();
    }

    /// Another relay has had the slot: everything from `floor` on is received and admitted again.
    pub fn taken_over(&mut self, floor: Lsn) {
        self.rewind(Some(Position { commit_lsn: floor, ordinal: 0 }));
        self.settled = Lsn::ZERO;
    }

    /// Everything committed before `floor` is confirmed. A Postgres that crashes later may send it again;
    /// while it remembers the position, it skips by the same rule. Everything before `known` was committed
    /// until `until_us`, and everything before `received` was received by this process.
    pub fn start_at(&mut self, floor: Lsn, known: Lsn, until_us: i64, received: Lsn) {
        self.history.start_at(known, until_us, received);
        self.until = self.until.max(Position { commit_lsn: floor, ordinal: 0 });
    }

    /// As [`CommitHistory::looked_at`].
    pub fn looked_at(&mut self, unix_us: i64) {
        self.history.looked_at(unix_us);
    }

    /// Another timeline, whose positions cannot be compared with these, or another slot.
    pub fn forget(&mut self) {
        *self = Transactions::default();
    }
}

/// The position behind every event of a transaction.
fn all_of(commit_lsn: Lsn) -> Position {
    Position { commit_lsn, ordinal: WHOLE }
}

#[cfg(test)]
#[path = "transactions_tests.rs"]
mod tests;
