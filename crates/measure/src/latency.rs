//! Latencies and their percentiles.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;

/// Latencies in microseconds, each of them kept: a percentile is a value that occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies(Vec<u32>);

/// The usual points of a distribution in milliseconds; 0 without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub samples: u64,
}

impl Latencies {
    /// Adds one latency. A negative one, after a step of the clock, counts as 0; the longest is 71 minutes.
    pub fn record_us(&mut self, latency_us: i64) {
        self.0.push(u32::try_from(latency_us.max(0)).unwrap_or(u32::MAX));
    }

    pub fn record(&mut self, latency: Duration) {
        self.record_us(i64::try_from(latency.as_micros()).unwrap_or(i64::MAX));
    }

    pub fn merge(&mut self, other: &Latencies) {
        self.0.extend(&other.0);
    }

    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The latencies that these shares (0 to 1) of the samples did not exceed, in milliseconds; none without samples.
    pub fn quantiles_ms<const N: usize>(&self, shares: [f64; N]) -> Option<[f64; N]> {
        let mut micros = Cow::Borrowed(self.0.as_slice());
        if !micros.is_sorted() {
            micros.to_mut().sort_unstable();
        }
        let last = micros.len().checked_sub(1)?;
        Some(shares.map(|share| {
            let rank = (share * micros.len() as f64).ceil() as usize;
            f64::from(micros[rank.saturating_sub(1).min(last)]) / 1000.0
        }))
    }

    pub fn quantile_ms(&self, share: f64) -> Option<f64> {
        self.quantiles_ms([share]).map(|[value]| value)
    }

    pub fn percentiles(&self) -> Percentiles {
        let points = self.quantiles_ms([0.5, 0.95, 0.99, 1.0]).unwrap_or_default();
        let [p50_ms, p95_ms, p99_ms, max_ms] = points;
        Percentiles { p50_ms, p95_ms, p99_ms, max_ms, samples: self.count() }
    }
}

impl FromIterator<u32> for Latencies {
    /// Collects microseconds; sorted once, so that each percentile is a look-up.
    fn from_iter<I: IntoIterator<Item = u32>>(micros: I) -> Latencies {
        let mut micros: Vec<u32> = micros.into_iter().collect();
        micros.sort_unstable();
        Latencies(micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_occurred() {
        let mut latencies = Latencies::default();
        (1..=100).rev().for_each(|ms| latencies.record_us(ms * 1000));
        let points = latencies.percentiles();
        let shown = (points.p50_ms, points.p95_ms, points.p99_ms, points.max_ms, points.samples);
        assert_eq!(shown, (50.0, 95.0, 99.0, 100.0, 100));
        let sorted: Latencies = [3000, 1000, 2000].into_iter().collect();
        assert_eq!(sorted.quantiles_ms([0.0, 0.5, 1.0]), Some([1.0, 2.0, 3.0]));
        assert_eq!(Latencies::default().quantile_ms(0.5), None);
        assert_eq!(Latencies::default().percentiles(), Percentiles::default());
    }

    #[test]
    fn steps_of_the_clock_and_hours_are_kept() {
        let mut latencies = Latencies::default();
        latencies.record_us(-5);
        latencies.record(Duration::MAX);
        let mut sum = Latencies::default();
        sum.merge(&latencies);
        assert_eq!(sum.count(), 2);
        assert_eq!(sum.quantiles_ms([0.0, 1.0]), Some([0.0, f64::from(u32::MAX) / 1000.0]));
    }
}
