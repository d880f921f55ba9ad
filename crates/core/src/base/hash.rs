//! Maps and sets whose order is the same in each process: the standard library draws a seed for its own.

use std::collections;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hash, Hasher};

pub type HashMap<K, V> = collections::HashMap<K, V, BuildHasherDefault<FixedHasher>>;
pub type HashSet<T> = collections::HashSet<T, BuildHasherDefault<FixedHasher>>;

/// The same hash in each process.
pub fn fixed_hash(item: impl Hash) -> u64 {
    BuildHasherDefault::<FixedHasher>::default().hash_one(item)
}

/// Hashes numbers, hashes, and names that the owner of the database has chosen. Where others choose
/// what is hashed, [`super::random::Salt`] is needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher(u64);

impl FixedHasher {
    fn add(&mut self, word: u64) {
        let product = u128::from(self.0.rotate_left(23) ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            self.add(rest.iter().rfold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.add(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.add(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables look at the low bits of a hash, and at the seven highest.
    fn spreads<T: Hash>(items: impl Iterator<Item = T>) -> bool {
        let hashes: Vec<u64> = items.map(fixed_hash).collect();
        let different = |part: fn(&u64) -> u64| hashes.iter().map(part).collect::<HashSet<_>>();
        assert_eq!(hashes.len(), 256);
        different(|hash| hash % 1024).len() > 150 && different(|hash| hash >> 57).len() > 80
    }

    #[test]
    fn numbers_and_names_that_differ_little_spread_over_a_table() {
        assert!(spreads(0..256_u64));
        assert!(spreads((0..256_u64).map(|number| number << 24)));
        assert!(spreads((0..256_u64).map(|number| number << 56)));
        assert!(spreads((0..256_i32).map(|number| (7_u32, number))));
        assert!(spreads((0..256).map(|number| format!("outbox.topic.{number}"))));
    }
}
