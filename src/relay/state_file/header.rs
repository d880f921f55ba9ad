//! The layout of the state file: words that are mapped into memory, and a ring of marks behind them.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::base::os_ffi::SharedWords;

pub(super) type Words = Arc<SharedWords>;

pub(super) const WORDS: usize = 16;
/// Bytes of the header.
pub(super) const BYTES: usize = WORDS * 8;

/// Indexes of the words.
pub(super) const MAGIC: usize = 0;
/// Fingerprint of slot, timeline and system.
pub(super) const WHERE: usize = 1;
/// Of the transaction that is being read.
pub(super) const COMMIT_LSN: usize = 2;
/// One more than the ordinal of the event in hand; 0 for none.
pub(super) const IN_HAND: usize = 3;
/// The event that the last death is blamed on, and how many deaths in a row.
pub(super) const BLAMED_LSN: usize = 4;
pub(super) const BLAMED_ORDINAL: usize = 5;
pub(super) const DEATHS: usize = 6;
/// Fingerprint of the machine's start during which the marks were written.
pub(super) const BOOT: usize = 7;
/// Marks written so far; the last [`MARKS`] of them are in the ring.
pub(super) const WRITTEN: usize = 8;
/// The newest position that was reported to Postgres.
pub(super) const REPORTED: usize = 9;

/// "walrela" and the version of the layout.
pub(super) const MAGIC_WORD: u64 = 0x7761_6C72_656C_6102;
/// What differs between versions.
pub(super) const VERSION_MASK: u64 = 0xFF;

/// Marks in the ring.
pub(super) const MARKS: u64 = 1 << 18;
/// Bytes of a mark.
pub(super) const MARK_BYTES: usize = 24;

/// A hash that fits into a word of the file.
pub(in crate::relay) fn fingerprint(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}
