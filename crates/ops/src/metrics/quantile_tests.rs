use prometheus::HistogramOpts;

use super::*;

fn histogram() -> Histogram {
    let buckets = vec![0.1, 0.2, 0.4, 0.8];
    Histogram::with_opts(HistogramOpts::new("seconds", "Of a test.").buckets(buckets)).unwrap()
}

fn is_near(found: Option<f64>, wanted: f64) -> bool {
    found.is_some_and(|found| (found - wanted).abs() < 1e-9)
}

#[test]
fn a_quantile_lies_within_its_bucket_as_prometheus_interpolates() {
    // GIVEN 10 observations up to 0.1, 80 up to 0.2, 10 up to 0.4
    let histogram = histogram();
    for (value, times) in [(0.05, 10), (0.15, 80), (0.3, 10)] {
        (0..times).for_each(|_| histogram.observe(value));
    }
    let counts = BucketCounts::read(&histogram);
    // THEN rank 50 is 40 of the 80 observations that the second bucket has
    assert!(is_near(counts.quantile(0.5), 0.15), "{counts:?}");
    assert!(is_near(counts.quantile(0.99), 0.38), "{counts:?}");
    assert!(is_near(counts.quantile(0.05), 0.05), "{counts:?}");
    assert!(is_near(counts.quantile(0.1), 0.1), "{counts:?}");
    assert!(is_near(counts.quantile(1.0), 0.4), "{counts:?}");
}

#[test]
fn what_is_above_the_last_bound_counts_as_being_there() {
    let histogram = histogram();
    histogram.observe(0.05);
    (0..9).for_each(|_| histogram.observe(70.0));
    let counts = BucketCounts::read(&histogram);
    assert!(is_near(counts.quantile(0.5), 0.8), "{counts:?}");
    assert!(is_near(counts.quantile(0.99), 0.8), "{counts:?}");
}

#[test]
fn only_the_interval_counts() {
    let histogram = histogram();
    (0..1_000).for_each(|_| histogram.observe(0.05));
    let earlier = BucketCounts::read(&histogram);
    // GIVEN an interval without an observation THEN there is no quantile
    assert_eq!(BucketCounts::read(&histogram).since(&earlier).quantile(0.5), None);
    // WHEN one comes THEN those before do not count
    histogram.observe(0.5);
    let interval = BucketCounts::read(&histogram).since(&earlier);
    assert!(is_near(interval.quantile(0.5), 0.6), "{interval:?}");
    assert_eq!(BucketCounts::default().quantile(0.5), None);
}
