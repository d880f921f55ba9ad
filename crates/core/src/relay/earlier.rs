//! Events that earlier processes and peers have published: their marks in the state file
//! ([`crate::delivery::known`]), and what the topics hold ([`super::read_back`]).

use super::read_back::ReadBack;
use super::state_file::LeftMarks;
use crate::base::lsn::Lsn;
use crate::delivery::known::KnownEvents;
use crate::delivery::prefix::ConfirmedPrefix;

#[derive(Debug)]
pub struct EarlierEvents {
    pub marked: KnownEvents,
    pub topics: ReadBack,
}

impl EarlierEvents {
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

    /// Forgets the earlier events: an event that is received from here on repeats none that an
    /// earlier process has published.
    pub fn forget(&mut self) {
        self.marked.forget();
        self.topics.stop();
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
}

#[cfg(test)]
#[path = "earlier_tests.rs"]
mod tests;
