//! Waits between attempts: exponential with a cap, and with full jitter, so that relays that lost
//! the same server do not all reconnect at the same time.

use std::time::Duration;

/// The golden ratio in 64 bits: spreads seeds over the whole range.
const SEED_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Debug)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    /// Waits since the last success.
    waits: u32,
    random: u64,
}

impl Backoff {
    /// The first wait is at most `base`, none is longer than `cap`.
    pub fn seeded(base: Duration, cap: Duration, seed: u64) -> Backoff {
        // The first random number has the size of a small seed, such as the nanoseconds of a second.
        let random = seed.wrapping_mul(SEED_FACTOR) | 1;
        Backoff { base: base.min(cap), cap, waits: 0, random }
    }

    /// The next wait is at most `base` again.
    pub fn succeeded(&mut self) {
        self.waits = 0;
    }

    /// A random wait below a ceiling that doubles with each call.
    pub fn next_delay(&mut self) -> Duration {
        let waits = self.waits;
        self.waits = waits.saturating_add(1);
        self.delay_after(waits)
    }

    /// The wait after so many others, for a caller that counts attempts itself.
    pub fn delay_after(&mut self, waits: u32) -> Duration {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let doubled = 1_u32.checked_shl(waits).unwrap_or(u32::MAX);
        let ceiling = self.base.saturating_mul(doubled).min(self.cap);
        ceiling.mul_f64((self.random >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
#[path = "backoff_tests.rs"]
mod tests;
