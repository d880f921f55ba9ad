//! The small file in which the relay notes what the next process must know if this one dies: the
//! event in hand ([`crash`]) and which events the broker has confirmed ([`marks`]); and what it must
//! know however this one ends ([`memory`]).
//!
//! Without it nothing is lost. The file belongs to one process at a time, the one that holds the
//! slot: it is locked. What it holds of another slot, timeline or system is ignored.

pub mod crash;
pub mod header;
pub mod marks;
pub mod memory;
pub mod reports;

use self::crash::CrashGuard;
use self::header::{MAGIC, MAGIC_WORD, MARK_BYTES, PEER_SEEN, WHERE, Words};
use self::marks::{MarkRing, SlotSession, Successor};
use super::ports::StateFileSource;
use crate::base::fingerprint::fingerprint;
use crate::base::lsn::Lsn;
use crate::delivery::known::Mark;
use crate::delivery::prefix::ConfirmedPrefix;

#[derive(Debug, Default)]
pub struct StateFile {
    /// Opened and not yet locked.
    file: Option<Box<dyn StateFileSource>>,
    words: Option<Words>,
    pub crash: CrashGuard,
    pub marks: MarkRing,
    /// The second in which another relay was noted last, before the slot was held.
    peer_noted_s: u64,
}

/// The marks that the last process has left.
#[derive(Debug, Default)]
pub struct LeftMarks {
    /// In the order in which they were made.
    marks: Vec<u8>,
    pub prefix: Option<ConfirmedPrefix>,
}

impl LeftMarks {
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Mark> + Clone {
        self.marks.as_chunks::<MARK_BYTES>().0.iter().map(marks::decode)
    }
}

impl StateFile {
    /// None where there is no file.
    #[must_use]
    pub fn new(file: Option<Box<dyn StateFileSource>>) -> StateFile {
        StateFile { file, ..StateFile::default() }
    }

    /// Another relay of the slot was seen. A process that has not held the slot may die before it does, and
    /// the next one must know it.
    pub fn peer_seen(&mut self, unix_us: i64) {
        match &self.file {
            Some(_) if self.peer_noted_s == marks::seconds(unix_us) => {}
            Some(file) => {
                self.peer_noted_s = marks::seconds(unix_us);
                if let Err(error) = file.note(PEER_SEEN, marks::seconds(unix_us)) {
                    tracing::warn!(code = "state-file.unused", error = %error, "the state file cannot be written");
                }
            }
            None => self.marks.peer_seen(unix_us),
        }
    }

    /// This process holds the slot now, so the process that wrote the file before is dead. Called
    /// for each session of a slot. The first call returns the marks that the other process left. A
    /// database that has gone back may have lost what shows that another relay has had the slot, so marks
    /// from before the last of these `restores` are ignored.
    pub fn take_over(
        &mut self,
        (system_id, timeline): (&str, u32),
        slot: &str,
        restores: u64,
        session: Option<SlotSession>,
    ) -> LeftMarks {
        let place = fingerprint(&format!("{system_id}/{timeline}/{slot}/{restores}"));
        self.take_over_at(place, session)
    }

    fn take_over_at(&mut self, place: u64, session: Option<SlotSession>) -> LeftMarks {
        let mut left = LeftMarks::default();
        let confirmed = session.as_ref().map_or(Lsn::ZERO, |session| session.confirmed);
        if let Some(file) = self.file.take() {
            let boot = file.boot();
            match file.hold() {
                Ok(words) => {
                    let same_place = words.load(MAGIC) == MAGIC_WORD && words.load(WHERE) == place;
                    if let Some(session) = session {
                        let successor = Successor { same_place, boot, session };
                        let words = Words::clone(&words);
                        let (marks, prefix) = self.marks.take_over(words, successor);
                        left = LeftMarks { marks, prefix };
                    }
                    self.words = Some(words);
                }
                Err(error) => {
                    tracing::warn!(code = "state-file.unused", error = %error, "the state file is not used: is it another relay's?");
                }
            }
        } else if let Some(session) = session {
            self.marks.hold_again(session);
        }
        if let Some(words) = &self.words {
            self.crash.take_over(words, place, confirmed);
        }
        left
    }
}

#[cfg(test)]
#[path = "state_file_tests.rs"]
mod tests;
