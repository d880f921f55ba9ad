//! Decides whether a silent stream is a dead connection or a Postgres that is decoding.
//!
//! A walsender that decodes a large transaction of other tables sends nothing and answers nothing
//! for minutes. A new connection would only decode the same again, and could not use the slot
//! before the old process is done. So silence alone ends no connection: beyond the limit Postgres
//! is asked, over another connection, what the walsender is doing ([`crate::relay::control`]).
//! While it is busy, the stream is kept. If it has ended, cannot be asked about, or is idle and yet
//! nothing arrives, the connection is dead.
//!
//! Being busy has no limit: the process holds the slot as long as it lives, and whoever reconnects
//! finds the slot in use. Only a person can end a walsender that hangs.
//!
//! Pure except for the link: time is an argument.

use std::time::{Duration, Instant};

use crate::base::lsn::Lsn;
use crate::relay::control::{Walsender, WalsenderAnswer};
use crate::relay::ports::WalsenderLink;
use crate::source::walsender::Activity;

/// The time between two looks is a quarter of the limit, within these bounds.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(50);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);
/// One look may happen during a short wait, so this many in a row must find the walsender idle.
const IDLE_LOOKS: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct StreamState {
    pub(super) now: Instant,
    /// When bytes last arrived.
    pub(super) heard: Instant,
    /// The newest position received.
    pub(super) seen: Lsn,
    /// End of the server's WAL, as the slot watch last saw it.
    pub(super) server: Lsn,
}

pub(super) struct StallDetector {
    link: WalsenderLink,
    limit: Duration,
    walsender: Option<Walsender>,
    /// A request is unanswered.
    asked: bool,
    look_due: Option<Instant>,
    /// Looks in a row that found the walsender idle.
    idle_looks: u32,
    busy_at: Option<Instant>,
    seen: Lsn,
    /// Since when the server's WAL has been ahead of `seen`, and `seen` has not moved.
    behind_since: Option<Instant>,
    decoding_since: Option<Instant>,
}

impl StallDetector {
    pub(super) fn new(link: WalsenderLink, limit: Duration) -> StallDetector {
        StallDetector {
            link,
            limit,
            walsender: None,
            asked: false,
            look_due: None,
            idle_looks: 0,
            busy_at: None,
            seen: Lsn::ZERO,
            behind_since: None,
            decoding_since: None,
        }
    }

    pub(super) fn connected(&mut self, walsender: Walsender) {
        self.disconnected();
        self.walsender = Some(walsender);
    }

    pub(super) fn disconnected(&mut self) {
        self.decoding_since = None;
        self.behind_since = None;
        self.heard();
    }

    /// The stream is not read on purpose, so its position does not move.
    pub(super) fn excuse(&mut self) {
        self.behind_since = None;
    }

    /// Since when Postgres has been decoding without sending events.
    pub(super) fn decoding_since(&self) -> Option<Instant> {
        self.decoding_since
    }

    /// Returns the reason if the connection must be considered dead.
    pub(super) fn judge(&mut self, state: StreamState) -> Option<String> {
        let StreamState { now, heard, seen, server } = state;
        if seen != self.seen {
            self.seen = seen;
            self.behind_since = None;
            self.note_flow(now);
        }
        if server > seen {
            self.behind_since.get_or_insert(now);
        } else {
            self.behind_since = None;
        }
        let long = |since: Instant| now.saturating_duration_since(since) > self.limit;
        let silent = long(heard);
        // Keepalives may arrive while the position does not move: then the connection is alive.
        let stands = self.behind_since.is_some_and(long);
        if !silent {
            self.heard();
            if self.behind_since.is_none() {
                // Everything there is has been received.
                self.note_flow(now);
            }
        }
        if let Some(dead) = self.take_answer(state, silent, stands) {
            return Some(dead);
        }
        if silent || stands {
            self.look(now);
        } else {
            self.look_due = None;
        }
        None
    }

    fn heard(&mut self) {
        self.idle_looks = 0;
        self.busy_at = None;
    }

    /// The position moves.
    fn note_flow(&mut self, now: Instant) {
        if let Some(since) = self.decoding_since.take() {
            let seconds = now.saturating_duration_since(since).as_secs();
            tracing::info!(seconds, "postgres sends again");
        }
    }

    fn look(&mut self, now: Instant) {
        if self.asked || self.look_due.is_some_and(|due| now < due) {
            return;
        }
        if let Some(walsender) = &self.walsender {
            self.asked = self.link.request(walsender.clone());
        }
    }

    fn take_answer(&mut self, state: StreamState, silent: bool, stands: bool) -> Option<String> {
        let WalsenderAnswer { pid, activity, .. } = self.link.answer()?;
        self.asked = false;
        let every = (self.limit / 4).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
        self.look_due = Some(state.now + every);
        // The answer may be late: about an earlier stream, or one that has sent something since.
        if self.walsender.as_ref().is_none_or(|walsender| walsender.pid != pid) {
            return None;
        }
        if !silent && !stands {
            return None;
        }
        match activity {
            Ok(Activity::Busy(with)) => {
                self.idle_looks = 0;
                self.busy_at = Some(state.now);
                self.note_decoding(state, pid, &with);
                None
            }
            Ok(Activity::Unclear | Activity::Unasked) => None,
            Ok(Activity::Waiting | Activity::Moving) if silent => self.unheard(state, pid),
            Ok(Activity::Moving) => {
                // It decodes again what lies before the confirmed position.
                self.note_decoding(state, pid, "WAL that is older than what it has to send");
                None
            }
            Ok(Activity::Waiting) => {
                // It has nothing to send. The next look can wait.
                self.look_due = Some(state.now + self.limit);
                self.note_flow(state.now);
                None
            }
            Ok(Activity::Gone) => silent.then(|| format!("its process {pid} has ended")),
            Err(why) => {
                silent.then(|| format!("it cannot be asked about its process {pid}: {why}"))
            }
        }
    }

    /// The walsender is idle and nothing arrives. What it sent last may still be on its way.
    fn unheard(&mut self, state: StreamState, pid: i32) -> Option<String> {
        self.idle_looks += 1;
        let since = self.busy_at.map_or(state.heard, |at| at.max(state.heard));
        let long = state.now.saturating_duration_since(since) > self.limit;
        (long && self.idle_looks >= IDLE_LOOKS)
            .then(|| format!("its process {pid} is idle, and nothing of it arrives"))
    }

    fn note_decoding(&mut self, state: StreamState, pid: i32, with: &str) {
        if self.decoding_since.is_some() {
            return;
        }
        let since = self.behind_since.map_or(state.heard, |since| since.min(state.heard));
        self.decoding_since = Some(since);
        tracing::warn!(
            code = "stream.decoding",
            pid,
            busy_with = with,
            seconds = state.now.saturating_duration_since(since).as_secs(),
            "postgres decodes and sends nothing: waiting for it"
        );
    }
}

#[cfg(test)]
#[path = "stall_tests.rs"]
mod tests;
