//! Whether Postgres has the trace by which this relay shows that it has taken the slot.
//!
//! Postgres does not read a status update of a session that ends at once. A relay that had the slot
//! before would then find it where it stood, and believe that nothing was published since. So nothing
//! is published until the slot shows the trace.
//!
//! Where no position is free for a trace, nothing is published beside a peer before the session has lasted so long that
//! the peer has seen it, or counts the slot as out of sight.

use std::time::{Duration, Instant};

use crate::base::lsn::Lsn;
use crate::mutants::{Mutant, on};
use crate::relay::control::Walsender;
use crate::relay::ports::WalsenderLink;
use crate::relay::slot_history::GAP_MAX;
use crate::source::walsender::Activity;

/// Postgres reads a status update at once, if it is not busy.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// The same when it accepts no connection, or knows no such walsender.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A session of this age was seen by every peer that looks at the slot; to the others the slot was out of sight.
const NOTICED_AFTER: Duration = GAP_MAX.saturating_add(Duration::from_secs(2));
/// A relay whose stream is in order does not wait longer for an answer over SQL.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);

pub(super) struct TraceCheck {
    link: WalsenderLink,
    /// The walsender of the session.
    walsender: Option<Walsender>,
    /// The trace that was sent to it and is not known to have arrived, and when it was sent.
    awaited: Option<(Lsn, Instant)>,
    connected_at: Instant,
    /// The slot has no position for a trace.
    has_no_position: bool,
    is_asked: bool,
    ask_at: Instant,
    is_walsender_gone: bool,
}

impl TraceCheck {
    pub(super) fn new(link: WalsenderLink, now: Instant) -> TraceCheck {
        TraceCheck {
            link,
            walsender: None,
            awaited: None,
            connected_at: now,
            has_no_position: false,
            is_asked: false,
            ask_at: now,
            is_walsender_gone: false,
        }
    }

    pub(super) fn connected(&mut self, walsender: Walsender, now: Instant) {
        (self.walsender, self.is_walsender_gone) = (Some(walsender), false);
        self.connected_at = now;
    }

    /// Postgres has no such walsender any more: it may have said why on the stream, which is not read.
    pub(super) fn is_walsender_gone(&self) -> bool {
        self.is_walsender_gone
    }

    pub(super) fn sent(&mut self, trace: Lsn, now: Instant) {
        (self.awaited, self.ask_at) = (Some((trace, now)), now);
    }

    /// There is no position for a trace. Whether a peer may not have noticed this session yet.
    pub(super) fn is_unnoticed(&mut self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.connected_at);
        let is_unnoticed = age <= NOTICED_AFTER && !on(Mutant::NoTraceNotAwaited);
        if is_unnoticed && !self.has_no_position {
            tracing::info!(
                wait_ms = (NOTICED_AFTER - age).as_millis() as u64,
                "the slot has no position by which this relay could mark it: waiting until another relay must have noticed this session"
            );
        }
        self.has_no_position = is_unnoticed;
        is_unnoticed
    }

    /// Whether it waits until peers must have noticed the session.
    pub(super) fn has_no_position(&self) -> bool {
        self.has_no_position
    }

    /// Whether a trace is not known to have arrived; asks Postgres then.
    pub(super) fn is_awaited(&mut self, now: Instant) -> bool {
        if self.has_no_position && self.is_unnoticed(now) {
            return true;
        }
        let awaited = self.awaited.filter(|_| !on(Mutant::TraceNotAwaited));
        let Some((trace, sent_at)) = awaited else { return false };
        let Some(walsender) = &self.walsender else { return false };
        while let Some(answer) = self.link.answer() {
            self.is_asked = false;
            if answer.pid == walsender.pid && answer.confirmed >= trace {
                self.awaited = None;
                return false;
            }
            if answer.pid == walsender.pid && answer.activity == Ok(Activity::Gone) {
                self.is_walsender_gone = true;
            }
            let is_known =
                !matches!(answer.activity, Ok(Activity::Gone | Activity::Unasked) | Err(_));
            self.ask_at = now + if is_known { ASK_AGAIN_AFTER } else { RETRY_AFTER };
        }
        if now.saturating_duration_since(sent_at) > KNOWN_WITHIN {
            tracing::warn!(
                code = "slot.trace-unread", trace = %trace,
                "postgres has not shown the position by which this relay marks the slot: going on; another relay that had the slot may not see that this one has it"
            );
            self.awaited = None;
            return false;
        }
        if !self.is_asked && now >= self.ask_at {
            self.is_asked = self.link.request(walsender.clone());
        }
        true
    }

    /// The trace is awaited no longer.
    pub(super) fn give_up(&mut self) {
        (self.awaited, self.has_no_position, self.is_walsender_gone) = (None, false, false);
    }

    /// The session has ended. True if the trace may not have arrived.
    pub(super) fn session_ended(&mut self) -> bool {
        (self.walsender, self.has_no_position) = (None, false);
        self.awaited.take().is_some()
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
