//! Until when nobody else can have the rows of this process's claims.
//!
//! The table frees a row whose claim was not renewed for the lease, and another process publishes it
//! and later rows of its key. A renewal passes over claims that are younger than a quarter of the
//! lease; so half a lease after one began, three quarters of it are over for some rows, and nothing
//! of them may be published any more. A process that was frozen finds that time over; the time for
//! which its clock stood, because its machine was suspended, counts as well.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::base::clock::{MissedTime, earlier};
use crate::base::lock::locked;

pub struct ClaimLease {
    lease: Duration,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
struct State {
    renewed_at: Instant,
    /// The time that the clock has missed since then.
    missed: MissedTime,
    lapses: u64,
}

impl ClaimLease {
    pub fn new(lease: Duration, now: Instant) -> ClaimLease {
        let state = State { renewed_at: now, missed: MissedTime::default(), lapses: 0 };
        ClaimLease { lease, state: Mutex::new(state) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// The time between two renewals.
    pub fn interval(&self) -> Duration {
        self.lease / 4
    }

    /// How long a claim counts as this process's own without a renewal.
    pub fn length(&self) -> Duration {
        self.lease / 2
    }

    /// All claims of that moment were renewed.
    pub fn renewed(&self, began: Instant) {
        let length = self.length();
        let mut state = self.state();
        let began = state.missed.corrected(began);
        if began.saturating_duration_since(state.renewed_at) >= length {
            // It came too late for the claims of before.
            state.lapses += 1;
        }
        state.renewed_at = state.renewed_at.max(began);
        // The next renewal begins later.
        state.missed = MissedTime::default();
    }

    /// The clock has missed so much time, as is noticed now.
    pub fn missed(&self, now: Instant, missed: Duration) {
        let mut state = self.state();
        let oldest = state.renewed_at;
        state.missed.add(now, missed, oldest);
        state.renewed_at = earlier(state.renewed_at, missed);
    }

    /// Rows of the claims are gone: other processes may have them already.
    pub fn lose(&self) {
        self.state().lapses += 1;
    }

    pub fn until(&self) -> Instant {
        self.state().renewed_at + self.length()
    }

    /// How often rows may have become another process's.
    pub fn lapses(&self) -> u64 {
        self.state().lapses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_that_comes_too_late_is_a_lapse_though_the_lease_goes_on() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let lease = ClaimLease::new(8 * second, began);
        lease.renewed(began + 3 * second);
        assert_eq!((lease.until(), lease.lapses()), (began + 7 * second, 0));
        lease.renewed(began + 7 * second);
        assert_eq!((lease.until(), lease.lapses()), (began + 11 * second, 1));
    }

    #[test]
    fn time_that_the_clock_has_missed_is_over() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let lease = ClaimLease::new(8 * second, began);
        lease.missed(began + 2 * second, second);
        assert_eq!((lease.until(), lease.lapses()), (began + 3 * second, 0));
        // A renewal from before then is as much older.
        lease.renewed(began + second);
        assert_eq!(lease.until(), began + 4 * second);
        lease.renewed(began + 3 * second);
        assert_eq!((lease.until(), lease.lapses()), (began + 7 * second, 0));
        // What was missed before counts for no later renewal.
        lease.missed(began + 5 * second, second / 2);
        lease.renewed(began + 4 * second);
        assert_eq!((lease.until(), lease.lapses()), (began + 15 * second / 2, 0));
        // The same if the clock misses time once more while a renewal is under way.
        let lease = ClaimLease::new(8 * second, began);
        lease.missed(began + 2 * second, second);
        lease.renewed(began + second);
        lease.missed(began + 3 * second, second);
        lease.renewed(began + 5 * second / 2);
        assert_eq!((lease.until(), lease.lapses()), (began + 11 * second / 2, 0));
    }
}
