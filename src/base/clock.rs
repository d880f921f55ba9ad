//! The wall clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch.
pub(crate) fn unix_now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Both clocks, compared from look to look: that of the system goes on while the machine is suspended,
/// or is set right afterwards.
pub(crate) struct Clocks {
    looked: (Instant, i64),
}

impl Clocks {
    pub(crate) fn new() -> Clocks {
        Clocks { looked: (Instant::now(), unix_now_us()) }
    }

    /// The longer of the times since the last look.
    pub(crate) fn gap(&mut self, now: Instant, unix_us: i64) -> Duration {
        let (then, then_unix_us) = std::mem::replace(&mut self.looked, (now, unix_us));
        let by_system = u64::try_from(unix_us.saturating_sub(then_unix_us)).unwrap_or(0);
        now.saturating_duration_since(then).max(Duration::from_micros(by_system))
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
