//! Whether a silent stream is a dead connection, or a Postgres that decodes.
//!
//! A walsender that decodes a large transaction whose rows are no events sends nothing and answers
//! nothing, for minutes; a new connection would only decode the same again, and could not have the
//! slot before the old process is through. So silence alone ends no connection: beyond the limit
//! Postgres is asked what the walsender does ([`crate::relay::control`]). Where it is busy, the stream is
//! kept for as long as that lasts. Where it has gone, or cannot be asked, or listens and yet is not
//! heard, the connection is dead.
//!
//! There is no limit to being busy: as long as the process lives it has the slot, and whoever
//! reconnects finds the slot in use. What can be done about a process that hangs, a person has to do.
//!
//! Pure but for the channel: time is an argument.

use std::time::{Duration, Instant};

use crate::base::lsn::Lsn;
use crate::relay::control::{Walsender, WalsenderAnswer, WalsenderLink};
use crate::source::walsender::Activity;

/// Bounds of the time between two looks; between them it is a quarter of the limit.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(50);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);
/// One look may fall into a short wait: so many in a row must find a walsender that listens.
const LISTENING_LOOKS: u32 = 3;

/// What the loop knows of the stream at one state.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamState {
    pub(super) now: Instant,
    /// When bytes last arrived.
    pub(super) heard: Instant,
    /// The newest position that was received.
    pub(super) seen: Lsn,
    /// End of the server's WAL, as the watch last saw it.
    pub(super) server: Lsn,
}

/// Judges the silence of one stream after another.
pub(super) struct StallDetector {
    link: WalsenderLink,
    limit: Duration,
    walsender: Option<Walsender>,
    /// A question is out.
    asked: bool,
    look_due: Option<Instant>,
    /// Looks in a row that found the walsender listening.
    listening: u32,
    /// When the walsender was last found busy.
    busy_at: Option<Instant>,
    seen: Lsn,
    /// Since when the server's WAL has been ahead of `seen`, and `seen` has not moved.
    behind_since: Option<Instant>,
    /// Since when Postgres decodes, as far as we were told.
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
            listening: 0,
            busy_at: None,
            seen: Lsn::ZERO,
            behind_since: None,
            decoding_since: None,
        }
    }

    /// A new stream, sent by `walsender`.
    pub(super) fn connected(&mut self, walsender: Walsender) {
        self.disconnected();
        self.walsender = Some(walsender);
    }

    /// The stream is over.
    pub(super) fn disconnected(&mut self) {
        self.walsender = None;
        self.decoding_since = None;
        self.behind_since = None;
        self.heard();
    }

    /// The stream is not read on purpose; that it stands means nothing.
    pub(super) fn excuse(&mut self) {
        self.behind_since = None;
    }

    /// Since when Postgres decodes and no event can come.
    pub(super) fn decoding_since(&self) -> Option<Instant> {
        self.decoding_since
    }

    /// Why the connection has to be taken for dead, if it has to.
    pub(super) fn judge(&mut self, state: StreamState) -> Option<String> {
        let StreamState { now, heard, seen, server } = state;
        if seen != self.seen {
            self.seen = seen;
            self.behind_since = None;
            self.flows(now);
        }
        if server > seen {
            self.behind_since.get_or_insert(now);
        } else {
            self.behind_since = None;
        }
        let long = |since: Instant| now.saturating_duration_since(since) > self.limit;
        let silent = long(heard);
        // Keepalives may come in between: then the connection is well, and still nothing moves.
        let stands = self.behind_since.is_some_and(long);
        if !silent {
            self.heard();
            if self.behind_since.is_none() {
                // All that there is has been received.
                self.flows(now);
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
        self.listening = 0;
        self.busy_at = None;
    }

    /// Positions move.
    fn flows(&mut self, now: Instant) {
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
        let WalsenderAnswer { pid, activity } = self.link.answer()?;
        self.asked = false;
        let every = (self.limit / 4).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
        self.look_due = Some(state.now + every);
        // It may be late: about a stream that is over, or that has spoken since.
        if self.walsender.as_ref().is_none_or(|walsender| walsender.pid != pid) {
            return None;
        }
        if !silent && !stands {
            return None;
        }
        match activity {
            Ok(Activity::Busy(with)) => {
                self.listening = 0;
                self.busy_at = Some(state.now);
                self.decodes(state, pid, &with);
                None
            }
            Ok(Activity::Unclear) => None,
            Ok(Activity::Waiting | Activity::Moving) if silent => self.unheard(state, pid),
            Ok(Activity::Moving) => {
                // It reads once more what lies before the position that was confirmed.
                self.decodes(state, pid, "WAL that is older than what it has to send");
                None
            }
            Ok(Activity::Waiting) => {
                // It has nothing for us. No need to look again soon.
                self.look_due = Some(state.now + self.limit);
                self.flows(state.now);
                None
            }
            Ok(Activity::Gone) => silent.then(|| format!("its process {pid} has ended")),
            Err(why) => {
                silent.then(|| format!("it cannot be asked about its process {pid}: {why}"))
            }
        }
    }

    /// It listens, and we hear nothing. What it said last may still be on its way.
    fn unheard(&mut self, state: StreamState, pid: i32) -> Option<String> {
        self.listening += 1;
        let since = self.busy_at.map_or(state.heard, |at| at.max(state.heard));
        let long = state.now.saturating_duration_since(since) > self.limit;
        (long && self.listening >= LISTENING_LOOKS)
            .then(|| format!("its process {pid} waits for us, and nothing of it arrives"))
    }

    fn decodes(&mut self, state: StreamState, pid: i32, with: &str) {
        if self.decoding_since.is_some() {
            return;
        }
        let since = self.behind_since.map_or(state.heard, |since| since.min(state.heard));
        self.decoding_since = Some(since);
        tracing::warn!(
            pid,
            busy_with = with,
            seconds = state.now.saturating_duration_since(since).as_secs(),
            "postgres decodes and sends nothing meanwhile: waiting for it"
        );
    }
}

#[cfg(test)]
#[path = "stall_tests.rs"]
mod tests;
