//! Judges the facts against the clock, and remembers since when the relay is in its state.

use super::Phase;
use super::facts::Snapshot;
use super::reason::StateReason;
use super::wal_growth::WalGrowth;
use crate::health::Pass;
use crate::metrics::HealthState;

/// The relay is held or blocked when it takes in or settles nothing for this long.
const HOLD_MS: u64 = 3_000;

/// The relay is not ready when it takes in or settles nothing for this long.
const STALL_MS: u64 = 30_000;

/// The loop is stuck when it finishes no pass for this long.
const HEARTBEAT_MS: u64 = 60_000;

/// A state, and the reason from which it follows.
type Cause = (HealthState, StateReason);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub state: HealthState,
    /// When the state began, on the clock of the facts.
    pub since_ms: u64,
    /// Why this state; none while streaming or polling.
    pub reason: Option<StateReason>,
    /// Every reason against readiness; the relay is ready when there is none.
    pub reasons: Vec<StateReason>,
}

impl Health {
    /// The reason for a restart: only a stuck loop is
    /// one. A broker or database that is down is none.
    pub fn stuck(&self) -> Option<StateReason> {
        self.reasons.iter().copied().find(|reason| matches!(reason, StateReason::LoopStuck(_)))
    }

    /// The reasons against readiness, but that another process, peer or not, has the slot.
    pub fn reasons_but_standby(&self) -> Vec<StateReason> {
        let others = self.reasons.iter().filter(|reason| **reason != StateReason::SlotBusy);
        others.copied().collect()
    }
}

/// The end of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    pub from: HealthState,
    pub lasted_ms: u64,
}

#[derive(Debug)]
pub struct Judge {
    wal_growth: WalGrowth,
    state: HealthState,
    since_ms: u64,
}

impl Default for Judge {
    fn default() -> Judge {
        Judge { wal_growth: WalGrowth::default(), state: HealthState::Starting, since_ms: 0 }
    }
}

impl Judge {
    /// Judges the facts. The caller does this regularly, because what has not been seen
    /// cannot be remembered.
    pub fn judge(&mut self, facts: &Snapshot, now_ms: u64) -> (Health, Option<StateChange>) {
        let mut causes = against_readiness(facts, now_ms);
        // Every other cause explains it better.
        let growth = self.wal_growth.observe(facts, now_ms);
        let unconfirmed =
            growth.map(|(for_ms, bytes)| (for_ms, StateReason::WalUnconfirmed { for_ms, bytes }));
        let silent = self.wal_growth.silent_for(facts, now_ms);
        let silent = silent.map(|for_ms| (for_ms, StateReason::PostgresSilent(for_ms)));
        let after = |limit_ms| {
            let mut standing = [silent, unconfirmed].into_iter().flatten();
            let (_, reason) = standing.find(|(for_ms, _)| *for_ms > limit_ms)?;
            Some((HealthState::Stalled, reason))
        };
        if causes.is_empty() {
            causes.extend(after(STALL_MS));
        }
        let first = causes.first().copied();
        // What holds back a relay that is still ready may pass by itself.
        let first = first.or_else(|| standstills(facts, now_ms, HOLD_MS).next());
        let first = first.or_else(|| after(HOLD_MS));
        let state = first.map_or(working(facts.pass.phase), |(state, _)| state);
        let change = (state != self.state).then(|| StateChange {
            from: self.state,
            lasted_ms: now_ms.saturating_sub(self.since_ms),
        });
        if change.is_some() {
            (self.state, self.since_ms) = (state, now_ms);
        }
        let reason = first.map(|(_, reason)| reason);
        let reasons = causes.into_iter().map(|(_, reason)| reason).collect();
        (Health { state, since_ms: self.since_ms, reason, reasons }, change)
    }
}

/// The reasons against readiness, and the state that follows. The first one leads.
fn against_readiness(facts: &Snapshot, now_ms: u64) -> Vec<Cause> {
    let age = |since_ms: u64| now_ms.saturating_sub(since_ms);
    let phase = of_phase(facts, now_ms);
    let beat_age_ms = age(facts.heartbeat_ms);
    // A loop that has ended is not stuck; the process is on its way out, or waits to be resumed.
    let ended = matches!(facts.pass.phase, Phase::Stopped | Phase::Halted(_));
    let stuck = !ended && beat_age_ms > HEARTBEAT_MS;
    let stuck = stuck.then_some((HealthState::Stalled, StateReason::LoopStuck(beat_age_ms)));
    let ending = matches!(facts.pass.phase, Phase::Draining | Phase::Stopped);
    let mut causes = Vec::new();
    // A relay that stops is said to stop, whatever keeps it.
    causes.extend(if ending { phase } else { stuck });
    causes.extend(if ending { stuck } else { phase });
    let sink_down = facts.sink_down_since_ms.map(|since| match &facts.pass {
        Pass { sink_login_refused: true, .. } => {
            StateReason::LoginRefused { by: "the broker", for_ms: age(since) }
        }
        Pass { dead_letter_unwritten: true, .. } => StateReason::DeadLetterUnwritten(age(since)),
        _ => StateReason::SinkDown(age(since)),
    });
    causes.extend(sink_down.map(|reason| (HealthState::Blocked, reason)));
    causes.extend(standstills(facts, now_ms, STALL_MS));
    let decoding = facts.decoding_since_ms.map(|since| StateReason::Decoding(age(since)));
    causes.extend(decoding.map(|reason| (HealthState::Stalled, reason)));
    causes
}

/// Finds what has stood still for longer than `limit_ms`; the first leads.
fn standstills(facts: &Snapshot, now_ms: u64, limit_ms: u64) -> impl Iterator<Item = Cause> {
    let found = [silent_for, unsettled_for, unread_for].map(|find| find(facts, now_ms, limit_ms));
    found.into_iter().flatten()
}

/// A destination has answered nothing for longer than `limit_ms`, while others have.
fn silent_for(facts: &Snapshot, now_ms: u64, limit_ms: u64) -> Option<Cause> {
    let (silent, since_ms) = facts.pass.silent.zip(facts.silent_since_ms)?;
    let for_ms = now_ms.saturating_sub(since_ms);
    let reason = StateReason::DestinationSilent { for_ms, silent };
    (for_ms > limit_ms).then_some((HealthState::Blocked, reason))
}

/// Events are in flight, and none has settled for longer than `limit_ms`.
fn unsettled_for(facts: &Snapshot, now_ms: u64, limit_ms: u64) -> Option<Cause> {
    let events = facts.pass.in_flight_events;
    let for_ms = now_ms.saturating_sub(facts.progress_ms);
    if events == 0 || for_ms <= limit_ms {
        return None;
    }
    // A full window that settles is the usual state of a relay that works through a backlog.
    Some(match facts.pass.hold.filter(|hold| hold.awaits_confirms()) {
        Some(hold) => (HealthState::Held, StateReason::Full { hold, for_ms, events }),
        None => (HealthState::Blocked, StateReason::BrokerSilent { for_ms, events }),
    })
}

/// For longer than `limit_ms` no event was taken in because something must be read first.
fn unread_for(facts: &Snapshot, now_ms: u64, limit_ms: u64) -> Option<Cause> {
    let for_ms = now_ms.saturating_sub(facts.hold_since_ms?);
    let hold = facts.pass.hold.filter(|hold| !hold.awaits_confirms())?;
    (for_ms > limit_ms).then_some((HealthState::Held, StateReason::Unread { hold, for_ms }))
}

fn of_phase(facts: &Snapshot, now_ms: u64) -> Option<Cause> {
    let for_ms = now_ms.saturating_sub(facts.phase_since_ms);
    let reason = match facts.pass.phase {
        Phase::Starting => StateReason::Starting,
        Phase::Standby => StateReason::SlotBusy,
        Phase::Connecting => StateReason::NotStreaming(for_ms),
        Phase::LoginRefused => StateReason::LoginRefused { by: "Postgres", for_ms },
        Phase::AwaitingPrimary => StateReason::WaitingForPrimary(for_ms),
        Phase::Streaming | Phase::Polling => return None,
        Phase::Draining => StateReason::Draining,
        Phase::Stopped => StateReason::Stopped,
        Phase::Halted(code) => StateReason::Halted(code),
    };
    Some((working(facts.pass.phase), reason))
}

/// The state of a relay without problems in this phase.
fn working(phase: Phase) -> HealthState {
    match phase {
        Phase::Starting => HealthState::Starting,
        Phase::Standby => HealthState::Standby,
        Phase::Connecting | Phase::LoginRefused | Phase::AwaitingPrimary => HealthState::Connecting,
        Phase::Streaming => HealthState::Streaming,
        Phase::Polling => HealthState::Polling,
        Phase::Draining => HealthState::Draining,
        Phase::Stopped | Phase::Halted(_) => HealthState::Halted,
    }
}
