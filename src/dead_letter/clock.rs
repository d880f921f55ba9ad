//! The time by which dead letters are worked off: it goes on evenly when the system's clock is set,
//! so that no patience ends too early or too late, and no rate runs away.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch.
pub type Clock = Box<dyn Fn() -> i64 + Send + Sync>;

/// A clock that is right now, and even from now on. For one job: it knows nothing of corrections.
#[must_use]
pub fn even() -> Clock {
    let origin = Instant::now();
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Box::new(move || {
        i64::try_from((since_epoch + origin.elapsed()).as_micros()).unwrap_or(i64::MAX)
    })
}
