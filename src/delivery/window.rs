//! The bounded set of events between admission and confirmation.
//!
//! Confirms arrive in any order; what may be forgotten is the contiguous prefix. So the window is
//! a ring: `admit` appends, `settle` marks, and the settled prefix falls off the front. Its bound
//! is what keeps memory flat when a broker stalls (G4): a full window stops intake, nothing else.

use std::collections::VecDeque;

use crate::message::Sequence;

/// Events that were admitted and are not yet known to be settled together with all before them.
#[derive(Debug)]
pub struct Window {
    /// Every event below this one is settled.
    settled_below: Sequence,
    ring: VecDeque<Slot>,
    /// After a rewind: which of the events that will be admitted next were confirmed before it.
    confirmed_before: VecDeque<bool>,
    /// Only from here on will the same events come again under the same numbers.
    same_from: Sequence,
    events: usize,
    bytes: usize,
    events_max: usize,
    bytes_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    bytes: usize,
    commit_unix_us: i64,
    settled: bool,
}

/// A receipt for an event that is not in the window: a bug in a sink, never ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a receipt names event {0}, which is not in flight")]
pub struct NotInFlight(pub Sequence);

impl Window {
    /// An empty window.
    #[must_use]
    pub fn new(events_max: usize, bytes_max: usize) -> Window {
        Window {
            settled_below: 0,
            ring: VecDeque::with_capacity(events_max.min(1 << 16)),
            confirmed_before: VecDeque::new(),
            same_from: 0,
            events: 0,
            bytes: 0,
            events_max,
            bytes_max,
        }
    }

    /// May one more event come in? A single event larger than the byte bound still may, alone.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.ring.len() < self.events_max && self.bytes < self.bytes_max
    }

    /// The number that the next admitted event will get.
    #[must_use]
    pub fn next(&self) -> Sequence {
        self.settled_below + self.ring.len() as Sequence
    }

    /// Takes an event in.
    pub fn admit(&mut self, bytes: usize, commit_unix_us: i64) -> Sequence {
        let sequence = self.next();
        self.confirmed_before.pop_front();
        self.ring.push_back(Slot { bytes, commit_unix_us, settled: false });
        self.events += 1;
        self.bytes += bytes;
        sequence
    }

    /// Marks an event as confirmed; says when its transaction was committed.
    pub fn settle(&mut self, sequence: Sequence) -> Result<i64, NotInFlight> {
        let slot = sequence
            .checked_sub(self.settled_below)
            .and_then(|index| self.ring.get_mut(usize::try_from(index).ok()?))
            .filter(|slot| !slot.settled)
            .ok_or(NotInFlight(sequence))?;
        slot.settled = true;
        let commit_unix_us = slot.commit_unix_us;
        self.events -= 1;
        self.bytes -= slot.bytes;
        self.advance();
        Ok(commit_unix_us)
    }

    /// Was the event that comes next confirmed before a rewind? Then it is passed over.
    #[must_use]
    pub fn next_is_confirmed(&self) -> bool {
        self.confirmed_before.front() == Some(&true)
    }

    /// Takes the next event in as one that needs no confirmation any more.
    pub fn pass_over(&mut self) {
        self.confirmed_before.pop_front();
        self.ring.push_back(Slot { bytes: 0, commit_unix_us: 0, settled: true });
        self.advance();
    }

    /// Everything that is not settled in order will be admitted anew, in the same order and under
    /// the same numbers. For a sink that was rebuilt and can no longer report on the old ones.
    ///
    /// True when that cannot be, because some of it was admitted before another timeline: from here
    /// on the numbers mean other events.
    pub fn rewind(&mut self) -> bool {
        let rest = std::mem::take(&mut self.confirmed_before);
        self.confirmed_before = self.ring.drain(..).map(|slot| slot.settled).chain(rest).collect();
        let renumbered = self.settled_below < self.same_from;
        if renumbered {
            self.confirmed_before.clear();
            self.same_from = self.settled_below;
        }
        self.events = 0;
        self.bytes = 0;
        renumbered
    }

    /// What comes next has nothing to do with what is here: another timeline.
    pub fn forget(&mut self) {
        self.confirmed_before.clear();
        self.same_from = self.next();
    }

    fn advance(&mut self) {
        while self.ring.front().is_some_and(|slot| slot.settled) {
            self.ring.pop_front();
            self.settled_below += 1;
        }
    }

    /// Every event below this one is settled.
    #[must_use]
    pub fn settled_below(&self) -> Sequence {
        self.settled_below
    }

    /// Is nothing in flight?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Unsettled events.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events
    }

    /// Bytes of the unsettled events.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_contiguous_prefix_is_settled() {
        let mut window = Window::new(8, 1000);
        for _ in 0..3 {
            window.admit(10, 7);
        }
        assert_eq!(window.settle(2), Ok(7));
        assert_eq!(window.settled_below(), 0);
        assert_eq!(window.settle(0), Ok(7));
        assert_eq!(window.settled_below(), 1);
        assert_eq!(window.settle(1), Ok(7));
        assert_eq!(window.settled_below(), 3);
        assert!(window.is_empty());
    }

    #[test]
    fn a_receipt_counts_once_and_only_for_what_is_in_flight() {
        let mut window = Window::new(8, 1000);
        window.admit(10, 0);
        window.admit(10, 0);
        assert_eq!(window.settle(2), Err(NotInFlight(2)));
        assert!(window.settle(1).is_ok());
        assert_eq!(window.settle(1), Err(NotInFlight(1)));
        assert!(window.settle(0).is_ok());
        assert_eq!(window.settle(0), Err(NotInFlight(0)));
    }

    #[test]
    fn what_was_confirmed_before_a_rewind_is_passed_over_unless_the_timeline_changed() {
        let admit_two_confirm_second = |window: &mut Window| {
            let (first, second) = (window.admit(10, 0), window.admit(10, 0));
            assert!(window.settle(second).is_ok());
            first
        };
        let mut window = Window::new(8, 1000);
        let first = admit_two_confirm_second(&mut window);
        assert!(!window.rewind());
        assert!(!window.next_is_confirmed());
        assert_eq!(window.admit(10, 0), first);
        assert!(window.next_is_confirmed());
        window.pass_over();
        assert!(window.settle(first).is_ok());
        assert_eq!(window.settled_below(), 2);
        // GIVEN an old event in flight when the timeline changes
        admit_two_confirm_second(&mut window);
        window.forget();
        admit_two_confirm_second(&mut window);
        assert!(window.rewind());
        // THEN the numbers mean other events now, and nothing is passed over
        for _ in 0..4 {
            assert!(!window.next_is_confirmed());
            window.admit(10, 0);
        }
        // WHEN it rewinds once more THEN they mean the same again
        assert!(!window.rewind());
        // GIVEN that all old ones have settled THEN a change of timeline changes no number
        let old = window.admit(10, 0);
        window.forget();
        assert!(window.settle(old).is_ok());
        window.admit(10, 0);
        assert!(!window.rewind());
    }

    #[test]
    fn bounds_hold_in_events_and_in_bytes_and_a_giant_may_pass_alone() {
        let mut window = Window::new(2, 100);
        window.admit(10, 0);
        assert!(window.has_room());
        window.admit(10, 0);
        assert!(!window.has_room(), "two events are the bound");
        let mut window = Window::new(10, 100);
        window.admit(5000, 0);
        assert!(!window.has_room(), "bytes are bounded too");
        assert!(window.settle(0).is_ok());
        assert!(window.has_room());
    }

    proptest! {
        #[test]
        fn it_equals_the_naive_model(steps in prop::collection::vec((0u8..4, 0usize..64), 1..400)) {
            let mut window = Window::new(16, 1 << 20);
            // Naive: the set of unsettled numbers, and the count of all admitted.
            let mut unsettled = std::collections::BTreeSet::new();
            let mut confirmed = std::collections::BTreeSet::new();
            let mut admitted: Sequence = 0;
            for (kind, pick) in steps {
                let prefix = unsettled.first().copied().unwrap_or(admitted);
                match kind {
                    0 | 1 if window.has_room() && confirmed.contains(&admitted) => {
                        prop_assert!(window.next_is_confirmed());
                        window.pass_over();
                        admitted += 1;
                    }
                    0 | 1 if window.has_room() => {
                        prop_assert!(!window.next_is_confirmed());
                        prop_assert_eq!(window.admit(1, 0), admitted);
                        unsettled.insert(admitted);
                        admitted += 1;
                    }
                    3 if pick == 0 => {
                        prop_assert!(!window.rewind());
                        unsettled.clear();
                        admitted = prefix;
                    }
                    _ => {
                        let target = unsettled.iter().nth(pick % unsettled.len().max(1)).copied();
                        if let Some(sequence) = target {
                            prop_assert!(window.settle(sequence).is_ok());
                            unsettled.remove(&sequence);
                            confirmed.insert(sequence);
                        }
                    }
                }
                let prefix = unsettled.first().copied().unwrap_or(admitted);
                prop_assert_eq!(window.settled_below(), prefix);
                prop_assert_eq!(window.events(), unsettled.len());
                prop_assert_eq!(window.bytes(), unsettled.len());
                prop_assert!(admitted - prefix <= 16);
            }
        }
    }
}
