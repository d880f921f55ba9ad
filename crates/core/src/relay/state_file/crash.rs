//! Remembers, across crashes, which event was being processed.
//!
//! An event that kills the process would kill it again after every restart. So the position of the
//! event in hand stands in the state file: two stores for each event, no system call, and the kernel
//! keeps them when the process dies. The next process counts: an event on which three processes in a
//! row have died is not handed to the sink again.
//!
//! * An event is in hand while it is decoded, shaped and handed over. A process that dies while it
//!   waits has no event in hand, and blames none.
//! * Positions apply to one slot on one timeline of one system. What the file holds of another is
//!   ignored.

use super::header::{
    BLAMED_LSN, BLAMED_ORDINAL, COMMIT_LSN, DEATHS, IN_HAND, MAGIC, MAGIC_WORD, WHERE, WORDS, Words,
};
use crate::base::event::Position;
use crate::base::lsn::Lsn;

/// An event is given up after this many deaths.
const DEATHS_MAX: u64 = 3;

#[derive(Debug, Default)]
pub struct CrashGuard {
    words: Option<Words>,
    deadly: Option<(Position, u64)>,
    /// Ordinal of the deadly event, if it is in the transaction that is being read.
    deadly_here: Option<u64>,
}

impl CrashGuard {
    /// The process that wrote these words is dead: this one holds the slot at `place` now, which is
    /// `confirmed` so far.
    pub fn take_over(&mut self, words: &Words, place: u64, confirmed: Lsn) {
        let first = self.words.is_none();
        self.words = Some(Words::clone(words));
        let found: [u64; WORDS] = std::array::from_fn(|index| words.load(index));
        let verdict = Verdict::of(&found, place).unless_passed(confirmed);
        // Cleared first, so that a death between two stores is not counted twice.
        words.store(IN_HAND, 0);
        words.store(MAGIC, MAGIC_WORD);
        words.store(WHERE, place);
        words.store(BLAMED_LSN, verdict.blamed.commit_lsn.to_wire());
        words.store(BLAMED_ORDINAL, verdict.blamed.ordinal);
        words.store(DEATHS, verdict.deaths);
        if first && verdict.deaths > 0 {
            let (lsn, deaths) = (verdict.blamed.commit_lsn, verdict.deaths);
            tracing::warn!(code = "event.process-died", lsn = %lsn, deaths, "the process has died on an event of this transaction");
        }
        let deadly = verdict.deaths >= DEATHS_MAX;
        self.deadly = deadly.then_some((verdict.blamed, verdict.deaths));
    }

    /// The events that follow are of this transaction.
    #[inline]
    pub fn begin(&mut self, commit_lsn: Lsn) {
        if let Some(words) = &self.words {
            words.store(COMMIT_LSN, commit_lsn.to_wire());
        }
        let here = self.deadly.filter(|(position, _)| position.commit_lsn == commit_lsn);
        self.deadly_here = here.map(|(position, _)| position.ordinal);
    }

    /// This event of the transaction is in hand. If it must not be handed over: how many processes
    /// have died on it.
    #[inline]
    pub fn take_in_hand(&mut self, ordinal: u64) -> Option<u64> {
        if let Some(words) = &self.words {
            words.store(IN_HAND, ordinal + 1);
        }
        match self.deadly_here {
            Some(deadly) if deadly == ordinal => self.deadly.map(|(_, deaths)| deaths),
            _ => None,
        }
    }

    /// The event on which processes have died has its dead letter for good: if it comes again, somebody
    /// wants it published.
    pub fn forget_deaths(&mut self) {
        if let Some(words) = &self.words {
            words.store(DEATHS, 0);
        }
        (self.deadly, self.deadly_here) = (None, None);
    }

    /// The next process may try the event once more.
    pub fn forget_one_death(&mut self) {
        if let Some(words) = &self.words {
            words.store(DEATHS, DEATHS_MAX - 1);
        }
    }

    #[inline]
    pub fn release(&mut self) {
        if let Some(words) = &self.words {
            words.store(IN_HAND, 0);
        }
    }
}

/// The event that is blamed for the deaths found in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Verdict {
    blamed: Position,
    deaths: u64,
}

impl Verdict {
    fn of(found: &[u64; WORDS], place: u64) -> Verdict {
        if found[MAGIC] != MAGIC_WORD || found[WHERE] != place {
            return Verdict::default();
        }
        let at = |lsn: usize, ordinal| Position { commit_lsn: Lsn::from_wire(found[lsn]), ordinal };
        let before =
            Verdict { blamed: at(BLAMED_LSN, found[BLAMED_ORDINAL]), deaths: found[DEATHS] };
        let Some(ordinal) = found[IN_HAND].checked_sub(1) else { return before };
        let blamed = at(COMMIT_LSN, ordinal);
        let deaths = if before.blamed == blamed { before.deaths.saturating_add(1) } else { 1 };
        Verdict { blamed, deaths }
    }

    /// An event that the slot has passed does not come again.
    fn unless_passed(self, confirmed: Lsn) -> Verdict {
        if confirmed > self.blamed.commit_lsn { Verdict::default() } else { self }
    }
}

#[cfg(test)]
#[path = "crash_tests.rs"]
mod tests;
