//! The wall clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use walrelay_core::base::clock::{Clock, Moment};

/// Microseconds since the Unix epoch.
pub fn unix_now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The clocks of this machine.
#[derive(Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment { instant: Instant::now(), unix_us: unix_now_us() }
    }

    fn sleep(&self, length: Duration) {
        std::thread::sleep(length);
    }

    fn instant(&self) -> Instant {
        Instant::now()
    }

    fn unix_us(&self) -> i64 {
        unix_now_us()
    }
}

/// Returns the current time.
pub type SteadyClock = Box<dyn Fn() -> Moment + Send + Sync>;

/// A wall clock that runs steadily from now on even if the system's clock is set, so that no wait
/// ends too early and no rate is exceeded.
pub fn steady_clock() -> SteadyClock {
    let origin = Instant::now();
    let began_unix_us = unix_now_us();
    Box::new(move || {
        let instant = Instant::now();
        let elapsed_us = i64::try_from((instant - origin).as_micros()).unwrap_or(i64::MAX);
        Moment { instant, unix_us: began_unix_us.saturating_add(elapsed_us) }
    })
}
