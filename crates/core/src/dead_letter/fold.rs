//! The state of dead letters: the records of the log, applied one after the other.
//!
//! The last record about a dead letter decides its state. A second dead letter of an event whose
//! first one is open is the same one, written again by a relay that was killed; the position of the
//! first one counts, or the events of a key would change their order. A dead letter behind a
//! resolution is open again, and so is one that counts the replay which a resolution behind it is about:
//! in the index it stands for the first one from then on.
//!
//! Within a partition the last record is the one with the highest offset; across partitions (a dead
//! letter without a key may be written twice, to two of them) it is the one with the latest time.
//! Applying a record twice changes nothing.
//!
//! Two stores share this rule ([`apply`]), and that of parked keys ([`key_mark`]). [`DeadLetterIndex`] holds what the commands need in
//! 65 to 130 bytes for each dead letter: the id is a hash, and texts stay in the log. A relay keeps
//! [`super::open_dead_letters::OpenDeadLetters`], which only counts, in 20 to 40 bytes.

use super::record::{
    DeadLetter, DeadLetterId, LogRecord, PartitionOffset, RecordMark, Resolution, ResolutionKind,
};
use super::writer::KeyHash;
use crate::base::hash::{HashMap, HashSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterState {
    Open,
    Replayed,
    Discarded,
}

impl DeadLetterState {
    pub fn name(self) -> &'static str {
        match self {
            DeadLetterState::Open => "open",
            DeadLetterState::Replayed => "replayed",
            DeadLetterState::Discarded => "discarded",
        }
    }
}

/// Dead letters of which a command remembers that they came after its start.
const FOLLOWED_MAX: usize = 4096;

/// The change that a record has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is one more open dead letter.
    Opened,
    /// An open dead letter was replayed or discarded.
    Resolved,
    /// A parked key was released.
    Released,
    /// The record is foreign, repeats what is known, or is older than that.
    Nothing,
}

pub trait DeadLetterStore {
    /// The last record about a dead letter, and whether the dead letter is open.
    fn last(&self, id: DeadLetterId) -> Option<(RecordMark, bool)>;

    fn open(&mut self, id: DeadLetterId, mark: RecordMark);

    /// Returns whether the dead letter was open.
    fn resolve(&mut self, id: DeadLetterId, state: DeadLetterState, mark: RecordMark) -> bool;

    /// The most replays that one of its dead letters counts while it is open.
    fn failed_after(&self, id: DeadLetterId) -> u32;

    fn note_failed_after(&mut self, id: DeadLetterId, replays: u32);
}

/// Applies the next record about the dead letter `id` to `store`.
pub fn apply(store: &mut impl DeadLetterStore, id: DeadLetterId, record: &LogRecord) -> Change {
    let (mark, state) = match record {
        LogRecord::DeadLetter(letter) => (letter.mark(), DeadLetterState::Open),
        LogRecord::Resolution(resolution) => match resolution.kind {
            // A consumer of what the replay has published gave the event up before the replay was written
            // down. The dead letters of a relay count no replays.
            ResolutionKind::Replayed
                if (1..=store.failed_after(id)).contains(&resolution.replays) =>
            {
                return Change::Nothing;
            }
            ResolutionKind::Replayed => (resolution.mark(), DeadLetterState::Replayed),
            ResolutionKind::Discarded => (resolution.mark(), DeadLetterState::Discarded),
            ResolutionKind::Released => return Change::Nothing,
        },
        LogRecord::Stop(_) | LogRecord::Foreign => return Change::Nothing,
    };
    let opens = state == DeadLetterState::Open;
    let change = match store.last(id) {
        Some((last, is_open)) if (opens && is_open) || !mark.is_after(&last) => Change::Nothing,
        _ if opens => {
            store.open(id, mark);
            Change::Opened
        }
        _ if store.resolve(id, state, mark) => Change::Resolved,
        _ => Change::Nothing,
    };
    if let LogRecord::DeadLetter(letter) = record
        && letter.replays > 0
    {
        store.note_failed_after(id, letter.replays);
    }
    change
}

/// The mark of a key after the next record about it, which `parks` or releases it; none if the record
/// does not count. `last` is the mark before, and whether the key is parked. A release counts if it is
/// later than every dead letter that parks the key, a dead letter if it is later than the release.
pub fn key_mark(
    last: Option<(RecordMark, bool)>,
    mark: RecordMark,
    parks: bool,
) -> Option<RecordMark> {
    match last {
        Some((last, is_parked)) if !mark.is_after(&last) => (is_parked && parks).then_some(last),
        _ => Some(mark),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownDeadLetter {
    pub state: DeadLetterState,
    pub replays: u16,
    /// Set by [`DeadLetterIndex::select`].
    pub selected: bool,
}

#[derive(Clone, Copy, Debug)]
struct IndexEntry {
    /// The record that decided the state.
    last: RecordMark,
    /// The position of the dead letter, or [`UNREAD`].
    position: PartitionOffset,
    /// The most replays that one of its dead letters counts, while it is open.
    failed_after: u32,
    known: KnownDeadLetter,
}

/// The position of a dead letter of which only a resolution was read.
const UNREAD: PartitionOffset = PartitionOffset { partition: 0, offset: -1 };

impl DeadLetterStore for HashMap<DeadLetterId, IndexEntry> {
    fn last(&self, id: DeadLetterId) -> Option<(RecordMark, bool)> {
        self.get(&id).map(|entry| (entry.last, entry.known.state == DeadLetterState::Open))
    }

    fn open(&mut self, id: DeadLetterId, mark: RecordMark) {
        let replays = self.get(&id).map_or(0, |entry| entry.known.replays);
        let known = KnownDeadLetter { state: DeadLetterState::Open, replays, selected: false };
        let entry = IndexEntry { last: mark, position: mark.position, failed_after: 0, known };
        self.insert(id, entry);
    }

    fn resolve(&mut self, id: DeadLetterId, state: DeadLetterState, mark: RecordMark) -> bool {
        let known = KnownDeadLetter { state, replays: 0, selected: false };
        let unread = IndexEntry { last: mark, position: UNREAD, failed_after: 0, known };
        let entry = self.entry(id).or_insert(unread);
        (entry.last, entry.failed_after) = (mark, 0);
        std::mem::replace(&mut entry.known.state, state) == DeadLetterState::Open
    }

    fn failed_after(&self, id: DeadLetterId) -> u32 {
        self.get(&id).map_or(0, |entry| entry.failed_after)
    }

    fn note_failed_after(&mut self, id: DeadLetterId, replays: u32) {
        if let Some(entry) = self.get_mut(&id)
            && entry.known.state == DeadLetterState::Open
        {
            entry.failed_after = entry.failed_after.max(replays);
        }
    }
}

/// The log, folded for a command.
#[derive(Debug, Default)]
pub struct DeadLetterIndex {
    letters: HashMap<DeadLetterId, IndexEntry>,
    /// Keys that were ever parked: the last record about each, and what would release it.
    /// Each database system parks its own.
    keys: HashMap<(KeyHash, String), (RecordMark, Option<Resolution>)>,
    /// Dead letters that are new since the start of the command, of which a relay may write one twice.
    followed: HashSet<DeadLetterId>,
    /// Records that were applied.
    pub records: u64,
    /// How many of them were foreign.
    pub foreign: u64,
}

impl DeadLetterIndex {
    /// Applies the next record of the log.
    pub fn apply(&mut self, record: &LogRecord) -> Change {
        self.records += 1;
        let (id, position, replays) = match record {
            LogRecord::DeadLetter(letter) => {
                self.park(letter);
                (letter.id(), letter.position, letter.replays)
            }
            LogRecord::Resolution(resolution) if resolution.kind == ResolutionKind::Released => {
                return self.release(resolution);
            }
            LogRecord::Resolution(resolution) => (resolution.id(), UNREAD, resolution.replays),
            LogRecord::Stop(_) => return Change::Nothing,
            LogRecord::Foreign => {
                self.foreign += 1;
                return Change::Nothing;
            }
        };
        let change = apply(&mut self.letters, id, record);
        if let Some(entry) = self.letters.get_mut(&id) {
            let replays = u16::try_from(replays).unwrap_or(u16::MAX);
            let is_open = entry.known.state == DeadLetterState::Open;
            // A consumer gave the event up again before the replay was written down.
            let comes_back = is_open && position != UNREAD && replays > entry.known.replays;
            entry.known.replays = entry.known.replays.max(replays);
            if entry.position == UNREAD || comes_back {
                entry.position = position;
            }
            entry.known.selected &= !comes_back;
        }
        change
    }

    /// Applies a record that was written after the start of a command. Only dead letters that are known
    /// change: those that are new are not added, so that a long command needs no more memory for them.
    pub fn follow(&mut self, record: &LogRecord) -> Change {
        let (id, is_letter) = match record {
            LogRecord::DeadLetter(letter) => (letter.id(), true),
            LogRecord::Resolution(resolution) if resolution.kind != ResolutionKind::Released => {
                (resolution.id(), false)
            }
            _ => return Change::Nothing,
        };
        if self.letters.contains_key(&id) {
            return self.apply(record);
        }
        if self.followed.len() == FOLLOWED_MAX {
            self.followed.clear();
        }
        match is_letter && self.followed.insert(id) {
            true => Change::Opened,
            false => Change::Nothing,
        }
    }

    fn park(&mut self, letter: &DeadLetter) {
        let Some(key) = letter.key_hash().filter(|_| letter.parks_key) else { return };
        let key = (key, letter.system.clone());
        let Some(mark) = key_mark(self.last(&key), letter.mark(), true) else { return };
        let (last, release) = self.keys.entry(key).or_insert((mark, None));
        let new = || letter.resolution(ResolutionKind::Released, 0, "", 0).bounded();
        // Behind the last dead letter that parks the key the release is later by its offset.
        release.get_or_insert_with(new).position = mark.position;
        *last = mark;
    }

    /// The mark of a key, and whether the key is parked.
    fn last(&self, key: &(KeyHash, String)) -> Option<(RecordMark, bool)> {
        self.keys.get(key).map(|(last, release)| (*last, release.is_some()))
    }

    fn release(&mut self, resolution: &Resolution) -> Change {
        let Some(key) = resolution.key_hash() else { return Change::Nothing };
        let key = (key, resolution.system.clone());
        let Some(mark) = key_mark(self.last(&key), resolution.mark(), false) else {
            return Change::Nothing;
        };
        match self.keys.insert(key, (mark, None)) {
            Some((_, Some(_))) => Change::Released,
            _ => Change::Nothing,
        }
    }

    /// In dead letters: a key that was parked takes about as much memory as four of them.
    pub fn size(&self) -> usize {
        self.letters.len() + 4 * self.keys.len()
    }

    /// Adds a dead letter to the selection, or removes it.
    pub fn select(&mut self, letter: DeadLetterId, selected: bool) {
        if let Some(entry) = self.letters.get_mut(&letter) {
            entry.known.selected = selected;
        }
    }

    /// The facts that are known of the dead letter in a record; none where another record stands
    /// for it.
    pub fn known(&self, letter: &DeadLetter) -> Option<KnownDeadLetter> {
        let entry = self.letters.get(&letter.id())?;
        (letter.position == entry.position).then_some(entry.known)
    }

    /// The state of the dead letter, whichever record opened it.
    pub fn state(&self, id: DeadLetterId) -> Option<DeadLetterState> {
        self.letters.get(&id).map(|entry| entry.known.state)
    }

    /// The same as [`DeadLetterIndex::known`] if the dead letter is selected and in one of `states`.
    pub fn selected(
        &self,
        states: &[DeadLetterState],
        letter: &DeadLetter,
    ) -> Option<KnownDeadLetter> {
        self.known(letter).filter(|known| known.selected && states.contains(&known.state))
    }

    /// How many selected dead letters are in one of `states`.
    pub fn count_selected(&self, states: &[DeadLetterState]) -> usize {
        let known = self.letters.values().map(|entry| entry.known);
        known.filter(|known| known.selected && states.contains(&known.state)).count()
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn open(&self) -> usize {
        let known = self.letters.values().map(|entry| entry.known);
        known.filter(|known| known.state == DeadLetterState::Open).count()
    }

    /// For each parked key, the resolution that would release it.
    pub fn releases(&self) -> impl Iterator<Item = &Resolution> {
        self.keys.values().filter_map(|(_, release)| release.as_ref())
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
