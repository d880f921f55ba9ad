//! Numbers that nobody outside the process can foresee, all drawn from one seed that the process is
//! given: the same seed decides the same.

use std::hash::{BuildHasher, DefaultHasher, Hasher as _};

/// Draws numbers.
#[derive(Clone, Debug, Default)]
pub struct Random(u64);

impl Random {
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    #[inline]
    pub fn number(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    pub fn salt(&mut self) -> Salt {
        Salt(self.number())
    }
}

/// Makes hashes that others cannot choose inputs for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salt(u64);

impl BuildHasher for Salt {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}
