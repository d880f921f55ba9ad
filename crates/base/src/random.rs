//! Draws what the core is given.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

pub use walrelay_core::base::random::Random;

use super::backoff::Backoff;

/// The random keys of a hasher are random enough.
pub fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// Waits with a jitter of their own.
pub fn backoff(base: Duration, cap: Duration) -> Backoff {
    Backoff::seeded(base, cap, seed())
}
