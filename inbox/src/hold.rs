//! A lane that is held: its message waits for something to pass that is not the message's fault, and
//! is tried again. Nothing is counted and nothing acknowledged meanwhile.

use prometheus::IntGauge;

use crate::time::Reminder;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldReason {
    /// Postgres is away, does not answer, or refuses the inbox's own login or statements.
    Postgres,
    /// [`crate::Failure::Hold`].
    Handler,
    /// [`crate::breaker`].
    Breaker,
    /// A copy or a dead letter is not confirmed, or a dead letter is refused however short it is.
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
    pub(crate) reason: HoldReason,
    held_lanes: IntGauge,
    /// Limits the lines in the log.
    pub(crate) reminder: Reminder,
}

impl Hold {
    pub(crate) fn begin(reason: HoldReason, held_lanes: IntGauge) -> Hold {
        held_lanes.inc();
        Hold { reason, held_lanes, reminder: Reminder::default() }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held_lanes.dec();
    }
}
