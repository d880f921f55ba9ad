//! The current time on both clocks, as an argument.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub instant: Instant,
    /// Microseconds since the Unix epoch.
    pub unix_us: i64,
}

/// The clocks of a process.
pub trait Clock: Send + Sync {
    fn now(&self) -> Moment;

    fn sleep(&self, length: Duration);

    fn instant(&self) -> Instant {
        self.now().instant
    }

    fn unix_us(&self) -> i64 {
        self.now().unix_us
    }
}

/// The clocks differ by less while nothing has happened, as each is read a moment after the other.
const SAME_US: i64 = 1_000;

/// Both clocks, compared from look to look: that of the system goes on while the machine is suspended,
/// or is set right afterwards, and the other may stand.
#[derive(Debug)]
pub struct Clocks {
    looked: Moment,
}

impl Clocks {
    #[must_use]
    pub fn new(now: Moment) -> Clocks {
        Clocks { looked: now }
    }

    /// The time since the last look that only the clock of the system shows.
    pub fn missed(&mut self, now: Moment) -> Duration {
        let by_clock = now.instant.saturating_duration_since(self.looked.instant);
        let by_clock_us = i64::try_from(by_clock.as_micros()).unwrap_or(i64::MAX);
        let by_system_us = now.unix_us.saturating_sub(self.looked.unix_us);
        let missed_us = by_system_us.saturating_sub(by_clock_us);
        // Many small differences add up only if they are measured from the same look.
        if missed_us.abs() < SAME_US {
            return Duration::ZERO;
        }
        self.looked = now;
        u64::try_from(missed_us).map_or(Duration::ZERO, Duration::from_micros)
    }
}

/// The time that a clock has missed since an event: all that was missed before it was noticed last, for an
/// event from before then.
#[derive(Clone, Copy, Debug, Default)]
pub struct MissedTime {
    noticed_at: Option<Instant>,
    total: Duration,
}

impl MissedTime {
    /// The clock has missed so much more time, as is noticed now. `oldest` is the oldest event that counts: time
    /// whose loss was noticed before that event is forgotten.
    pub fn add(&mut self, noticed_at: Instant, missed: Duration, oldest: Instant) {
        if self.noticed_at.is_some_and(|noticed_at| noticed_at < oldest) {
            self.total = Duration::ZERO;
        }
        self.noticed_at = Some(noticed_at);
        self.total += missed;
    }

    /// When the event would have happened if the clock had missed nothing, or earlier.
    #[must_use]
    pub fn corrected(&self, at: Instant) -> Instant {
        // A clock that stood shows the same time before and after.
        let is_before = self.noticed_at.is_some_and(|noticed_at| at <= noticed_at);
        if is_before { earlier(at, self.total) } else { at }
    }
}

/// Instants reach far behind the start of the machine.
#[must_use]
pub fn earlier(at: Instant, by: Duration) -> Instant {
    at.checked_sub(by).unwrap_or(at)
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
