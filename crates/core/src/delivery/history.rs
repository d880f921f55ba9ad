//! Whether Postgres sends again what this process has received before, or something else at the
//! same positions.
//!
//! A data folder that is put back, or a disk that has lied, takes Postgres back on the same system
//! identifier and timeline. What is committed then has positions at which this process has read
//! other transactions, and to skip it as known would lose it. So two kinds of evidence are kept:
//!
//! * The identities of the last [`RECENT_MAX`] transactions with events. From a position on Postgres
//!   sends exactly these again, in this order, before it sends anything new. The first that differs,
//!   is missing or was not known shows another history.
//! * For everything before them, also for what an earlier process or a peer has confirmed, the time
//!   until which it was committed: what another history has written there was committed later.
//!
//! The time alone would do as long as no clock is set back. What is unsettled is at most as many
//! events as the window holds, and what Postgres sends again after a crash begins at the
//! `confirmed_flush_lsn` on its disk, which may be any number of transactions ago: that no number
//! of identities covers.

use std::collections::VecDeque;

use crate::base::lsn::Lsn;
use crate::mutants::{Mutant, on};

/// 24 bytes each. Tests forget soon.
const RECENT_MAX: usize = if cfg!(test) { 5 } else { 8192 };

/// The identity of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitId {
    pub commit_lsn: Lsn,
    pub xid: u32,
    pub commit_unix_us: i64,
}

/// Postgres has gone back, and other transactions were committed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherHistory {
    /// Up to there both histories are the same, as far as is known.
    pub same_until: Lsn,
    /// The transaction that was received here before; none if another one was not expected.
    pub known: Option<CommitId>,
    /// The one that Postgres sends; none if it sends nothing there.
    pub sent: Option<CommitId>,
}

#[derive(Debug, Default)]
pub struct CommitHistory {
    /// The last transactions with events, in order.
    recent: VecDeque<CommitId>,
    /// All with events at this position or later that were received are among them.
    recent_from: Lsn,
    /// When those before were committed, at the latest.
    earlier_until_us: i64,
    /// The time of the server before this session.
    looked_unix_us: Option<i64>,
    /// Which of `recent` must come next in this session.
    expected: usize,
}

impl CommitHistory {
    /// Everything committed before `floor` is confirmed, by whomever, and was committed until
    /// `until_us`. Of what follows, everything before `received` was received by this process.
    pub fn start_at(&mut self, floor: Lsn, until_us: i64, received: Lsn) {
        // A session that received nothing has shown no more than the one before.
        let is_new = floor != self.recent_from || on(Mutant::FloorTimeRenewed);
        if is_new && floor > received || self.recent_from.is_zero() {
            // One that is not received to its end may be behind all that was.
            let before = self.recent.partition_point(|it| it.commit_lsn < floor);
            let times = self.recent.drain(..before).map(|it| it.commit_unix_us);
            self.earlier_until_us = times.fold(self.earlier_until_us.max(until_us), i64::max);
            (self.recent_from, self.expected) = (floor, 0);
        }
    }

    /// The server's clock shows this time, and everything before the position of [`CommitHistory::start_at`]
    /// is there.
    pub fn looked_at(&mut self, unix_us: i64) {
        self.looked_unix_us = Some(unix_us);
    }

    /// A session begins, in which the server sends what was committed at `from` or later.
    pub fn begin_session(&mut self, from: Lsn) {
        self.expected = self.recent.partition_point(|it| it.commit_lsn < from);
    }

    /// A transaction begins: whether it is the one that must come next. Then it has come, also if none
    /// of its changes is an event any more, as when their table was dropped.
    pub fn recognise(&mut self, sent: CommitId) -> bool {
        let is_known = self.recent.get(self.expected) == Some(&sent);
        self.expected += usize::from(is_known);
        is_known
    }

    /// The first event of a transaction comes that was not recognised. `was_received` says that one was
    /// received at its position, or over it, and had no event.
    pub fn add_new(&mut self, sent: CommitId, was_received: bool) -> Result<(), OtherHistory> {
        if sent.commit_lsn < self.recent_from {
            // A time to come says nothing: the clock was set back since, or it is that of the server from which
            // the transaction came by replication.
            let is_to_come = self.looked_unix_us.is_some_and(|at| sent.commit_unix_us > at);
            return match is_to_come || sent.commit_unix_us <= self.earlier_until_us {
                true => Ok(()),
                false => Err(self.difference(Some(sent))),
            };
        }
        match self.recent.get(self.expected) {
            Some(_) => return Err(self.difference(Some(sent))),
            None if was_received => return Err(self.difference(Some(sent))),
            None if self.recent.back().is_some_and(|last| last.commit_lsn >= sent.commit_lsn) => {
                return Err(self.difference(Some(sent)));
            }
            None => self.add(sent),
        }
        Ok(())
    }

    /// The server has sent everything before `position` in this session.
    #[inline]
    pub fn check_sent(&self, position: Lsn) -> Result<(), OtherHistory> {
        match self.recent.get(self.expected) {
            Some(known) if known.commit_lsn < position => Err(self.difference(None)),
            _ => Ok(()),
        }
    }

    fn add(&mut self, new: CommitId) {
        if self.recent.len() == RECENT_MAX
            && let Some(oldest) = self.recent.pop_front()
        {
            self.earlier_until_us = self.earlier_until_us.max(oldest.commit_unix_us);
            let next = self.recent.front().map_or(new.commit_lsn, |next| next.commit_lsn);
            self.recent_from = next;
        }
        self.recent.push_back(new);
        self.expected = self.recent.len();
    }

    #[cold]
    fn difference(&self, sent: Option<CommitId>) -> OtherHistory {
        let is_before = |it: &CommitId| sent.is_none_or(|sent| it.commit_lsn < sent.commit_lsn);
        let before = self.recent.iter().take(self.expected).take_while(|it| is_before(it)).last();
        OtherHistory {
            same_until: before.map_or(Lsn::ZERO, |it| it.commit_lsn),
            known: self.recent.get(self.expected).copied(),
            sent,
        }
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
