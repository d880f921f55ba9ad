//! Why the relay is in a state other than streaming or polling: a code for scripts and a sentence.

use std::fmt;
use walrelay_base::figures::{binary_size, counted};

use super::{IntakeHold, SilentDestination};

/// A cause, and for how many milliseconds it has lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateReason {
    Starting,
    SlotBusy,
    /// There is no stream, or no connection that claims rows.
    NotStreaming(u64),
    WaitingForPrimary(u64),
    SinkDown(u64),
    /// A dead letter cannot be written.
    DeadLetterUnwritten(u64),
    /// A server has answered that user or password are wrong.
    LoginRefused {
        by: &'static str,
        for_ms: u64,
    },
    /// The broker confirms nothing, and there is room for more events.
    BrokerSilent {
        for_ms: u64,
        events: u64,
    },
    /// One destination confirms nothing, and others do.
    DestinationSilent {
        for_ms: u64,
        silent: SilentDestination,
    },
    /// The broker confirms nothing, and there is no room for more events.
    Full {
        hold: IntakeHold,
        for_ms: u64,
        events: u64,
    },
    /// Something must be read before events are taken in.
    Unread {
        hold: IntakeHold,
        for_ms: u64,
    },
    Decoding(u64),
    /// The slot's confirmed LSN stands, and so many bytes of WAL were written meanwhile.
    WalUnconfirmed {
        for_ms: u64,
        bytes: u64,
    },
    /// Neither the stream nor the slot watch hears anything of Postgres.
    PostgresSilent(u64),
    LoopStuck(u64),
    Draining,
    Stopped,
    /// The relay waits to be resumed, because of the fault with this code.
    Halted(&'static str),
}

impl StateReason {
    /// For scripts.
    pub const fn code(self) -> &'static str {
        match self {
            StateReason::Starting => "starting",
            StateReason::SlotBusy => "slot_busy",
            StateReason::NotStreaming(_) => "not_streaming",
            StateReason::WaitingForPrimary(_) => "waiting_for_primary",
            StateReason::SinkDown(_) => "sink_down",
            StateReason::DeadLetterUnwritten(_) => "dead_letter_unwritten",
            StateReason::LoginRefused { .. } => "login_refused",
            StateReason::BrokerSilent { .. } => "broker_silent",
            StateReason::DestinationSilent { .. } => "destination_silent",
            StateReason::Full { hold, .. } | StateReason::Unread { hold, .. } => hold.text(),
            StateReason::Decoding(_) => "postgres_decoding",
            StateReason::WalUnconfirmed { .. } => "wal_unconfirmed",
            StateReason::PostgresSilent(_) => "postgres_silent",
            StateReason::LoopStuck(_) => "loop_stuck",
            StateReason::Draining => "draining",
            StateReason::Stopped => "stopped",
            StateReason::Halted(_) => "halted",
        }
    }
}

impl fmt::Display for StateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, for_ms, after) = match *self {
            StateReason::Starting => {
                return f.write_str("checks before the first event are not done");
            }
            StateReason::SlotBusy => return f.write_str("another process streams from the slot"),
            StateReason::Draining => {
                return f.write_str("stopping: intake is closed, the window settles");
            }
            StateReason::Stopped => return f.write_str("stopped"),
            StateReason::Halted(code) => {
                return write!(f, "stopped with {code}; it waits to be resumed: walrelay resume");
            }
            StateReason::BrokerSilent { for_ms, events } => {
                let (for_s, events) = (for_ms / 1000, counted(events as usize, "event"));
                return write!(f, "the broker has not confirmed {events} for {for_s} s");
            }
            StateReason::DestinationSilent { for_ms, silent } => {
                let (for_s, SilentDestination { name, events, .. }) = (for_ms / 1000, silent);
                return write!(
                    f,
                    "{name} confirms nothing while others do: {} unconfirmed for {for_s} s",
                    counted(events as usize, "event")
                );
            }
            StateReason::LoginRefused { by, for_ms } => {
                return write!(f, "{by} has refused the login for {} s", for_ms / 1000);
            }
            StateReason::Full { hold, for_ms, events } => {
                let (for_s, events) = (for_ms / 1000, counted(events as usize, "event"));
                let full = match hold {
                    IntakeHold::SinkFull => "the broker client takes no more than",
                    _ => "the window is full of",
                };
                return write!(f, "{full} {events}, none settled for {for_s} s");
            }
            StateReason::WalUnconfirmed { for_ms, bytes } => {
                let for_s = for_ms / 1000;
                return write!(
                    f,
                    "the confirmed LSN stands for {for_s} s while {} of WAL was written",
                    binary_size(bytes)
                );
            }
            StateReason::NotStreaming(ms) => ("no connection that brings events", ms, ""),
            StateReason::WaitingForPrimary(ms) => {
                ("no primary", ms, ": the servers that answer are standbys")
            }
            StateReason::SinkDown(ms) => ("the sink has taken no event", ms, ""),
            StateReason::DeadLetterUnwritten(ms) => {
                ("a dead letter cannot be written", ms, ": its key waits, and other keys go on")
            }
            StateReason::Unread { hold, for_ms } => {
                let unread = match hold {
                    IntakeHold::TopicUnread => ": the end of a topic is still being read",
                    IntakeHold::CatalogUnread => ": the catalog of Postgres is still being read",
                    IntakeHold::TraceAwaited => {
                        ": another relay may not have noticed yet that this one has the slot"
                    }
                    _ => ": the dead-letter topic is still being read",
                };
                ("no event taken in", for_ms, unread)
            }
            StateReason::Decoding(ms) => ("Postgres decodes and has sent no event", ms, ""),
            StateReason::PostgresSilent(ms) => ("Postgres has answered nothing", ms, ""),
            StateReason::LoopStuck(ms) => ("the data loop has not come round", ms, ""),
        };
        write!(f, "{before} for {} s{after}", for_ms / 1000)
    }
}
