//! The claimed rows that have no verdict yet, and the verdicts of their batches.
//!
//! Rows are numbered as they come in, batch after batch, and keep their numbers until they are
//! settled. The verdicts of a batch are sent once, when all its rows are settled. Once a row
//! of a batch has failed, its verdicts are sent as each becomes known.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::base::event::{Position, Sequence};
use crate::delivery::flight::{Attempts, Flight, FlightState};
use crate::delivery::flights::NotInFlight;
use crate::delivery::known::Fingerprint;
use crate::polling::batch::{Batch, FailedRow, Late, PolledRow, Verdicts};

/// How long a worker waits for all rows of its batch: one may wait for a destination that does not
/// answer, and others are claimed meanwhile.
const WORKER_WAITS: Duration = Duration::from_secs(2);
/// How long the sink has had a row that counts as overtaken.
const OVERTAKEN_AFTER: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowState {
    /// To be handed to the sink.
    Queued,
    /// The sink has it, since this time.
    Offered(Instant),
    /// The sink has it, and an attempt has failed: it waits for the next, or is being retried.
    Failing,
}

#[derive(Debug)]
struct ClaimedRow {
    row: PolledRow,
    state: RowState,
    flight: Flight,
}

#[derive(Debug)]
struct OpenBatch {
    claim: String,
    /// A row has failed or waits for long, so verdicts are sent as soon as they are known.
    broken_up: bool,
    taken_at: Instant,
    /// Not sent yet.
    verdicts: Verdicts,
    answer: Option<oneshot::Sender<Verdicts>>,
    /// Rows without a verdict.
    rows: BTreeMap<Sequence, ClaimedRow>,
}

#[derive(Debug, Default)]
pub(super) struct ClaimedRows {
    /// By the number of their first row.
    batches: BTreeMap<Sequence, OpenBatch>,
    /// Number of the next row that comes in.
    pub(super) next: Sequence,
    /// The newest row that the sink has settled.
    newest_settled: Sequence,
    /// Rows to be handed to the sink, in order.
    queue: VecDeque<Sequence>,
    /// Rows that the sink has, those of them that have failed, and the bytes of all.
    pub(super) in_flight: usize,
    pub(super) failing: usize,
    pub(super) bytes: usize,
    /// Rows without a verdict, and the bytes that they hold here.
    pub(super) unsettled: usize,
    pub(super) held_bytes: usize,
}

impl ClaimedRows {
    /// Takes a batch in.
    pub(super) fn take(&mut self, batch: Batch, now_unix_us: i64) {
        let Batch { claim, lsn, rows, answer, .. } = batch;
        let first = self.next;
        self.unsettled += rows.len();
        self.held_bytes += rows.iter().map(|row| row.tuple.len()).sum::<usize>();
        self.next += rows.len() as Sequence;
        self.queue.extend(first..self.next);
        let queued = |(ordinal, row)| {
            let flight = flight_of(&row, Position { commit_lsn: lsn, ordinal }, now_unix_us);
            ClaimedRow { row, state: RowState::Queued, flight }
        };
        let batch = OpenBatch {
            claim,
            broken_up: false,
            taken_at: Instant::now(),
            verdicts: Verdicts::default(),
            answer: Some(answer),
            rows: (first..).zip((0..).zip(rows).map(queued)).collect(),
        };
        self.batches.insert(first, batch);
    }

    /// Releases the rows of a batch that is not taken in.
    pub(super) fn refuse(&mut self, batch: Batch) {
        let first = self.next;
        self.take(batch, 0);
        self.queue.retain(|sequence| *sequence < first);
        if let Some(batch) = self.batches.get_mut(&first) {
            let rows = std::mem::take(&mut batch.rows);
            self.unsettled -= rows.len();
            self.held_bytes -= rows.values().map(|it| it.row.tuple.len()).sum::<usize>();
            batch.verdicts.given_back.extend(rows.into_values().map(|it| it.row.id));
        }
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The row that is handed to the sink next, and what is known of it.
    pub(super) fn next_queued(&self) -> Option<(Sequence, &PolledRow, &Flight)> {
        let sequence = *self.queue.front()?;
        let (_, batch) = self.batches.range(..=sequence).next_back()?;
        let ClaimedRow { row, flight, .. } = batch.rows.get(&sequence)?;
        Some((sequence, row, flight))
    }

    /// The sink has taken the row at the head of the queue.
    pub(super) fn offered(&mut self, flight: Flight) {
        let Some(sequence) = self.queue.pop_front() else { return };
        let Some(batch) = self.batch_of(sequence) else { return };
        let Some(claimed) = batch.rows.get_mut(&sequence) else { return };
        let bytes = flight.bytes;
        let mut flight = Flight { fingerprint: Fingerprint::NONE, ..flight };
        flight.resume(&mut claimed.flight);
        (claimed.state, claimed.flight) = (RowState::Offered(Instant::now()), flight);
        self.in_flight += 1;
        self.bytes += bytes;
    }

    /// Lets `decide` judge a row that the sink has.
    pub(super) fn update<T>(
        &mut self,
        sequence: Sequence,
        decide: impl FnOnce(&mut Flight) -> T,
    ) -> Result<T, NotInFlight> {
        let claimed = self.batch_of(sequence).and_then(|batch| batch.rows.get_mut(&sequence));
        let claimed = claimed.filter(|claimed| claimed.state != RowState::Queued);
        claimed.map(|claimed| decide(&mut claimed.flight)).ok_or(NotInFlight(sequence))
    }

    /// Rows that become dead letters once the dead-letter topic has been read.
    pub(super) fn given_up(&self) -> Vec<Sequence> {
        let rows = self.batches.values().flat_map(|batch| &batch.rows);
        let given_up = |it: &ClaimedRow| matches!(it.flight.state, FlightState::GivenUp(_));
        rows.filter(|(_, claimed)| given_up(claimed)).map(|(sequence, _)| *sequence).collect()
    }

    /// Rows that the sink has had for long without an answer, while it has settled later ones, the
    /// oldest first.
    pub(super) fn overtaken(&self) -> Vec<Sequence> {
        let may_be_old = |batch: &&OpenBatch| batch.taken_at.elapsed() >= OVERTAKEN_AFTER;
        let rows = self.batches.values().filter(may_be_old).flat_map(|batch| &batch.rows);
        let waits = rows.filter(|(_, claimed)| match claimed.state {
            RowState::Offered(at) => at.elapsed() >= OVERTAKEN_AFTER,
            RowState::Queued | RowState::Failing => false,
        });
        waits.map(|(sequence, _)| *sequence).take_while(|it| *it < self.newest_settled).collect()
    }

    fn batch_of(&mut self, sequence: Sequence) -> Option<&mut OpenBatch> {
        self.batches.range_mut(..=sequence).next_back().map(|(_, batch)| batch)
    }

    /// The broker has the row, or its dead letter.
    pub(super) fn settle(&mut self, sequence: Sequence) -> Result<Flight, NotInFlight> {
        let found = self.batches.range_mut(..=sequence).next_back();
        let (_, batch) = found.ok_or(NotInFlight(sequence))?;
        let Entry::Occupied(entry) = batch.rows.entry(sequence) else {
            return Err(NotInFlight(sequence));
        };
        if entry.get().state == RowState::Queued {
            return Err(NotInFlight(sequence));
        }
        let ClaimedRow { row, state, flight } = entry.remove();
        self.newest_settled = self.newest_settled.max(sequence);
        self.unsettled -= 1;
        self.held_bytes -= row.tuple.len();
        self.in_flight -= 1;
        self.failing -= usize::from(state == RowState::Failing);
        self.bytes -= flight.bytes;
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
        let Some(batch) = self.batch_of(sequence) else { return };
        let Some(claimed) = batch.rows.get_mut(&sequence) else { return };
        let id = claimed.row.id.clone();
        batch.verdicts.noted.push(FailedRow { id, attempts, reason, wait });
        batch.broken_up = true;
        if matches!(claimed.state, RowState::Offered(_)) {
            claimed.state = RowState::Failing;
            self.failing += 1;
        }
    }

    /// There is a new sink: everything that is not settled is handed over again, in order.
    pub(super) fn rewind(&mut self) {
        self.queue.clear();
        for (sequence, claimed) in self.batches.values_mut().flat_map(|batch| &mut batch.rows) {
            claimed.state = RowState::Queued;
            claimed.flight.take_given_up();
            self.queue.push_back(*sequence);
        }
        (self.in_flight, self.failing, self.bytes) = (0, 0, 0);
        self.newest_settled = 0;
    }

    /// No confirms come any more: rows without a verdict are released to other claims.
    pub(super) fn give_back(&mut self) {
        self.queue.clear();
        for batch in self.batches.values_mut() {
            let rows = std::mem::take(&mut batch.rows).into_values();
            batch.verdicts.given_back.extend(rows.map(|claimed| claimed.row.id));
        }
        (self.unsettled, self.held_bytes) = (0, 0);
        (self.in_flight, self.failing, self.bytes) = (0, 0, 0);
    }

    /// Verdicts that can be sent by now, and the workers that wait for them. Batches without
    /// further rows are removed.
    pub(super) fn take_verdicts(&mut self) -> Vec<(Late, Option<oneshot::Sender<Verdicts>>)> {
        let mut all = Vec::new();
        self.batches.retain(|_, batch| {
            let last = batch.rows.is_empty();
            let is_old = !batch.broken_up && batch.taken_at.elapsed() >= WORKER_WAITS;
            batch.broken_up |= is_old;
            if last || (batch.broken_up && (is_old || !batch.verdicts.is_empty())) {
                let verdicts = Verdicts { last, ..std::mem::take(&mut batch.verdicts) };
                all.push((Late { claim: batch.claim.clone(), verdicts }, batch.answer.take()));
            }
            !last
        });
        all
    }
}

/// What earlier claims have left of a row.
fn flight_of(row: &PolledRow, position: Position, now_unix_us: i64) -> Flight {
    let attempts = Attempts { count: row.attempts, ..Attempts::none(now_unix_us) };
    Flight {
        position,
        bytes: 0,
        commit_unix_us: row.created_unix_us,
        fingerprint: Fingerprint::NONE,
        state: FlightState::Sent,
        attempts: Some(attempts).filter(|attempts| attempts.count > 0),
        span: None,
    }
}

#[cfg(test)]
#[path = "claimed_rows_tests.rs"]
mod tests;
