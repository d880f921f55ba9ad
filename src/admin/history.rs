//! Memory of the last hour of the process, for plots and rates where no Prometheus is at hand.
//!
//! Counters are kept for the last seconds, samples for an hour; both are bounded, and the oldest goes
//! first. Nothing here reads a clock or a metric by itself.

use std::collections::VecDeque;

use serde::Serialize;

use super::status::count;
use crate::health::Pass;
use crate::metrics::{BucketCounts, Metrics, Outcome, Point};

/// A sample is taken with every fifth look; a look is taken each second.
pub(super) const LOOKS_PER_SAMPLE: usize = 5;
/// One hour.
const SAMPLES_MAX: usize = 720;
/// How many seconds `/status` takes its rates over.
const RATES_OVER_LOOKS: usize = 10;

/// The counters at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    /// Milliseconds since the process began.
    pub(super) at_ms: u64,
    pub(super) published: u64,
    pub(super) dead_lettered: u64,
    pub(super) retries: u64,
    pub(super) latency: BucketCounts,
}

impl Counters {
    pub(super) fn read(metrics: &Metrics, at_ms: u64) -> Counters {
        Counters {
            at_ms,
            published: metrics.events.at(Outcome::Published).get(),
            dead_lettered: metrics.events.at(Outcome::DeadLettered).get(),
            retries: metrics.retries.get(),
            latency: BucketCounts::read(&metrics.publish_latency_seconds),
        }
    }
}

/// The gauges at the moment of a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Gauges {
    /// Unix time in seconds.
    pub(super) at: i64,
    pub(super) state: &'static str,
    /// None where a table is polled, and while the slot is not read.
    pub(super) lag_bytes: Option<i64>,
    /// Where a table is polled, the age of its oldest row that is not published.
    pub(super) lag_seconds: Option<f64>,
    pub(super) in_flight: u64,
    pub(super) in_flight_limit: u64,
    pub(super) retained_wal_bytes: Option<i64>,
    /// None before the dead-letter topic was read.
    pub(super) dead_letters_open: Option<i64>,
}

impl Gauges {
    pub(super) fn read(metrics: &Metrics, pass: &Pass, has_slot: bool) -> Gauges {
        let of_slot = |bytes: f64| count(bytes).filter(|_| has_slot);
        let lag = if has_slot { &metrics.slot_lag_seconds } else { &metrics.backlog_age_seconds };
        Gauges {
            lag_bytes: of_slot(metrics.slot_lag_bytes.at(Point::Confirmed).get()),
            lag_seconds: Some(lag.get()).filter(|lag| lag.is_finite()).map(|lag| rounded(lag, 3)),
            in_flight: pass.in_flight_events,
            in_flight_limit: pass.in_flight_limit,
            retained_wal_bytes: of_slot(metrics.slot_retained_wal_bytes.get()),
            dead_letters_open: count(metrics.dlq_depth.get()),
            ..Gauges::default()
        }
    }
}

/// One line of `/history`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct HistorySample {
    #[serde(flatten)]
    pub(super) gauges: Gauges,
    pub(super) published_per_second: f64,
    pub(super) dead_lettered_per_second: f64,
    /// None where no event was published in the interval.
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) published_per_second: f64,
    pub(super) dead_lettered_per_second: f64,
    pub(super) retries_per_second: f64,
    pub(super) over_seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct LatencyMs {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

#[derive(Debug, Default)]
pub(super) struct History {
    /// The counters of the last looks, oldest first.
    recent: VecDeque<Counters>,
    samples: VecDeque<HistorySample>,
    looks: usize,
}

impl History {
    /// Takes in what is counted, and every [`LOOKS_PER_SAMPLE`] looks a sample.
    pub(super) fn look(&mut self, counters: Counters, gauges: impl FnOnce() -> Gauges) {
        keep(&mut self.recent, counters, RATES_OVER_LOOKS + 1);
        let is_due = self.looks.is_multiple_of(LOOKS_PER_SAMPLE);
        self.looks += 1;
        if !is_due {
            return;
        }
        let (rates, latency) = self.over(LOOKS_PER_SAMPLE);
        let sample = HistorySample {
            gauges: gauges(),
            published_per_second: rates.published_per_second,
            dead_lettered_per_second: rates.dead_lettered_per_second,
            p50_ms: latency.map(|latency| latency.p50),
            p99_ms: latency.map(|latency| latency.p99),
        };
        keep(&mut self.samples, sample, SAMPLES_MAX);
    }

    /// Rates and latency of the last seconds.
    pub(super) fn recent(&self) -> (Rates, Option<LatencyMs>) {
        self.over(RATES_OVER_LOOKS)
    }

    /// The samples that were taken after this Unix time, oldest first.
    pub(super) fn samples_since(&self, unix_seconds: i64) -> Vec<&HistorySample> {
        self.samples.iter().filter(|sample| sample.gauges.at > unix_seconds).collect()
    }

    /// Returns rates and latency over the last so many looks, or over as many as there
    /// are.
    fn over(&self, looks: usize) -> (Rates, Option<LatencyMs>) {
        let earlier = self.recent.len().saturating_sub(looks + 1);
        match (self.recent.get(earlier), self.recent.back()) {
            (Some(earlier), Some(now)) => between(earlier, now),
            _ => Default::default(),
        }
    }
}

fn between(earlier: &Counters, now: &Counters) -> (Rates, Option<LatencyMs>) {
    let elapsed_ms = now.at_ms.saturating_sub(earlier.at_ms);
    let per_second = |now: u64, earlier: u64| match elapsed_ms {
        0 => 0.0,
        _ => rounded(now.saturating_sub(earlier) as f64 * 1e3 / elapsed_ms as f64, 2),
    };
    let rates = Rates {
        published_per_second: per_second(now.published, earlier.published),
        dead_lettered_per_second: per_second(now.dead_lettered, earlier.dead_lettered),
        retries_per_second: per_second(now.retries, earlier.retries),
        over_seconds: (elapsed_ms + 500) / 1_000,
    };
    let interval = now.latency.since(&earlier.latency);
    let ms = |quantile| interval.quantile(quantile).map(|seconds| rounded(seconds * 1e3, 3));
    let latency = ms(0.5).zip(ms(0.99)).map(|(p50, p99)| LatencyMs { p50, p99 });
    (rates, latency)
}

fn keep<T>(ring: &mut VecDeque<T>, item: T, items_max: usize) {
    if ring.len() == items_max {
        ring.pop_front();
    }
    ring.push_back(item);
}

fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
