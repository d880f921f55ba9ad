//! How fast dead letters are replayed or discarded. Time is an argument.

use std::str::FromStr;
use std::time::Duration;

use crate::base::error::{Exit, Fault};

/// A number of dead letters in a period, as in `50/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    interval_ns: i64,
}

impl FromStr for Rate {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Rate, Fault> {
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
        parsed.ok_or_else(|| {
            let mend = "expected a whole number per s, min or h, as in 50/s or 300/min";
            let what = format!("{text:?} is not a rate");
            Fault::new(Exit::Usage, "dead-letter.bad-rate", what, "rate", mend)
        })
    }
}

/// Keeps to a rate. After a pause, as many may pass
/// at once as the rate allows in a tenth of a second.
#[derive(Clone, Debug)]
pub(super) struct RateLimiter {
    interval_ns: i64,
    /// How much of a pause may be made up for.
    burst_ns: i64,
    /// When the rate will be kept again if nothing passes until then.
    caught_up_unix_ns: i64,
}

impl RateLimiter {
    pub(super) fn new(rate: Rate, now_unix_us: i64) -> RateLimiter {
        let Rate { interval_ns } = rate;
        let burst_ns = (100_000_000 - interval_ns).max(0);
        let caught_up_unix_ns = now_unix_us.saturating_mul(1000).saturating_add(burst_ns);
        RateLimiter { interval_ns, burst_ns, caught_up_unix_ns }
    }

    /// Lets one pass, or returns how long it must wait.
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

    /// Takes back the last [`RateLimiter::take`].
    pub(super) fn give_back(&mut self) {
        self.caught_up_unix_ns = self.caught_up_unix_ns.saturating_sub(self.interval_ns);
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
