use super::*;
use std::collections::HashSet;

#[test]
fn every_entry_is_rendered_with_its_help_and_type() {
    let text = Metrics::new().render().unwrap();
    for spec in TABLE {
        assert!(text.contains(&format!("# HELP {} {}\n", spec.name, spec.help)), "{}", spec.name);
        let kind = format!("# TYPE {} {}\n", spec.name, spec.kind.text());
        assert!(text.contains(&kind), "{kind}");
    }
}

#[test]
fn names_are_unique_and_follow_the_conventions_of_prometheus() {
    let mut seen = HashSet::new();
    for spec in TABLE {
        assert!(seen.insert(spec.name), "{} twice", spec.name);
        assert!(spec.help.ends_with('.') && !spec.help.contains('|'), "{}", spec.name);
        let counter = spec.kind == MetricKind::Counter;
        assert_eq!(spec.name.ends_with("_total"), counter, "{}", spec.name);
        assert_eq!(spec.buckets.is_empty(), spec.kind != MetricKind::Histogram, "{}", spec.name);
        assert!(spec.buckets.is_sorted(), "{}", spec.name);
        for unit in ["seconds", "bytes"] {
            let named = spec.name.trim_end_matches("_total").ends_with(unit);
            assert_eq!(named, spec.unit == unit, "{}", spec.name);
        }
    }
}

#[test]
fn all_series_exist_before_anything_happens() {
    let text = Metrics::new().render().unwrap();
    assert!(text.contains("outbox_events_total{outcome=\"dead_lettered\"} 0\n"));
    assert!(text.contains("outbox_ignored_rows_total{operation=\"other_table\"} 0\n"));
    assert!(text.contains("outbox_slot_lag_bytes{point=\"confirmed\"} NaN\n"));
    assert!(text.contains("outbox_slot_safe_wal_bytes NaN\n"));
    let info = format!("outbox_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&info));
}

#[test]
fn a_halted_relay_shows_nothing_that_it_does_not_know() {
    for (status, is_lost) in [("reserved", 0), ("lost", 1)] {
        let metrics = Metrics::new();
        metrics.set_wal(status, None);
        for gauge in [&metrics.slot_active, &metrics.connected, &metrics.in_flight_events] {
            gauge.set(1);
        }
        for gauge in [&metrics.slot_lag_seconds, &metrics.dlq_depth, &metrics.backlog] {
            gauge.set(7.0);
        }
        metrics.set_halted();
        for gauge in [&metrics.slot_active, &metrics.connected, &metrics.in_flight_events] {
            assert_eq!(gauge.get(), 0);
        }
        for gauge in [&metrics.slot_lag_seconds, &metrics.dlq_depth, &metrics.backlog] {
            assert!(gauge.get().is_nan());
        }
        let up: i64 = metrics.slot_wal_status.iter().map(|(_, gauge)| gauge.get()).sum();
        let lost = metrics.slot_wal_status.at(WalStatus::Lost).get();
        assert_eq!((lost, up), (is_lost, is_lost));
    }
}

#[test]
fn exactly_one_wal_status_is_up_even_for_a_word_we_do_not_know() {
    let metrics = Metrics::new();
    for (word, expected) in
        [("extended", WalStatus::Extended), ("lost", WalStatus::Lost), ("new", WalStatus::Unknown)]
    {
        metrics.set_wal(word, None);
        for (status, gauge) in metrics.slot_wal_status.iter() {
            assert_eq!(gauge.get(), i64::from(status == expected), "{word} {status:?}");
        }
    }
}

#[test]
fn a_slot_without_a_limit_is_infinitely_safe() {
    let metrics = Metrics::new();
    metrics.set_wal("reserved", None);
    assert!(metrics.render().unwrap().contains("outbox_slot_safe_wal_bytes inf\n"));
    metrics.set_wal("unreserved", Some(-5));
    assert!(metrics.render().unwrap().contains("outbox_slot_safe_wal_bytes -5\n"));
    // WHEN it is lost THEN Postgres has no figure for it
    metrics.set_wal("lost", None);
    assert!(metrics.render().unwrap().contains("outbox_slot_safe_wal_bytes NaN\n"));
}

#[test]
fn a_slot_that_is_not_read_shows_nothing_of_what_was_read_before() {
    let metrics = Metrics::new();
    let before = metrics.render().unwrap();
    let figures = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("outbox_slot_"));
        lines.map(str::to_owned).collect()
    };
    // GIVEN a slot that was read
    metrics.slot_lag_bytes.at(Point::Sent).set(17.0);
    metrics.slot_lag_seconds.set(0.0);
    metrics.slot_retained_wal_bytes.set(1e9);
    metrics.slot_restart_lsn_age_seconds.set(2.0);
    metrics.slot_pinned_seconds.set(0.0);
    metrics.slot_active.set(1);
    metrics.set_wal("reserved", None);
    assert!(metrics.render().unwrap().contains("outbox_slot_retained_wal_bytes 1000000000\n"));
    // WHEN it is not read any more THEN it is as unknown as before the first reading
    metrics.set_slot_unknown();
    assert_eq!(figures(&metrics.render().unwrap()), figures(&before));
    let numbers = figures(&before).iter().filter(|line| !line.ends_with(" NaN")).count();
    assert_eq!(numbers, WalStatus::TEXTS.len() + 1, "{before}");
}

#[test]
fn process_figures_are_read_when_rendered() {
    let metrics = Metrics::new();
    metrics.render().unwrap();
    assert!(metrics.process_resident_memory_bytes.get() > 100_000.0);
    let before = metrics.process_cpu_seconds.get();
    metrics.render().unwrap();
    assert!(metrics.process_cpu_seconds.get() >= before);
}
