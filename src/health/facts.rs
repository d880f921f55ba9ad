//! The facts the data thread shows to other threads.
//!
//! Plain atomics, stored relaxed: one pass costs a dozen stores and can never wait for a reader.
//! A reader may see fields of two neighbouring passes; no judgement depends on their agreement,
//! because every limit is longer than a pass. The heartbeat is stored last with release order, so
//! whoever sees a beat sees the pass it belongs to.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Phase;
use crate::base::lsn::Lsn;

/// "Never" in a field that holds a time.
const NEVER: u64 = u64::MAX;
/// Longest note kept, in bytes; a note is one sentence.
const NOTE_BYTES_MAX: usize = 500;

/// Shared facts: written by one [`Recorder`], read by anyone.
#[derive(Debug)]
pub struct Facts {
    phase: AtomicU8,
    phase_since_ms: AtomicU64,
    progress_ms: AtomicU64,
    sink_down_since_ms: AtomicU64,
    letters_unread_since_ms: AtomicU64,
    decoding_since_ms: AtomicU64,
    in_flight_events: AtomicU64,
    in_flight_bytes: AtomicU64,
    received_lsn: AtomicU64,
    sent_lsn: AtomicU64,
    confirmed_lsn: AtomicU64,
    heartbeat_ms: AtomicU64,
    /// Told by the watch, for the data thread.
    server_lsn: AtomicU64,
    note: Mutex<String>,
}

/// The facts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What the data thread is about.
    pub phase: Phase,
    /// Since when.
    pub phase_since_ms: u64,
    /// When something last settled, the confirmed LSN last moved, or nothing was unconfirmed.
    pub progress_ms: u64,
    /// Since when the broker is unreachable.
    pub sink_down_since_ms: Option<u64>,
    /// Since when nothing comes in because the dead-letter topic is still to be read.
    pub letters_unread_since_ms: Option<u64>,
    /// Since when Postgres decodes and sends no event.
    pub decoding_since_ms: Option<u64>,
    /// Events admitted and not settled.
    pub in_flight_events: u64,
    /// Their bytes.
    pub in_flight_bytes: u64,
    /// End of the WAL received.
    pub received_lsn: Lsn,
    /// Up to where events were handed to the broker client.
    pub sent_lsn: Lsn,
    /// What Postgres was told it may forget.
    pub confirmed_lsn: Lsn,
    /// When the data loop last came round.
    pub heartbeat_ms: u64,
}

/// What the data thread knows at the end of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// What it is about.
    pub phase: Phase,
    /// Whether the broker answers.
    pub sink_reachable: bool,
    /// Whether nothing comes in because the dead-letter topic is still to be read.
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
    /// What Postgres was told it may forget.
    pub confirmed_lsn: Lsn,
}

impl Facts {
    pub(super) fn new(now_ms: u64) -> Facts {
        Facts {
            phase: AtomicU8::new(Phase::Starting as u8),
            phase_since_ms: AtomicU64::new(now_ms),
            progress_ms: AtomicU64::new(now_ms),
            sink_down_since_ms: AtomicU64::new(NEVER),
            letters_unread_since_ms: AtomicU64::new(NEVER),
            decoding_since_ms: AtomicU64::new(NEVER),
            in_flight_events: AtomicU64::new(0),
            in_flight_bytes: AtomicU64::new(0),
            received_lsn: AtomicU64::new(0),
            sent_lsn: AtomicU64::new(0),
            confirmed_lsn: AtomicU64::new(0),
            heartbeat_ms: AtomicU64::new(now_ms),
            server_lsn: AtomicU64::new(0),
            note: Mutex::new(String::new()),
        }
    }

    /// The facts now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let heartbeat_ms = self.heartbeat_ms.load(Ordering::Acquire);
        let load = |field: &AtomicU64| field.load(Ordering::Relaxed);
        let since = |field: &AtomicU64| Some(load(field)).filter(|since_ms| *since_ms != NEVER);
        Snapshot {
            phase: phase_from(self.phase.load(Ordering::Relaxed)),
            phase_since_ms: load(&self.phase_since_ms),
            progress_ms: load(&self.progress_ms),
            sink_down_since_ms: since(&self.sink_down_since_ms),
            letters_unread_since_ms: since(&self.letters_unread_since_ms),
            decoding_since_ms: since(&self.decoding_since_ms),
            in_flight_events: load(&self.in_flight_events),
            in_flight_bytes: load(&self.in_flight_bytes),
            received_lsn: Lsn::from_wire(load(&self.received_lsn)),
            sent_lsn: Lsn::from_wire(load(&self.sent_lsn)),
            confirmed_lsn: Lsn::from_wire(load(&self.confirmed_lsn)),
            heartbeat_ms,
        }
    }

    /// The end of the server's WAL, for [`Recorder::server_lsn`].
    pub fn server_at(&self, lsn: Lsn) {
        self.server_lsn.store(lsn.to_wire(), Ordering::Relaxed);
    }

    /// The sentence last noted; empty when there is nothing to say.
    #[must_use]
    pub fn note(&self) -> String {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn phase_from(code: u8) -> Phase {
    const PHASES: [Phase; 8] = [
        Phase::Starting,
        Phase::Standby,
        Phase::Connecting,
        Phase::Streaming,
        Phase::Draining,
        Phase::Stopped,
        Phase::Polling,
        Phase::AwaitingPrimary,
    ];
    // Only `Recorder` stores codes; a code out of range must not look healthy.
    PHASES.get(usize::from(code)).copied().unwrap_or(Phase::Stopped)
}

/// The one writer of [`Facts`]; not `Clone`, owned by the data thread.
#[derive(Debug)]
pub struct Recorder {
    facts: Arc<Facts>,
    phase: Phase,
    settled_events: u64,
    confirmed_lsn: Lsn,
    sink_reachable: bool,
    letters_unread: bool,
    decoding: bool,
}

impl Recorder {
    pub(super) fn new(facts: Arc<Facts>, now_ms: u64) -> Recorder {
        facts.heartbeat_ms.store(now_ms, Ordering::Release);
        Recorder {
            facts,
            phase: Phase::Starting,
            settled_events: 0,
            confirmed_lsn: Lsn::ZERO,
            sink_reachable: true,
            letters_unread: false,
            decoding: false,
        }
    }

    /// Publishes a pass. Call once per pass, also on passes that did nothing.
    pub fn pass(&mut self, pass: &Pass, now_ms: u64) {
        let moved = pass.settled_events != self.settled_events
            || pass.confirmed_lsn != self.confirmed_lsn
            || pass.in_flight_events == 0;
        if moved {
            self.facts.progress_ms.store(now_ms, Ordering::Relaxed);
        }
        self.settled_events = pass.settled_events;
        self.confirmed_lsn = pass.confirmed_lsn;
        if pass.sink_reachable != self.sink_reachable {
            let since_ms = if pass.sink_reachable { NEVER } else { now_ms };
            self.facts.sink_down_since_ms.store(since_ms, Ordering::Relaxed);
            self.sink_reachable = pass.sink_reachable;
        }
        if pass.letters_unread != self.letters_unread {
            let since_ms = if pass.letters_unread { now_ms } else { NEVER };
            self.facts.letters_unread_since_ms.store(since_ms, Ordering::Relaxed);
            self.letters_unread = pass.letters_unread;
        }
        if pass.decoding_for.is_some() != self.decoding {
            let for_ms = |elapsed: Duration| u64::try_from(elapsed.as_millis()).unwrap_or(NEVER);
            let since_ms = pass.decoding_for.map_or(NEVER, |it| now_ms.saturating_sub(for_ms(it)));
            self.facts.decoding_since_ms.store(since_ms, Ordering::Relaxed);
            self.decoding = pass.decoding_for.is_some();
        }
        let store = |field: &AtomicU64, value: u64| field.store(value, Ordering::Relaxed);
        store(&self.facts.in_flight_events, pass.in_flight_events);
        store(&self.facts.in_flight_bytes, pass.in_flight_bytes);
        store(&self.facts.received_lsn, pass.received_lsn.to_wire());
        store(&self.facts.sent_lsn, pass.sent_lsn.to_wire());
        store(&self.facts.confirmed_lsn, pass.confirmed_lsn.to_wire());
        self.phase(pass.phase, now_ms);
    }

    /// The end of the server's WAL, as the watch last saw it.
    #[must_use]
    pub fn server_lsn(&self) -> Lsn {
        Lsn::from_wire(self.facts.server_lsn.load(Ordering::Relaxed))
    }

    /// Publishes the phase alone, and a heartbeat: for the time before the first stream and
    /// between two.
    pub fn phase(&mut self, phase: Phase, now_ms: u64) {
        if phase != self.phase {
            self.phase = phase;
            self.facts.phase_since_ms.store(now_ms, Ordering::Relaxed);
            self.facts.phase.store(phase as u8, Ordering::Relaxed);
        }
        self.facts.heartbeat_ms.store(now_ms, Ordering::Release);
    }

    /// Notes why things are as they are (a fault's sentence; never a secret), or nothing. Takes a
    /// lock: for changes of phase, not for every pass.
    pub fn note(&mut self, sentence: &str) {
        let mut end = sentence.len().min(NOTE_BYTES_MAX);
        while !sentence.is_char_boundary(end) {
            end -= 1;
        }
        let mut note = self.facts.note.lock().unwrap_or_else(PoisonError::into_inner);
        sentence[..end].clone_into(&mut note);
    }
}

impl Drop for Recorder {
    /// A data thread that panicked must not go on looking healthy until its heartbeat is missed.
    fn drop(&mut self) {
        self.facts.phase.store(Phase::Stopped as u8, Ordering::Release);
    }
}
