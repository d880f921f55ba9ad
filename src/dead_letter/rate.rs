//! How fast dead letters are worked off: a token bucket. Time is an argument.

use std::str::FromStr;
use std::time::Duration;

/// So many in a while, as in `50/s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    per_second: f64,
}

/// Text that is no rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rate")]
pub struct BadRate(String);

impl BadRate {
    /// What would be one.
    pub const EXPECTED: &str = "a whole number per s, min or h, as in 50/s or 300/min";
}

impl FromStr for Rate {
    type Err = BadRate;

    fn from_str(text: &str) -> Result<Rate, BadRate> {
        let bad = || BadRate(text.to_owned());
        let (count, unit) = text.split_once('/').ok_or_else(bad)?;
        let count = count.parse::<u32>().ok().filter(|count| *count > 0).ok_or_else(bad)?;
        let seconds = match unit {
            "s" => 1.0,
            "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        Ok(Rate { per_second: f64::from(count) / seconds })
    }
}

/// Lets through at most the rate, and at once what a tenth of a second allows.
#[derive(Clone, Debug)]
pub struct Bucket {
    per_second: f64,
    tokens: f64,
    tokens_max: f64,
    filled_unix_us: i64,
}

impl Bucket {
    /// Begins with one token.
    #[must_use]
    pub fn new(rate: Rate, now_unix_us: i64) -> Bucket {
        let Rate { per_second } = rate;
        let tokens_max = (per_second / 10.0).max(1.0);
        Bucket { per_second, tokens: 1.0, tokens_max, filled_unix_us: now_unix_us }
    }

    /// Takes a token, or says how long to wait for one.
    pub fn take(&mut self, now_unix_us: i64) -> Result<(), Duration> {
        let elapsed_us = (now_unix_us - self.filled_unix_us).max(0);
        self.filled_unix_us = now_unix_us;
        let gained = elapsed_us as f64 / 1_000_000.0 * self.per_second;
        self.tokens = (self.tokens + gained).min(self.tokens_max);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.tokens) / self.per_second))
    }

    /// Takes a token back that was not used.
    pub fn give_back(&mut self) {
        self.tokens += 1.0;
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
