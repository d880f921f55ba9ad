//! Keeps an outage from emptying the topic into the dead letters.
//!
//! The breaker opens where a dead letter would be one too many for its window, or where many messages
//! in a row have used up their retry levels and the handler has succeeded with none meanwhile. Then no
//! dead letter is written, and each lane that comes to one is held and tries its message again. A
//! message that was held and then succeeds closes the breaker. So does one that succeeds while no
//! lane is held, as after a rebalance.
//!
//! It knows the dead letters of its own process only: nothing restarts an inbox because it holds.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::decision::{Cause, EXHAUSTED};
use crate::panics::lock;

/// Messages in a row that have used up their levels. Their failures were said to pass, and did not.
const EXHAUSTED_IN_ROW_MAX: usize = 10;

pub(crate) struct Breaker {
    letters_max: usize,
    window: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When the dead letters of the last window were written.
    letters: VecDeque<Instant>,
    /// Since the handler has succeeded last.
    exhausted_in_row: usize,
    is_open: bool,
    held_lanes: usize,
}

impl Breaker {
    pub(crate) fn new(letters_max: usize, window: Duration) -> Breaker {
        Breaker { letters_max, window, state: Mutex::default() }
    }

    /// For the message that a lane begins with.
    pub(crate) fn turn(&self) -> BreakerTurn<'_> {
        BreakerTurn { breaker: self, is_held: false }
    }
}

/// The part of one message in the breaker.
pub(crate) struct BreakerTurn<'b> {
    breaker: &'b Breaker,
    is_held: bool,
}

impl BreakerTurn<'_> {
    /// Whether the message may become a dead letter. Otherwise its lane is held, and the error says
    /// why.
    pub(crate) fn allow(&mut self, cause: &Cause, now: Instant) -> Result<(), String> {
        let Breaker { letters_max, window, state } = self.breaker;
        let mut state = lock(state);
        while state.letters.front().is_some_and(|at| now.duration_since(*at) >= *window) {
            state.letters.pop_front();
        }
        let is_exhausted = cause.class == EXHAUSTED;
        let is_row_full = state.exhausted_in_row >= EXHAUSTED_IN_ROW_MAX;
        state.is_open |= state.letters.len() >= *letters_max || is_exhausted && is_row_full;
        if !state.is_open {
            state.letters.push_back(now);
            state.exhausted_in_row += usize::from(is_exhausted);
            state.held_lanes -= usize::from(std::mem::take(&mut self.is_held));
            return Ok(());
        }
        state.held_lanes += usize::from(!std::mem::replace(&mut self.is_held, true));
        let Cause { class, reason, .. } = cause;
        Err(format!(
            "no further dead letter after {} within {window:?} and {} in a row without a success \
             ({class}: {reason})",
            state.letters.len(),
            state.exhausted_in_row,
        ))
    }

    /// The handler has succeeded with the message.
    pub(crate) fn succeeded(&self) {
        let mut state = lock(&self.breaker.state);
        state.exhausted_in_row = 0;
        if self.is_held || state.held_lanes == 0 {
            state.is_open = false;
        }
    }
}

impl Drop for BreakerTurn<'_> {
    fn drop(&mut self) {
        if self.is_held {
            lock(&self.breaker.state).held_lanes -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn cause(class: &'static str) -> Cause {
        Cause { class: class.into(), attempts: 1, reason: "no".to_owned(), has_id: true }
    }

    #[test]
    fn one_more_than_the_burst_is_held_until_a_held_message_succeeds() {
        let (breaker, start) = (Breaker::new(2, WINDOW), Instant::now());
        let allows = |turn: &mut BreakerTurn<'_>, seconds| {
            let now = start + Duration::from_secs(seconds);
            turn.allow(&cause("consumer.permanent"), now).is_ok()
        };
        assert!(allows(&mut breaker.turn(), 0) && allows(&mut breaker.turn(), 30));
        // GIVEN two lanes that come to a third and a fourth
        let (mut third, mut fourth) = (breaker.turn(), breaker.turn());
        assert!(!allows(&mut third, 59) && !allows(&mut fourth, 59));
        // THEN time alone lets none of them through, nor does what other lanes handle
        breaker.turn().succeeded();
        assert!(!allows(&mut third, 600) && !allows(&mut fourth, 600));
        // WHEN one of them succeeds THEN the other one may be a dead letter
        third.succeeded();
        drop(third);
        assert!(allows(&mut fourth, 601) && allows(&mut breaker.turn(), 601));
        assert!(!allows(&mut breaker.turn(), 602), "the window counts on");
    }

    #[test]
    fn the_burst_is_of_one_window() {
        let (breaker, start) = (Breaker::new(2, WINDOW), Instant::now());
        for seconds in [0, 30, 60, 90, 120] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(breaker.turn().allow(&cause("consumer.permanent"), now), Ok(()));
        }
    }

    #[test]
    fn a_breaker_whose_held_messages_were_taken_back_closes_with_the_next_success() {
        let (breaker, now) = (Breaker::new(1, WINDOW), Instant::now());
        let permanent = cause("consumer.permanent");
        assert_eq!(breaker.turn().allow(&permanent, now), Ok(()));
        let mut held = breaker.turn();
        assert!(held.allow(&permanent, now).is_err());
        drop(held);
        // Nothing has succeeded: it is still open when the window is over.
        let mut again = breaker.turn();
        assert!(again.allow(&permanent, now + WINDOW).is_err());
        drop(again);
        breaker.turn().succeeded();
        assert_eq!(breaker.turn().allow(&permanent, now + WINDOW), Ok(()));
    }

    #[test]
    fn messages_that_use_up_their_levels_in_a_row_tell_of_an_outage_however_slowly_they_come() {
        let (breaker, start) = (Breaker::new(100, WINDOW), Instant::now());
        let exhausted = cause(EXHAUSTED);
        let at = |number: usize| start + WINDOW * u32::try_from(number).unwrap();
        for number in 0..EXHAUSTED_IN_ROW_MAX {
            assert_eq!(breaker.turn().allow(&exhausted, at(number)), Ok(()), "{number}");
        }
        let mut held = breaker.turn();
        assert!(held.allow(&exhausted, at(10)).is_err());
        held.succeeded();
        drop(held);
        assert_eq!(breaker.turn().allow(&exhausted, at(11)), Ok(()), "it has succeeded since");
    }
}
