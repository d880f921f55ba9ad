//! The state of dead letters: the records of the log, applied one after the other.
//!
//! The last record about a dead letter says its state. A second letter about one that is open is the
//! same dead letter: a relay that was killed writes it again. The position of the first one counts,
//! or letters of one key would change their order. A letter behind a resolution opens it again.
//!
//! Within a partition the last record is the one with the highest offset, across partitions (a
//! letter without a key may be written twice, to two of them) the one with the latest time.
//! Applying a record twice changes nothing.
//!
//! This rule ([`apply`]) stands above two stores: [`DeadLetterIndex`] knows all that the commands
//! need, in 65 to 130 bytes for a dead letter, because the id is a hash and texts stay in the log; a
//! relay keeps [`super::open_letters::OpenLetters`], which only counts, in 16 to 18.

use std::collections::HashMap;

use super::record::{
    DeadLetter, DeadLetterId, LogRecord, PartitionOffset, Resolution, ResolutionKind,
};
use super::writer::KeyHash;

/// The state of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadLetterState {
    Open,
    Replayed,
    Discarded,
}

impl DeadLetterState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            DeadLetterState::Open => "open",
            DeadLetterState::Replayed => "replayed",
            DeadLetterState::Discarded => "discarded",
        }
    }
}

/// What a record has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// There is one more open letter.
    Opened,
    /// An open letter was replayed or discarded.
    Resolved,
    /// A parked key was released.
    Released,
    /// The record is older than what is known, repeats it, or is foreign.
    Nothing,
}

/// Position and time of a record, by which records about one thing are ordered.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordMark {
    pub(super) position: PartitionOffset,
    pub(super) unix_us: i64,
}

impl RecordMark {
    fn of_letter(letter: &DeadLetter) -> RecordMark {
        RecordMark { position: letter.position, unix_us: letter.failed_unix_us }
    }

    fn of_resolution(resolution: &Resolution) -> RecordMark {
        RecordMark { position: resolution.position, unix_us: resolution.resolved_unix_us }
    }

    fn is_after(&self, other: &RecordMark) -> bool {
        if self.position.partition == other.position.partition {
            self.position.offset > other.position.offset
        } else {
            self.unix_us > other.unix_us
        }
    }
}

/// What remembers dead letters, under the rule of [`apply`].
pub(super) trait LetterStore {
    /// The last record about a letter, and whether the letter is open.
    fn last(&self, id: DeadLetterId) -> Option<(RecordMark, bool)>;

    /// The letter is open because of this record.
    fn open(&mut self, id: DeadLetterId, mark: RecordMark);

    /// The letter is resolved by this record. True when it was open.
    fn resolve(&mut self, id: DeadLetterId, state: DeadLetterState, mark: RecordMark) -> bool;
}

/// Applies the next record about the letter `id` to `store`.
pub(super) fn apply(store: &mut impl LetterStore, id: DeadLetterId, record: &LogRecord) -> Change {
    let (mark, state) = match record {
        LogRecord::DeadLetter(letter) => (RecordMark::of_letter(letter), DeadLetterState::Open),
        LogRecord::Resolution(resolution) => {
            let state = match resolution.kind {
                ResolutionKind::Replayed => DeadLetterState::Replayed,
                ResolutionKind::Discarded => DeadLetterState::Discarded,
                ResolutionKind::Released => return Change::Nothing,
            };
            (RecordMark::of_resolution(resolution), state)
        }
        LogRecord::Foreign => return Change::Nothing,
    };
    let opens = state == DeadLetterState::Open;
    match store.last(id) {
        Some((last, is_open)) if (opens && is_open) || !mark.is_after(&last) => Change::Nothing,
        _ if opens => {
            store.open(id, mark);
            Change::Opened
        }
        _ if store.resolve(id, state, mark) => Change::Resolved,
        _ => Change::Nothing,
    }
}

/// What is known of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownLetter {
    pub(crate) state: DeadLetterState,
    pub(crate) replays: u32,
    /// As set by [`DeadLetterIndex::select`].
    pub(crate) selected: bool,
}

#[derive(Clone, Copy, Debug)]
struct IndexEntry {
    /// The record that made the state.
    last: RecordMark,
    /// Where the letter stands.
    position: PartitionOffset,
    replays: u16,
    state: DeadLetterState,
    selected: bool,
}

/// The position of a letter of which only a resolution was read.
const UNREAD: PartitionOffset = PartitionOffset { partition: 0, offset: -1 };

#[derive(Debug, Default)]
struct IndexedLetters(HashMap<DeadLetterId, IndexEntry>);

impl LetterStore for IndexedLetters {
    fn last(&self, id: DeadLetterId) -> Option<(RecordMark, bool)> {
        self.0.get(&id).map(|entry| (entry.last, entry.state == DeadLetterState::Open))
    }

    fn open(&mut self, id: DeadLetterId, mark: RecordMark) {
        let (position, state) = (mark.position, DeadLetterState::Open);
        let replays = self.0.get(&id).map_or(0, |entry| entry.replays);
        let opened = IndexEntry { last: mark, position, replays, state, selected: false };
        self.0.insert(id, opened);
    }

    fn resolve(&mut self, id: DeadLetterId, state: DeadLetterState, mark: RecordMark) -> bool {
        let entry = self.0.entry(id).or_insert(IndexEntry {
            last: mark,
            position: UNREAD,
            replays: 0,
            state,
            selected: false,
        });
        entry.last = mark;
        std::mem::replace(&mut entry.state, state) == DeadLetterState::Open
    }
}

/// The log, folded for a command.
#[derive(Debug, Default)]
pub(crate) struct DeadLetterIndex {
    letters: IndexedLetters,
    /// Keys that were ever parked: the last record about each, and what would release it.
    keys: HashMap<KeyHash, (RecordMark, Option<Resolution>)>,
    /// Records that were applied.
    pub(crate) records: u64,
    /// How many of them were neither letters nor resolutions.
    pub(crate) foreign: u64,
}

impl DeadLetterIndex {
    /// Applies the next record of the log.
    pub(crate) fn apply(&mut self, record: &LogRecord) -> Change {
        self.records += 1;
        let (id, position, replays) = match record {
            LogRecord::DeadLetter(letter) => {
                self.park(letter);
                (letter.id(), Some(letter.position), letter.replays)
            }
            LogRecord::Resolution(resolution) if resolution.kind == ResolutionKind::Released => {
                return self.release(resolution);
            }
            LogRecord::Resolution(resolution) => (resolution.id(), None, resolution.replays),
            LogRecord::Foreign => {
                self.foreign += 1;
                return Change::Nothing;
            }
        };
        let change = apply(&mut self.letters, id, record);
        if let Some(entry) = self.letters.0.get_mut(&id) {
            entry.replays = entry.replays.max(u16::try_from(replays).unwrap_or(u16::MAX));
            if let Some(position) = position.filter(|_| entry.position == UNREAD) {
                entry.position = position;
            }
        }
        change
    }

    fn park(&mut self, letter: &DeadLetter) {
        let Some(key) = letter.key_hash().filter(|_| letter.parks_key) else { return };
        let mark = RecordMark::of_letter(letter);
        let counts = |(last, release): &(RecordMark, Option<Resolution>)| {
            release.is_none() && mark.is_after(last)
        };
        if self.keys.get(&key).is_none_or(counts) {
            let release = letter.resolution(ResolutionKind::Released, 0, "", 0);
            self.keys.insert(key, (mark, Some(release)));
        }
    }

    fn release(&mut self, resolution: &Resolution) -> Change {
        let Some(key) = resolution.key_hash() else { return Change::Nothing };
        let mark = RecordMark::of_resolution(resolution);
        let known = self.keys.get(&key);
        if known.is_some_and(|(last, _)| !mark.is_after(last)) {
            return Change::Nothing;
        }
        match self.keys.insert(key, (mark, None)) {
            Some((_, Some(_))) => Change::Released,
            _ => Change::Nothing,
        }
    }

    /// Selects a letter, or takes it out of the selection.
    pub(crate) fn select(&mut self, letter: DeadLetterId, selected: bool) {
        if let Some(entry) = self.letters.0.get_mut(&letter) {
            entry.selected = selected;
        }
    }

    /// What is known of a letter as it was read; nothing when another one stands for it.
    pub(crate) fn known(&self, letter: &DeadLetter) -> Option<KnownLetter> {
        let entry = self.letters.0.get(&letter.id())?;
        let IndexEntry { state, selected, .. } = *entry;
        let replays = u32::from(entry.replays);
        (letter.position == entry.position).then_some(KnownLetter { state, replays, selected })
    }

    /// The same for a letter that is selected and in one of `states`.
    pub(crate) fn selected(
        &self,
        states: &[DeadLetterState],
        letter: &DeadLetter,
    ) -> Option<KnownLetter> {
        self.known(letter).filter(|known| known.selected && states.contains(&known.state))
    }

    /// How many selected letters are in one of `states`.
    pub(crate) fn count_selected(&self, states: &[DeadLetterState]) -> usize {
        let counts = |entry: &&IndexEntry| entry.selected && states.contains(&entry.state);
        self.letters.0.values().filter(counts).count()
    }

    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        let is_open = |entry: &&IndexEntry| entry.state == DeadLetterState::Open;
        self.letters.0.values().filter(is_open).count()
    }

    /// For each parked key, the resolution that would release it.
    pub(crate) fn releases(&self) -> impl Iterator<Item = &Resolution> {
        self.keys.values().filter_map(|(_, release)| release.as_ref())
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
