//! The table of the claimed rows that have no verdict yet, one slot a row, and the verdicts of their
//! batches.
//!
//! Rows are numbered as they come in, batch after batch, and keep their numbers until they are
//! settled. The sink gets them in this order. The verdicts of a batch are sent once, when all its
//! rows are settled. Once a row of a batch has failed, its verdicts are sent as each becomes known.
//!
//! Unlike an event of [`crate::delivery::flights`] a row can be settled before earlier ones, so a row
//! that waits for long keeps no slot but its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::base::clock::Moment;
use crate::base::event::{Position, Sequence};
use crate::dead_letter::writer::CLASS_CRASH;
use crate::delivery::flight::{Attempts, Extras, Flight, FlightState};
use crate::delivery::flights::NotInFlight;
use crate::delivery::known::Fingerprint;
use crate::polling::batch::{Batch, FailedRow, PolledRow, Verdicts};

/// How long a worker waits for all rows of its batch: one may wait for a destination that does not
/// answer, and others are claimed meanwhile.
const WORKER_WAITS: Duration = Duration::from_secs(2);
/// How long the sink has had a row that counts as overtaken.
const OVERTAKEN_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct ClaimedRow {
    row: PolledRow,
    flight: Flight,
    /// When a sink got it last. None before that, and once an attempt has failed: then it waits for the
    /// next, or is being retried.
    offered_at: Option<Instant>,
}

#[derive(Debug)]
struct OpenBatch {
    /// A row has failed or waits for long, so verdicts are sent as soon as they are known.
    broken_up: bool,
    taken_at: Instant,
    /// Not sent yet.
    verdicts: Verdicts,
    /// Rows without a verdict.
    left: usize,
}

#[derive(Debug, Default)]
pub(super) struct ClaimedRows {
    /// Rows without a verdict.
    rows: BTreeMap<Sequence, ClaimedRow>,
    /// The batches by the number of their first row.
    batches: BTreeMap<Sequence, OpenBatch>,
    /// Number of the next row that comes in.
    pub(super) next: Sequence,
    /// The sink has the rows below this number; the others are queued.
    handed_below: Sequence,
    /// The newest row that the sink has settled.
    newest_settled: Sequence,
    /// Rows that the sink has, those of them that have failed, and the bytes of all.
    pub(super) in_flight: usize,
    pub(super) failing: usize,
    pub(super) bytes: usize,
    /// Bytes that the rows hold here.
    pub(super) held_bytes: usize,
    /// A row on which processes have died has its dead letter.
    pub(super) has_given_up_deadly: bool,
}

impl ClaimedRows {
    /// Takes a batch in.
    pub(super) fn take(&mut self, batch: Batch, now: Moment) {
        let Batch { claim, lsn, rows, .. } = batch;
        self.open(Verdicts::of(claim), rows.len(), now.instant);
        for (ordinal, row) in (0..).zip(rows) {
            let flight = flight_of(&row, Position { commit_lsn: lsn, ordinal }, now.unix_us);
            self.held_bytes += row.tuple.len();
            self.rows.insert(self.next, ClaimedRow { row, flight, offered_at: None });
            self.next += 1;
        }
    }

    /// Releases the rows of a batch that is not taken in.
    pub(super) fn refuse(&mut self, batch: Batch, now: Instant) {
        let given_back: Vec<String> = batch.rows.into_iter().map(|row| row.id).collect();
        let numbers = given_back.len() as Sequence;
        self.open(Verdicts { given_back, ..Verdicts::of(batch.claim) }, 0, now);
        self.next += numbers;
    }

    fn open(&mut self, verdicts: Verdicts, left: usize, taken_at: Instant) {
        let batch = OpenBatch { broken_up: false, taken_at, verdicts, left };
        self.batches.insert(self.next, batch);
    }

    /// Rows without a verdict.
    pub(super) fn unsettled(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn has_queued(&self) -> bool {
        self.in_flight < self.rows.len()
    }

    /// The row that is handed to the sink next, and what is known of it.
    pub(super) fn next_queued(&self) -> Option<(Sequence, &PolledRow, &Flight)> {
        let (sequence, ClaimedRow { row, flight, .. }) =
            self.rows.range(self.handed_below..).next()?;
        Some((*sequence, row, flight))
    }

    /// The sink has taken the row that was queued next.
    pub(super) fn offered(&mut self, flight: Flight, now: Instant) {
        let next = self.rows.range_mut(self.handed_below..).next();
        let Some((sequence, claimed)) = next else { return };
        let mut flight = Flight { fingerprint: Fingerprint::NONE, ..flight };
        flight.resume(&mut claimed.flight);
        self.handed_below = sequence + 1;
        self.in_flight += 1;
        self.bytes += flight.bytes as usize;
        (claimed.flight, claimed.offered_at) = (flight, Some(now));
    }

    fn is_handed(&self, sequence: Sequence) -> Result<(), NotInFlight> {
        if sequence < self.handed_below { Ok(()) } else { Err(NotInFlight(sequence)) }
    }

    /// Lets `decide` judge a row that the sink has.
    pub(super) fn update<T>(
        &mut self,
        sequence: Sequence,
        decide: impl FnOnce(&mut Flight) -> T,
    ) -> Result<T, NotInFlight> {
        self.is_handed(sequence)?;
        let claimed = self.rows.get_mut(&sequence).ok_or(NotInFlight(sequence))?;
        Ok(decide(&mut claimed.flight))
    }

    /// Rows that become dead letters once the dead-letter topic has been read.
    pub(super) fn given_up(&self) -> Vec<Sequence> {
        let given_up = |it: &ClaimedRow| matches!(it.flight.state, FlightState::GivenUp(_));
        let rows = self.rows.iter().filter(|(_, claimed)| given_up(claimed));
        rows.map(|(sequence, _)| *sequence).collect()
    }

    /// Rows that the sink has had for long without an answer, while it has settled later ones, the
    /// oldest first; and for how long.
    pub(super) fn overtaken(&self, now: Instant) -> (Vec<Sequence>, Duration) {
        let rows = self.rows.range(..self.newest_settled).filter_map(|(sequence, claimed)| {
            let waits_for = now.saturating_duration_since(claimed.offered_at?);
            (waits_for >= OVERTAKEN_AFTER).then_some((*sequence, waits_for))
        });
        let (old, waits): (Vec<Sequence>, Vec<Duration>) = rows.unzip();
        (old, waits.into_iter().max().unwrap_or_default())
    }

    fn batch_of(&mut self, sequence: Sequence) -> Option<&mut OpenBatch> {
        self.batches.range_mut(..=sequence).next_back().map(|(_, batch)| batch)
    }

    /// The broker has the row, or its dead letter.
    pub(super) fn settle(&mut self, sequence: Sequence) -> Result<Flight, NotInFlight> {
        self.is_handed(sequence)?;
        let settled = self.rows.remove(&sequence).ok_or(NotInFlight(sequence))?;
        let ClaimedRow { row, flight, offered_at } = settled;
        self.newest_settled = self.newest_settled.max(sequence);
        self.held_bytes -= row.tuple.len();
        self.in_flight -= 1;
        self.failing -= usize::from(offered_at.is_none());
        self.bytes -= flight.bytes as usize;
        let cause = flight.dead_letter();
        self.has_given_up_deadly |= cause.is_some_and(|cause| cause.class == CLASS_CRASH);
        let batch = self.batch_of(sequence).ok_or(NotInFlight(sequence))?;
        batch.left -= 1;
        match &flight.state {
            FlightState::DeadLetter(cause) => {
                let wait = Duration::ZERO;
                let reason = format!("{} ({})", cause.reason, cause.class);
                let failed = FailedRow { id: row.id, attempts: cause.attempts, reason, wait };
                batch.verdicts.failed.push(failed);
            }
            _ => batch.verdicts.published.push(row.id),
        }
        Ok(flight)
    }

    /// The row has failed and will be tried again.
    pub(super) fn retrying(
        &mut self,
        sequence: Sequence,
        attempts: u32,
        wait: Duration,
        reason: String,
    ) {
        let Some(claimed) = self.rows.get_mut(&sequence) else { return };
        let id = claimed.row.id.clone();
        self.failing += usize::from(claimed.offered_at.take().is_some());
        let Some(batch) = self.batch_of(sequence) else { return };
        batch.verdicts.noted.push(FailedRow { id, attempts, reason, wait });
        batch.broken_up = true;
    }

    /// There is a new sink: everything that is not settled is handed over again, in order.
    pub(super) fn rewind(&mut self) {
        for claimed in self.rows.values_mut() {
            claimed.flight.take_given_up();
        }
        self.forget_sink();
    }

    fn forget_sink(&mut self) {
        (self.handed_below, self.newest_settled) = (0, 0);
        (self.in_flight, self.failing, self.bytes) = (0, 0, 0);
    }

    /// No confirms come any more: rows without a verdict are released to other claims. Returns those that
    /// were dead letters.
    pub(super) fn give_back(&mut self) -> Vec<Position> {
        let mut dropped_letters = Vec::new();
        for (sequence, claimed) in std::mem::take(&mut self.rows) {
            dropped_letters.extend(claimed.flight.dead_letter().map(|it| it.position));
            let Some(batch) = self.batch_of(sequence) else { continue };
            batch.left -= 1;
            batch.verdicts.given_back.push(claimed.row.id);
        }
        self.held_bytes = 0;
        self.forget_sink();
        dropped_letters
    }

    /// Verdicts that can be sent by now. Batches without further rows are removed.
    pub(super) fn take_verdicts(&mut self, now: Instant) -> Vec<Verdicts> {
        let mut all = Vec::new();
        self.batches.retain(|_, batch| {
            let last = batch.left == 0;
            let is_old =
                !batch.broken_up && now.saturating_duration_since(batch.taken_at) >= WORKER_WAITS;
            batch.broken_up |= is_old;
            if last || (batch.broken_up && (is_old || !batch.verdicts.is_empty())) {
                let further = Verdicts::of(batch.verdicts.claim.clone());
                let known = std::mem::replace(&mut batch.verdicts, further);
                all.push(Verdicts { last, ..known });
            }
            !last
        });
        all
    }
}

/// The flight of a row that earlier claims have left.
fn flight_of(row: &PolledRow, position: Position, now_unix_us: i64) -> Flight {
    let attempts = Attempts { count: row.attempts, ..Attempts::none(now_unix_us) };
    Flight {
        position,
        commit_unix_us: row.created_unix_us,
        fingerprint: Fingerprint::NONE,
        bytes: 0,
        state: FlightState::Sent,
        extras: Extras::of(Some(attempts).filter(|attempts| attempts.count > 0), None),
    }
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
