//! Numbers that nobody can guess.

use std::hash::{BuildHasher as _, RandomState};

/// Another number with each call.
pub(crate) fn number() -> u64 {
    RandomState::new().hash_one(0)
}
