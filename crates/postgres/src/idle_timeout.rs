//! Effect of `idle_replication_slot_timeout` (18 and later) on a slot that nobody reads.
//!
//! Postgres compares at checkpoints only, so a time that is left is the earliest.

use std::time::Duration;

use serde_json::{Value, json};

use walrelay_base::figures::duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleTimeout {
    pub timeout: Duration,
    /// For how long nobody has read the slot; none while somebody does.
    pub idle: Option<Duration>,
}

impl IdleTimeout {
    /// The earliest time until the slot is invalidated; none while it is read.
    pub fn left(&self) -> Option<Duration> {
        self.idle.map(|idle| self.timeout.saturating_sub(idle))
    }

    /// More than half of the time has passed.
    pub fn is_urgent(&self) -> bool {
        self.left().is_some_and(|left| left < self.timeout / 2)
    }

    /// After `more` without a reader.
    pub fn after(self, more: Duration) -> IdleTimeout {
        IdleTimeout { idle: Some(self.idle.unwrap_or_default() + more), ..self }
    }

    pub fn text(&self, slot: &str) -> String {
        let setting = duration(self.timeout.as_secs());
        match (self.idle, self.left()) {
            (Some(idle), Some(left)) => format!(
                "nobody has read slot {slot} for {}: {} Postgres invalidates it at a checkpoint, with all that it has not delivered (idle_replication_slot_timeout is {setting})",
                duration(idle.as_secs()),
                match left.as_secs() {
                    0 => "from now on".to_owned(),
                    left => format!("from {} on", duration(left)),
                }
            ),
            _ => format!(
                "once nobody has read slot {slot} for {setting}, Postgres invalidates it at a checkpoint (idle_replication_slot_timeout)"
            ),
        }
    }

    /// For `/status`; the text only while nobody reads the slot.
    pub fn to_json(self, slot: &str) -> Value {
        json!({
            "timeout_seconds": self.timeout.as_secs(),
            "idle_seconds": self.idle.map(|idle| idle.as_secs()),
            "left_seconds": self.left().map(|left| left.as_secs()),
            "text": self.idle.map(|_| self.text(slot)),
        })
    }
}

#[cfg(test)]
#[path = "idle_timeout_tests.rs"]
mod tests;
