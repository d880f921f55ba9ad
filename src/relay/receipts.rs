//! What the sink has to tell, and what follows from it.

use std::time::{Duration, Instant};

use super::{Relay, unix_now_us};
use crate::delivery::retry::Next;
use crate::error::Fault;
use crate::message::Sequence;
use crate::sink::{Disposition, Failure, News};

/// An outage whose reason changes is told of no more often than this.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// A broker that refuses many events is told of no more often than this.
const WARN_EVERY: Duration = Duration::from_secs(1);

impl Relay {
    /// Takes in what the sink has to tell.
    pub(super) fn collect(&mut self, patience: Duration) -> Result<(), Fault> {
        let Some(sink) = &mut self.sink else {
            std::thread::sleep(patience);
            return Ok(());
        };
        let mut news = std::mem::take(&mut self.news);
        sink.poll(patience, &mut news);
        let now_unix_us = if news.is_empty() { 0 } else { unix_now_us() };
        let (mut outcome, mut broken, mut confirmed) = (Ok(()), None, false);
        for item in news.drain(..) {
            match item {
                News::Confirmed(sequence) => {
                    self.settled_events += 1;
                    confirmed = true;
                    outcome = outcome.and(self.core.confirmed(sequence, now_unix_us));
                }
                News::Failed(sequence, failure) => match failure.disposition {
                    Disposition::Outage => broken = Some(failure.reason),
                    Disposition::Transient => {
                        outcome = outcome.and(self.try_again(sequence, &failure));
                    }
                    Disposition::Terminal => {
                        outcome = outcome.and(Err(self.core.halt(sequence, &failure, 1)));
                    }
                },
                News::Reachable => {
                    tracing::info!("the broker answers again");
                    self.sink_reachable = true;
                    (self.trouble, self.trouble_told) = (None, None);
                    self.recorder.note("");
                }
                News::Unreachable(reason) => {
                    self.sink_reachable = false;
                    self.recorder.note(&reason);
                    self.trouble = Some(reason);
                }
                News::Broken(reason) => broken = Some(reason),
            }
        }
        if confirmed {
            self.sink_backoff.succeeded();
        }
        self.tell_trouble();
        // An event that will never pass is told first: a new sink would only meet it again.
        if let Some(reason) = broken
            && outcome.is_ok()
        {
            self.break_sink(&reason);
        }
        self.news = news;
        outcome
    }

    /// Tells why events wait: at once, and again when the reason has changed, but not too often.
    fn tell_trouble(&mut self) {
        let Some(reason) = &self.trouble else { return };
        let told = self.trouble_told.as_ref();
        let quiet = told.is_some_and(|(at, text)| text == reason || at.elapsed() < TELL_EVERY);
        if !quiet {
            tracing::warn!(error = reason, "events wait for the broker");
            self.trouble_told = Some((Instant::now(), reason.clone()));
        }
    }

    /// The event's key waits for its next attempt; other keys flow.
    fn try_again(&mut self, sequence: Sequence, failure: &Failure) -> Result<(), Fault> {
        if !self.sink.as_ref().is_some_and(|sink| sink.keeps_failed()) {
            return Err(self.core.halt(sequence, failure, 1));
        }
        let now = Instant::now();
        match self.core.failed(sequence, now) {
            Next::Exhausted { attempts } => Err(self.core.halt(sequence, failure, attempts)),
            Next::Retry { attempts, wait } => {
                if self.warned_at.is_none_or(|at| now.duration_since(at) >= WARN_EVERY) {
                    self.warned_at = Some(now);
                    tracing::warn!(
                        class = failure.class,
                        subject = failure.subject,
                        attempts,
                        retry_in_ms = wait.as_millis() as u64,
                        "the broker refuses an event for now: {}; to mend it: {}",
                        failure.reason,
                        failure.mend
                    );
                }
                Ok(())
            }
        }
    }

    /// Publishes again what has waited long enough.
    pub(super) fn retry_due(&mut self, now: Instant) {
        let Some(sink) = &mut self.sink else { return };
        while let Some(sequence) = self.core.take_due(now) {
            sink.retry(sequence);
        }
    }
}
