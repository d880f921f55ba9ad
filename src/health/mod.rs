//! Whether the relay does its work, judged by its progress.
//!
//! The data thread publishes facts once per pass; the admin thread
//! judges them against the clock. Nothing here reads a clock: every
//! time is in milliseconds since an origin that both threads share.
//!
//! Ready means: streaming, broker reachable, and unconfirmed events settle. That counts as progress
//! even while the confirmed LSN does not move, because a transaction of ten million rows moves it
//! once. An idle relay stays ready.

mod facts;
pub(crate) mod slot_watch;

use std::fmt;

pub use self::facts::{Facts, Pass, Phase, Recorder, Snapshot, facts};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    Starting,
    Standby,
    /// There is no replication stream.
    Connecting,
    Streaming,
    Polling,
    SinkDown,
    /// Nothing settles although the stream is open, or the loop finishes no pass.
    Stalled,
    Draining,
    Stopped,
}

impl HealthState {
    /// For scripts.
    pub const fn text(self) -> &'static str {
        match self {
            HealthState::Starting => "starting",
            HealthState::Standby => "standby",
            HealthState::Connecting => "connecting",
            HealthState::Streaming => "streaming",
            HealthState::Polling => "polling",
            HealthState::SinkDown => "sink_down",
            HealthState::Stalled => "stalled",
            HealthState::Draining => "draining",
            HealthState::Stopped => "stopped",
        }
    }
}

/// Why the relay is not ready, and for how many milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    Starting,
    SlotBusy,
    /// There is no stream, or no connection that claims rows.
    NotStreaming(u64),
    WaitingForPrimary(u64),
    SinkDown(u64),
    LettersUnread(u64),
    Decoding(u64),
    NoProgress {
        for_ms: u64,
        events: u64,
    },
    LoopStuck(u64),
    Draining,
    Stopped,
}

impl Unready {
    /// For scripts.
    pub const fn code(self) -> &'static str {
        match self {
            Unready::Starting => "starting",
            Unready::SlotBusy => "slot_busy",
            Unready::NotStreaming(_) => "not_streaming",
            Unready::WaitingForPrimary(_) => "waiting_for_primary",
            Unready::SinkDown(_) => "sink_down",
            Unready::LettersUnread(_) => "letters_unread",
            Unready::Decoding(_) => "postgres_decoding",
            Unready::NoProgress { .. } => "no_progress",
            Unready::LoopStuck(_) => "loop_stuck",
            Unready::Draining => "draining",
            Unready::Stopped => "stopped",
        }
    }
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, for_ms, after) = match *self {
            Unready::Starting => return f.write_str("checks before the first event are not done"),
            Unready::SlotBusy => return f.write_str("another process streams from the slot"),
            Unready::Draining => {
                return f.write_str("stopping: intake is closed, the window settles");
            }
            Unready::Stopped => return f.write_str("stopped"),
            Unready::NoProgress { for_ms, events } => {
                let for_s = for_ms / 1000;
                return write!(f, "{events} events unconfirmed, none settled for {for_s} s");
            }
            Unready::NotStreaming(ms) => ("no connection that brings events", ms, ""),
            Unready::WaitingForPrimary(ms) => {
                ("no primary", ms, ": the servers that answer are standbys")
            }
            Unready::SinkDown(ms) => ("broker unreachable", ms, ""),
            Unready::LettersUnread(ms) => {
                ("no event taken in", ms, ": the dead-letter topic is still being read")
            }
            Unready::Decoding(ms) => ("Postgres decodes and has sent no event", ms, ""),
            Unready::LoopStuck(ms) => ("the data loop has not come round", ms, ""),
        };
        write!(f, "{before} for {} s{after}", for_ms / 1000)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthLimits {
    /// The relay is stalled when no unconfirmed event settles for this long.
    pub stall_ms: u64,
    /// The loop is stuck when it finishes no pass for this long.
    pub heartbeat_ms: u64,
}

impl Default for HealthLimits {
    fn default() -> HealthLimits {
        HealthLimits { stall_ms: 30_000, heartbeat_ms: 60_000 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub state: HealthState,
    /// Every reason against readiness; the relay is ready when there is none.
    pub reasons: Vec<Unready>,
}

impl Health {
    pub fn judge(facts: &Snapshot, limits: HealthLimits, now_ms: u64) -> Health {
        let age = |since_ms: u64| now_ms.saturating_sub(since_ms);
        let (state, reason) = judge_phase(facts, now_ms);
        let mut reasons = Vec::from_iter(reason);
        let beat_age_ms = age(facts.heartbeat_ms);
        // A loop that has ended is not stuck; the process is on its way out.
        let stuck = facts.pass.phase != Phase::Stopped && beat_age_ms > limits.heartbeat_ms;
        if stuck {
            reasons.push(Unready::LoopStuck(beat_age_ms));
        }
        let sink_down = facts.sink_down_since_ms.map(|since| Unready::SinkDown(age(since)));
        reasons.extend(sink_down);
        let (for_ms, events) = (age(facts.progress_ms), facts.pass.in_flight_events);
        let stalled_from = reasons.len();
        if events > 0 && for_ms > limits.stall_ms {
            reasons.push(Unready::NoProgress { for_ms, events });
        }
        let unread = facts.letters_unread_since_ms.map(age);
        let unread = unread.filter(|for_ms| *for_ms > limits.stall_ms);
        reasons.extend(unread.map(Unready::LettersUnread));
        reasons.extend(facts.decoding_since_ms.map(|since| Unready::Decoding(age(since))));
        let stalled = reasons.len() > stalled_from;
        let state = match state {
            // These states keep their names; problems are in the reasons.
            HealthState::Draining | HealthState::Stopped => state,
            _ if stuck => HealthState::Stalled,
            HealthState::Streaming | HealthState::Polling if sink_down.is_some() => {
                HealthState::SinkDown
            }
            HealthState::Streaming | HealthState::Polling if stalled => HealthState::Stalled,
            other => other,
        };
        Health { state, reasons }
    }

    /// The reason for a restart: only a stuck loop is
    /// one. A broker or database that is down is none.
    pub fn stuck(&self) -> Option<Unready> {
        self.reasons.iter().copied().find(|reason| matches!(reason, Unready::LoopStuck(_)))
    }
}

fn judge_phase(facts: &Snapshot, now_ms: u64) -> (HealthState, Option<Unready>) {
    let for_ms = now_ms.saturating_sub(facts.phase_since_ms);
    let (state, reason) = match facts.pass.phase {
        Phase::Starting => (HealthState::Starting, Unready::Starting),
        Phase::Standby => (HealthState::Standby, Unready::SlotBusy),
        Phase::Connecting => (HealthState::Connecting, Unready::NotStreaming(for_ms)),
        Phase::AwaitingPrimary => (HealthState::Connecting, Unready::WaitingForPrimary(for_ms)),
        Phase::Streaming => return (HealthState::Streaming, None),
        Phase::Polling => return (HealthState::Polling, None),
        Phase::Draining => (HealthState::Draining, Unready::Draining),
        Phase::Stopped => (HealthState::Stopped, Unready::Stopped),
    };
    (state, Some(reason))
}

#[cfg(test)]
mod tests;
