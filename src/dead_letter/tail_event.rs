//! What a relay must learn from the dead-letter topic as it reads it, and how much of it is open.
//!
//! The topic is the memory of the relay: which keys are parked, and how many letters an earlier
//! process has just written.
//!
//! A reading ends when the broker goes away, and the next one begins at the beginning: a letter may
//! be written long after the time in its headers, so no time says where to go on. What was reported
//! before is not reported again, or a release of long ago would free a key that was parked since. A
//! topic that ends before what was reported is another one: it is read once more, and all of it is
//! reported.
//!
//! Relays may share the topic. Of their letters only those of this one's slot are reported; whoever
//! releases a key, releases it for all of them.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};

use super::fold::Change;
use super::open_letters::OpenLetters;
use super::record::{DeadLetter, LogRecord, ResolutionKind};
use super::writer::{CLASS_PARKED, KeyHash};
use crate::base::event::Position;

/// What was read, in the order of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailEvent {
    /// A letter of this slot that parks this key, and where its event stood; sent for each.
    Parked(KeyHash, Position),
    /// A release of this key.
    Released(KeyHash),
    /// A letter of this slot from before this process that may still count for the breaker; not one
    /// of class [`CLASS_PARKED`], which follows from another. Not sent after
    /// [`TailEvent::CaughtUp`].
    Letter {
        /// When it was given up; microseconds since the Unix epoch.
        failed_unix_us: i64,
        /// Error class.
        class: String,
    },
    /// Everything from before this process that the loop must know has been sent; sent once.
    CaughtUp,
    /// The topic cannot be read, and why.
    Unreadable(String),
}

/// Most events that one pass of the loop takes.
const AT_ONCE: usize = 256;
/// As many may wait for the loop; then the reader waits for it.
const WAITING_MAX: usize = 1024;

/// A channel of the right size.
pub(crate) fn channel() -> (SyncSender<TailEvent>, Receiver<TailEvent>) {
    mpsc::sync_channel(WAITING_MAX)
}

/// What has come since the last pass.
pub(crate) fn waiting(events: &Receiver<TailEvent>) -> impl Iterator<Item = TailEvent> {
    let mut is_gone = false;
    let next = move || match events.try_recv() {
        Ok(event) => Some(event),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => {
            let is_first = !std::mem::replace(&mut is_gone, true);
            is_first.then(|| TailEvent::Unreadable("its reader has ended".to_owned()))
        }
    };
    std::iter::from_fn(next).take(AT_ONCE)
}

/// What the end of the topic means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailEnd {
    /// Everything from before this process has been reported, for the first time.
    CaughtUp,
    /// Nothing new.
    Again,
    /// It is another topic than was read before: read it once more.
    Replaced,
}

#[derive(Debug)]
pub(super) struct TailState {
    /// Whose letters are reported.
    slot: String,
    letters: OpenLetters,
    /// Earlier letters do not matter to the breaker.
    since_unix_us: i64,
    /// What matters to the breaker was reported.
    caught_up: bool,
    /// The end was reached in this reading.
    is_complete: bool,
    /// The last record of each partition in this reading.
    read: HashMap<i32, i64>,
    /// Up to where earlier readings have reported.
    reported: HashMap<i32, i64>,
    /// When the oldest open letter was given up; the outer option is empty while that must be
    /// looked up.
    oldest: Option<Option<i64>>,
}

impl TailState {
    /// Letters that were given up before `since_unix_us`, or by a relay of another slot, are not
    /// reported.
    pub(super) fn new(slot: &str, since_unix_us: i64) -> TailState {
        TailState {
            slot: slot.to_owned(),
            letters: OpenLetters::default(),
            since_unix_us,
            caught_up: false,
            is_complete: false,
            read: HashMap::new(),
            reported: HashMap::new(),
            oldest: Some(None),
        }
    }

    /// The topic is read from the beginning.
    pub(super) fn begin(&mut self) {
        for (partition, offset) in self.read.drain() {
            let reported = self.reported.entry(partition).or_insert(offset);
            *reported = offset.max(*reported);
        }
        self.letters = OpenLetters::default();
        self.is_complete = false;
        self.oldest = Some(None);
    }

    /// Takes the next record; what the relay must learn from it goes into `events`.
    pub(super) fn read(&mut self, record: &LogRecord, events: &mut Vec<TailEvent>) {
        let position = match record {
            LogRecord::DeadLetter(letter) => letter.position,
            LogRecord::Resolution(resolution) => resolution.position,
            LogRecord::Foreign => return,
        };
        self.read.insert(position.partition, position.offset);
        let change = self.letters.apply(record);
        let is_new =
            self.reported.get(&position.partition).is_none_or(|last| position.offset > *last);
        match record {
            LogRecord::DeadLetter(letter) => {
                if change == Change::Opened {
                    let failed = letter.failed_unix_us;
                    self.oldest =
                        self.oldest.map(|at| Some(at.map_or(failed, |at| at.min(failed))));
                }
                if is_new {
                    self.report(letter, change, events);
                }
            }
            LogRecord::Resolution(resolution) => {
                if change == Change::Resolved {
                    self.oldest = None;
                }
                if is_new && resolution.kind == ResolutionKind::Released {
                    events.extend(resolution.key_hash().map(TailEvent::Released));
                }
            }
            LogRecord::Foreign => {}
        }
    }

    fn report(&self, letter: &DeadLetter, change: Change, events: &mut Vec<TailEvent>) {
        if letter.relay.split('@').next() != Some(self.slot.as_str()) {
            return;
        }
        let failed_unix_us = letter.failed_unix_us;
        let is_recent = !self.caught_up && failed_unix_us >= self.since_unix_us;
        // What was parked follows from another; what a kill repeated is one letter.
        if is_recent && change == Change::Opened && letter.error_class != CLASS_PARKED {
            let class = letter.error_class.clone();
            events.push(TailEvent::Letter { failed_unix_us, class });
        }
        if let Some(key) = letter.key_hash().filter(|_| letter.parks_key) {
            // One that does not say where it stood parks its key for all events.
            let commit_lsn = letter.lsn.parse().unwrap_or_default();
            events.push(TailEvent::Parked(key, Position { commit_lsn, ordinal: letter.ordinal }));
        }
    }

    /// All that was there has been read.
    pub(super) fn end(&mut self) -> TailEnd {
        self.is_complete = true;
        let is_shorter = |(partition, reported): (&i32, &i64)| {
            self.read.get(partition).is_some_and(|read| read < reported)
        };
        let is_replaced = self.reported.iter().any(is_shorter);
        // What comes now is new.
        self.reported.clear();
        if is_replaced {
            self.read.clear();
            return TailEnd::Replaced;
        }
        if std::mem::replace(&mut self.caught_up, true) {
            TailEnd::Again
        } else {
            TailEnd::CaughtUp
        }
    }

    /// What matters to the breaker was reported by another reading.
    pub(super) fn skip_letters(&mut self) {
        self.caught_up = true;
    }

    pub(super) fn caught_up(&self) -> bool {
        self.caught_up
    }

    /// How many letters are open, and when the oldest was given up; none while that is not known.
    pub(super) fn open(&mut self) -> Option<(usize, Option<i64>)> {
        if !self.is_complete {
            return None;
        }
        let letters = &self.letters;
        let oldest = self.oldest.get_or_insert_with(|| letters.oldest_unix_us());
        Some((letters.count(), *oldest))
    }

    /// Are there so many open letters that further ones are only counted?
    pub(super) fn only_counts(&self) -> bool {
        self.letters.is_beyond()
    }
}

#[cfg(test)]
#[path = "tail_event_tests.rs"]
mod tests;
