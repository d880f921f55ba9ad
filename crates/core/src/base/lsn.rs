//! A position in the write-ahead log.
//!
//! The inner number is private: an LSN comes from the wire, from text, or is zero. No arithmetic
//! makes one, because positions such as `end_lsn + 1` have lost data in other relays.

use std::fmt;
use std::str::FromStr;

/// A log sequence number, printed the way Postgres prints it: `16/B374D848`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// No position; as a start position it means "where the slot stands".
    pub const ZERO: Lsn = Lsn(0);

    #[inline]
    pub const fn from_wire(value: u64) -> Lsn {
        Lsn(value)
    }

    #[inline]
    pub const fn to_wire(self) -> u64 {
        self.0
    }

    /// Bytes of WAL from `earlier` to `self`; zero when `earlier` is not earlier.
    pub const fn bytes_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an LSN (expected two hexadecimal numbers, as in 16/B374D848)")]
pub struct ParseLsnError(String);

impl FromStr for Lsn {
    type Err = ParseLsnError;

    fn from_str(text: &str) -> Result<Lsn, ParseLsnError> {
        let malformed = || ParseLsnError(text.to_owned());
        let (high, low) = text.split_once('/').ok_or_else(malformed)?;
        let high = u32::from_str_radix(high, 16).map_err(|_| malformed())?;
        let low = u32::from_str_radix(low, 16).map_err(|_| malformed())?;
        Ok(Lsn(u64::from(high) << 32 | u64::from(low)))
    }
}

#[cfg(test)]
#[path = "lsn_tests.rs"]
mod tests;
