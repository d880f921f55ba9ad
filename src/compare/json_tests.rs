use super::*;

#[test]
fn the_shape_is_the_one_that_is_promised() {
    let report = Report {
        runs: vec![
            Run { rate: 1000, latencies_us: vec![1000, 2000, 9000], ..Run::default() },
            Run { mode: Mode::Polling { interval_ms: 500 }, missing: 2, ..Run::default() },
        ],
        drains: vec![Drain { events: 11, seconds: 2.0, ..Drain::default() }],
        ..Report::default()
    };
    let value = to_json(&report);
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
    let report = Report { incomplete: Some(why.to_owned()), ..Report::default() };
    assert_eq!(to_json(&report)["incomplete"], why);
}
