use super::*;

/// Counters after so many seconds, of a process that publishes `rate` events a second.
fn counters(second: u64, rate: u64) -> Counters {
    Counters { at_ms: second * 1_000, published: second * rate, ..Counters::default() }
}

/// Unix time of second 0.
const BEGAN_AT: i64 = 1_764_000_000;

fn gauges(second: u64) -> Gauges {
    Gauges { at: BEGAN_AT + second as i64, state: "streaming", ..Gauges::default() }
}

/// A history that has looked once a second, from second 0 on.
fn history(seconds: u64, rate: u64) -> History {
    let mut history = History::default();
    for second in 0..seconds {
        history.look(counters(second, rate), || gauges(second));
    }
    history
}

#[test]
fn a_sample_is_taken_with_every_fifth_look_over_what_lies_between() {
    let history = history(11, 7);
    let samples = |since: i64| -> Vec<(i64, f64)> {
        let samples = history.samples_since(since).into_iter();
        samples.map(|it| (it.gauges.at - BEGAN_AT, it.published_per_second)).collect()
    };
    // THEN the first, which has nothing before it, has no rate
    assert_eq!(samples(i64::MIN), [(0, 0.0), (5, 7.0), (10, 7.0)]);
    // THEN those after a time can be had alone
    assert_eq!(samples(BEGAN_AT + 4), [(5, 7.0), (10, 7.0)]);
    assert_eq!(samples(BEGAN_AT + 5), [(10, 7.0)]);
    assert_eq!(samples(BEGAN_AT + 10), []);
}

#[test]
fn only_the_last_hour_is_kept_oldest_first() {
    let history = history(2 * 3_600, 1);
    let samples = history.samples_since(i64::MIN);
    assert_eq!(samples.len(), 720);
    let at = |sample: Option<&&HistorySample>| sample.unwrap().gauges.at - BEGAN_AT;
    assert_eq!((at(samples.first()), at(samples.last())), (3_600, 7_195));
    assert_eq!(history.recent.len(), 11);
}

#[test]
fn rates_are_those_of_the_last_ten_seconds_or_of_as_many_as_there_were() {
    assert_eq!(History::default().recent(), (Rates::default(), None));
    let three = history(4, 5).recent().0;
    assert_eq!((three.published_per_second, three.over_seconds), (5.0, 3));
    // WHEN it publishes nothing for ten seconds after a minute THEN the minute is forgotten
    let mut history = history(60, 100);
    for second in 60..71 {
        let counters = Counters { at_ms: second * 1_000, published: 5_900, ..Counters::default() };
        history.look(counters, || gauges(second));
    }
    assert_eq!(history.recent().0, Rates { over_seconds: 10, ..Rates::default() });
    // WHEN looks were late THEN the time that has passed counts
    history.look(Counters { dead_lettered: 3, retries: 6, ..counters(100, 100) }, || gauges(100));
    let late = history.recent().0;
    assert_eq!(late.over_seconds, 39);
    assert_eq!((late.published_per_second, late.dead_lettered_per_second), (105.13, 0.08));
    assert_eq!(late.retries_per_second, 0.15);
}

#[test]
fn the_latency_is_that_of_the_interval_and_absent_without_events() {
    let metrics = Metrics::new();
    let mut history = History::default();
    let mut look = |at_ms: u64| {
        history.look(Counters::read(&metrics, at_ms), || gauges(at_ms / 1_000));
    };
    // GIVEN events before the first look
    (0..1_000).for_each(|_| metrics.publish_latency_seconds.observe(30.0));
    (0..5).for_each(|second| look(second * 1_000));
    // WHEN 100 events of 1 to 2 ms were published since
    (0..100).for_each(|_| metrics.publish_latency_seconds.observe(0.0015));
    // THEN theirs is the latency, interpolated
    look(5_000);
    let samples = history.samples_since(i64::MIN).into_iter();
    let latencies: Vec<_> = samples.map(|sample| (sample.p50_ms, sample.p99_ms)).collect();
    assert_eq!(latencies, [(None, None), (Some(1.5), Some(1.99))]);
    assert_eq!(history.recent().1, Some(LatencyMs { p50: 1.5, p99: 1.99 }));
}

#[test]
fn a_sample_has_the_fields_that_are_documented() {
    let metrics = Metrics::new();
    metrics.slot_lag_bytes.at(Point::Confirmed).set(17.0);
    metrics.slot_lag_seconds.set(1.23456);
    let pass = Pass { in_flight_events: 2, in_flight_limit: 256, ..Pass::default() };
    let sample = |has_slot: bool| {
        let mut history = History::default();
        let read = || Gauges {
            state: "streaming",
            at: 1_764_032_400,
            ..Gauges::read(&metrics, &pass, has_slot)
        };
        history.look(Counters::default(), read);
        serde_json::to_value(history.samples_since(0)[0]).unwrap()
    };
    assert_eq!(
        sample(true),
        serde_json::json!({
            "at": 1_764_032_400, "state": "streaming", "lag_bytes": 17, "lag_seconds": 1.235,
            "published_per_second": 0.0, "dead_lettered_per_second": 0.0, "p50_ms": null,
            "p99_ms": null, "in_flight": 2, "in_flight_limit": 256, "retained_wal_bytes": null,
            "dead_letters_open": null
        })
    );
    // GIVEN a table that is polled THEN there is no WAL, and the lag is the age of its oldest row
    metrics.backlog_age_seconds.set(2.5);
    metrics.dlq_depth.set(3.0);
    let polled = sample(false);
    assert_eq!((&polled["lag_bytes"], &polled["retained_wal_bytes"]), (&().into(), &().into()));
    assert_eq!((&polled["lag_seconds"], &polled["dead_letters_open"]), (&2.5.into(), &3.into()));
}
