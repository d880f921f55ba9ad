use walrelay_core::relay::ports::PassMeter as _;

use super::*;
use crate::metrics::{Ignored, KnownFrom, Outcome, Stage};

#[test]
fn a_pass_becomes_visible_when_it_is_flushed() {
    let metrics = Metrics::new();
    let mut meter = PassCounts::new(&metrics);
    // GIVEN two confirmed events, one of them committed by a clock ahead of ours
    meter.published(1_000_000, 1_004_000);
    meter.published(2_000_000, 1_999_000);
    meter.dead_lettered();
    meter.retried();
    meter.ignored(Ignored::Update);
    meter.known(KnownFrom::StateFile);
    meter.stage(Stage::Confirm, std::time::Duration::from_millis(2));
    assert_eq!(metrics.events.at(Outcome::Published).get(), 0);
    // WHEN the pass ends
    meter.flush();
    meter.flush();
    // THEN it is counted once
    assert_eq!(metrics.events.at(Outcome::Published).get(), 2);
    assert_eq!(metrics.events.at(Outcome::DeadLettered).get(), 1);
    assert_eq!(metrics.retries.get(), 1);
    assert_eq!(metrics.ignored_rows.at(Ignored::Update).get(), 1);
    assert_eq!(metrics.known_events.at(KnownFrom::StateFile).get(), 1);
    assert_eq!(metrics.stage_seconds.at(Stage::Confirm).get_sample_count(), 1);
    assert_eq!(metrics.publish_latency_seconds.get_sample_count(), 2);
    assert!((metrics.publish_latency_seconds.get_sample_sum() - 0.004).abs() < 1e-9);
    let text = metrics.render().unwrap();
    assert!(text.contains("outbox_publish_latency_seconds_bucket{le=\"0.0005\"} 1\n"));
    assert!(text.contains("outbox_publish_latency_seconds_bucket{le=\"0.005\"} 2\n"));
}
