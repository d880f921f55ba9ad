use super::*;

fn plan(rates: &str, intervals: &str, duration: &str) -> Result<ComparisonPlan, Vec<Fault>> {
    ComparisonPlan::read(rates, intervals, duration, 100)
}

#[test]
fn lists_are_read_in_order_and_each_item_once() {
    let plan = plan("100, 1000,100", "2s,500ms", "1m30s").unwrap();
    assert_eq!(plan.rates, [100, 1000]);
    assert_eq!(plan.intervals_ms, [2000, 500]);
    assert_eq!(plan.duration, Duration::from_secs(90));
    let modes: Vec<String> = plan.modes().into_iter().map(CaptureMode::name).collect();
    assert_eq!(modes, ["CDC", "polling 2 s", "polling 500 ms"]);
    assert_eq!(plan.drains(), [CaptureMode::Cdc, CaptureMode::Polling { interval_ms: 2000 }]);
}

#[test]
fn without_intervals_the_slot_is_measured_alone() {
    let plan = ComparisonPlan::read("5", "none", "10s", 0).unwrap();
    assert_eq!(plan.modes(), [CaptureMode::Cdc]);
    assert_eq!(plan.drains(), []);
    assert_eq!(plan.length(), Duration::from_millis(2000 + 10_000 + 1500));
}

#[test]
fn every_bad_value_is_told_at_once() {
    let faults = plan("0,x", "500", "30").unwrap_err();
    let places: Vec<&str> = faults.iter().map(|fault| fault.place.as_str()).collect();
    assert_eq!(places, ["--rates", "--intervals", "--duration"]);
    assert!(faults[0].what.contains("\"0\""), "{}", faults[0].what);
    for (rates, intervals, duration) in [
        ("", "1s", "30s"),
        ("100,", "1s", "30s"),
        ("100001", "1s", "30s"),
        ("1.5", "1s", "30s"),
        ("100", "", "30s"),
        ("100", "0ms", "30s"),
        ("100", "2h", "30s"),
        ("100", "1s", "999ms"),
        ("100", "1s", "25h"),
    ] {
        let faults = plan(rates, intervals, duration).unwrap_err();
        assert_eq!(faults.len(), 1, "{rates} {intervals} {duration}");
        assert_eq!(faults[0].exit, Exit::Usage);
    }
}

#[test]
fn what_will_happen_is_told_before_it_does() {
    let plan = ComparisonPlan::read("100,1000", "500ms", "30s", 20_000).unwrap();
    assert_eq!(
        plan.announcement(),
        "CDC, polling 500 ms at 100, 1000 events/s: 4 runs of 30s, 2 drains of 20000 events, one after the other; about 3 min"
    );
    let plan = ComparisonPlan::read("5", "none", "10s", 0).unwrap();
    assert_eq!(
        plan.announcement(),
        "CDC at 5 events/s: 1 run of 10s, one after the other; about 14 s"
    );
}
