//! Owns a sink: polls it, drops it when it has broken, builds the next one, and knows whether the
//! broker takes events and when it last did. The loop has one, and so has a replay of dead letters.

use std::time::{Duration, Instant};

use crate::base::backoff::Backoff;
use crate::base::error::Fault;
use crate::sink::{Sink, SinkReport};

/// Builds a sink; called again when one has broken.
pub type SinkFactory = Box<dyn FnMut() -> Result<Box<dyn Sink>, Fault> + Send>;

/// A new sink is never built without a pause.
const REBUILD_WAIT_MIN: Duration = Duration::from_millis(100);
/// An outage whose reason changes is logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(10);

pub struct SinkDriver {
    /// None between a sink that has broken and the next.
    pub sink: Option<Box<dyn Sink>>,
    /// None where a sink that has broken ends the work.
    next: Option<NextSink>,
    reports: Vec<SinkReport>,
    /// Events of which the event itself or its dead letter was confirmed.
    pub settled_events: u64,
    settled_at: Instant,
    broken: bool,
    outage: Option<Outage>,
    /// When an outage was last logged, and its reason then.
    logged: Option<(Instant, String)>,
}

/// How and when the next sink is built.
struct NextSink {
    factory: SinkFactory,
    due_at: Instant,
    backoff: Backoff,
}

impl NextSink {
    fn delay(&mut self, now: Instant) -> Duration {
        let delay = self.backoff.next_delay().max(REBUILD_WAIT_MIN);
        self.due_at = now + delay;
        delay
    }
}

/// Why events wait for the broker.
struct Outage {
    reason: String,
    is_login_refused: bool,
    /// Only the dead-letter topic cannot be written: a confirmed dead letter ends it.
    dead_letters_only: bool,
}

impl SinkDriver {
    pub fn open(
        mut factory: SinkFactory,
        backoff: Backoff,
        now: Instant,
    ) -> Result<SinkDriver, Fault> {
        let driver = SinkDriver::of(factory()?, now);
        Ok(SinkDriver { next: Some(NextSink { factory, due_at: now, backoff }), ..driver })
    }

    /// Makes the driver of one sink, behind which no other is built.
    pub fn of(sink: Box<dyn Sink>, now: Instant) -> SinkDriver {
        SinkDriver {
            sink: Some(sink),
            next: None,
            reports: Vec::new(),
            settled_events: 0,
            settled_at: now,
            broken: false,
            outage: None,
            logged: None,
        }
    }

    /// Fingerprint of the broker; zero if there is no sink, or it is not known.
    pub fn broker(&mut self) -> u64 {
        self.sink.as_mut().map_or(0, |sink| sink.broker())
    }

    /// The sink's reports; waits at most `timeout` for the
    /// first. [`SinkDriver::done`] takes the buffer back.
    pub fn poll(&mut self, timeout: Duration, now: Instant) -> Vec<SinkReport> {
        let mut reports = std::mem::take(&mut self.reports);
        if let Some(sink) = &mut self.sink {
            sink.poll(now, timeout, &mut reports);
        }
        reports
    }

    /// Polls the sink for its connection's sake: its reports are those of the next poll.
    pub fn keep_alive(&mut self, now: Instant) {
        self.reports = self.poll(Duration::ZERO, now);
    }

    pub fn done(&mut self, buffer: Vec<SinkReport>, confirmed: bool, now: Instant) {
        self.reports = buffer;
        if let Some(next) = self.next.as_mut().filter(|_| confirmed) {
            next.backoff.succeeded();
        }
        self.log_outage(now);
    }

    /// The broker has an event or its dead letter.
    #[inline]
    pub fn settled(&mut self, now: Instant) {
        self.settled_events += 1;
        self.settled_at = now;
    }

    /// For how long the broker has confirmed nothing, counted from `since` or later.
    pub fn silence(&self, since: Instant, now: Instant) -> Duration {
        now.saturating_duration_since(self.settled_at.max(since))
    }

    pub fn is_reachable(&self) -> bool {
        !self.broken && self.outage.is_none()
    }

    /// Whether events are published. They are, too, while a dead letter cannot be written.
    pub fn takes_events(&self) -> bool {
        self.is_reachable() || self.has_dead_letter_outage()
    }

    /// Whether a dead letter cannot be written, while other events are published.
    pub fn has_dead_letter_outage(&self) -> bool {
        !self.broken && self.outage.as_ref().is_some_and(|outage| outage.dead_letters_only)
    }

    /// Why events wait for the broker; empty when they do not.
    pub fn outage(&self) -> &str {
        self.outage.as_ref().map_or("", |outage| &outage.reason)
    }

    /// Events wait from now on; returns why.
    pub fn unreachable(&mut self, reason: String) -> &str {
        self.wait(Outage { reason, is_login_refused: false, dead_letters_only: false })
    }

    fn wait(&mut self, outage: Outage) -> &str {
        self.outage = Some(outage);
        self.outage()
    }

    /// The broker does not accept user or password.
    pub fn login_refused(&mut self, reason: String) -> &str {
        self.wait(Outage { reason, is_login_refused: true, dead_letters_only: false })
    }

    pub fn is_login_refused(&self) -> bool {
        self.outage.as_ref().is_some_and(|outage| outage.is_login_refused)
    }

    /// A dead letter cannot be written for now.
    pub fn dead_letter_delayed(&mut self, reason: &str) -> &str {
        let reason = format!("a dead letter cannot be written: {reason}");
        self.wait(Outage { reason, is_login_refused: false, dead_letters_only: true })
    }

    /// True if that ends the outage.
    pub fn dead_letter_confirmed(&mut self) -> bool {
        let ends = self.outage.as_ref().is_some_and(|outage| outage.dead_letters_only);
        if ends {
            self.reachable();
        }
        ends
    }

    /// The outage is over. If the same one returns, it is logged again.
    pub fn reachable(&mut self) {
        (self.broken, self.outage, self.logged) = (false, None, None);
    }

    /// Logs why events wait: at once, and again when the reason has changed. Work that ends with its
    /// sink ends with the reason.
    fn log_outage(&mut self, now: Instant) {
        let Some(Outage { reason, .. }) = self.outage.as_ref().filter(|_| self.next.is_some())
        else {
            return;
        };
        let logged = self.logged.as_ref();
        if logged.is_none_or(|(at, text)| {
            text != reason && now.saturating_duration_since(*at) >= LOG_EVERY
        }) {
            tracing::warn!(code = "sink.outage", error = %reason, "events wait for the broker");
            self.logged = Some((now, reason.clone()));
        }
    }

    /// Drops a sink that can no longer report what became of events in flight: a new one will
    /// publish again what is not confirmed. The old one ends at once, because it could go on with
    /// later events of a key.
    pub fn break_sink(&mut self, reason: &str, in_flight: usize, now: Instant) {
        if self.sink.take().is_none() {
            return;
        }
        self.broken = true;
        let Some(next) = &mut self.next else { return };
        let delay = next.delay(now);
        tracing::warn!(
            code = "sink.rebuilt",
            error = reason,
            in_flight,
            retry_in_ms = delay.as_millis() as u64,
            "the sink no longer knows what is in flight: building a new one"
        );
    }

    /// Drops the sink with what it holds, because another process may publish the same events. That
    /// is no failure: no attempt is counted, and the next sink is built at once. Returns what the
    /// sink knew to be confirmed.
    pub fn withdraw(&mut self, reason: &str, in_flight: usize, now: Instant) -> Vec<SinkReport> {
        let mut reports = Vec::new();
        if let Some(mut sink) = self.sink.take() {
            sink.withdraw(now, &mut reports);
            tracing::warn!(
                code = "sink.withdrawn",
                reason,
                in_flight,
                "what is in flight is withdrawn: it is published again only with the slot, or the rows, in hand"
            );
        }
        reports
    }

    /// Whether the next sink is to be built now.
    pub fn awaits_sink(&self, now: Instant) -> bool {
        self.sink.is_none() && self.next.as_ref().is_some_and(|next| now >= next.due_at)
    }

    /// Builds the next sink. True when there is a new one: then everything that is not settled must
    /// be published again.
    pub fn rebuild(&mut self, now: Instant) -> Result<bool, Fault> {
        let Some(next) = &mut self.next else { return Ok(false) };
        match (next.factory)() {
            Ok(sink) => self.sink = Some(sink),
            // As a file that is missing while the volume is replaced.
            Err(fault) if fault.may_pass => {
                next.delay(now);
                self.unreachable(format!("{} ({})", fault.what, fault.place));
                return Ok(false);
            }
            Err(fault) => return Err(fault),
        }
        self.reachable();
        Ok(true)
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
