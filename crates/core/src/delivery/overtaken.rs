//! Whether an event waits for a destination that does not answer, while others do.
//!
//! A partition without a leader or enough replicas, or a queue without a majority, confirms nothing.
//! Its events say nothing of how many others keep the broker busy. They are recognised by their age:
//! older than every usual time of a confirm, though events that were admitted after them are
//! confirmed. If they have filled the window before another destination got an event, nothing is
//! confirmed at all; that is told apart from a broker that is away by whether it can be reached.
//!
//! Pure: time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::base::event::Sequence;

/// The age is at least this, and so many usual times of a confirm.
const AGE_MIN: Duration = Duration::from_millis(500);
const USUAL_TIMES: u32 = 8;
/// While nothing is confirmed, the broker may be busy for so long.
const STANDS_FOR: Duration = Duration::from_secs(2);
/// Between two marks; their number is bounded by the age.
const MARK_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Overtaken {
    /// Every event below the number was admitted before the time.
    marks: VecDeque<(Instant, Sequence)>,
    /// The newest event that was confirmed.
    newest_confirmed: Sequence,
    /// Every event below is old, and some event from here on is confirmed.
    below: Sequence,
    /// Before this time the oldest of them was admitted, unless they have all settled since.
    since: Option<Instant>,
}

impl Overtaken {
    pub(super) fn confirmed(&mut self, sequence: Sequence) {
        self.newest_confirmed = self.newest_confirmed.max(sequence);
    }

    /// Takes a look at the window: everything below the first number is settled, the second will be
    /// admitted next, and a confirm usually takes so long.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        (settled_below, next): (Sequence, Sequence),
        usual: Duration,
    ) {
        let age = AGE_MIN.max(usual * USUAL_TIMES);
        while self.marks.front().is_some_and(|(_, below)| *below <= settled_below) {
            self.marks.pop_front();
        }
        while let Some((at, below)) = self.marks.front().copied() {
            if now.saturating_duration_since(at) < age || self.newest_confirmed < below {
                break;
            }
            if self.below <= settled_below {
                self.since = Some(at);
            }
            self.below = below;
            self.marks.pop_front();
        }
        let since = self.marks.back().map(|(at, _)| now.saturating_duration_since(*at));
        // Without new events a later mark says no more than the last.
        let has_new = self.marks.back().map_or(settled_below, |(_, below)| *below) < next;
        if has_new && since.is_none_or(|since| since >= MARK_EVERY) {
            self.marks.push_back((now, next));
        }
    }

    /// Every event below is old, though nothing is confirmed that was admitted after it.
    pub(super) fn standing_below(&self, now: Instant) -> Sequence {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= STANDS_FOR;
        let old = self.marks.iter().take_while(|(at, _)| is_old(*at));
        old.last().map_or(0, |(_, below)| *below)
    }

    /// Unsettled events below this one are overtaken.
    pub(super) fn below(&self) -> Sequence {
        self.below
    }

    /// How long some of these have been waiting.
    pub(super) fn waiting_time(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Forgets the events: an event that follows is admitted anew.
    pub(super) fn forget(&mut self) {
        *self = Overtaken::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);

    #[test]
    fn an_old_event_is_overtaken_once_a_later_one_is_confirmed() {
        let (mut overtaken, began) = (Overtaken::default(), Instant::now());
        // GIVEN ten events that are not confirmed
        for pass in 0..20 {
            overtaken.observe(began + pass * TICK, (0, 10), Duration::ZERO);
        }
        assert_eq!(overtaken.below(), 0, "the broker is away as a whole");
        assert_eq!(overtaken.standing_below(began + 19 * TICK), 0);
        assert_eq!(overtaken.standing_below(began + 20 * TICK), 10);
        // WHEN later ones are admitted, and one of them is confirmed
        overtaken.observe(began + 20 * TICK, (0, 20), Duration::ZERO);
        overtaken.confirmed(12);
        overtaken.observe(began + 21 * TICK, (0, 20), Duration::ZERO);
        // THEN the first ten are overtaken, all that time, and the later ones are not old
        assert_eq!(overtaken.below(), 10);
        assert_eq!(overtaken.waiting_time(began + 21 * TICK), 21 * TICK);
        overtaken.confirmed(25);
        overtaken.observe(began + 22 * TICK, (0, 30), Duration::ZERO);
        assert_eq!(overtaken.below(), 10);
        // WHEN all are settled THEN nothing stands, however long that lasts
        overtaken.observe(began + 23 * TICK, (30, 30), Duration::ZERO);
        assert_eq!(overtaken.standing_below(began + 500 * TICK), 0);
    }

    #[test]
    fn a_broker_that_is_slow_as_usual_leaves_nothing_behind() {
        let (mut overtaken, began) = (Overtaken::default(), Instant::now());
        let usual = Duration::from_secs(1);
        for pass in 0..50 {
            let done = u64::from(pass).saturating_sub(10);
            overtaken.observe(began + pass * TICK, (done, u64::from(pass)), usual);
            overtaken.confirmed(u64::from(pass));
        }
        assert_eq!(overtaken.below(), 0);
    }
}
