//! Reads what the topics hold before events are published that an earlier process may have
//! published already.
//!
//! These are the events of transactions that were committed before this process had the slot, had it
//! again after a peer, or had it on another timeline. The first of them for a topic waits, and with
//! it the intake, until a thread has read the end of that topic. Whatever goes wrong, the events are
//! published again: reading can fail, and it ends after [`WITHIN`] in all.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::ports::Link;
use crate::base::event::Outbound;
use crate::base::hash::HashSet;
use crate::base::lsn::Lsn;
use crate::base::random::Random;
use crate::delivery::stored::{Stored, StoredEvents};

/// How long the intake waits for all topics together.
pub const WITHIN: Duration = Duration::from_secs(10);
/// Commit times do not follow the order of the commits exactly, and clocks differ.
const MARGIN_US: i64 = 10_000_000;
/// Bounds the memory: so many records take 26 MB while they are looked for, and one more would double
/// the table.
const RECORDS_MAX: usize = (1 << 20) / 8 * 7;
const TOPICS_MAX: usize = 64;
/// The window of an earlier process was hardly larger: what comes behind so many events that are not
/// stored is not looked for, because that takes time in a long backlog.
const MISSES_MAX: usize = 1 << 16;
pub const UNREAD: &str = "the end of a topic is not read: what an earlier process has published there without reporting it is published again";

#[derive(Default)]
pub struct ReadBack {
    open: Option<OpenTopics>,
    random: Random,
    stored: StoredEvents,
    /// The topics that were asked for, for events without a partition of their own, and with one.
    topics: [HashSet<String>; 2],
    /// Commit LSN from which on events are looked for.
    from: Lsn,
    /// Commit LSN from which on nothing is looked for; zero before the first session.
    until: Lsn,
    reader: Option<TopicLink>,
    /// The topic that is being read, and whether for events with a partition of their own.
    awaited: Option<(String, bool)>,
    /// A topic could not be read, and that was logged.
    failed: bool,
    /// Events in a row that no topic holds.
    misses: usize,
    /// Among them are events of a topic that was read.
    has_refuted: bool,
}

/// Reads the ends of topics. The error says why one is not read.
pub type TopicLink = Box<dyn Link<ReadRequest, Result<FoundRecords, String>>>;

/// Begins to read topics; none where published events cannot be read without taking them away.
pub type OpenTopics = Box<dyn Fn() -> Option<TopicLink> + Send>;

pub struct FoundRecords {
    pub records: StoredEvents,
    /// All partitions of the topic were read.
    pub whole: bool,
}

pub struct ReadRequest {
    pub topic: String,
    pub from_unix_us: i64,
    /// The events of this topic ask for a partition, so the partition of a record matters.
    pub by_partition: bool,
    /// As yet without a record.
    pub stored: StoredEvents,
    /// How many it may have.
    pub room: usize,
}

impl ReadRequest {
    /// Takes a record of the topic that was found in its partition; false once there is no room for more.
    pub fn take(&mut self, record: &Outbound<'_>) -> bool {
        let partition = record.partition.filter(|_| self.by_partition);
        let found_in = record.partition.unwrap_or_default();
        self.stored.add(&Outbound { partition, ..*record }, found_in);
        self.stored.records() <= self.room
    }
}

impl fmt::Debug for ReadBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBack").field("until", &self.until).finish_non_exhaustive()
    }
}

impl ReadBack {
    #[must_use]
    pub fn new(open: OpenTopics, seed: u64) -> ReadBack {
        ReadBack { open: Some(open), random: Random::new(seed), ..ReadBack::default() }
    }

    /// A session begins: Postgres sends these transactions, by the LSN of their commit, and an earlier
    /// process, or a peer, may have had them.
    pub fn start(&mut self, transactions: Range<Lsn>) {
        self.stop();
        if !transactions.is_empty() {
            (self.from, self.until) = (transactions.start, transactions.end);
            let salts = [self.random.salt(), self.random.salt()];
            self.stored = StoredEvents::of(transactions).salted(salts);
        }
    }

    /// Everything before this position was received. False if the topics have turned out to hold
    /// nothing of what comes.
    #[inline]
    pub fn received(&mut self, position: Lsn) -> bool {
        let (ends, gives_up) = (position >= self.until, self.misses > MISSES_MAX);
        let refuted = gives_up && !ends && self.has_refuted;
        if self.is_active() && (ends || gives_up) {
            self.stop();
        }
        !refuted
    }

    #[inline]
    pub fn is_active(&self) -> bool {
        self.until != Lsn::ZERO
    }

    /// Whether events of this transaction are looked for.
    #[inline]
    pub fn covers(&self, commit_lsn: Lsn) -> bool {
        self.is_active() && commit_lsn >= self.from
    }

    /// Stops reading back: an event that comes repeats none that an earlier process has received.
    pub fn stop(&mut self) {
        let (open, random) = (self.open.take(), self.random.clone());
        *self = ReadBack { open, random, ..ReadBack::default() };
    }

    /// The answer of its topic about the event; none if that is not known yet, and then the event
    /// is offered again. Asked for all events, published again or not, in order.
    pub fn find(&mut self, event: &Outbound<'_>, commit_lsn: Lsn) -> Option<Stored> {
        let is_new = || !self.topics[usize::from(event.partition.is_some())].contains(event.topic);
        if self.stored.may_hold(event, commit_lsn) && is_new() && self.request(event) {
            return None;
        }
        let stored = self.stored.take(event, commit_lsn);
        let is_hit = stored == Stored::Yes;
        self.misses = if is_hit { 0 } else { self.misses + 1 };
        self.has_refuted = !is_hit && (self.has_refuted || stored != Stored::Unknown);
        Some(stored)
    }

    /// Whether a topic is being read.
    pub fn is_reading(&mut self) -> bool {
        let (Some(awaited), Some(reader)) = (&self.awaited, &self.reader) else { return false };
        let Some(found) = reader.answer() else { return true };
        let (topic, _) = awaited;
        match found {
            Ok(FoundRecords { records: found, whole }) => {
                let records = found.records();
                tracing::debug!(topic, records, whole, "the end of the topic was read");
                self.stored.append(awaited.clone(), found, whole);
            }
            Err(reason) if self.failed => tracing::debug!(topic, reason, "{UNREAD}"),
            Err(reason) => {
                tracing::warn!(code = "sink.topic-unread", topic, reason, "{UNREAD}");
                self.failed = true;
            }
        }
        self.awaited = None;
        false
    }

    /// False if the topic is not read.
    fn request(&mut self, event: &Outbound<'_>) -> bool {
        if self.topics.iter().map(HashSet::len).sum::<usize>() == TOPICS_MAX {
            return false;
        }
        if self.reader.is_none() {
            self.reader = self.open.as_ref().and_then(|open| open());
        }
        let Some(reader) = &self.reader else {
            self.stop();
            return false;
        };
        let by_partition = event.partition.is_some();
        let request = ReadRequest {
            topic: event.topic.to_owned(),
            from_unix_us: event.commit_unix_us.saturating_sub(MARGIN_US),
            by_partition,
            stored: self.stored.another(),
            room: RECORDS_MAX.saturating_sub(self.stored.records()),
        };
        // One topic is read at a time. If its reader has ended, its answer says so.
        let _is_read = reader.request(request);
        self.topics[usize::from(by_partition)].insert(event.topic.to_owned());
        self.awaited = Some((event.topic.to_owned(), by_partition));
        true
    }
}

#[cfg(test)]
#[path = "read_back_tests.rs"]
pub(super) mod tests;
