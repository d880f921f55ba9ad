//! Whether the relay does its work, judged from progress and not from being alive.
//!
//! The data thread publishes facts once per pass; the admin thread judges them against the clock.
//! Nothing here reads a clock: every time is `_ms` since an origin that both threads share.
//!
//! Invariants: ready means streaming, broker reachable, and what is unconfirmed moves (G6).
//! Unconfirmed events that settle count as progress even while the confirmed LSN stands, because
//! a transaction of ten million rows moves the LSN once. An idle relay is ready for ever.

use std::fmt;
use std::sync::Arc;

mod facts;
pub mod slot_watch;

pub use self::facts::{Facts, Pass, Recorder, Snapshot};

/// What the data thread is about; it alone says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Checking configuration, source and sink.
    #[default]
    Starting = 0,
    /// Another process streams from the slot; waiting for it to go.
    Standby = 1,
    /// Opening the replication stream, or waiting before the next attempt.
    Connecting = 2,
    /// The replication stream is open.
    Streaming = 3,
    /// Told to stop: intake is closed, the window settles.
    Draining = 4,
    /// Nothing moves any more.
    Stopped = 5,
    /// The table is polled.
    Polling = 6,
    /// Every server that answers is a standby.
    AwaitingPrimary = 7,
}

/// How the relay stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not yet begun.
    Starting,
    /// Slot in use by another process.
    Standby,
    /// No replication stream.
    Connecting,
    /// All is well.
    Streaming,
    /// All is well, and the table is polled.
    Polling,
    /// The broker cannot be reached.
    SinkDown,
    /// Streaming, and yet nothing settles, or the data loop has stopped turning.
    Stalled,
    /// Settling the window before the end.
    Draining,
    /// Ended.
    Stopped,
}

impl State {
    /// The state's name.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Standby => "standby",
            State::Connecting => "connecting",
            State::Streaming => "streaming",
            State::Polling => "polling",
            State::SinkDown => "sink_down",
            State::Stalled => "stalled",
            State::Draining => "draining",
            State::Stopped => "stopped",
        }
    }
}

/// Why the relay is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Checks are not done.
    Starting,
    /// Another process has the slot.
    SlotBusy,
    /// There is no stream, or no connection that claims rows.
    NotStreaming {
        /// For so long.
        for_ms: u64,
    },
    /// Every server that answers is a standby.
    WaitingForPrimary {
        /// For so long.
        for_ms: u64,
    },
    /// The broker cannot be reached.
    SinkDown {
        /// For so long.
        for_ms: u64,
    },
    /// Nothing comes in before the dead-letter topic has been read.
    LettersUnread {
        /// For so long.
        for_ms: u64,
    },
    /// Postgres decodes and sends no event meanwhile.
    Decoding {
        /// For so long.
        for_ms: u64,
    },
    /// There is something unconfirmed and it does not move.
    NoProgress {
        /// For so long.
        for_ms: u64,
        /// Events that wait.
        events: u64,
    },
    /// The data loop has not come round.
    LoopStuck {
        /// For so long.
        for_ms: u64,
    },
    /// A stop was asked for.
    Draining,
    /// The relay has ended.
    Stopped,
}

impl Reason {
    /// A stable word for scripts.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Reason::Starting => "starting",
            Reason::SlotBusy => "slot_busy",
            Reason::NotStreaming { .. } => "not_streaming",
            Reason::WaitingForPrimary { .. } => "waiting_for_primary",
            Reason::SinkDown { .. } => "sink_down",
            Reason::LettersUnread { .. } => "letters_unread",
            Reason::Decoding { .. } => "postgres_decoding",
            Reason::NoProgress { .. } => "no_progress",
            Reason::LoopStuck { .. } => "loop_stuck",
            Reason::Draining => "draining",
            Reason::Stopped => "stopped",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::Starting => f.write_str("checks before the first event are not done"),
            Reason::SlotBusy => f.write_str("another process streams from the slot"),
            Reason::NotStreaming { for_ms } => {
                write!(f, "no connection that brings events for {} s", for_ms / 1000)
            }
            Reason::WaitingForPrimary { for_ms } => {
                let for_s = for_ms / 1000;
                write!(f, "no primary for {for_s} s: the servers that answer are standbys")
            }
            Reason::SinkDown { for_ms } => {
                write!(f, "broker unreachable for {} s", for_ms / 1000)
            }
            Reason::LettersUnread { for_ms } => {
                let for_s = for_ms / 1000;
                write!(
                    f,
                    "no event taken in for {for_s} s: the dead-letter topic is still being read"
                )
            }
            Reason::Decoding { for_ms } => {
                write!(f, "Postgres decodes and has sent no event for {} s", for_ms / 1000)
            }
            Reason::NoProgress { for_ms, events } => {
                write!(f, "{events} events unconfirmed, none settled for {} s", for_ms / 1000)
            }
            Reason::LoopStuck { for_ms } => {
                write!(f, "the data loop has not come round for {} s", for_ms / 1000)
            }
            Reason::Draining => f.write_str("stopping: intake is closed, the window settles"),
            Reason::Stopped => f.write_str("stopped"),
        }
    }
}

/// How long is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Unconfirmed events that do not move for so long are a stall.
    pub stall_ms: u64,
    /// A data loop that does not come round for so long is stuck. Its longest single wait (one
    /// connection attempt to one host) must stay below.
    pub heartbeat_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { stall_ms: 30_000, heartbeat_ms: 60_000 }
    }
}

/// A judgement: one state, and every reason against readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// How the relay stands.
    pub state: State,
    reasons: Vec<Reason>,
}

impl Health {
    /// Judges the facts as of `now_ms`.
    #[must_use]
    pub fn judge(facts: &Snapshot, limits: Limits, now_ms: u64) -> Health {
        let mut reasons = Vec::new();
        let state = phase_state(facts, now_ms, &mut reasons);
        let beat_age_ms = now_ms.saturating_sub(facts.heartbeat_ms);
        // A loop that has ended is not stuck; the process is on its way out.
        let stuck = facts.phase != Phase::Stopped && beat_age_ms > limits.heartbeat_ms;
        if stuck {
            reasons.push(Reason::LoopStuck { for_ms: beat_age_ms });
        }
        if let Some(since_ms) = facts.sink_down_since_ms {
            reasons.push(Reason::SinkDown { for_ms: now_ms.saturating_sub(since_ms) });
        }
        let still_ms = now_ms.saturating_sub(facts.progress_ms);
        let events = facts.in_flight_events;
        let stands = events > 0 && still_ms > limits.stall_ms;
        if stands {
            reasons.push(Reason::NoProgress { for_ms: still_ms, events });
        }
        let unread_ms =
            facts.letters_unread_since_ms.map(|since_ms| now_ms.saturating_sub(since_ms));
        let unread_ms = unread_ms.filter(|for_ms| *for_ms > limits.stall_ms);
        reasons.extend(unread_ms.map(|for_ms| Reason::LettersUnread { for_ms }));
        if let Some(since_ms) = facts.decoding_since_ms {
            reasons.push(Reason::Decoding { for_ms: now_ms.saturating_sub(since_ms) });
        }
        let stalled = stands || unread_ms.is_some() || facts.decoding_since_ms.is_some();
        let state = match state {
            // The end and the way to it are told as such; what hinders them is in the reasons.
            State::Draining | State::Stopped => state,
            _ if stuck => State::Stalled,
            State::Streaming | State::Polling if facts.sink_down_since_ms.is_some() => {
                State::SinkDown
            }
            State::Streaming | State::Polling if stalled => State::Stalled,
            other => other,
        };
        Health { state, reasons }
    }

    /// Whether events flow; if not, every reason why.
    pub fn ready(&self) -> Result<(), Vec<Reason>> {
        if self.reasons.is_empty() { Ok(()) } else { Err(self.reasons.clone()) }
    }

    /// Whether a restart would help: only a stuck data loop says no. A broker or database that is
    /// down is no reason to restart the relay.
    pub fn live(&self) -> Result<(), Reason> {
        let stuck = |reason: &&Reason| matches!(reason, Reason::LoopStuck { .. });
        self.reasons.iter().find(stuck).map_or(Ok(()), |reason| Err(*reason))
    }

    /// Everything that speaks against readiness.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }
}

fn phase_state(facts: &Snapshot, now_ms: u64, reasons: &mut Vec<Reason>) -> State {
    let (state, reason) = match facts.phase {
        Phase::Starting => (State::Starting, Reason::Starting),
        Phase::Standby => (State::Standby, Reason::SlotBusy),
        Phase::Connecting => {
            let for_ms = now_ms.saturating_sub(facts.phase_since_ms);
            (State::Connecting, Reason::NotStreaming { for_ms })
        }
        Phase::AwaitingPrimary => {
            let for_ms = now_ms.saturating_sub(facts.phase_since_ms);
            (State::Connecting, Reason::WaitingForPrimary { for_ms })
        }
        Phase::Streaming => return State::Streaming,
        Phase::Polling => return State::Polling,
        Phase::Draining => (State::Draining, Reason::Draining),
        Phase::Stopped => (State::Stopped, Reason::Stopped),
    };
    reasons.push(reason);
    state
}

/// Facts that begin at `now_ms`, and the one hand that writes them.
#[must_use]
pub fn facts(now_ms: u64) -> (Recorder, Arc<Facts>) {
    let facts = Arc::new(Facts::new(now_ms));
    (Recorder::new(Arc::clone(&facts), now_ms), facts)
}

#[cfg(test)]
mod tests;
