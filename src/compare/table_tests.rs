//! The report for people, held against what they would misread.

use super::*;
use crate::compare::report::Settings;

fn run(mode: Mode, latency_us: u32, cpu_s: Option<f64>) -> Run {
    Run {
        mode,
        rate: 1000,
        written_per_second: 1000.0,
        events: 3,
        latencies_us: vec![latency_us, latency_us, 2 * latency_us],
        postgres: PostgresCost { cpu_s, wal_bytes: 1_500_000, ..PostgresCost::default() },
        ..Run::default()
    }
}

fn report() -> Report {
    let mut report = Report {
        settings: Settings { rates: vec![1000], ..Settings::default() },
        runs: vec![
            run(Mode::Cdc, 1000, Some(0.5)),
            run(Mode::Polling { interval_ms: 2000 }, 900_000, Some(1.0)),
            run(Mode::Polling { interval_ms: 500 }, 250_000, Some(2.0)),
        ],
        ..Report::default()
    };
    report.machine.database_is_local = true;
    report
}

#[test]
fn the_verdict_compares_with_the_soonest_polling_and_says_that_nothing_was_lost() {
    let sentences = verdict(&report());
    assert_eq!(
        sentences,
        [
            "At 1,000 events/s the slot delivers 250 × sooner than polling every 500ms (p99 250 ×) and takes 25 % of its Postgres CPU.",
            "Nothing is missing, nothing came twice, nothing came out of order.",
        ]
    );
}

#[test]
fn a_verdict_against_the_slot_is_told_as_one() {
    let mut report = report();
    report.runs[0] = run(Mode::Cdc, 500_000, Some(4.0));
    assert_eq!(
        verdict(&report)[0],
        "At 1,000 events/s polling every 500ms delivers 2.0 × sooner than the slot (p99 2.0 ×) and takes 50 % of its Postgres CPU."
    );
}

#[test]
fn loss_is_the_last_word() {
    let mut report = report();
    report.runs[1].missing = 3;
    report.drains.push(Drain { duplicated: 2, out_of_order: 1, ..Drain::default() });
    assert_eq!(report.missing(), 3);
    let last = verdict(&report).pop().unwrap();
    assert!(last.starts_with("3 events are missing, 2 came twice, 1 came out of order"), "{last}");
}

#[test]
fn a_report_that_was_cut_short_says_so_before_all_else_and_has_no_empty_blocks() {
    // GIVEN a comparison that ended before its second rate
    let mut report = report();
    report.settings.rates = vec![1000, 5000];
    let why = "3 of 6 runs and 0 of 2 drains were finished: the broker is gone";
    report.incomplete = Some(why.to_owned());
    // WHEN it is told
    let (text, sentences) = (to_text(&report, true), verdict(&report));
    // THEN nobody takes it for whole
    assert_eq!(sentences[0], format!("INCOMPLETE: {why}."));
    assert!(text.contains(&sentences[0]), "{text}");
    assert!(text.contains("1,000 events/s") && !text.contains("5,000 events/s"), "{text}");
}

#[test]
fn a_block_has_a_row_for_each_mode_and_unknown_is_not_zero() {
    let mut report = report();
    report.machine.database_is_local = false;
    report.runs[0].postgres.cpu_s = None;
    let text = to_text(&report, false);
    for words in ["1,000 events/s", "cdc", "polling 2s", "polling 500ms", "unknown", "1.5 MB"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(!text.contains('█'), "{text}");
    let sentence = &verdict(&report)[0];
    assert!(!sentence.contains("CPU"), "{sentence}");
}

#[test]
fn bars_are_to_scale() {
    assert_eq!(bar(100.0, 100.0, 100.0), "█".repeat(32));
    assert_eq!(bar(25.0, 50.0, 100.0), format!("{}{}", "█".repeat(8), "░".repeat(8)));
    assert_eq!(bar(0.1, 0.2, 100.0), "█");
    assert_eq!(bar(0.0, 0.0, 0.0), "");
    assert_eq!(to_text(&report(), true).matches('█').count(), 1 + 1 + 16 + 4);
}

#[test]
fn a_load_that_was_late_is_told() {
    let mut late = run(Mode::Cdc, 1000, None);
    assert_eq!(lateness(&late), "");
    late.written_per_second = 800.0;
    assert!(lateness(&late).contains("800 of 1000 events/s"), "{}", lateness(&late));
    late = run(Mode::Cdc, 1000, None);
    late.load_late_p99_ms = 70.0;
    assert!(lateness(&late).contains("p99 70.0 ms"));
}

#[test]
fn numbers_are_written_for_people() {
    assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    assert_eq!([0, 999, 1500, 123_456_789].map(bytes), ["0 B", "999 B", "1.5 kB", "123 MB"]);
    assert_eq!([1.234, 12.34, 1234.5].map(ms), ["1.23", "12.3", "1234"]);
}
