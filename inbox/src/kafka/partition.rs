//! Messages that one assigned partition has under way, and the offset that may be committed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Stands for one record.
#[derive(Clone, Copy)]
pub(crate) struct RecordMark {
    /// As [`OffsetTracker::turn_of`] says.
    pub(super) turn: u32,
    pub(super) offset: i64,
}

/// Offsets that were handed out, in their order, and whether each is settled.
#[derive(Default)]
pub(super) struct OffsetTracker {
    under_way: VecDeque<(i64, bool)>,
    /// Where reading goes on after everything that is settled so far.
    next: Option<i64>,
    /// The offset that `committable` has returned last.
    committed: Option<i64>,
    /// How often offsets have gone back: the same one stands for another record then.
    turn: u32,
}

impl OffsetTracker {
    /// Offsets go back where the topic was cut or made again: those before do not count any more.
    pub(super) fn begin(&mut self, offset: i64) {
        if self.goes_back(offset) {
            self.under_way.clear();
            (self.next, self.turn) = (None, self.turn + 1);
        }
        self.under_way.push_back((offset, false));
    }

    /// The turn of the record that comes next, at this offset.
    pub(super) fn turn_of(&self, offset: i64) -> u32 {
        self.turn + u32::from(self.goes_back(offset))
    }

    fn goes_back(&self, offset: i64) -> bool {
        self.end().is_some_and(|end| offset < end)
    }

    /// The offset behind the last one that was handed out.
    pub(super) fn end(&self) -> Option<i64> {
        self.under_way.back().map(|(offset, _)| offset + 1).or(self.next)
    }

    pub(super) fn settle(&mut self, turn: u32, offset: i64) {
        if turn != self.turn {
            return;
        }
        if let Ok(at) = self.under_way.binary_search_by_key(&offset, |(offset, _)| *offset) {
            self.under_way[at].1 = true;
        }
        while let Some((offset, true)) = self.under_way.front() {
            self.next = Some(offset + 1);
            self.under_way.pop_front();
        }
    }

    pub(super) fn count(&self) -> usize {
        self.under_way.len()
    }

    /// The offset to commit, if it has moved: everything before it is settled.
    pub(super) fn committable(&mut self) -> Option<i64> {
        let next = self.next.filter(|_| self.next != self.committed)?;
        self.committed = Some(next);
        Some(next)
    }

    /// Forgets the offset that `committable` has returned last: it may not have been committed, and
    /// is returned again.
    pub(super) fn forget_committed(&mut self) {
        self.committed = None;
    }
}

/// Bounds how long copies of a retry level wait, whatever their headers and the wall clock say:
/// what has been in the partition for the time of the level is due. So a copy waits for twice that
/// time at most, and copies wait together, not one after another.
#[derive(Default)]
pub(super) struct WaitBound {
    /// The end of the partition at a time: what stands before it was there.
    seen: Option<(Instant, i64)>,
    /// The last record that was asked for.
    asked: i64,
}

impl WaitBound {
    /// How long the record at `offset` waits at most from now on. `end` tells the end of the
    /// partition as it is now.
    pub(super) fn left(
        &mut self,
        offset: i64,
        delay: Duration,
        now: Instant,
        end: impl FnOnce() -> i64,
    ) -> Duration {
        // Offsets go back when the topic is made again: what stands there now was not seen.
        if std::mem::replace(&mut self.asked, offset) > offset {
            self.seen = None;
        }
        let (at, _) = match self.seen.filter(|(_, end)| offset < *end) {
            Some(seen) => seen,
            None => *self.seen.insert((now, end().max(offset + 1))),
        };
        delay.saturating_sub(now.saturating_duration_since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_contiguous_beginning_is_committed() {
        let mut tracker = OffsetTracker::default();
        assert_eq!(tracker.committable(), None);
        // Offsets may have gaps: of transactions, or where a topic is compacted.
        [10, 11, 15, 16].into_iter().for_each(|offset| tracker.begin(offset));
        tracker.settle(0, 11);
        tracker.settle(0, 15);
        assert_eq!(tracker.committable(), None, "10 is under way");
        tracker.settle(0, 10);
        assert_eq!(tracker.committable(), Some(16));
        assert_eq!(tracker.committable(), None, "it has not moved");
        tracker.forget_committed();
        assert_eq!(tracker.committable(), Some(16), "it was not committed");
        tracker.settle(0, 16);
        tracker.settle(0, 99);
        assert_eq!((tracker.committable(), tracker.count()), (Some(17), 0));
    }

    #[test]
    fn offsets_that_go_back_are_committed_from_there_on() {
        // GIVEN offsets of which one is under way, and another time none
        for settled in [&[10, 12][..], &[10, 11, 12]] {
            let mut tracker = OffsetTracker::default();
            (10..=12).for_each(|offset| tracker.begin(offset));
            settled.iter().for_each(|offset| tracker.settle(0, *offset));
            // WHEN the topic begins again THEN only the new offsets count
            assert_eq!((tracker.turn_of(13), tracker.turn_of(3)), (0, 1));
            tracker.begin(3);
            tracker.begin(4);
            assert_eq!((tracker.committable(), tracker.count()), (None, 2));
            tracker.settle(0, 11);
            tracker.settle(1, 3);
            assert_eq!((tracker.committable(), tracker.count()), (Some(4), 1));
            // AND a record of before does not stand for the new one at its offset
            (5..=11).for_each(|offset| tracker.begin(offset));
            (4..=10).for_each(|offset| tracker.settle(1, offset));
            tracker.settle(0, 11);
            assert_eq!((tracker.committable(), tracker.count()), (Some(11), 1));
        }
    }

    #[test]
    fn copies_that_were_there_for_the_time_of_their_level_are_due_together() {
        let (start, delay) = (Instant::now(), Duration::from_secs(30));
        let after = |seconds| start + Duration::from_secs(seconds);
        let never = || -> i64 { unreachable!("the end is known") };
        let mut bound = WaitBound::default();
        assert_eq!(bound.left(10, delay, start, || 15), delay);
        assert_eq!(bound.left(10, delay, after(29), never), Duration::from_secs(1));
        for offset in [10, 11, 14] {
            assert_eq!(bound.left(offset, delay, after(30), never), Duration::ZERO);
        }
        // The next one came later; of the last one nothing is known but itself.
        assert_eq!(bound.left(15, delay, after(31), || 20), delay);
        assert_eq!(bound.left(15, delay, after(90), never), Duration::ZERO);
        assert_eq!(bound.left(20, delay, after(91), || -1), delay);
        assert_eq!(bound.left(20, delay, after(121), never), Duration::ZERO);
        // WHEN the topic is made again
        assert_eq!(bound.left(0, delay, after(122), || 5), delay);
    }
}
