//! The wall clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use walrelay_core::base::clock::{Clock, Moment};

/// Microseconds since the Unix epoch.
pub(crate) fn unix_now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The clocks of this machine.
#[derive(Debug)]
pub(crate) struct SystemClock;

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

/// Returns microseconds since the Unix epoch.
pub(crate) type SteadyClock = Box<dyn Fn() -> i64 + Send + Sync>;

/// A wall clock that runs steadily from now on even if the system's clock is set, so that no wait
/// ends too early and no rate is exceeded.
pub(crate) fn steady_clock() -> SteadyClock {
    let origin = Instant::now();
    let began_unix_us = unix_now_us();
    Box::new(move || {
        let elapsed_us = i64::try_from(origin.elapsed().as_micros()).unwrap_or(i64::MAX);
        began_unix_us.saturating_add(elapsed_us)
    })
}
