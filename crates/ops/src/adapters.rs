//! Metrics and facts, as the loop writes them.

use std::time::{Duration, Instant};

use walrelay_core::relay::ports::{self, Counter, Gauge, Meters};

use crate::health::{FactsWriter, Pass};
use crate::metrics::{Ignored, KnownFrom, Metrics, PassCounts, Stage};
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

/// The meter of the data thread, with the metrics that it adds to.
pub struct DataMeter(pub PassCounts);

impl ports::PassMeter for DataMeter {
    fn published(&mut self, commit_unix_us: i64, now_unix_us: i64) {
        self.0.published(commit_unix_us, now_unix_us);
    }

    fn dead_lettered(&mut self) {
        self.0.dead_lettered();
    }

    fn known(&mut self, from: KnownFrom) {
        self.0.known(from);
    }

    fn retried(&mut self) {
        self.0.retried();
    }

    fn ignored(&mut self, why: Ignored) {
        self.0.ignored(why);
    }

    fn stage(&mut self, stage: Stage, spent: Duration) {
        self.0.stage(stage, spent);
    }

    fn flush(&mut self) {
        self.0.flush();
    }
}

/// The facts, whose times count from an origin.
pub struct FactsRecorder {
    pub recorder: FactsWriter,
    pub origin: Instant,
}

impl ports::Recorder for FactsRecorder {
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
