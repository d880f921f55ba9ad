//! The facts that the data thread publishes for other threads.
//!
//! The data thread keeps its own copy and publishes it once per pass. It does not wait for a
//! reader: while one copies the facts, they are published with the next pass, unless the phase has
//! changed. No judgement depends on that, because every limit is longer than a pass.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::slot_pin::SlotPin;
use super::{IntakeHold, Pass, Phase};
use walrelay_base::lock::locked;
use walrelay_base::lsn::Lsn;
use walrelay_base::stop::Stop;
use walrelay_base::text::truncated;
use walrelay_postgres::idle_timeout::IdleTimeout;

/// Longest note, in bytes; a note is one sentence.
const NOTE_BYTES_MAX: usize = 500;

/// Begin with [`Facts::new`]: the default has no sink that can be reached.
#[derive(Debug, Default)]
pub struct Facts {
    snapshot: Mutex<Snapshot>,
    note: Mutex<String>,
    /// The lock that polling waits for, as a sentence.
    lock_wait: Mutex<String>,
    /// These are written by the slot watch; the data thread reads the first.
    server_lsn: AtomicU64,
    slot_confirmed_lsn: AtomicU64,
    unanswered_since_ms: Mutex<Option<u64>>,
    pin: Mutex<Option<SlotPin>>,
    idle: Mutex<Option<SlotIdle>>,
    stop: Mutex<Option<Stop>>,
}

#[derive(Clone, Copy, Debug)]
struct SlotIdle {
    timeout: IdleTimeout,
    seen_ms: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The last pass. Its phase may be newer than its figures.
    pub pass: Pass,
    pub phase_since_ms: u64,
    /// When something last settled, the confirmed LSN last moved, or nothing was unconfirmed.
    pub progress_ms: u64,
    pub sink_down_since_ms: Option<u64>,
    pub hold_since_ms: Option<u64>,
    pub decoding_since_ms: Option<u64>,
    pub silent_since_ms: Option<u64>,
    /// When the loop last finished a pass.
    pub heartbeat_ms: u64,
    /// The end of the server's WAL and the slot's confirmed LSN, as the slot watch last saw them.
    pub server_lsn: Lsn,
    pub slot_confirmed_lsn: Lsn,
    /// When the slot watch asked Postgres what Postgres has not answered.
    pub unanswered_since_ms: Option<u64>,
}

impl Facts {
    /// Facts of a loop that is about to begin.
    pub fn new(now_ms: u64) -> Arc<Facts> {
        Arc::new(Facts { snapshot: Mutex::new(begun(now_ms)), ..Facts::default() })
    }

    pub fn snapshot(&self) -> Snapshot {
        let lsn = |of: &AtomicU64| Lsn::from_wire(of.load(Ordering::Relaxed));
        Snapshot {
            server_lsn: lsn(&self.server_lsn),
            slot_confirmed_lsn: lsn(&self.slot_confirmed_lsn),
            unanswered_since_ms: *locked(&self.unanswered_since_ms),
            ..*locked(&self.snapshot)
        }
    }

    /// The end of the server's WAL, and the slot's confirmed LSN.
    pub fn server_at(&self, end: Lsn, slot_confirmed: Lsn) {
        self.server_lsn.store(end.to_wire(), Ordering::Relaxed);
        self.slot_confirmed_lsn.store(slot_confirmed.to_wire(), Ordering::Relaxed);
    }

    /// The slot watch asks Postgres. Its earliest question without an answer counts.
    pub fn postgres_asked(&self, now_ms: u64) {
        locked(&self.unanswered_since_ms).get_or_insert(now_ms);
    }

    /// Postgres has answered, be it with an error.
    pub fn postgres_answered(&self) {
        *locked(&self.unanswered_since_ms) = None;
    }

    /// The reason that keeps the slot's `restart_lsn` from moving.
    pub fn pin(&self) -> Option<SlotPin> {
        locked(&self.pin).clone()
    }

    /// The effect of a time without a reader on the slot at `now_ms`. Without a session the relay
    /// does not read it, and may not be able to look either.
    pub fn idle_timeout(&self, now_ms: u64) -> Option<IdleTimeout> {
        let SlotIdle { timeout, seen_ms } = (*locked(&self.idle))?;
        use Phase::{AwaitingPrimary, Connecting, Halted, LoginRefused};
        let has_no_session = matches!(
            self.snapshot().pass.phase,
            Connecting | LoginRefused | AwaitingPrimary | Halted(_)
        );
        let is_unread = timeout.idle.is_some() || has_no_session;
        let since = Duration::from_millis(now_ms.saturating_sub(seen_ms));
        Some(if is_unread { timeout.after(since) } else { timeout })
    }

    pub(super) fn set_idle_timeout(&self, timeout: Option<IdleTimeout>, seen_ms: u64) {
        *locked(&self.idle) = timeout.map(|timeout| SlotIdle { timeout, seen_ms });
    }

    pub(super) fn set_pin(&self, pin: Option<SlotPin>) {
        *locked(&self.pin) = pin;
    }

    /// Why the process waits to be resumed.
    pub fn stop(&self) -> Option<Stop> {
        locked(&self.stop).clone()
    }

    pub fn set_stop(&self, stop: Option<Stop>) {
        *locked(&self.stop) = stop;
    }

    /// Their writer, for the loop that begins at `now_ms`; the one before has ended.
    pub fn recorder(self: &Arc<Facts>, now_ms: u64) -> FactsWriter {
        let now = begun(now_ms);
        *locked(&self.snapshot) = now;
        // What the watch of the last loop saw may be over.
        self.set_pin(None);
        *locked(&self.unanswered_since_ms) = None;
        FactsWriter { facts: Arc::clone(self), now }
    }

    /// The reason for the current state; where the loop has noted none, the lock that polling waits for.
    pub fn note(&self) -> String {
        let (note, lock_wait) = (locked(&self.note), locked(&self.lock_wait));
        if note.is_empty() { lock_wait.clone() } else { note.clone() }
    }

    /// Notes which lock polling waits for; empty when for none.
    pub fn set_lock_wait(&self, sentence: &str) {
        truncated(sentence, NOTE_BYTES_MAX).clone_into(&mut locked(&self.lock_wait));
    }
}

/// The facts that are known of a loop that begins at `now_ms`.
fn begun(now_ms: u64) -> Snapshot {
    let pass = Pass { sink_reachable: true, ..Pass::default() };
    Snapshot {
        pass,
        phase_since_ms: now_ms,
        progress_ms: now_ms,
        heartbeat_ms: now_ms,
        ..Snapshot::default()
    }
}

/// Facts that begin at `now_ms`, and their only writer.
pub fn facts(now_ms: u64) -> (FactsWriter, Arc<Facts>) {
    let facts = Facts::new(now_ms);
    (facts.recorder(now_ms), facts)
}

/// The only writer of [`Facts`], owned by the data thread.
#[derive(Debug)]
pub struct FactsWriter {
    facts: Arc<Facts>,
    now: Snapshot,
}

impl FactsWriter {
    /// Publishes a pass. To be called once per pass, also after passes that did nothing.
    pub fn pass(&mut self, pass: &Pass, now_ms: u64) {
        // A relay without its source takes nothing in, whatever it would have to read first: a standby reads the
        // dead-letter topic only when it has the slot.
        let holds = |hold: &IntakeHold| hold.awaits_confirms() || pass.phase.has_source();
        let pass = &Pass { hold: pass.hold.filter(holds), ..*pass };
        let Snapshot { pass: last, .. } = &self.now;
        let moved = pass.settled_events != last.settled_events
            || pass.confirmed_lsn != last.confirmed_lsn
            || pass.in_flight_events == 0;
        let other_hold = pass.hold != last.hold;
        let named = |pass: &Pass| pass.silent.map(|silent| silent.name);
        let other_silent = named(pass) != named(last);
        let began_ms = |elapsed: Duration| {
            now_ms.saturating_sub(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
        };
        // Another may have been silent for less long than the first of several.
        let silent_since_ms = pass.silent.map(|silent| match last.silent {
            None => began_ms(silent.waits_for),
            Some(_) => now_ms,
        });
        if moved {
            self.now.progress_ms = now_ms;
        }
        let decoding = pass.decoding_for.map(began_ms);
        keep_since(&mut self.now.sink_down_since_ms, (!pass.sink_reachable).then_some(now_ms));
        if other_hold {
            self.now.hold_since_ms = None;
        }
        keep_since(&mut self.now.hold_since_ms, pass.hold.map(|_| now_ms));
        keep_since(&mut self.now.decoding_since_ms, decoding);
        if other_silent {
            self.now.silent_since_ms = None;
        }
        keep_since(&mut self.now.silent_since_ms, silent_since_ms);
        // `phase` compares the new phase with the old one.
        self.now.pass = Pass { phase: self.now.pass.phase, ..*pass };
        self.phase(pass.phase, now_ms);
    }

    /// The end of the server's WAL, as the slot watch last saw it.
    pub fn server_lsn(&self) -> Lsn {
        Lsn::from_wire(self.facts.server_lsn.load(Ordering::Relaxed))
    }

    /// Publishes a phase and a heartbeat.
    pub fn phase(&mut self, phase: Phase, now_ms: u64) {
        self.now.heartbeat_ms = now_ms;
        if phase != self.now.pass.phase {
            (self.now.pass.phase, self.now.phase_since_ms) = (phase, now_ms);
            *locked(&self.facts.snapshot) = self.now;
        } else if let Ok(mut shared) = self.facts.snapshot.try_lock() {
            *shared = self.now;
        }
    }

    /// Notes the reason for the current state, never a secret; empty when there is none. To be
    /// called when the state changes and not in every pass, because it waits for readers.
    pub fn note(&mut self, sentence: &str) {
        truncated(sentence, NOTE_BYTES_MAX).clone_into(&mut locked(&self.facts.note));
    }
}

/// Keeps the earliest beginning of a state for as long as the state lasts.
fn keep_since(since: &mut Option<u64>, began: Option<u64>) {
    *since = began.map(|began| since.unwrap_or(began));
}

impl Drop for FactsWriter {
    /// A data thread that has panicked must not look healthy until its heartbeat is missed.
    fn drop(&mut self) {
        locked(&self.facts.snapshot).pass.phase = Phase::Stopped;
    }
}
