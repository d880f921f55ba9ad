//! The layout of the state file: words that are mapped into memory, and a ring of marks behind them.

use std::ops::Range;
use std::sync::Arc;

use crate::relay::ports::StateBytes;

pub type Words = Arc<dyn StateBytes>;

pub const WORDS: usize = 64;
/// Bytes of the header.
pub const BYTES: usize = WORDS * 8;

/// Indexes of the words.
pub const MAGIC: usize = 0;
/// Fingerprint of slot, timeline and system.
pub const WHERE: usize = 1;
/// The commit LSN of the transaction that is being read.
pub const COMMIT_LSN: usize = 2;
/// One more than the ordinal of the event in hand; 0 for none.
pub const IN_HAND: usize = 3;
/// The event that the last death is blamed on, and how many deaths in a row.
pub const BLAMED_LSN: usize = 4;
pub const BLAMED_ORDINAL: usize = 5;
pub const DEATHS: usize = 6;
/// Fingerprint of the machine's start during which the marks were written.
pub const BOOT: usize = 7;
/// Marks written so far; the last [`MARKS`] of them are in the ring.
pub const WRITTEN: usize = 8;
/// The signature of the positions that the process has reported.
pub const SIGNATURE: usize = 9;
/// Fingerprint of the broker that has confirmed what is marked.
pub const BROKER: usize = 10;
/// The positions that were reported to Postgres last, and how many there were in all.
pub const REPORTS: Range<usize> = 11..27;
pub const REPORTS_MADE: usize = 27;
/// Fingerprint of the run of the server in which the last session began.
pub const SERVER_RUN: usize = 28;
/// When another relay of the slot was seen last, in seconds since the Unix epoch; 0 for never.
pub const PEER_SEEN: usize = 29;
// The words 30 to 32 are not used.
/// A confirmed prefix: commit LSN, events, digest. There are two copies, and which of them counts: 1
/// or 2, or 0 for none.
pub const PREFIXES: [usize; 2] = [33, 36];
pub const PREFIX_COPY: usize = 39;

/// "walrela" and the version of the layout.
pub const MAGIC_WORD: u64 = 0x7761_6C72_656C_6104;
/// The bits that differ between versions.
pub const VERSION_MASK: u64 = 0xFF;

/// Marks in the ring.
pub const MARKS: u64 = 1 << 18;
/// Bytes of a mark.
pub const MARK_BYTES: usize = 24;
