//! How fast dead letters are replayed or discarded. Time is an argument.

use std::str::FromStr;
use std::time::Duration;

/// A number of letters in a period, as in `50/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    interval_ns: i64,
}

/// Text that is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a rate")]
pub(crate) struct InvalidRate(String);

impl InvalidRate {
    pub(crate) const EXPECTED: &str = "a whole number per s, min or h, as in 50/s or 300/min";
}

impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Rate, InvalidRate> {
        let parsed = text.split_once('/').and_then(|(count, unit)| {
            let seconds = match unit {
                "s" => 1,
                "min" => 60,
                "h" => 3600,
                _ => return None,
            };
            let count = count.parse::<u32>().ok().filter(|count| *count > 0)?;
            let interval_ns = (seconds * 1_000_000_000_u64).div_ceil(u64::from(count));
            Some(Rate { interval_ns: i64::try_from(interval_ns).ok()? })
        });
        parsed.ok_or_else(|| InvalidRate(text.to_owned()))
    }
}

/// Keeps to a rate; what a tenth of a second allows may pass at once.
#[derive(Clone, Debug)]
pub(super) struct RateLimiter {
    interval_ns: i64,
    /// How far behind its rate it may catch up.
    burst_ns: i64,
    /// When it will have caught up if nothing passes until then.
    caught_up_unix_ns: i64,
}

impl RateLimiter {
    /// One may pass at once.
    pub(super) fn new(rate: Rate, now_unix_us: i64) -> RateLimiter {
        let Rate { interval_ns } = rate;
        let burst_ns = (100_000_000 - interval_ns).max(0);
        let caught_up_unix_ns = now_unix_us.saturating_mul(1000).saturating_add(burst_ns);
        RateLimiter { interval_ns, burst_ns, caught_up_unix_ns }
    }

    /// Lets one pass, or returns how long to wait.
    pub(super) fn take(&mut self, now_unix_us: i64) -> Result<(), Duration> {
        let now_ns = now_unix_us.saturating_mul(1000);
        let wait_ns = self.caught_up_unix_ns.saturating_sub(self.burst_ns).saturating_sub(now_ns);
        if wait_ns > 0 {
            return Err(Duration::from_nanos(wait_ns.unsigned_abs()));
        }
        self.caught_up_unix_ns =
            self.caught_up_unix_ns.max(now_ns).saturating_add(self.interval_ns);
        Ok(())
    }

    /// The last one did not pass after all.
    pub(super) fn give_back(&mut self) {
        self.caught_up_unix_ns = self.caught_up_unix_ns.saturating_sub(self.interval_ns);
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
