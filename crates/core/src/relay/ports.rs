//! Traits through which the loop asks the world around it. None of their methods blocks, except
//! where its name says so.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::control::{ConfirmedPosition, SessionNews, SessionRequest, Walsender, WalsenderAnswer};
pub use crate::base::clock::Clock;
use crate::base::lsn::Lsn;
use crate::health::{Pass, Phase};
use crate::metrics::{Ignored, KnownFrom, Stage};
use crate::polling::batch::{Batch, Verdicts};
use crate::source::catalog::Catalog;

/// Requests to a task and its answers. Dropping it ends the task.
pub trait Link<Q, A>: Send {
    /// False when another request is waiting already, or the process is ending.
    fn request(&self, request: Q) -> bool;

    /// The next answer, if there is one.
    fn answer(&self) -> Option<A>;
}

pub type SessionLink = Box<dyn Link<SessionRequest, SessionNews>>;
pub type WalsenderLink = Box<dyn Link<Walsender, WalsenderAnswer>>;
/// Brings one answer and takes no requests.
pub type CatalogLink = Box<dyn Link<(), Catalog>>;

/// Postgres, apart from its stream.
pub trait Database: Send {
    /// Opens one session for each request.
    fn sessions(&self) -> SessionLink;

    /// Looks at a walsender for each request.
    fn walsender(&self) -> WalsenderLink;

    /// Reads the catalog as it is from now on, however long that takes.
    fn read_catalog(&self) -> CatalogLink;

    /// Confirms a position to the slot. Waits for it, a few seconds at most.
    fn confirm(&self, position: ConfirmedPosition) -> Result<(), String>;
}

/// The workers that claim rows of a table and write verdicts to it.
pub trait ClaimWorkers: Send {
    /// The next batch. Waits for it, at most this long.
    fn receive(&mut self, timeout: Duration) -> Option<Batch>;

    /// Answers the worker that has passed the claim's batch on, which waits for one answer. Returns the
    /// verdicts if none waits.
    fn answer(&mut self, verdicts: Verdicts) -> Option<Verdicts>;

    /// Has verdicts written for which no worker waits. Returns them if there is no room.
    fn write(&mut self, verdicts: Verdicts) -> Option<Verdicts>;

    /// Whether anybody writes verdicts for which no worker waits.
    fn writes(&self) -> bool;

    /// Whether more rows are to be claimed.
    fn set_wanted(&mut self, wanted: bool);

    /// Whether the table is polled, or what its connections wait for.
    fn phase(&self) -> Phase;
}

/// The state file of a process that does not hold the slot yet.
pub trait StateFileSource: Debug + Send {
    /// Takes the file for this process alone.
    fn hold(self: Box<Self>) -> io::Result<Arc<dyn StateBytes>>;

    /// Changes one word, whichever process holds the file.
    fn note(&self, word: usize, value: u64) -> io::Result<()>;

    /// Fingerprint of the machine's start, if it is known.
    fn boot(&self) -> Option<u64>;
}

/// A state file. A write may be torn where it is not one word.
pub trait FileBytes: Debug + Send + Sync {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Waits until what was written is on disk.
    fn sync(&self) -> io::Result<()>;
}

/// The state file of the process that holds the slot: its first words are mapped into memory. It is
/// held until the last owner drops it.
pub trait StateBytes: FileBytes {
    fn load(&self, word: usize) -> u64;

    fn store(&self, word: usize, value: u64);
}

/// Counted where it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// A dead letter is confirmed.
    DeadLettered,
    RetryExhausted,
    UnknownAnswer,
    DeadLetterRefused,
    HeaderDropped,
    Reconnect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gauge {
    BreakerOpen,
    ParkedKeys,
    InFlightEvents,
    InFlightBytes,
    InFlightLimit,
    Connected,
}

pub trait Meters: Send + Sync {
    fn count(&self, counter: Counter, by: u64);

    fn set(&self, gauge: Gauge, value: u64);
}

/// A meter that counts once per event, and shows its counts once per pass.
pub trait PassMeter: Send {
    /// The broker has confirmed an event.
    fn published(&mut self, commit_unix_us: i64, now_unix_us: i64);

    /// The dead-letter topic has confirmed an event.
    fn dead_lettered(&mut self);

    /// An event was passed over that an earlier process has published.
    fn known(&mut self, from: KnownFrom);

    fn retried(&mut self);

    fn ignored(&mut self, why: Ignored);

    fn stage(&mut self, stage: Stage, spent: Duration);

    fn flush(&mut self);
}

/// Where the facts of each pass are published for other threads.
pub trait Recorder: Send {
    fn pass(&mut self, pass: &Pass, now: Instant);

    /// Notes the reason for the current state, never a secret; empty when there is none.
    fn note(&mut self, sentence: &str);

    /// The end of the server's WAL, as it was last seen.
    fn server_lsn(&self) -> Lsn;
}
