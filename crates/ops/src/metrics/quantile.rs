//! Quantiles of what a histogram has observed within an interval, for those who have no Prometheus.

use prometheus::Histogram;
use prometheus::core::Metric as _;

/// How much a histogram has observed, by bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BucketCounts {
    /// The upper bound of each bucket, and how much was observed up to it.
    buckets: Vec<(f64, u64)>,
    /// With what is above the last bound.
    total: u64,
}

impl BucketCounts {
    pub fn read(histogram: &Histogram) -> BucketCounts {
        let metric = histogram.metric();
        let read = metric.get_histogram();
        let buckets = read.get_bucket().iter();
        BucketCounts {
            buckets: buckets.map(|it| (it.upper_bound(), it.cumulative_count())).collect(),
            total: read.get_sample_count(),
        }
    }

    /// The counts that were observed since `earlier`, a reading of the same histogram.
    pub fn since(&self, earlier: &BucketCounts) -> BucketCounts {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        BucketCounts {
            buckets: pairs.map(|((le, now), (_, then))| (*le, now.saturating_sub(*then))).collect(),
            total: self.total.saturating_sub(earlier.total),
        }
    }

    /// The quantile as `histogram_quantile` of Prometheus computes it: a bucket's observations count
    /// as spread evenly, and what is above the last bound counts as being there. None without any.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        if self.total == 0 {
            return None;
        }
        let rank = quantile * self.total as f64;
        let (mut lower, mut below) = (0.0, 0);
        for &(upper, up_to) in &self.buckets {
            if up_to as f64 >= rank && up_to > below {
                let share = (rank - below as f64) / (up_to - below) as f64;
                return Some(lower + (upper - lower) * share);
            }
            (lower, below) = (upper, up_to);
        }
        Some(lower)
    }
}

#[cfg(test)]
#[path = "quantile_tests.rs"]
mod tests;
