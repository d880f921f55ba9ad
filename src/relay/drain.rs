//! How the relay ends, and how it goes on after its sink has lost track.

use std::time::{Duration, Instant};

use super::Relay;
use crate::error::{Exit, Fault};
use crate::health::Phase;
use crate::message::Sequence;
use crate::sink::{Disposition, Failure};
use crate::source::stream::StreamError;

/// How long the server may take to answer the end of the stream.
const FAREWELL: Duration = Duration::from_secs(2);
/// Waits before a new sink: the first, and the longest.
const REBUILD_WAIT: Duration = Duration::from_millis(500);

impl Relay {
    /// Finishes the open transaction, settles the window, sends the final LSN and awaits the
    /// server's answer. A fault that stops the relay still settles what was admitted before it.
    pub(super) fn drain(&mut self, outcome: Result<(), Fault>) -> Result<(), Fault> {
        self.phase = Phase::Draining;
        let deadline = Instant::now() + self.delivery.drain_timeout;
        let mut outcome = outcome;
        while Instant::now() < deadline {
            // Cut inside a transaction, its first part would be repeated by the next process. After
            // a fault there is no going on.
            let reading =
                outcome.is_ok() && self.stream.is_some() && !self.core.between_transactions();
            if !reading && (self.core.is_settled() || self.sink_rebuild_at.is_some()) {
                break;
            }
            let step = if reading { self.intake(Instant::now()) } else { Ok(false) };
            let step = step.and_then(|more| {
                self.collect(if more { Duration::ZERO } else { Duration::from_millis(2) })
            });
            self.feedback(Instant::now());
            self.publish_facts();
            outcome = outcome.and(step);
        }
        self.farewell();
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
                "{left} events were not confirmed within {waited_s} s; nothing is lost: they will be published again at the next start"
            ),
            "delivery.drain_timeout",
            "see why the broker does not answer, or raise delivery.drain_timeout",
        )
    }

    /// The final status, and the server's word that it has it.
    fn farewell(&mut self) {
        self.report(false);
        let Some(stream) = &mut self.stream else { return };
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
        match outcome {
            Err(StreamError::Ended) => tracing::debug!("the server has the final position"),
            Err(error) => tracing::debug!(error = %error, "the stream ended before its farewell"),
            Ok(()) => tracing::debug!("the server did not answer the end of the stream"),
        }
        self.stream = None;
    }

    /// One event was not published.
    pub(super) fn failed(&mut self, sequence: Sequence, failure: Failure) -> Result<(), Fault> {
        match failure.disposition {
            Disposition::Outage => {
                self.break_sink(&failure.reason);
                Ok(())
            }
            Disposition::Transient | Disposition::Terminal => {
                Err(self.core.halt(sequence, &failure))
            }
        }
    }

    /// Nothing more will be heard of what is in flight: it will be published again by a new sink,
    /// from the first event on that is not settled in order.
    pub(super) fn break_sink(&mut self, reason: &str) {
        if self.sink_rebuild_at.is_some() {
            return;
        }
        tracing::warn!(
            error = reason,
            in_flight = self.core.window.events(),
            "the sink lost track: building a new one"
        );
        self.sink_reachable = false;
        self.sink_rebuild_at = Some(Instant::now() + REBUILD_WAIT);
    }

    /// Builds the new sink when it is time.
    pub(super) fn mind_sink(&mut self, now: Instant) -> Result<(), Fault> {
        let Some(at) = self.sink_rebuild_at else { return Ok(()) };
        if now < at {
            return Ok(());
        }
        self.sink = (self.sink_factory)()?;
        self.sink_rebuild_at = None;
        self.sink_reachable = true;
        self.disconnect();
        self.core.rewind();
        Ok(())
    }
}
