//! What a relay must know of the dead-letter topic: which keys are parked, how many dead letters an
//! earlier process has just written, and how many are open. Only the topic remembers it.
//!
//! A reading ends when the broker becomes unreachable, and the next one begins at the beginning: a
//! dead letter may be written long after the time in its headers, so no time says where to go on.
//! What was reported before is not reported again, or a release of long ago would free a key that
//! was parked since. A topic that ends before what was reported is another topic of that name: it
//! is read once more, and all of it is reported.
//!
//! Relays may share the topic. Only dead letters of this relay's slot are reported; a release
//! counts for all relays, whoever wrote it.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};

use super::fold::Change;
use super::open_dead_letters::OpenDeadLetters;
use super::record::{DeadLetter, LogRecord, ResolutionKind, StopRecord};
use super::writer::{CLASS_PARKED, KeyHash};
use crate::base::event::Position;

/// What was read, in the order of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailEvent {
    /// A dead letter of this slot parks this key; the position is that of its event.
    Parked(KeyHash, Position),
    Released(KeyHash),
    /// This relay was stopped, or the stop was acknowledged. Not sent after
    /// [`TailEvent::CaughtUp`].
    Stop(Box<StopRecord>),
    /// A dead letter of this slot from before this process that may still count for the breaker;
    /// not one of class [`CLASS_PARKED`], which follows from another one. Not sent after
    /// [`TailEvent::CaughtUp`].
    DeadLetter {
        failed_unix_us: i64,
        class: String,
    },
    /// Everything from before this process that the loop must know has been sent; sent once.
    CaughtUp,
    /// The topic cannot be read, for this reason.
    Unreadable(String),
}

/// Most events that one pass of the loop takes.
const PASS_MAX: usize = 256;
/// Most events that wait for the loop; then the reader waits for the loop.
const WAITING_MAX: usize = 1024;

pub(crate) fn channel() -> (SyncSender<TailEvent>, Receiver<TailEvent>) {
    mpsc::sync_channel(WAITING_MAX)
}

/// The events of one pass of the loop.
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
    std::iter::from_fn(next).take(PASS_MAX)
}

#[derive(Debug)]
pub(super) struct TailState {
    slot: String,
    letters: OpenDeadLetters,
    /// Earlier dead letters do not matter to the breaker.
    since_unix_us: i64,
    /// What matters to the breaker was reported.
    caught_up: bool,
    /// The end was reached in this reading.
    is_complete: bool,
    /// The offset of the last record of each partition in this reading.
    read: HashMap<i32, i64>,
    /// The offset up to which earlier readings have reported.
    reported: HashMap<i32, i64>,
    /// When the oldest open dead letter failed; the outer option is empty until that is looked up.
    oldest: Option<Option<i64>>,
}

impl TailState {
    /// Dead letters that failed before `since_unix_us`, or of another slot, are not reported.
    pub(super) fn new(slot: &str, since_unix_us: i64) -> TailState {
        TailState {
            slot: slot.to_owned(),
            letters: OpenDeadLetters::default(),
            since_unix_us,
            caught_up: false,
            is_complete: false,
            read: HashMap::new(),
            reported: HashMap::new(),
            oldest: None,
        }
    }

    /// A reading from the beginning of the topic begins.
    pub(super) fn begin(&mut self) {
        for (partition, offset) in self.read.drain() {
            let reported = self.reported.entry(partition).or_insert(offset);
            *reported = offset.max(*reported);
        }
        self.letters = OpenDeadLetters::default();
        self.is_complete = false;
        self.oldest = None;
    }

    /// Takes the next record; what the relay must know of it is added to `events`.
    pub(super) fn read(&mut self, record: &LogRecord, events: &mut Vec<TailEvent>) {
        let position = match record {
            LogRecord::DeadLetter(letter) => letter.position,
            LogRecord::Resolution(resolution) => resolution.position,
            LogRecord::Stop(record) => record.position,
            LogRecord::Foreign => return,
        };
        self.read.insert(position.partition, position.offset);
        let change = self.letters.apply(record);
        if change != Change::Nothing {
            self.oldest = None;
        }
        let reported = self.reported.get(&position.partition);
        if reported.is_some_and(|reported| position.offset <= *reported) {
            return;
        }
        match record {
            LogRecord::DeadLetter(letter) => self.report(letter, change, events),
            LogRecord::Resolution(resolution) if resolution.kind == ResolutionKind::Released => {
                events.extend(resolution.key_hash().map(TailEvent::Released));
            }
            LogRecord::Stop(record) if record.body.slot == self.slot && !self.caught_up => {
                events.push(TailEvent::Stop(record.clone()));
            }
            LogRecord::Resolution(_) | LogRecord::Stop(_) | LogRecord::Foreign => {}
        }
    }

    fn report(&self, letter: &DeadLetter, change: Change, events: &mut Vec<TailEvent>) {
        if letter.relay.split('@').next() != Some(self.slot.as_str()) {
            return;
        }
        let failed_unix_us = letter.failed_unix_us;
        let is_recent = !self.caught_up && failed_unix_us >= self.since_unix_us;
        // A dead letter that a killed relay has written twice is one.
        if is_recent && change == Change::Opened && letter.error_class != CLASS_PARKED {
            let class = letter.error_class.clone();
            events.push(TailEvent::DeadLetter { failed_unix_us, class });
        }
        if let Some(key) = letter.key_hash().filter(|_| letter.parks_key) {
            // Without a position it parks its key for all events.
            let commit_lsn = letter.lsn.parse().unwrap_or_default();
            events.push(TailEvent::Parked(key, Position { commit_lsn, ordinal: letter.ordinal }));
        }
    }

    /// The end of the topic was reached. Returns whether it is another topic than the one that was
    /// read before, so that it must be read once more.
    pub(super) fn end(&mut self, events: &mut Vec<TailEvent>) -> bool {
        self.is_complete = true;
        let is_shorter = |(partition, reported): (&i32, &i64)| {
            self.read.get(partition).is_some_and(|read| read < reported)
        };
        let is_replaced = self.reported.iter().any(is_shorter);
        // Whatever is read from now on is new.
        self.reported.clear();
        if is_replaced {
            self.read.clear();
        } else if !std::mem::replace(&mut self.caught_up, true) {
            events.push(TailEvent::CaughtUp);
        }
        is_replaced
    }

    pub(super) fn caught_up(&self) -> bool {
        self.caught_up
    }

    /// How many dead letters are open, and when the oldest failed; none before the end was reached.
    pub(super) fn open(&mut self) -> Option<(usize, Option<i64>)> {
        if !self.is_complete {
            return None;
        }
        let letters = &self.letters;
        let oldest = self.oldest.get_or_insert_with(|| letters.oldest_unix_us());
        Some((letters.count(), *oldest))
    }

    /// Are so many dead letters open that further ones are only counted?
    pub(super) fn only_counts(&self) -> bool {
        self.letters.is_beyond()
    }
}

#[cfg(test)]
#[path = "tail_event_tests.rs"]
mod tests;
