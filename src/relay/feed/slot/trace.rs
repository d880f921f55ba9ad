//! Whether Postgres has the trace by which this relay shows that it has taken the slot.
//!
//! Postgres does not read a status update of a session that ends at once. A relay that had the slot
//! before would then find it where it stood, and believe that nothing was published since. So nothing
//! is published until the slot shows the trace.

use crate::base::lsn::Lsn;
use crate::relay::control::{Walsender, WalsenderLink};

pub(super) struct TraceCheck {
    link: WalsenderLink,
    /// The walsender of the session.
    walsender: Option<Walsender>,
    /// The trace that was sent to it and is not known to have arrived.
    awaited: Option<Lsn>,
    is_asked: bool,
}

impl TraceCheck {
    pub(super) fn new(link: WalsenderLink) -> TraceCheck {
        TraceCheck { link, walsender: None, awaited: None, is_asked: false }
    }

    pub(super) fn connected(&mut self, walsender: Walsender) {
        self.walsender = Some(walsender);
    }

    pub(super) fn sent(&mut self, trace: Lsn) {
        self.awaited = Some(trace);
    }

    /// Whether a trace is not known to have arrived; asks Postgres then.
    pub(super) fn is_awaited(&mut self) -> bool {
        let (Some(walsender), Some(trace)) = (&self.walsender, self.awaited) else { return false };
        while let Some(answer) = self.link.answer() {
            self.is_asked = false;
            if answer.pid == walsender.pid && answer.confirmed >= trace {
                self.awaited = None;
                return false;
            }
        }
        if !self.is_asked {
            self.is_asked = self.link.request(walsender.clone());
        }
        true
    }

    /// The session has ended. True if the trace may not have arrived.
    pub(super) fn session_ended(&mut self) -> bool {
        self.walsender = None;
        self.awaited.take().is_some()
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
