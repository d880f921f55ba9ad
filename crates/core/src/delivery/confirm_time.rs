//! How long the broker takes to confirm: from the admission of an event until everything up to it is
//! settled. Measured with one event at a time, so that no event needs a time of its own.

use std::time::{Duration, Instant};

use crate::base::event::Sequence;

/// How much of the time is the last event's.
const WEIGHT: f64 = 0.2;

#[derive(Debug, Default)]
pub(super) struct ConfirmTime {
    usual: Duration,
    measured: Option<(Sequence, Instant)>,
}

impl ConfirmTime {
    /// Takes a look at the window: `next` will be admitted next, everything below `settled_below` is
    /// settled.
    pub(super) fn observe(&mut self, now: Instant, next: Sequence, settled_below: Sequence) {
        if let Some((_, admitted_at)) = self.measured.take_if(|(event, _)| *event < settled_below) {
            let time = now.saturating_duration_since(admitted_at);
            // The first is all that is known.
            let weight = if self.usual.is_zero() { 1.0 } else { WEIGHT };
            self.usual = self.usual.mul_f64(1.0 - weight) + time.mul_f64(weight);
        }
        if self.measured.is_none() && next > settled_below {
            self.measured = Some((next - 1, now));
        }
    }

    /// The events in flight will be admitted again.
    pub(super) fn forget(&mut self) {
        self.measured = None;
    }

    pub(super) fn usual(&self) -> Duration {
        self.usual
    }
}

#[cfg(test)]
#[path = "confirm_time_tests.rs"]
mod tests;
