//! A lane that is held: its message waits for something to pass that is not the message's fault, and
//! is tried again. Nothing is counted and nothing acknowledged meanwhile.

use std::time::{Duration, Instant};

use prometheus::IntGauge;

/// How often the log says that a lane is still held.
const TELL_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldReason {
    /// Postgres is away, or refuses the inbox's own login or statements.
    Postgres,
    /// [`crate::Failure::Hold`].
    Handler,
    /// [`crate::breaker`].
    Breaker,
    /// A copy or a dead letter is not confirmed.
    Broker,
}

impl HoldReason {
    pub(crate) const ALL: [HoldReason; 4] =
        [HoldReason::Postgres, HoldReason::Handler, HoldReason::Breaker, HoldReason::Broker];

    /// The label of `consumer_held_lanes`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            HoldReason::Postgres => "postgres",
            HoldReason::Handler => "handler",
            HoldReason::Breaker => "breaker",
            HoldReason::Broker => "broker",
        }
    }

    /// The code in the log.
    pub(crate) fn code(self) -> &'static str {
        match self {
            HoldReason::Postgres => "inbox.postgres-away",
            HoldReason::Handler => "inbox.held",
            HoldReason::Breaker => "inbox.breaker-open",
            HoldReason::Broker => "inbox.copy-not-confirmed",
        }
    }
}

/// The lane counts as held for as long as this lives.
pub(crate) struct Hold {
    reason: HoldReason,
    held_lanes: IntGauge,
    told_at: Option<Instant>,
}

impl Hold {
    pub(crate) fn begin(reason: HoldReason, held_lanes: IntGauge) -> Hold {
        held_lanes.inc();
        Hold { reason, held_lanes, told_at: None }
    }

    pub(crate) fn reason(&self) -> HoldReason {
        self.reason
    }

    /// Whether the log is to say it now.
    pub(crate) fn tells(&mut self, now: Instant) -> bool {
        let is_due = self.told_at.is_none_or(|at| now.duration_since(at) >= TELL_INTERVAL);
        if is_due {
            self.told_at = Some(now);
        }
        is_due
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held_lanes.dec();
    }
}
