//! What is open: the dead-letter log, folded.
//!
//! Of the records about one dead letter the last one says its state. A second letter of one that is
//! open is the same dead letter, not another: a relay that was killed writes it again. The first
//! one's place counts, or letters of one key would change their order. A letter behind a resolution
//! opens it again.
//!
//! Within a partition the last record is the one with the highest offset, across partitions (a
//! letter without a key may be written twice, to two of them) the one with the latest time.
//! Applying a record twice changes nothing.
//!
//! Memory is 65 to 130 bytes per dead letter, whatever its size: the identity is a hash, and texts
//! stay in the log. A relay that follows the log has less to know ([`super::open`]).

use std::collections::HashMap;

use super::record::{
    DeadLetter, DeadLetterId, LogRecord, Resolution, ResolutionKind, Truncated, key_id, key_name,
};
use crate::dead_letter::record::PartitionOffset;
use crate::dead_letter::writer::KeyHash;

/// The state of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody has acted on it.
    Open,
    /// The event was published after all.
    Replayed,
    /// A person gave it up.
    Discarded,
}

impl State {
    /// As it is shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Replayed => "replayed",
            State::Discarded => "discarded",
        }
    }
}

/// What a record has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is one more open letter.
    Opened,
    /// An open letter was replayed or discarded.
    Resolved,
    /// A parked key was released.
    Released,
    /// Nothing: the record is older than what is known, says it again, or is foreign.
    Nothing,
}

/// What is known of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its state.
    pub state: State,
    /// How often it was replayed.
    pub replays: u32,
    /// What [`Fold::mark`] said of it.
    pub marked: bool,
}

/// A parked key, and the letter that parked it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The key, perhaps cut.
    pub key: Vec<u8>,
    /// What it was before it was cut.
    pub key_cut: Option<Truncated>,
    /// Where the letter stands.
    pub position: PartitionOffset,
    /// Its event id.
    pub event_id: String,
    /// Its commit LSN.
    pub lsn: String,
    /// Events of its transaction before it.
    pub ordinal: u64,
}

impl Parked {
    /// Which key.
    #[must_use]
    pub fn key_id(&self) -> KeyHash {
        key_id(&self.key, self.key_cut.as_ref())
    }

    /// The key as it is shown.
    #[must_use]
    pub fn name(&self) -> String {
        key_name(&self.key, self.key_cut.as_ref())
    }
}

/// Where a record stands in place and time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    offset: i64,
    unix_us: i64,
    partition: i32,
}

impl Mark {
    fn new(position: PartitionOffset, unix_us: i64) -> Mark {
        Mark { offset: position.offset, unix_us, partition: position.partition }
    }

    fn is_after(self, other: Mark) -> bool {
        if self.partition == other.partition {
            self.offset > other.offset
        } else {
            self.unix_us > other.unix_us
        }
    }
}

/// No offset: a resolution whose letter has not been read.
const NOWHERE: i64 = -1;

/// One dead letter.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The record that made the state.
    last: Mark,
    partition: i32,
    offset: i64,
    replays: u16,
    state: State,
    marked: bool,
}

/// The log, folded.
#[derive(Debug, Default)]
pub struct Fold {
    slots: HashMap<DeadLetterId, Slot>,
    open: usize,
    /// Keys that were ever parked; without a letter when they are released.
    keys: HashMap<KeyHash, (Mark, Option<Parked>)>,
}

impl Fold {
    /// Takes the next record of the log.
    pub fn apply(&mut self, record: &LogRecord) -> Change {
        match record {
            LogRecord::DeadLetter(letter) => self.letter(letter),
            LogRecord::Resolution(resolution) => self.resolution(resolution),
            LogRecord::Foreign => Change::Nothing,
        }
    }

    fn letter(&mut self, letter: &DeadLetter) -> Change {
        if letter.parks_key {
            self.park(letter);
        }
        let PartitionOffset { partition, offset } = letter.position;
        let last = Mark::new(letter.position, letter.failed_unix_us);
        let replays = u16::try_from(letter.replays).unwrap_or(u16::MAX);
        let state = State::Open;
        let opened = Slot { last, partition, offset, replays, state, marked: false };
        let Some(slot) = self.slots.get_mut(&letter.identity()) else {
            self.slots.insert(letter.identity(), opened);
            self.open += 1;
            return Change::Opened;
        };
        if slot.state != State::Open && last.is_after(slot.last) {
            *slot = Slot { replays: replays.max(slot.replays), ..opened };
            self.open += 1;
            return Change::Opened;
        }
        if slot.offset == NOWHERE {
            (slot.partition, slot.offset) = (partition, offset);
        }
        Change::Nothing
    }

    fn resolution(&mut self, resolution: &Resolution) -> Change {
        let last = Mark::new(resolution.position, resolution.resolved_unix_us);
        let state = match resolution.kind {
            ResolutionKind::Replayed => State::Replayed,
            ResolutionKind::Discarded => State::Discarded,
            ResolutionKind::Released => return self.release(resolution, last),
        };
        let unknown =
            Slot { last, partition: 0, offset: NOWHERE, replays: 0, state, marked: false };
        let slot = self.slots.entry(resolution.identity()).or_insert(unknown);
        let replays = u16::try_from(resolution.replays).unwrap_or(u16::MAX);
        slot.replays = slot.replays.max(replays);
        if !last.is_after(slot.last) {
            return Change::Nothing;
        }
        let was_open = slot.state == State::Open;
        (slot.last, slot.state) = (last, state);
        self.open -= usize::from(was_open);
        if was_open { Change::Resolved } else { Change::Nothing }
    }

    fn park(&mut self, letter: &DeadLetter) {
        let (Some(key), Some(id)) = (&letter.key, letter.key_id()) else { return };
        let last = Mark::new(letter.position, letter.failed_unix_us);
        let stands =
            |(known, parked): &(Mark, Option<Parked>)| parked.is_some() || !last.is_after(*known);
        if self.keys.get(&id).is_some_and(stands) {
            return;
        }
        let parked = Parked {
            key: key.clone(),
            key_cut: letter.key_cut.clone(),
            position: letter.position,
            event_id: letter.event_id.clone(),
            lsn: letter.lsn.clone(),
            ordinal: letter.ordinal,
        };
        self.keys.insert(id, (last, Some(parked)));
    }

    fn release(&mut self, resolution: &Resolution, last: Mark) -> Change {
        let Some(id) = resolution.key_id() else { return Change::Nothing };
        match self.keys.get_mut(&id) {
            Some((known, _)) if !last.is_after(*known) => Change::Nothing,
            Some((known, parked)) => {
                *known = last;
                if parked.take().is_some() { Change::Released } else { Change::Nothing }
            }
            None => {
                self.keys.insert(id, (last, None));
                Change::Nothing
            }
        }
    }

    /// Marks a letter, or takes the mark away.
    pub fn mark(&mut self, letter: DeadLetterId, marked: bool) {
        if let Some(slot) = self.slots.get_mut(&letter) {
            slot.marked = marked;
        }
    }

    /// What is known of a letter as it was read; nothing when another one stands for it.
    #[must_use]
    pub fn known(&self, letter: &DeadLetter) -> Option<Known> {
        let slot = self.slots.get(&letter.identity())?;
        let Slot { partition, offset, state, marked, .. } = *slot;
        (letter.position == PartitionOffset { partition, offset }).then(|| Known {
            state,
            replays: u32::from(slot.replays),
            marked,
        })
    }

    /// How many marked letters are in one of `states`.
    #[must_use]
    pub fn marked(&self, states: &[State]) -> usize {
        let counts = |slot: &&Slot| slot.marked && states.contains(&slot.state);
        self.slots.values().filter(counts).count()
    }

    /// How many letters are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// The parked keys.
    pub fn parked(&self) -> impl Iterator<Item = &Parked> {
        self.keys.values().filter_map(|(_, parked)| parked.as_ref())
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
