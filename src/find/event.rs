//! The facts of one event, and the state that follows from them. Pure.
//!
//! An event that is neither in a topic nor a dead letter is judged by the slot: a relay reports a
//! transaction only when each of its events is confirmed, so what the slot has passed was published,
//! unless it is a row that the row filter of the publication may exclude, or another program has read or
//! moved the slot.
//! The place of a row in the log is not known from the row. The slot has passed it all the same if
//! it has confirmed everything that was written when the row was read, or if no transaction as old
//! as the row's can be ahead of it (`catalog_xmin`).

use crate::base::lsn::Lsn;
use crate::base::template::Template;
use crate::base::text::shown;
use crate::dead_letter::record::{NotReplayable, PartitionOffset};
use crate::sink::search::SearchRoute;

/// The header of the trace context.
pub(super) const TRACEPARENT: &str = "traceparent";

/// The places of an event that were read to their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completeness {
    /// Every dead letter there may be of it.
    pub(crate) letters_read: bool,
    /// Every record there may be of it.
    pub(crate) records_read: bool,
}

/// A row of an outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutboxRow {
    /// `schema.table`.
    pub(crate) table: String,
    pub(crate) id: String,
    /// The bytes of its ordering key, if it has one and they are known.
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) created_unix_us: Option<i64>,
    /// Where `track_commit_timestamp` is on.
    pub(crate) committed_unix_us: Option<i64>,
    pub(crate) traceparent: Option<String>,
    /// Where its route leads; none where a column of the template is NULL.
    pub(crate) topic: Option<String>,
    pub(crate) partition: Option<i32>,
    /// The transaction that wrote it.
    pub(crate) xmin: Option<u32>,
    /// The publication delivers rows of the table.
    pub(crate) is_published: bool,
    /// The publication has a row filter for the table.
    pub(crate) is_filtered: bool,
    pub(crate) polled: Option<PolledStatus>,
}

impl OutboxRow {
    /// Where its record is, if its topic is known.
    pub(super) fn route(&self) -> Option<SearchRoute> {
        Some(SearchRoute {
            topic: Template::literal(self.topic.as_deref()?),
            key: self.key.clone(),
            partition: self.partition,
        })
    }

    pub(crate) fn unix_us(&self) -> Option<i64> {
        self.committed_unix_us.or(self.created_unix_us)
    }

    /// A time before which it has no record and no dead letter: an UPDATE gives the row a later time of
    /// commit.
    pub(crate) fn oldest_unix_us(&self) -> Option<i64> {
        let created = self.created_unix_us?;
        Some(created.min(self.committed_unix_us.unwrap_or(created)))
    }
}

/// The status of a row that is claimed with SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolledStatus {
    pub(crate) state: EventState,
    /// As it stands in the table.
    pub(crate) status: String,
    pub(crate) retry_count: Option<i64>,
    pub(crate) failure_reason: Option<String>,
}

/// A record at the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PublishedRecord {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) written_unix_us: i64,
}

/// A record or a dead letter, and what it says of its event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventSighting<T> {
    pub(super) event_id: String,
    /// Where the event was published, or was to be; empty if that could not be determined.
    pub(super) topic: String,
    pub(super) key: Option<String>,
    pub(super) lsn: Option<Lsn>,
    pub(super) commit_unix_us: Option<i64>,
    pub(super) traceparent: Option<String>,
    pub(super) of: T,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventLetter {
    /// Where the dead letter is: the dead-letter topic, and the place in it.
    pub(crate) topic: String,
    pub(crate) position: PartitionOffset,
    pub(crate) attempts: u32,
    pub(crate) error_class: String,
    pub(crate) error_msg: String,
    /// `open`, `replayed` or `discarded`.
    pub(crate) state: &'static str,
    pub(crate) failed_unix_us: i64,
    /// Why a replay passes over it.
    pub(crate) not_replayable: Option<NotReplayable>,
    /// It has parked its key, or its key was parked.
    pub(crate) is_of_parked_key: bool,
}

/// The slot, as it was when the rows were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotPosition {
    pub(crate) name: String,
    pub(crate) confirmed: Lsn,
    /// Everything that the rows were read from is before this.
    pub(crate) wal_end: Lsn,
    pub(crate) reader: SlotReader,
    pub(crate) catalog_xmin: Option<u32>,
}

/// The relay that reads the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SlotReader {
    #[default]
    Nobody,
    /// How far the WAL was sent to it.
    Sent(Lsn),
    /// This role does not see how far: it lacks `pg_read_all_stats`.
    Hidden,
}

impl SlotPosition {
    /// Has it confirmed everything there was when the rows were read?
    pub(crate) fn has_all(&self) -> bool {
        self.confirmed >= self.wal_end
    }

    fn has_passed(&self, event: &FoundEvent) -> Option<bool> {
        if let Some(lsn) = event.lsn {
            // The slot is confirmed at ends of transactions, which are behind their commit records.
            return Some(self.confirmed > lsn);
        }
        let row = event.row.as_ref()?;
        let is_older = |xmin: u32, oldest: u32| (xmin.wrapping_sub(oldest) as i32) < 0;
        let is_past = row.xmin.zip(self.catalog_xmin).is_some_and(|(a, b)| is_older(a, b));
        (self.has_all() || is_past).then_some(true)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EventState {
    Published,
    DeadLettered,
    /// The relay has it, and the broker has not confirmed it.
    InFlight,
    /// No relay has it yet.
    Waiting,
    #[default]
    Unknown,
}

impl EventState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            EventState::Published => "published",
            EventState::DeadLettered => "dead_lettered",
            EventState::InFlight => "in_flight",
            EventState::Waiting => "waiting",
            EventState::Unknown => "unknown",
        }
    }
}

/// Why an event is in its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EventStateReason {
    /// A record, a dead letter or the row's status says so.
    Seen,
    /// The slot has passed it, and not everything could be searched.
    Passed,
    /// The slot has passed it, and dead letters could not be read.
    PassedUnread,
    /// The slot has passed it, the publication has a row filter for its table, and not everything could
    /// be searched.
    Filtered,
    /// The slot has not passed it.
    NotPassed,
    /// It is nowhere, and the slot has not confirmed everything.
    Lags,
    /// The slot has passed it, and yet it is nowhere.
    Missing,
    /// The publication leaves its table out.
    NotPublished,
    /// A record or a dead letter may be of the row of another table, which may be gone.
    SameId,
    #[default]
    Nothing,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundEvent {
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) row: Option<OutboxRow>,
    /// The number of tables of which a row has its id.
    pub(crate) tables: usize,
    /// One of its records or dead letters may be of the row of another table that has its id.
    pub(crate) is_ambiguous: bool,
    /// The LSN of the commit record.
    pub(crate) lsn: Option<Lsn>,
    pub(crate) commit_unix_us: Option<i64>,
    pub(crate) slot_passed: Option<bool>,
    pub(crate) records: Vec<PublishedRecord>,
    pub(crate) letters: Vec<EventLetter>,
    pub(crate) traceparent: Option<String>,
    pub(crate) state: EventState,
    pub(crate) reason: EventStateReason,
}

impl FoundEvent {
    pub(super) fn of_row(row: OutboxRow) -> FoundEvent {
        FoundEvent {
            id: row.id.clone(),
            key: row.key.as_deref().map(shown),
            commit_unix_us: row.committed_unix_us,
            row: Some(row),
            ..FoundEvent::default()
        }
    }

    /// When it was written, as far as that is known.
    pub(crate) fn unix_us(&self) -> i64 {
        let of_row = || self.row.as_ref().and_then(OutboxRow::unix_us);
        let of_record = || self.records.iter().map(|record| record.written_unix_us).min();
        let of_letter = || self.letters.iter().map(|letter| letter.failed_unix_us).min();
        let known = self.commit_unix_us.or_else(of_row).or_else(of_record).or_else(of_letter);
        known.unwrap_or_default()
    }

    /// The order is that of time; within a transaction that of the place in the partition,
    /// or else of when the row was made.
    pub(super) fn order(&self) -> (i64, Option<i64>, Option<i64>) {
        let created = self.row.as_ref().and_then(|row| row.created_unix_us);
        (self.unix_us(), self.records.iter().map(|record| record.offset).min(), created)
    }

    /// The trace id of its `traceparent`: 32 hexadecimal digits, not all zero.
    pub(crate) fn trace_id(&self) -> Option<&str> {
        let of_row = || self.row.as_ref()?.traceparent.as_deref();
        let id = self.traceparent.as_deref().or_else(of_row)?.split('-').nth(1)?;
        let is_id = id.len() == 32
            && id.bytes().all(|byte| byte.is_ascii_hexdigit())
            && id.bytes().any(|byte| byte != b'0');
        is_id.then_some(id)
    }

    /// Adds what a sighting says of it, of which the first counts.
    pub(super) fn learn<T>(&mut self, sighting: &EventSighting<T>) {
        self.key = self.key.take().or_else(|| sighting.key.clone());
        self.lsn = self.lsn.or(sighting.lsn);
        self.commit_unix_us = self.commit_unix_us.or(sighting.commit_unix_us);
        self.traceparent = self.traceparent.take().or_else(|| sighting.traceparent.clone());
    }

    pub(crate) fn judge(&mut self, slot: Option<&SlotPosition>, read: Completeness) {
        self.slot_passed = slot.and_then(|slot| slot.has_passed(self));
        (self.state, self.reason) = self.verdict(slot, read);
    }

    fn verdict(
        &self,
        slot: Option<&SlotPosition>,
        Completeness { letters_read, records_read }: Completeness,
    ) -> (EventState, EventStateReason) {
        use EventState::{DeadLettered, InFlight, Published, Unknown, Waiting};
        if self.is_ambiguous {
            return (Unknown, EventStateReason::SameId);
        }
        // A row that waits may have a record of an earlier attempt, and is published again.
        let polled = self.row.as_ref().and_then(|row| row.polled.as_ref());
        let polled = polled.map(|polled| polled.state).filter(|state| *state != Unknown);
        // A row keeps its status when its dead letter is replayed.
        if let Some(state) = polled.filter(|state| *state != DeadLettered) {
            return (state, EventStateReason::Seen);
        }
        let any = |state| self.letters.iter().any(|letter| letter.state == state);
        if any("open") {
            return (DeadLettered, EventStateReason::Seen);
        }
        if !self.records.is_empty() || any("replayed") {
            return (Published, EventStateReason::Seen);
        }
        if any("discarded") {
            return (DeadLettered, EventStateReason::Seen);
        }
        if let Some(state) = polled {
            return (state, EventStateReason::Seen);
        }
        let Some(row) = &self.row else { return (Unknown, EventStateReason::Nothing) };
        if row.polled.is_some() {
            return (Unknown, EventStateReason::Seen);
        }
        if !row.is_published {
            return (Unknown, EventStateReason::NotPublished);
        }
        let Some(slot) = slot else { return (Unknown, EventStateReason::Nothing) };
        // What the relay has not been sent, it cannot have.
        let state = match slot.reader {
            SlotReader::Sent(sent) if sent >= slot.wal_end => InFlight,
            _ => Waiting,
        };
        match self.slot_passed {
            Some(true) if records_read && letters_read => (Unknown, EventStateReason::Missing),
            Some(true) if row.is_filtered => (Unknown, EventStateReason::Filtered),
            Some(true) if !letters_read => (Unknown, EventStateReason::PassedUnread),
            Some(true) => (Published, EventStateReason::Passed),
            Some(false) => (state, EventStateReason::NotPassed),
            None if records_read && letters_read => (state, EventStateReason::NotPassed),
            None => (state, EventStateReason::Lags),
        }
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
