use super::*;
use serde_json::Value;

fn result(mode: CaptureMode) -> RunResult {
    RunResult { mode, ..RunResult::default() }
}

#[test]
fn a_load_that_reaches_a_moment_into_another_second_is_not_called_slower() {
    let second = |written, delivered| Second { written, delivered, ..Second::default() };
    let mut run = Run { written_per_second: 99.9, ..Run::default() };
    run.result.events = 300;
    run.seconds = vec![second(100, 98), second(100, 100), second(100, 100), second(0, 2)];
    assert!((run.delivered_per_second() - 298.0 / 3.0).abs() < 0.01);
    assert_eq!(Run::default().delivered_per_second(), 0.0);
}

#[test]
fn the_slot_comes_first_then_the_shortest_interval() {
    let polling = |interval_ms| CaptureMode::Polling { interval_ms };
    let modes = [polling(500), polling(20), CaptureMode::Cdc];
    let run = |mode| Run { result: result(mode), ..Run::default() };
    let report = ComparisonReport { runs: modes.map(run).into(), ..ComparisonReport::default() };
    let names: Vec<String> =
        report.by_rate()[0].runs.iter().map(|run| run.result.mode.name()).collect();
    assert_eq!(names, ["CDC", "polling 20 ms", "polling 500 ms"]);
}

#[test]
fn the_shape_is_the_one_that_is_promised() {
    let losses = EventCounts { missing: 2, ..EventCounts::default() };
    let polling = RunResult { losses, ..result(CaptureMode::Polling { interval_ms: 500 }) };
    let drained = RunResult { events: 11, ..RunResult::default() };
    let report = ComparisonReport {
        runs: vec![
            Run {
                rate: 1000,
                latencies: [9000, 1000, 2000].into_iter().collect(),
                ..Run::default()
            },
            Run { result: polling, ..Run::default() },
        ],
        drains: vec![Drain { result: drained, seconds: 2.0, ..Drain::default() }],
        ..ComparisonReport::default()
    };
    let value = report.to_json();
    let runs = &value["runs"];
    assert_eq!(runs[0]["mode"], "cdc");
    assert_eq!(runs[0].get("interval_ms"), None);
    assert_eq!(runs[0]["rate"], 1000);
    assert_eq!(runs[0]["latency_ms"]["p50"], 2.0);
    for name in ["p90", "p95", "p99", "p999", "max"] {
        assert_eq!(runs[0]["latency_ms"][name], 9.0, "{name}");
    }
    assert_eq!(runs[0]["duplicated"], 0);
    // Unknown is not nothing.
    assert!(runs[0]["postgres"]["cpu_s"].is_null());
    assert_eq!(runs[1]["mode"], "polling");
    assert_eq!(runs[1]["interval_ms"], 500);
    assert_eq!(runs[1]["missing"], 2);
    assert_eq!(value["drains"][0]["mode"], "cdc");
    assert_eq!(value.get("incomplete"), Some(&Value::Null));
    assert_eq!(value["drains"][0]["per_second"], 5.0);
}

#[test]
fn a_report_that_was_cut_short_says_why() {
    let why = "1 of 2 runs and 0 of 2 drains were finished: the broker is gone";
    let report =
        ComparisonReport { incomplete: Some(why.to_owned()), ..ComparisonReport::default() };
    assert_eq!(report.to_json()["incomplete"], why);
}
