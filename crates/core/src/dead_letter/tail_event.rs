//! The facts of the dead-letter topic that a relay must know: which keys are parked, how many dead
//! letters an earlier process has just written, and how many are open. Only the topic remembers it.
//!
//! A reading ends when the broker becomes unreachable, and the next one begins at the beginning: a
//! dead letter may be written long after the time in its headers, so no time says where to go on.
//! A record that was reported before is not reported again, nor is one of a key that another record of
//! the key supersedes ([`key_mark`]), or a release of long ago would free a key that was parked since.
//! A topic that ends before what was reported is another topic of that name: it is read once more, and
//! all of it is reported.
//!
//! Relays may share the topic. Only dead letters of this relay's slot on its database system are
//! reported, and releases of keys that such letters park, whoever wrote them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};

use super::fold::{Change, key_mark};
use super::open_dead_letters::OpenDeadLetters;
use super::owner::LetterOwner;
use super::record::{
    CLOCK_SKEW_US, DeadLetter, LogRecord, PartitionOffset, RecordMark, ResolutionKind, StopRecord,
};
use super::writer::{CLASS_PARKED, KeyHash};
use crate::base::event::Position;
use crate::base::hash::HashMap;

/// An event of the reading, in the order of the topic.
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
    /// Everything that was there before the loop had the slot, and that it must know, has been sent;
    /// sent once, and once more after each [`TailEvent::ReadsAgain`].
    CaughtUp,
    /// The topic is read again, as was requested with this number: dead letters are sent once more,
    /// and those of a peer among them.
    ReadsAgain(u64),
    /// The topic cannot be read, for this reason.
    Unreadable(String),
    /// The broker answers, and the topic has given no record for a while, for this reason. Sent
    /// once.
    Silent(String),
}

/// How often the loop has requested to read the topic again: a peer may have written to it.
#[derive(Clone, Debug, Default)]
pub struct ReadRequests(Arc<AtomicU64>);

impl ReadRequests {
    /// Requests it; returns the number of the request.
    pub fn request(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Most events that one pass of the loop takes.
const PASS_MAX: usize = 256;
/// Most events that wait for the loop; then the reader waits for the loop.
const WAITING_MAX: usize = 1024;

pub fn channel() -> (SyncSender<TailEvent>, Receiver<TailEvent>) {
    mpsc::sync_channel(WAITING_MAX)
}

/// The events of one pass of the loop.
pub fn waiting(events: &Receiver<TailEvent>) -> impl Iterator<Item = TailEvent> {
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
pub struct TailState {
    owner: LetterOwner,
    letters: OpenDeadLetters,
    /// Keys that were ever parked or released: the mark of each, and whether it is parked.
    keys: HashMap<KeyHash, (RecordMark, bool)>,
    /// Earlier dead letters do not matter to the breaker.
    since_unix_us: i64,
    /// Whether all that matters to the breaker was reported.
    caught_up: bool,
    /// The end was reached in this reading.
    is_complete: bool,
    /// The offset of the last record of each partition in this reading.
    read: HashMap<i32, i64>,
    /// The offset up to which earlier readings have reported.
    reported: HashMap<i32, i64>,
    /// The same for what matters to the breaker.
    counted: HashMap<i32, i64>,
    /// When the oldest open dead letter failed; the outer option is empty until that is looked up.
    oldest: Option<Option<i64>>,
}

impl TailState {
    /// Dead letters that failed before `since_unix_us`, or of another relay, are not reported.
    pub fn new(owner: LetterOwner, since_unix_us: i64) -> TailState {
        TailState {
            owner,
            letters: OpenDeadLetters::default(),
            keys: HashMap::default(),
            since_unix_us,
            caught_up: false,
            is_complete: false,
            read: HashMap::default(),
            reported: HashMap::default(),
            counted: HashMap::default(),
            oldest: None,
        }
    }

    /// A reading from the beginning of the topic begins.
    pub fn begin(&mut self) {
        for (partition, offset) in self.read.drain() {
            let raise = |known: &mut HashMap<i32, i64>| {
                let known = known.entry(partition).or_insert(offset);
                *known = offset.max(*known);
            };
            raise(&mut self.reported);
            if !self.caught_up {
                raise(&mut self.counted);
            }
        }
        self.letters = OpenDeadLetters::default();
        self.is_complete = false;
        self.oldest = None;
    }

    /// Reports anew, from this time on, the dead letters that matter to the breaker.
    pub fn count_again(&mut self, since_unix_us: i64) {
        self.begin();
        self.counted.clear();
        self.since_unix_us = since_unix_us;
        self.caught_up = false;
    }

    /// Takes the next record; what the relay must know of it is added to `events`.
    pub fn read(&mut self, record: &LogRecord, now_unix_us: i64, events: &mut Vec<TailEvent>) {
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
        let key_events = self.key_events(record);
        let is_known = |known: &HashMap<i32, i64>| {
            known.get(&position.partition).is_some_and(|known| position.offset <= *known)
        };
        if let LogRecord::DeadLetter(letter) = record
            && !is_known(&self.counted)
        {
            self.count(letter, change, now_unix_us, events);
        }
        // A peer may have stopped since this relay has reported all of the topic.
        if let LogRecord::Stop(record) = record
            && !is_known(&self.counted)
            && !self.caught_up
            && self.owner.has_stopped(&record.body)
        {
            events.push(TailEvent::Stop(record.clone()));
        }
        if is_known(&self.reported) {
            return;
        }
        // Whoever may write to the topic may release keys: somebody must be able to notice.
        if let LogRecord::Resolution(resolution) = record
            && self.is_complete
            && key_events != [None, None]
        {
            tracing::warn!(
                code = "dead-letter.released",
                by = resolution.relay,
                "a key is released: its events are published again; if nobody has asked for it, see who may write to the dead-letter topic"
            );
        }
        events.extend(key_events.into_iter().flatten());
    }

    /// Applies a record that parks a key or releases it.
    fn key_events(&mut self, record: &LogRecord) -> [Option<TailEvent>; 2] {
        let (key, mark, parks) = match record {
            LogRecord::DeadLetter(letter) if letter.parks_key && self.owner.wrote(letter) => {
                // Without a position it parks its key for all events.
                let commit_lsn = letter.lsn.parse().unwrap_or_default();
                let position = Position { commit_lsn, ordinal: letter.ordinal };
                (letter.key_hash(), letter.mark(), Some(position))
            }
            LogRecord::Resolution(it)
                if it.kind == ResolutionKind::Released && self.owner.is_released_by(it) =>
            {
                (it.key_hash(), it.mark(), None)
            }
            _ => return [None, None],
        };
        let Some(key) = key else { return [None, None] };
        let mark = key_mark(self.keys.get(&key).copied(), mark, parks.is_some());
        if let Some(mark) = mark {
            self.keys.insert(key, (mark, parks.is_some()));
        }
        // The relay waits for each dead letter that it has written, also for one that is older than a
        // release that was read before: that release follows it once more.
        let is_released = if parks.is_some() { mark.is_none() } else { mark.is_some() };
        let parked = parks.map(|position| TailEvent::Parked(key, position));
        [parked, is_released.then_some(TailEvent::Released(key))]
    }

    fn count(
        &self,
        letter: &DeadLetter,
        change: Change,
        now_unix_us: i64,
        events: &mut Vec<TailEvent>,
    ) {
        // A time to come is none at which anything has failed: counted, it would stay recent, and
        // the next dead letter would be one too many.
        let is_to_come = letter.failed_unix_us > now_unix_us.saturating_add(CLOCK_SKEW_US);
        let failed_unix_us = letter.failed_unix_us.min(now_unix_us);
        let is_recent = !self.caught_up && !is_to_come && failed_unix_us >= self.since_unix_us;
        // A dead letter that a killed relay has written twice is one.
        let counts = is_recent && change == Change::Opened && self.owner.wrote(letter);
        if counts && letter.error_class != CLASS_PARKED {
            let class = letter.error_class.clone();
            events.push(TailEvent::DeadLetter { failed_unix_us, class });
        }
    }

    /// The end of the topic was reached. Returns whether it is another topic than the one that was
    /// read before, so that it must be read once more.
    pub fn end(&mut self, events: &mut Vec<TailEvent>) -> bool {
        self.is_complete = true;
        let is_shorter = |(partition, reported): (&i32, &i64)| {
            self.read.get(partition).is_some_and(|read| read < reported)
        };
        let is_replaced = self.reported.iter().any(is_shorter);
        // A key is forgotten with the records of its partition: the topic was made anew, or nothing is
        // left in that partition.
        let is_there = |at: &PartitionOffset| self.read.get(&at.partition) >= Some(&at.offset);
        self.keys.retain(|_, (mark, _)| !is_replaced && is_there(&mark.position));
        // Whatever is read from now on is new.
        self.reported.clear();
        if is_replaced {
            self.read.clear();
        } else if !std::mem::replace(&mut self.caught_up, true) {
            events.push(TailEvent::CaughtUp);
        }
        is_replaced
    }

    pub fn caught_up(&self) -> bool {
        self.caught_up
    }

    /// How many dead letters are open, and when the oldest failed; none before the end was reached.
    pub fn open(&mut self) -> Option<(usize, Option<i64>)> {
        if !self.is_complete {
            return None;
        }
        let letters = &self.letters;
        let oldest = self.oldest.get_or_insert_with(|| letters.oldest_unix_us());
        Some((letters.count(), *oldest))
    }

    /// Are so many dead letters open that further ones are only counted?
    pub fn only_counts(&self) -> bool {
        self.letters.is_beyond()
    }
}

#[cfg(test)]
#[path = "tail_event_tests.rs"]
mod tests;
