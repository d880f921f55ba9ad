//! The facts the data thread shows to other threads.
//!
//! The data thread keeps its own copy and publishes it once per pass. It never waits for a reader:
//! while one copies the facts, an unchanged phase is left for the next pass to publish. No judgement
//! depends on that, because every limit is longer than a pass.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::base::lsn::Lsn;
use crate::base::text::truncated;

/// Longest note kept, in bytes; a note is one sentence.
const NOTE_BYTES_MAX: usize = 500;

/// What the data thread is about; it alone says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Checking configuration, source and sink.
    #[default]
    Starting,
    /// Another process streams from the slot; waiting for it to go.
    Standby,
    /// Opening the replication stream, or waiting before the next attempt.
    Connecting,
    /// Every server that answers is a standby.
    AwaitingPrimary,
    /// The replication stream is open.
    Streaming,
    /// The table is polled.
    Polling,
    /// Asked to stop: intake is closed, the window settles.
    Draining,
    /// The loop has ended.
    Stopped,
}

/// Shared facts: written by one [`Recorder`], read by anyone.
#[derive(Debug)]
pub struct Facts {
    snapshot: Mutex<Snapshot>,
    note: Mutex<String>,
    /// From the slot watch to the data thread.
    server_lsn: AtomicU64,
}

/// What the data thread knows at the end of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// What the loop is about.
    pub phase: Phase,
    /// Whether the broker answers.
    pub sink_reachable: bool,
    /// Nothing comes in because the dead-letter topic is still to be read.
    pub letters_unread: bool,
    /// For how long Postgres has been decoding and has sent no event.
    pub decoding_for: Option<Duration>,
    /// Events settled since the process started.
    pub settled_events: u64,
    /// Events admitted and not settled.
    pub in_flight_events: u64,
    /// Their bytes.
    pub in_flight_bytes: u64,
    /// End of the WAL received.
    pub received_lsn: Lsn,
    /// Up to where events were handed to the broker client.
    pub sent_lsn: Lsn,
    /// The position confirmed to Postgres.
    pub confirmed_lsn: Lsn,
}

/// The facts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The last pass. Its phase may be newer than its figures.
    pub pass: Pass,
    /// Since when that phase lasts.
    pub phase_since_ms: u64,
    /// When something last settled, the confirmed LSN last moved, or nothing was unconfirmed.
    pub progress_ms: u64,
    /// Since when the broker is unreachable.
    pub sink_down_since_ms: Option<u64>,
    /// Since when nothing comes in because the dead-letter topic is still to be read.
    pub letters_unread_since_ms: Option<u64>,
    /// Since when Postgres decodes and sends no event.
    pub decoding_since_ms: Option<u64>,
    /// When the data loop last came round.
    pub heartbeat_ms: u64,
}

impl Facts {
    /// The facts now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        *held(&self.snapshot)
    }

    /// The end of the server's WAL, for [`Recorder::server_lsn`].
    pub fn server_at(&self, lsn: Lsn) {
        self.server_lsn.store(lsn.to_wire(), Ordering::Relaxed);
    }

    /// The sentence last noted; empty when there is nothing to say.
    #[must_use]
    pub fn note(&self) -> String {
        held(&self.note).clone()
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Facts that begin at `now_ms`, and their one writer.
#[must_use]
pub fn facts(now_ms: u64) -> (Recorder, Arc<Facts>) {
    let pass = Pass { sink_reachable: true, ..Pass::default() };
    let now = Snapshot {
        pass,
        phase_since_ms: now_ms,
        progress_ms: now_ms,
        heartbeat_ms: now_ms,
        ..Snapshot::default()
    };
    let facts = Arc::new(Facts {
        snapshot: Mutex::new(now),
        note: Mutex::default(),
        server_lsn: AtomicU64::default(),
    });
    (Recorder { facts: Arc::clone(&facts), now }, facts)
}

/// The one writer of [`Facts`]; not `Clone`, owned by the data thread.
#[derive(Debug)]
pub struct Recorder {
    facts: Arc<Facts>,
    now: Snapshot,
}

impl Recorder {
    /// Publishes a pass. Call once per pass, also on passes that did nothing.
    pub fn pass(&mut self, pass: &Pass, now_ms: u64) {
        let Snapshot { pass: last, .. } = &self.now;
        let moved = pass.settled_events != last.settled_events
            || pass.confirmed_lsn != last.confirmed_lsn
            || pass.in_flight_events == 0;
        if moved {
            self.now.progress_ms = now_ms;
        }
        let decoding = pass.decoding_for.map(|elapsed| {
            now_ms.saturating_sub(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
        });
        keep_since(&mut self.now.sink_down_since_ms, (!pass.sink_reachable).then_some(now_ms));
        keep_since(&mut self.now.letters_unread_since_ms, pass.letters_unread.then_some(now_ms));
        keep_since(&mut self.now.decoding_since_ms, decoding);
        // `phase` notices whether it has changed.
        self.now.pass = Pass { phase: self.now.pass.phase, ..*pass };
        self.phase(pass.phase, now_ms);
    }

    /// The end of the server's WAL, as the slot watch last saw it.
    #[must_use]
    pub fn server_lsn(&self) -> Lsn {
        Lsn::from_wire(self.facts.server_lsn.load(Ordering::Relaxed))
    }

    /// Publishes the phase alone, and a heartbeat: for the time before the first stream and
    /// between two.
    pub fn phase(&mut self, phase: Phase, now_ms: u64) {
        self.now.heartbeat_ms = now_ms;
        if phase != self.now.pass.phase {
            (self.now.pass.phase, self.now.phase_since_ms) = (phase, now_ms);
            *held(&self.facts.snapshot) = self.now;
        } else if let Ok(mut shared) = self.facts.snapshot.try_lock() {
            *shared = self.now;
        }
    }

    /// Notes why things are as they are (a fault's sentence; never a secret), or nothing. For changes
    /// of phase, not for every pass: it waits for readers.
    pub fn note(&mut self, sentence: &str) {
        truncated(sentence, NOTE_BYTES_MAX).clone_into(&mut held(&self.facts.note));
    }
}

/// Keeps the time at which it began for as long as it lasts.
fn keep_since(since: &mut Option<u64>, began: Option<u64>) {
    *since = began.map(|began| since.unwrap_or(began));
}

impl Drop for Recorder {
    /// A data thread that panicked must not go on looking healthy until its heartbeat is missed.
    fn drop(&mut self) {
        held(&self.facts.snapshot).pass.phase = Phase::Stopped;
    }
}
