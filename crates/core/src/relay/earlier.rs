//! Events that earlier processes and peers have published: their marks in the state file
//! ([`crate::delivery::known`]), and what the topics hold ([`super::read_back`]).

use std::ops::Range;

use super::read_back::ReadBack;
use super::state_file::LeftMarks;
use crate::base::event::{Outbound, Position};
use crate::base::lsn::Lsn;
use crate::delivery::known::{Fingerprint, KnownEvents};
use crate::delivery::prefix::ConfirmedPrefix;
use crate::delivery::stored::Stored;
use crate::metrics::KnownFrom;

/// Whether an earlier process has published an event, so that it must not be published again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    Unknown,
    Published(KnownFrom),
    /// Its topic must be read first.
    TopicUnread,
}

#[derive(Debug)]
pub struct EarlierEvents {
    marked: KnownEvents,
    topics: ReadBack,
}

impl EarlierEvents {
    pub fn new(topics: ReadBack) -> EarlierEvents {
        EarlierEvents { marked: KnownEvents::default(), topics }
    }

    /// There is a new session, in which everything before `confirmed` is confirmed. Returns what an
    /// earlier process claims of a transaction, which is to be verified.
    pub fn load(&mut self, left: &LeftMarks, confirmed: Lsn) -> Option<ConfirmedPrefix> {
        let events = self.marked.load(left.iter(), confirmed);
        let prefix = left.prefix.filter(|prefix| prefix.commit_lsn >= confirmed);
        if let Some(prefix) = prefix {
            self.marked.load_prefix(prefix);
        }
        if events > 0 {
            tracing::info!(events, %confirmed, "an earlier process has marked events after the slot's position as confirmed: they are not published again");
        }
        prefix
    }

    /// A session begins: the events of these transactions, by the LSN of their commit, are looked for in
    /// the topics.
    pub fn look_for(&mut self, transactions: Range<Lsn>) {
        self.topics.start(transactions);
    }

    /// Forgets the earlier events: an event that is received from here on repeats none that an
    /// earlier process has published.
    pub fn forget(&mut self) {
        self.marked.forget();
        self.topics.stop();
    }

    /// Forgets the marks. The topics still show what was published.
    pub fn forget_marks(&mut self) {
        self.marked.forget();
    }

    /// Whether marks were overruled, so that the next process must not believe them. Asked before the event
    /// is published, and true once.
    pub fn take_overruled(&mut self) -> bool {
        self.marked.take_overruled()
    }

    /// The events that follow are of this transaction.
    #[inline]
    pub fn begin(&mut self, commit_lsn: Lsn) {
        self.received(commit_lsn);
        if !self.topics.is_active() {
            self.marked.begin(commit_lsn);
        }
    }

    /// Whether the intake waits until a topic has been read. Everything before this position was
    /// received.
    pub fn awaits_topic(&mut self, received: Lsn) -> bool {
        self.received(received);
        self.topics.is_reading()
    }

    #[inline]
    fn received(&mut self, position: Lsn) {
        if !self.topics.received(position) {
            self.marked.forget_published();
        }
    }

    /// Whether an event that comes now may have been published.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.marked.is_active() || self.topics.is_active()
    }

    /// Whether events of this transaction are looked for in the topics.
    #[inline]
    pub fn covers(&self, commit_lsn: Lsn) -> bool {
        self.topics.covers(commit_lsn)
    }

    /// An event comes that this process has admitted before: its record must not stand for another one.
    /// False if its topic must be read first.
    pub fn recalls(&mut self, event: &Outbound<'_>, commit_lsn: Lsn) -> bool {
        self.topics.find(event, commit_lsn).is_some()
    }

    /// Asked for all other events in order, published again or not.
    pub fn judge(
        &mut self,
        event: &Outbound<'_>,
        position: Position,
        fingerprint: Fingerprint,
    ) -> Earlier {
        let stored = match self.marked.asks_topics(fingerprint) {
            true => self.topics.find(event, position.commit_lsn),
            false => Some(Stored::Unknown),
        };
        let Some(stored) = stored else { return Earlier::TopicUnread };
        let known = self.marked.pass_over(position, fingerprint, stored);
        known.map_or(Earlier::Unknown, Earlier::Published)
    }
}

#[cfg(test)]
#[path = "earlier_tests.rs"]
mod tests;
