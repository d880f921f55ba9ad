//! How the relay ends, and how it goes on after its sink has lost track.

use std::time::{Duration, Instant};

use super::Relay;
use super::session::Sessions;
use super::sql_tasks::ConfirmedPosition;
use crate::base::error::{Exit, Fault};
use crate::health::Phase;
use crate::source::stream::StreamError;

/// How long the server may take to answer the end of the stream.
const FAREWELL: Duration = Duration::from_secs(2);
/// After a fault: how long the broker may confirm nothing before nothing more is expected.
const LAST_WORDS: Duration = Duration::from_secs(3);

impl Relay {
    /// Finishes the open transaction, settles the window, sends the final LSN and awaits the
    /// server's answer. A fault that stops the relay still settles what was admitted before it.
    pub(super) fn drain(&mut self, outcome: Result<(), Fault>) -> Result<(), Fault> {
        self.phase = Phase::Draining;
        if self.stream.is_none() {
            // A session that opens now would not be read, and would keep the slot from others.
            self.link.hang_up();
        }
        let deadline = Instant::now() + self.delivery.drain_timeout;
        let mut outcome = outcome;
        let mut last_settled = (self.outlet.settled_events, Instant::now());
        while Instant::now() < deadline {
            // Cut inside a transaction, its first part would be repeated by the next process. After
            // a fault there is no going on.
            let reading = outcome.is_ok()
                && self.stream.is_some()
                && self.outlet.sink.is_some()
                && !self.core.between_transactions();
            if !reading && (self.core.is_settled() || self.outlet.sink.is_none()) {
                break;
            }
            if last_settled.0 != self.outlet.settled_events {
                last_settled = (self.outlet.settled_events, Instant::now());
            }
            // What is behind a refused event of its key will never settle.
            if outcome.is_err() && last_settled.1.elapsed() > LAST_WORDS {
                break;
            }
            if let Some(stream) = self.stream.as_mut().filter(|_| !reading) {
                // Not read on purpose.
                stream.excuse_silence(Instant::now());
                self.stall.excuse();
            }
            let step = if reading { self.intake(Instant::now()) } else { Ok(false) };
            let step = step.and_then(|more| {
                self.collect(if more { Duration::ZERO } else { Duration::from_millis(2) })
            });
            self.outlet.retry_due(Instant::now(), &mut self.core);
            let step = step.and_then(|()| self.hear());
            self.feedback(Instant::now());
            self.publish_facts();
            outcome = outcome.and(step);
        }
        if !self.farewell() {
            self.confirm_over_sql(outcome.as_ref().err());
        }
        let left = self.core.window.events();
        if outcome.is_ok() && left > 0 {
            return Err(self.drain_timed_out(left));
        }
        outcome
    }

    fn drain_timed_out(&self, left: usize) -> Fault {
        let waited_s = self.delivery.drain_timeout.as_secs();
        Fault::new(
            Exit::Failed,
            "stop.unsettled",
            format!(
                "{left} events were not confirmed before the end (drain_timeout {waited_s} s); nothing is lost: they will be published again at the next start"
            ),
            "delivery.drain_timeout",
            "see why the broker does not answer, or raise delivery.drain_timeout",
        )
    }

    /// The final status, and the server's word that it has it: false without that.
    fn farewell(&mut self) -> bool {
        self.report(false);
        let Some(stream) = &mut self.stream else { return false };
        let deadline = Instant::now() + FAREWELL;
        let outcome = stream.say_done().map_err(StreamError::Io).and_then(|()| {
            while Instant::now() < deadline {
                stream.wait(Duration::from_millis(20))?;
                stream.fill(Instant::now())?;
                while let Some((_, length)) = stream.peek()? {
                    stream.consume(length);
                }
            }
            Ok(())
        });
        match &outcome {
            Err(StreamError::Ended) => tracing::debug!("the server has the final position"),
            Err(error) => tracing::debug!(error = %error, "the stream ended before its farewell"),
            Ok(()) => tracing::debug!("the server did not answer the end of the stream"),
        }
        self.stream = None;
        matches!(outcome, Err(StreamError::Ended))
    }

    /// Without a stream to report on, what the broker has confirmed since the last report would be
    /// published again by the next process.
    fn confirm_over_sql(&mut self, fault: Option<&Fault>) {
        // After a fault of the slot itself its positions may mean something else.
        if fault.is_some_and(|fault| fault.exit == Exit::Slot) {
            return;
        }
        let lsn = self.core.reportable();
        let Some(system_id) = self.sessions.system_id.clone() else { return };
        if lsn <= self.sessions.slot_floor {
            return;
        }
        let Sessions { timeline, own_pid, .. } = self.sessions;
        let position = ConfirmedPosition { lsn, system_id, timeline, own_pid };
        match self.sql_tasks.confirm(position) {
            Ok(()) => tracing::info!(confirmed = %lsn, "the slot has the final position"),
            Err(why) => tracing::warn!(
                confirmed = %lsn, why,
                "the final position could not be reported: what was confirmed since the last report is published again at the next start"
            ),
        }
    }

    /// Builds the next sink when it is time.
    pub(super) fn mind_sink(&mut self, now: Instant) -> Result<(), Fault> {
        if self.outlet.rebuild(now, &mut self.recorder)? {
            self.let_go = self.stream.is_some();
            self.disconnect();
            self.core.rewind();
        }
        Ok(())
    }
}
