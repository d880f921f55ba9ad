//! Facts that the data thread knows at the end of a pass, and why it takes no event in.

use std::time::Duration;

use crate::base::lsn::Lsn;
use crate::base::text::ShortText;
pub use crate::metrics::IntakeHold;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Starting,
    /// Another process streams from the slot.
    Standby,
    /// Opening the replication stream, or waiting before the next attempt.
    Connecting,
    /// Postgres refuses the login, which is read again from its file for the next attempt.
    LoginRefused,
    /// Every server that answers is a standby.
    AwaitingPrimary,
    Streaming,
    /// The table is polled.
    Polling,
    /// A stop was requested: intake is closed, the window settles.
    Draining,
    /// The loop has ended.
    Stopped,
    /// The loop has ended for the reason that has this code, and the process waits to be resumed.
    Halted(&'static str),
}

impl Phase {
    /// Whether this process is reading the slot or the table, or has read it and is about to end.
    pub fn has_source(self) -> bool {
        use Phase::{AwaitingPrimary, Connecting, Halted, LoginRefused, Standby, Starting};
        !matches!(
            self,
            Starting | Standby | Connecting | LoginRefused | AwaitingPrimary | Halted(_)
        )
    }
}

/// A destination that has confirmed nothing of what it was sent, while others have confirmed later
/// events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentDestination {
    pub name: ShortText,
    /// Events that wait for it, or behind it.
    pub events: u64,
    /// How long they have been waiting; of several such destinations, for the one that is silent longest.
    pub waits_for: Duration,
}

/// The facts that the data thread knows at the end of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    pub phase: Phase,
    pub sink_reachable: bool,
    /// It is not, because the broker refuses the login.
    pub sink_login_refused: bool,
    /// It counts as unreachable, because a dead letter cannot be written; other events are published.
    pub dead_letter_unwritten: bool,
    pub hold: Option<IntakeHold>,
    /// For how long Postgres has been decoding without sending an event.
    pub decoding_for: Option<Duration>,
    pub silent: Option<SilentDestination>,
    pub settled_events: u64,
    /// Events admitted and not settled, and their bytes.
    pub in_flight_events: u64,
    pub in_flight_bytes: u64,
    /// How many events may be in flight now.
    pub in_flight_limit: u64,
    pub received_lsn: Lsn,
    /// Up to this position events were handed to the broker client.
    pub sent_lsn: Lsn,
    /// The position reported to Postgres.
    pub confirmed_lsn: Lsn,
}
