//! Notifies the service manager (systemd) of the state of the relay, once a second if it has changed.
//!
//! `READY=1` comes when the checks of the start are over: the relay streams, polls, stands by, waits for a
//! broker that went away since, or waits to be resumed. What is unreachable during those checks ends the
//! process with an exit code, so `systemctl start` never waits for a broker or database. A start that has
//! not ended after [`STARTED_AFTER_MS`], because Postgres decodes a long backlog first, counts as done.
//!
//! `WATCHDOG=1` comes exactly while `/livez` says 200: this thread judges the heartbeat of the data loop.

use std::sync::Arc;

use crate::base::service_manager::{ServiceManager, status_line};
use crate::health::{Health, HealthState, StateReason};

/// Longer than the checks of a start take, shorter than systemd's limit for a start.
const STARTED_AFTER_MS: u64 = 30_000;

pub(super) struct Notices {
    manager: Arc<ServiceManager>,
    is_ready: bool,
    last_sign_ms: Option<u64>,
    status: String,
}

impl Notices {
    pub(super) fn new(manager: Arc<ServiceManager>) -> Notices {
        Notices { manager, is_ready: false, last_sign_ms: None, status: String::new() }
    }

    /// Looks at the state; the caller does this once a second. `note` says more of why the
    /// relay is in its state.
    pub(super) fn look(&mut self, health: &Health, note: &str, now_ms: u64) {
        if !self.manager.listens() {
            return;
        }
        let lines = self.due(health, note, now_ms);
        // What was not taken is due again.
        if !lines.is_empty() && !self.manager.send(&lines.join("\n")) {
            *self = Notices::new(Arc::clone(&self.manager));
        } else if self.is_ready {
            self.manager.started();
        }
    }

    fn due(&mut self, health: &Health, note: &str, now_ms: u64) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.is_ready && has_started(health, now_ms) {
            self.is_ready = true;
            lines.push("READY=1".to_owned());
        }
        let every_ms = self.manager.watchdog_every.map(|every| every.as_millis());
        let is_due = |every_ms| {
            self.last_sign_ms.is_none_or(|at| u128::from(now_ms.saturating_sub(at)) >= every_ms)
        };
        if health.stuck().is_none() && every_ms.is_some_and(is_due) {
            self.last_sign_ms = Some(now_ms);
            lines.push("WATCHDOG=1".to_owned());
        }
        let status = text(health, note);
        if status != self.status {
            lines.push(status_line(&status));
            self.status = status;
        }
        lines
    }
}

fn has_started(health: &Health, now_ms: u64) -> bool {
    let waits = matches!(health.reason, Some(StateReason::Halted(_)));
    match health.state {
        HealthState::Starting | HealthState::Connecting => {
            now_ms >= STARTED_AFTER_MS && health.stuck().is_none()
        }
        HealthState::Draining => false,
        HealthState::Halted => waits,
        HealthState::Standby | HealthState::Streaming | HealthState::Polling => true,
        HealthState::Blocked | HealthState::Held | HealthState::Stalled => health.stuck().is_none(),
    }
}

/// The state, its reason, and what is known beyond the reason.
fn text(health: &Health, note: &str) -> String {
    let state = health.state.text();
    match health.reason {
        Some(reason) if note.is_empty() => format!("{state}: {reason}"),
        Some(reason) => format!("{state}: {reason} ({note})"),
        None => state.to_owned(),
    }
}

#[cfg(test)]
#[path = "notices_tests.rs"]
mod tests;
