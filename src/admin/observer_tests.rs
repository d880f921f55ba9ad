use serde_json::Value;

use super::super::tests::{get, stage, streaming};
use super::*;
use crate::health::Pass;

/// The JSON that a path answers, once it is as wanted.
fn wait_for(path: &str, addr: std::net::SocketAddr, wanted: impl Fn(&Value) -> bool) -> Value {
    let looks = std::iter::repeat_with(|| {
        std::thread::park_timeout(LOOK_EVERY / 10);
        serde_json::from_str(&get(addr, path).1).unwrap()
    });
    let found = looks.take(200).find(wanted);
    found.unwrap_or_else(|| panic!("{path}: {}", get(addr, path).1))
}

#[test]
fn the_history_has_a_sample_of_what_happens_and_can_be_asked_for_what_is_new() {
    let mut stage = stage();
    let samples = |history: &Value| history["samples"].as_array().unwrap().clone();
    let first = wait_for("/history", stage.addr, |history| !samples(history).is_empty());
    assert_eq!(first["interval_seconds"], 5);
    assert_eq!((samples(&first).len(), &samples(&first)[0]["in_flight"]), (1, &0.into()));
    // WHEN more is in flight THEN the next sample has it, and what was seen before is not sent again
    stage.recorder.pass(&Pass { in_flight_events: 7, ..streaming() }, 0);
    let since = samples(&first)[0]["at"].as_i64().unwrap();
    let path = format!("/history?since={since}");
    let newer = wait_for(&path, stage.addr, |history| !samples(history).is_empty());
    assert_eq!(samples(&newer)[0]["in_flight"], 7);
    assert!(samples(&newer)[0]["at"].as_i64().unwrap() > since, "{newer}");
    // THEN what is no time is refused
    for wrong in ["since=", "since=yesterday", "until=1"] {
        let (code, body) = get(stage.addr, &format!("/history?{wrong}"));
        assert_eq!(code, 400);
        assert!(body.contains("/history?since=SECONDS"), "{body}");
    }
}

#[test]
fn the_rates_of_status_are_of_what_was_published() {
    let stage = stage();
    let first = wait_for("/status", stage.addr, |status| status["rates"]["over_seconds"] == 0);
    assert_eq!(first["latency_ms"], Value::Null);
    // GIVEN a look before anything was published
    wait_for("/history", stage.addr, |history| history["samples"][0].is_object());
    // WHEN events are published, while the clock moves on
    stage.metrics.events.at(crate::metrics::Outcome::Published).inc_by(50);
    stage.metrics.publish_latency_seconds.observe(0.0015);
    stage.now_ms.store(10_000, std::sync::atomic::Ordering::Relaxed);
    let is_seen = |status: &Value| status["rates"]["published_per_second"] == 5.0;
    let status = wait_for("/status", stage.addr, is_seen);
    assert_eq!(status["rates"]["over_seconds"], 10, "{status}");
    assert_eq!(status["latency_ms"]["p50"], 1.5, "{status}");
}
