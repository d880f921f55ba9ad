use super::*;

#[test]
fn patience_grows_with_the_interval_and_the_relays_own() {
    let second = Duration::from_secs(1);
    assert_eq!(patience(CaptureMode::Cdc, second), PATIENCE_MIN);
    assert_eq!(patience(CaptureMode::Polling { interval_ms: 100 }, second), PATIENCE_MIN);
    assert_eq!(patience(CaptureMode::Polling { interval_ms: 5000 }, second), second * 15);
    assert_eq!(patience(CaptureMode::Cdc, second * 30), second * 35);
}

#[test]
fn cpu_time_is_that_of_the_run_and_memory_that_of_the_process() {
    let cost = |cpu_s, rss_peak_bytes| RelayCost { cpu_s, rss_peak_bytes };
    assert_eq!(less(cost(2.5, 90), cost(1.0, 80)), cost(1.5, 90));
}
