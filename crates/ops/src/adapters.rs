//! Metrics and facts, as the loop writes them.

use std::time::{Duration, Instant};

use prometheus::local::{LocalHistogram, LocalIntCounter};
use walrelay_core::relay::ports::{Counter, Gauge, Meters, PassMeter, Recorder};

use crate::health::{FactsWriter, Pass};
use crate::metrics::{Ignored, KnownFrom, LabelSet as _, Metrics, Outcome, Stage};
use walrelay_base::lsn::Lsn;

impl Meters for Metrics {
    fn count(&self, counter: Counter, by: u64) {
        let counter = match counter {
            Counter::DeadLettered => &self.dlq_published,
            Counter::RetryExhausted => &self.retry_exhaustions,
            Counter::UnknownAnswer => &self.unknown_errors,
            Counter::DeadLetterRefused => &self.dlq_publish_failed,
            Counter::HeaderDropped => &self.headers_dropped,
            Counter::Reconnect => &self.source_reconnects,
        };
        counter.inc_by(by);
    }

    fn set(&self, gauge: Gauge, value: u64) {
        let gauge = match gauge {
            Gauge::BreakerOpen => &self.dlq_breaker_open,
            Gauge::ParkedKeys => &self.dlq_parked_keys,
            Gauge::InFlightEvents => &self.in_flight_events,
            Gauge::InFlightBytes => &self.in_flight_bytes,
            Gauge::InFlightLimit => &self.in_flight_limit,
            Gauge::Connected => &self.connected,
        };
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    }
}

/// The counters of the data thread within one pass of its loop: without atomics, and visible once they are flushed.
#[derive(Debug)]
pub struct PassCounts {
    latency: LocalHistogram,
    stages: Vec<LocalHistogram>,
    outcomes: Vec<LocalIntCounter>,
    known: Vec<LocalIntCounter>,
    ignored: Vec<LocalIntCounter>,
    retries: LocalIntCounter,
}

impl PassCounts {
    pub fn new(metrics: &Metrics) -> PassCounts {
        PassCounts {
            latency: metrics.publish_latency_seconds.local(),
            stages: metrics.stage_seconds.iter().map(|(_, stage)| stage.local()).collect(),
            outcomes: metrics.events.iter().map(|(_, counter)| counter.local()).collect(),
            known: metrics.known_events.iter().map(|(_, counter)| counter.local()).collect(),
            ignored: metrics.ignored_rows.iter().map(|(_, counter)| counter.local()).collect(),
            retries: metrics.retries.local(),
        }
    }
}

impl PassMeter for PassCounts {
    /// A commit time ahead of this clock counts as no latency, and 0 is that of a polled row without a time.
    fn published(&mut self, commit_unix_us: i64, now_unix_us: i64) {
        if commit_unix_us != 0 {
            let latency_us = now_unix_us.saturating_sub(commit_unix_us).max(0);
            self.latency.observe(latency_us as f64 / 1e6);
        }
        self.outcomes[Outcome::Published.index()].inc();
    }

    fn dead_lettered(&mut self) {
        self.outcomes[Outcome::DeadLettered.index()].inc();
    }

    fn known(&mut self, from: KnownFrom) {
        self.known[from.index()].inc();
    }

    fn retried(&mut self) {
        self.retries.inc();
    }

    fn ignored(&mut self, why: Ignored) {
        self.ignored[why.index()].inc();
    }

    fn stage(&mut self, stage: Stage, spent: Duration) {
        self.stages[stage.index()].observe(spent.as_secs_f64());
    }

    fn flush(&mut self) {
        self.latency.flush();
        self.stages.iter().for_each(LocalHistogram::flush);
        self.outcomes.iter().for_each(LocalIntCounter::flush);
        self.known.iter().for_each(LocalIntCounter::flush);
        self.ignored.iter().for_each(LocalIntCounter::flush);
        self.retries.flush();
    }
}

/// The facts, whose times count from an origin.
pub struct FactsRecorder {
    pub recorder: FactsWriter,
    pub origin: Instant,
}

impl Recorder for FactsRecorder {
    fn pass(&mut self, pass: &Pass, now: Instant) {
        let since = now.saturating_duration_since(self.origin);
        let now_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.recorder.pass(pass, now_ms);
    }

    fn note(&mut self, sentence: &str) {
        self.recorder.note(sentence);
    }

    fn server_lsn(&self) -> Lsn {
        self.recorder.server_lsn()
    }
}

#[cfg(test)]
#[path = "adapters_tests.rs"]
mod tests;
