//! Waits between attempts: exponential, with full jitter and a cap.
//!
//! Full jitter, because relays that lost the same server must not come back in step.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A source of waits.
#[derive(Debug)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    /// Waits since it last went well.
    waits: u32,
    dice: u64,
}

impl Backoff {
    /// The first wait is at most `base`, none is longer than `cap`.
    #[must_use]
    pub fn new(base: Duration, cap: Duration) -> Backoff {
        // A hasher's random keys are all the randomness that jitter needs.
        Backoff::seeded(base, cap, RandomState::new().hash_one(0))
    }

    /// The same with a known seed.
    #[must_use]
    pub fn seeded(base: Duration, cap: Duration, seed: u64) -> Backoff {
        Backoff { base: base.min(cap), cap, waits: 0, dice: seed | 1 }
    }

    /// It went well: waits begin small again.
    pub fn succeeded(&mut self) {
        self.waits = 0;
    }

    /// The next wait: anything up to a ceiling that doubles.
    pub fn next_delay(&mut self) -> Duration {
        let waits = self.waits;
        self.waits = waits.saturating_add(1);
        self.delay_after(waits)
    }

    /// The wait after so many others, for a caller that counts for itself.
    pub fn delay_after(&mut self, waits: u32) -> Duration {
        // xorshift64
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        let doubled = 1_u32.checked_shl(waits).unwrap_or(u32::MAX);
        let ceiling = self.base.saturating_mul(doubled).min(self.cap);
        ceiling.mul_f64((self.dice >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
#[path = "backoff_tests.rs"]
mod tests;
