use std::time::Duration;

use super::*;

fn after(tally: &Tally, ms: u64) -> Instant {
    tally.origin + Duration::from_millis(ms)
}

/// Written one a millisecond, from number 0 on.
fn written(events: u64) -> Tally {
    let tally = Tally::new(events);
    for number in 0..events {
        tally.sends(number, after(&tally, number));
    }
    tally
}

#[test]
fn what_comes_once_and_in_order_is_counted_as_that() {
    let tally = written(3);
    for number in 0..3 {
        tally.arrives(number, after(&tally, 10 + 2 * number));
    }
    assert_eq!(tally.counts(3), Counts::default());
    assert_eq!(tally.latencies_us(0), [10_000, 11_000, 12_000]);
    assert_eq!(tally.latencies_us(1), [11_000, 12_000]);
    assert_eq!(tally.recent_p50_ms(), Some(11.0));
    assert_eq!(tally.progress(), (3, Some(after(&tally, 14))));
}

#[test]
fn what_never_comes_is_missing_and_what_comes_again_is_twice() {
    let tally = written(4);
    for number in [0, 2, 2, 2] {
        tally.arrives(number, after(&tally, 50));
    }
    let counts = Counts { missing: 2, duplicated: 2, out_of_order: 0 };
    assert_eq!(tally.counts(4), counts);
}

#[test]
fn order_is_that_of_a_key_and_of_first_deliveries() {
    let tally = written(2 * KEYS + 1);
    // Another key may come when it likes.
    tally.arrives(1, after(&tally, 1));
    tally.arrives(0, after(&tally, 2));
    tally.arrives(2 * KEYS, after(&tally, 3));
    assert_eq!(tally.counts(0).out_of_order, 0);
    tally.arrives(KEYS, after(&tally, 4));
    assert_eq!(tally.counts(0).out_of_order, 1);
    // A repetition is no disorder.
    tally.arrives(0, after(&tally, 5));
    let counts = Counts { missing: 0, duplicated: 1, out_of_order: 1 };
    assert_eq!(tally.counts(4), counts);
}

#[test]
fn what_nobody_wrote_is_none_of_ours() {
    let tally = written(1);
    tally.arrives(7, after(&tally, 1));
    assert_eq!(tally.counts(1), Counts { missing: 1, ..Counts::default() });
}

#[test]
fn seconds_show_what_was_written_and_what_waited() {
    let tally = Tally::new(4);
    for (number, sent_ms) in [(0, 100), (1, 1100), (2, 1200), (3, 1900)] {
        tally.sends(number, after(&tally, sent_ms));
    }
    for (number, arrived_ms) in [(1, 1150), (2, 2300), (3, 4000)] {
        tally.arrives(number, after(&tally, arrived_ms));
    }
    let seconds = tally.seconds(1, after(&tally, 1000));
    let short: Vec<_> =
        seconds.iter().map(|it| (it.at_s, it.written, it.delivered, it.backlog)).collect();
    assert_eq!(short, [(0, 3, 1, 2), (1, 0, 1, 1), (2, 0, 0, 1), (3, 0, 1, 0)]);
    let p50: Vec<f64> = seconds.iter().map(|it| it.p50_ms).collect();
    assert_eq!(p50, [50.0, 1100.0, 0.0, 2100.0]);
}

#[test]
fn a_quantile_is_a_value_that_occurred() {
    let values: Vec<u32> = (1..=100).map(|ms| ms * 1000).collect();
    assert_eq!(quantile_ms(&values, 0.5), 50.0);
    assert_eq!(quantile_ms(&values, 0.99), 99.0);
    assert_eq!(quantile_ms(&values, 1.0), 100.0);
    assert_eq!(quantile_ms(&[], 0.5), 0.0);
    assert_eq!(quantile_ms(&[7000], 0.999), 7.0);
}
