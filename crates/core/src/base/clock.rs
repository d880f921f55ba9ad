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

/// Both clocks, compared from look to look: that of the system goes on while the machine is suspended,
/// or is set right afterwards.
#[derive(Debug)]
pub struct Clocks {
    looked: Moment,
}

impl Clocks {
    #[must_use]
    pub fn new(now: Moment) -> Clocks {
        Clocks { looked: now }
    }

    /// The longer of the times since the last look.
    pub fn gap(&mut self, now: Moment) -> Duration {
        let then = std::mem::replace(&mut self.looked, now);
        let by_system = u64::try_from(now.unix_us.saturating_sub(then.unix_us)).unwrap_or(0);
        let by_clock = now.instant.saturating_duration_since(then.instant);
        by_clock.max(Duration::from_micros(by_system))
    }
}
