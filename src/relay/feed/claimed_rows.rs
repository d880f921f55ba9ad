//! The claimed rows that have no verdict yet, and the verdicts of their batches.
//!
//! Rows are numbered when they come in, batch after batch, and keep their numbers until they are
//! settled. The verdicts of a batch are sent once, when all its rows are settled. Where a row has
//! failed, the others do not wait for it: what is known is sent at once, and the rest later.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::base::event::{Position, Sequence};
use crate::base::lsn::Lsn;
use crate::delivery::window::NotInFlight;
use crate::polling::batch::{Batch, FailedRow, PolledRow, Verdicts};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowState {
    /// To be handed to the sink.
    Queued,
    /// The sink has it.
    Offered,
    /// The sink has it, and it has failed: it waits, or is on its way again.
    Failing,
}

#[derive(Debug)]
struct ClaimedRow {
    row: PolledRow,
    state: RowState,
    /// What it weighs at the sink.
    bytes: usize,
}

/// What is to be told of a batch.
#[derive(Debug)]
struct OpenBatch {
    claim: String,
    lsn: Lsn,
    /// A row has failed: nothing is waited for any more.
    broken_up: bool,
    /// Not told yet.
    verdicts: Verdicts,
    answer: Option<oneshot::Sender<Verdicts>>,
}

/// Verdicts to be sent, and the worker that waits for them, if one still does.
#[derive(Debug)]
pub(super) struct BatchVerdicts {
    pub(super) claim: String,
    pub(super) verdicts: Verdicts,
    pub(super) answer: Option<oneshot::Sender<Verdicts>>,
}

/// A row that had failed before it was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailedBefore {
    pub(super) sequence: Sequence,
    pub(super) attempts: u32,
}

/// What the loop has in hand.
#[derive(Debug, Default)]
pub(super) struct ClaimedRows {
    /// By the number of the first row; rows without a verdict, by theirs.
    batches: BTreeMap<Sequence, (OpenBatch, BTreeMap<Sequence, ClaimedRow>)>,
    /// Number of the next row that comes in.
    next: Sequence,
    /// Rows to be handed to the sink, in order.
    queue: VecDeque<Sequence>,
    /// Rows that the sink has, those of them that have failed, and the bytes of all.
    offered: usize,
    failing: usize,
    bytes: usize,
    /// Rows without a verdict, and the bytes that are kept of them here.
    unsettled: usize,
    held_bytes: usize,
}

impl ClaimedRows {
    /// Takes a batch in; says which of its rows have failed before.
    pub(super) fn take(&mut self, batch: Batch) -> Vec<FailedBefore> {
        let Batch { claim, lsn, rows, answer } = batch;
        let failed_before = (self.next..)
            .zip(&rows)
            .filter(|(_, row)| row.attempts > 0)
            .map(|(sequence, row)| FailedBefore { sequence, attempts: row.attempts })
            .collect();
        let first = self.next;
        self.unsettled += rows.len();
        self.held_bytes += rows.iter().map(|row| row.tuple.len()).sum::<usize>();
        self.next += rows.len() as Sequence;
        self.queue.extend(first..self.next);
        let (verdicts, answer) = (Verdicts::default(), Some(answer));
        let batch = OpenBatch { claim, lsn, broken_up: false, verdicts, answer };
        let item = |row| ClaimedRow { row, state: RowState::Queued, bytes: 0 };
        let items = (first..).zip(rows.into_iter().map(item)).collect();
        self.batches.insert(first, (batch, items));
        failed_before
    }

    /// The row that is handed to the sink next, and its number.
    pub(super) fn next_queued(&self) -> Option<(Sequence, &PolledRow)> {
        let sequence = *self.queue.front()?;
        let (_, (_, items)) = self.batches.range(..=sequence).next_back()?;
        items.get(&sequence).map(|item| (sequence, &item.row))
    }

    /// The sink has taken it.
    pub(super) fn offered(&mut self, bytes: usize) {
        let Some(sequence) = self.queue.pop_front() else { return };
        let Some((_, item)) = self.find(sequence) else { return };
        (item.state, item.bytes) = (RowState::Offered, bytes);
        self.offered += 1;
        self.bytes += bytes;
    }

    /// The number of the row that comes in next.
    pub(super) fn next(&self) -> Sequence {
        self.next
    }

    /// Where the log stood when the row was claimed, and its place in the claim.
    pub(super) fn position(&self, sequence: Sequence) -> Position {
        let found = self.batches.range(..=sequence).next_back();
        found.map_or(Position::default(), |(first, (notes, _))| Position {
            commit_lsn: notes.lsn,
            ordinal: sequence - first,
        })
    }

    fn find(&mut self, sequence: Sequence) -> Option<(&mut OpenBatch, &mut ClaimedRow)> {
        let (_, (notes, items)) = self.batches.range_mut(..=sequence).next_back()?;
        Some((notes, items.get_mut(&sequence)?))
    }

    /// The broker has the row; says when it was written.
    pub(super) fn published(&mut self, sequence: Sequence) -> Result<i64, NotInFlight> {
        let row = self.settle(sequence, |verdicts, row| verdicts.published.push(row.id.clone()))?;
        Ok(row.created_unix_us)
    }

    /// The dead-letter topic has the row.
    pub(super) fn failed(
        &mut self,
        sequence: Sequence,
        attempts: u32,
        reason: String,
    ) -> Result<i64, NotInFlight> {
        let settled = self.settle(sequence, |verdicts, row| {
            let (id, wait) = (row.id.clone(), Duration::ZERO);
            verdicts.failed.push(FailedRow { id, attempts, reason, wait });
        });
        settled.map(|row| row.created_unix_us)
    }

    fn settle(
        &mut self,
        sequence: Sequence,
        tell: impl FnOnce(&mut Verdicts, &PolledRow),
    ) -> Result<PolledRow, NotInFlight> {
        let found = self.batches.range_mut(..=sequence).next_back();
        let (_, (notes, items)) = found.ok_or(NotInFlight(sequence))?;
        let sent = |item: &&ClaimedRow| matches!(item.state, RowState::Offered | RowState::Failing);
        if items.get(&sequence).filter(sent).is_none() {
            return Err(NotInFlight(sequence));
        }
        let item = items.remove(&sequence).ok_or(NotInFlight(sequence))?;
        tell(&mut notes.verdicts, &item.row);
        self.unsettled -= 1;
        self.held_bytes -= item.row.tuple.len();
        self.leaves(item.state, item.bytes);
        Ok(item.row)
    }

    fn leaves(&mut self, was: RowState, bytes: usize) {
        self.offered -= 1;
        self.failing -= usize::from(was == RowState::Failing);
        self.bytes -= bytes;
    }

    /// The row has failed and will be tried again.
    pub(super) fn retrying(
        &mut self,
        sequence: Sequence,
        attempts: u32,
        wait: Duration,
        reason: String,
    ) {
        let Some((notes, item)) = self.find(sequence) else { return };
        let id = item.row.id.clone();
        notes.verdicts.noted.push(FailedRow { id, attempts, reason, wait });
        notes.broken_up = true;
        if item.state == RowState::Offered {
            item.state = RowState::Failing;
            self.failing += 1;
        }
    }

    /// There is a new sink: everything that is not settled is handed over again, in order.
    pub(super) fn rewind(&mut self) {
        self.queue.clear();
        for (_, items) in self.batches.values_mut() {
            for (sequence, item) in items {
                item.state = RowState::Queued;
                self.queue.push_back(*sequence);
            }
        }
        (self.offered, self.failing, self.bytes) = (0, 0, 0);
    }

    /// Nothing more will be heard of what has no verdict: it is free again.
    pub(super) fn give_back(&mut self) {
        self.queue.clear();
        for (notes, items) in self.batches.values_mut() {
            let rows = std::mem::take(items).into_values();
            notes.verdicts.given_back.extend(rows.map(|item| item.row.id));
        }
        (self.unsettled, self.held_bytes) = (0, 0);
        (self.offered, self.failing, self.bytes) = (0, 0, 0);
    }

    /// What can be told by now. Batches of which everything was told are gone.
    pub(super) fn take_verdicts(&mut self) -> Vec<BatchVerdicts> {
        let mut all = Vec::new();
        self.batches.retain(|_, (notes, items)| {
            let done = items.is_empty();
            if done || (notes.broken_up && !notes.verdicts.is_empty()) {
                let verdicts = Verdicts { last: done, ..std::mem::take(&mut notes.verdicts) };
                let claim = notes.claim.clone();
                all.push(BatchVerdicts { claim, verdicts, answer: notes.answer.take() });
            }
            !done
        });
        all
    }

    /// Rows that the sink has.
    pub(super) fn in_flight(&self) -> usize {
        self.offered
    }

    /// Of them, those that have failed.
    pub(super) fn failing(&self) -> usize {
        self.failing
    }

    /// Bytes of the rows that the sink has.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Rows without a verdict.
    pub(super) fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// Bytes that are kept of them.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Is there a row to be handed over?
    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }
}

#[cfg(test)]
#[path = "claimed_rows_tests.rs"]
mod tests;
