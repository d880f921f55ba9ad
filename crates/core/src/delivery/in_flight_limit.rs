//! How many events may be in flight: as many as keep the broker busy, found by measuring.
//!
//! More than that add nothing to the rate, only to the time until each is confirmed, to memory, and
//! to what a kill repeats. Fewer leave the broker idle between its answers. The search resembles
//! that of a congestion window: double while the rate rises, then stay, and try a little more and a
//! little less now and then. Only rounds in which the limit held events back are judged: a load
//! that the broker carries easily tells nothing about it.

use std::time::{Duration, Instant};

/// Enough for the first answers of any broker.
const FIRST: usize = 256;
/// A round takes at least so long and at least `limit` confirms: one batch more or less must not
/// decide.
const ROUND_MIN: Duration = Duration::from_millis(50);
const ROUND_MAX: Duration = Duration::from_secs(1);
/// A round counts if the limit held events back for this part of it.
const HELD_BACK_MIN: f64 = 0.8;
/// The limit is doubled while a round is faster than the best before it by this factor.
const RISE: f64 = 1.05;
/// So many rounds without a rise end the search.
const FLAT_ROUNDS: u32 = 2;
/// A search that found a faster limit ends at it times this: the reserve is sent while the relay or
/// the broker does something else for a moment.
const RESERVE: usize = 2;
/// Between two trials of another limit.
const TRIAL_EVERY: Duration = Duration::from_secs(1);
const TRIAL_ROUNDS: u32 = 3;
/// A larger limit is kept if it is faster by this factor, and a smaller one if it keeps this part of
/// the rate.
const GAIN: f64 = 1.03;
const KEPT: f64 = 0.99;
/// A rate below this part of the usual one, or above its inverse, is that of another broker.
const CHANGED: f64 = 0.5;
/// How much of the usual rate is the last round's.
const WEIGHT: f64 = 0.2;

#[derive(Debug)]
pub struct InFlightLimit {
    limit: usize,
    max: usize,
    phase: Phase,
    round: Option<Round>,
}

#[derive(Debug)]
enum Phase {
    /// Doubles the limit; `best` is the highest rate so far, reached with `best_limit`. The first
    /// round is the first rise.
    Search {
        best: f64,
        best_limit: usize,
        rises: u32,
        flat_rounds: u32,
    },
    Steady {
        rate: f64,
        changed_rounds: u32,
        trial_at: Instant,
        upwards: bool,
    },
    /// Measures another limit against the rate of the one that it comes `from`. The first round is
    /// that of the change, and does not count.
    Trial {
        from: usize,
        rate: f64,
        rounds: u32,
        sum: f64,
    },
}

#[derive(Debug)]
struct Round {
    began: Instant,
    confirmed: u64,
    /// Up to the last look.
    held_back: Duration,
    looked: (Instant, bool),
}

impl InFlightLimit {
    pub fn new(max: usize) -> InFlightLimit {
        InFlightLimit { limit: FIRST.min(max), max, phase: SEARCH, round: None }
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The most that the limit may be.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Takes a look at the window: how many events were `confirmed` since the start of the process,
    /// and whether the limit holds others back.
    pub fn observe(&mut self, now: Instant, confirmed: u64, full: bool) {
        let round = self.round.get_or_insert(Round {
            began: now,
            confirmed,
            held_back: Duration::ZERO,
            looked: (now, full),
        });
        if round.looked.1 {
            round.held_back += now - round.looked.0;
        }
        round.looked = (now, full);
        let (elapsed, count) = (now - round.began, confirmed - round.confirmed);
        let is_over = elapsed >= ROUND_MIN && count >= self.limit as u64 || elapsed >= ROUND_MAX;
        if !is_over {
            return;
        }
        // Without a confirm the broker has stopped: that tells nothing about the limit.
        let limited = count > 0 && round.held_back >= elapsed.mul_f64(HELD_BACK_MIN);
        self.round = None;
        if limited {
            self.judge(now, count as f64 / elapsed.as_secs_f64());
        } else if let Phase::Trial { from, rate, .. } = self.phase {
            // The load or the broker has stopped; what was measured says nothing.
            self.limit = from;
            self.phase = steady(rate, now, true);
        }
    }

    fn judge(&mut self, now: Instant, measured: f64) {
        match &mut self.phase {
            Phase::Search { best, best_limit, rises, flat_rounds } => {
                if measured > *best * RISE {
                    (*best, *best_limit, *flat_rounds) = (measured, self.limit, 0);
                    *rises += 1;
                    self.limit = (self.limit * 2).min(self.max);
                } else {
                    *flat_rounds += 1;
                }
                if *flat_rounds >= FLAT_ROUNDS {
                    let reserve = if *rises > 1 { RESERVE } else { 1 };
                    self.limit = (*best_limit * reserve).min(self.max);
                    self.phase = steady(*best, now, true);
                }
            }
            Phase::Steady { rate, changed_rounds, trial_at, upwards } => {
                if measured < *rate * CHANGED || measured > *rate / CHANGED {
                    *changed_rounds += 1;
                } else {
                    *changed_rounds = 0;
                    *rate += (measured - *rate) * WEIGHT;
                }
                if *changed_rounds >= FLAT_ROUNDS {
                    self.limit = (self.limit / 2).max(FIRST).min(self.max);
                    self.phase = SEARCH;
                } else if now >= *trial_at {
                    let other =
                        if *upwards { self.limit + self.limit / 2 } else { self.limit / 4 * 3 };
                    let other = other.clamp(FIRST.min(self.max), self.max);
                    if other == self.limit {
                        self.phase = steady(*rate, now, !*upwards);
                    } else {
                        let (from, rate) = (self.limit, *rate);
                        self.limit = other;
                        self.phase = Phase::Trial { from, rate, rounds: 0, sum: 0.0 };
                    }
                }
            }
            Phase::Trial { from, rate, rounds, sum } => {
                *rounds += 1;
                if *rounds > 1 {
                    *sum += measured;
                }
                if *rounds <= TRIAL_ROUNDS {
                    return;
                }
                let (mean, upwards) = (*sum / f64::from(TRIAL_ROUNDS), self.limit > *from);
                let is_better = mean >= *rate * if upwards { GAIN } else { KEPT };
                let (usual, next_upwards) = if is_better {
                    (mean, upwards)
                } else {
                    self.limit = *from;
                    (*rate, !upwards)
                };
                self.phase = steady(usual, now, next_upwards);
            }
        }
    }
}

const SEARCH: Phase = Phase::Search { best: 0.0, best_limit: FIRST, rises: 0, flat_rounds: 0 };

fn steady(rate: f64, now: Instant, upwards: bool) -> Phase {
    Phase::Steady { rate, changed_rounds: 0, trial_at: now + TRIAL_EVERY, upwards }
}

#[cfg(test)]
#[path = "in_flight_limit_tests.rs"]
mod tests;
