//! Tells metrics and log which state the relay is in.
//!
//! The admin thread asks once a second and for every probe, because the data thread could not tell
//! of a stall of its own.

use std::sync::{Arc, Mutex};

use super::facts::Snapshot;
use super::judge::{Health, Judge, StateChange};
use walrelay_base::lock::locked;
use walrelay_base::log::STATES;

use crate::metrics::{HealthState, Metrics};

pub struct StateWatch {
    judge: Mutex<Judge>,
    metrics: Arc<Metrics>,
    /// The origin of the clock of the facts, since the Unix epoch.
    origin_unix_us: i64,
}

impl StateWatch {
    pub fn new(metrics: Arc<Metrics>, origin_unix_us: i64) -> StateWatch {
        let watch = StateWatch { judge: Mutex::default(), metrics, origin_unix_us };
        watch.show(HealthState::Starting, 0);
        watch
    }

    pub fn judge(&self, facts: &Snapshot, now_ms: u64) -> Health {
        // Held until the change is told, so that two changes are told in their order.
        let mut judge = locked(&self.judge);
        let (health, change) = judge.judge(facts, now_ms);
        for (reason, gauge) in self.metrics.intake_held.iter() {
            gauge.set(i64::from(facts.pass.hold == Some(reason)));
        }
        if let Some(change) = change {
            self.show(health.state, health.since_ms);
            write_line(&health, &change);
        }
        health
    }

    /// A time on the clock of the facts, in microseconds since the Unix epoch.
    pub fn unix_us(&self, at_ms: u64) -> i64 {
        let at_us = i64::try_from(at_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        self.origin_unix_us.saturating_add(at_us)
    }

    fn show(&self, state: HealthState, since_ms: u64) {
        for (value, gauge) in self.metrics.state.iter() {
            gauge.set(i64::from(value == state));
        }
        self.metrics.state_since_timestamp_seconds.set(self.unix_us(since_ms) as f64 / 1e6);
    }
}

/// A change of state, as a line of the log.
fn write_line(health: &Health, StateChange { from, lasted_ms }: &StateChange) {
    let (from, to) = (from.text(), health.state.text());
    let reason = health.reason.map(|reason| reason.code());
    let text = health.reason.map(|reason| reason.to_string());
    let text = text.as_deref();
    match health.state {
        HealthState::Blocked | HealthState::Held | HealthState::Stalled => {
            tracing::warn!(target: STATES, code = "state", from, to, reason, text, lasted_ms, "state");
        }
        _ => {
            tracing::info!(target: STATES, code = "state", from, to, reason, text, lasted_ms, "state")
        }
    }
}

#[cfg(test)]
#[path = "state_watch_tests.rs"]
mod tests;
