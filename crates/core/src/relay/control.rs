//! Questions that the loop asks of Postgres beside its stream, and their answers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub use super::slot_history::{Mover, PeerProgress, Seen, SystemTimeline};
use crate::base::error::Fault;
use crate::base::lsn::Lsn;
use crate::health::Phase;
use crate::mutants::{Mutant, on};
use crate::source::catalog::Catalog;
use crate::source::progress::OwnPositions;
use crate::source::server::ServerRun;
use crate::source::slot_state::HeldSlot;
use crate::source::stream::Wire;
use crate::source::walsender::Activity;
pub use crate::source::walsender::Walsender;

/// The requests of other threads to the loop.
#[derive(Debug, Default)]
pub struct StopFlags {
    /// Asks the loop to settle what is in flight, report it and end.
    pub stop: Arc<AtomicBool>,
    /// Postgres refuses new connections because it shuts down.
    pub source_stopping: AtomicBool,
}

#[derive(Debug)]
pub struct SessionRequest {
    /// Columns are wanted in text form, not binary.
    pub text_only: bool,
    /// The relay closed the last session itself, and has waited between the two already.
    pub at_once: bool,
    /// Everything before this position is known to be confirmed.
    pub confirmed: Lsn,
}

pub enum SessionNews {
    Opened(Box<OpenedSession>),
    /// The attempt waits in this phase.
    Waiting(Phase),
    /// Another attempt would fail in the same way.
    Failed(Fault),
}

/// A session, and what was read once it held the slot.
pub struct OpenedSession {
    pub wire: Box<dyn Wire + Send>,
    pub walsender: Walsender,
    pub place: SystemTimeline,
    /// Read after the stream had started, because nobody else can move the slot from then on.
    pub slot_confirmed: Lsn,
    /// When it was read, by the server's clock.
    pub looked_unix_us: i64,
    /// End of the WAL, read with it: what a peer had confirmed before is never after it.
    pub wal_end: Lsn,
    /// Since the last session.
    pub seen: Seen,
    /// Postgres says that rows may be missing, and nothing is known of the time before.
    pub in_doubt: Option<PublicationInDoubt>,
    pub wal_sender_timeout: Option<Duration>,
    pub catalog: Catalog,
    /// Before `START_REPLICATION` was sent: the last that the walsender is sure to have heard.
    pub heard_at: Instant,
    /// When it was seen to hold the slot.
    pub opened_at: Instant,
}

/// Rows may be missing, unless this state of the publication was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicationInDoubt {
    pub fault: Fault,
    /// Names the state.
    pub digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalsenderAnswer {
    pub pid: i32,
    /// The error says why Postgres did not answer.
    pub activity: Result<Activity, String>,
    /// The position that it has confirmed in the slot; zero if that is not known.
    pub confirmed: Lsn,
}

/// A position that the broker has confirmed, and where it means something.
#[derive(Clone, Debug)]
pub struct ConfirmedPosition {
    /// Everything before it is confirmed.
    pub lsn: Lsn,
    pub place: SystemTimeline,
    /// The run of the server in which this relay had its last session.
    pub run: ServerRun,
    /// The walsender of that session.
    pub own_pid: i32,
    pub own: OwnPositions,
    /// Another relay of the slot was seen in the last day.
    pub peer_seen: bool,
}

impl ConfirmedPosition {
    /// Why the slot, as it is seen now, must not be advanced: the position is of another server, or another
    /// relay may have published again what is before it. That relay has left its trace in the slot, unless a
    /// crash of Postgres has taken the trace back.
    pub fn refusal(&self, slot: &HeldSlot) -> Option<&'static str> {
        // A data folder that was put back has the same system and timeline, and other transactions.
        if slot.run.start != self.run.start {
            return Some("this is another server, or it was started anew since the session");
        }
        let has_peer = self.peer_seen || slot.has_peer;
        if has_peer && slot.run != self.run && !on(Mutant::ConfirmsAfterCrash) {
            return Some("postgres has crashed since the session, and there is another relay");
        }
        let is_left = self.own.exclude(slot.confirmed_flush);
        is_left.then_some("another relay has had the slot")
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
