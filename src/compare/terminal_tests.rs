//! The report for people, held against what they would misread.

use super::*;
use crate::compare::plan::CaptureMode;
use crate::compare::report::{ComparisonReport, Drain, Latencies, PostgresCost, Run, RunResult};

fn run(interval_ms: Option<u64>, latency_us: u32, cpu_s: Option<f64>) -> Run {
    let mode =
        interval_ms.map_or(CaptureMode::Cdc, |interval_ms| CaptureMode::Polling { interval_ms });
    let postgres = PostgresCost { cpu_s, wal_bytes: 1_500_000, ..PostgresCost::default() };
    Run {
        result: RunResult { mode, events: 3, postgres, ..RunResult::default() },
        rate: 1000,
        written_per_second: 1000.0,
        latencies: Latencies::of(vec![latency_us, latency_us, 2 * latency_us]),
        ..Run::default()
    }
}

fn report() -> ComparisonReport {
    let mut report = ComparisonReport {
        runs: vec![
            run(None, 1000, Some(0.5)),
            run(Some(2000), 900_000, Some(1.0)),
            run(Some(500), 250_000, Some(2.0)),
        ],
        ..ComparisonReport::default()
    };
    report.machine.database_is_local = true;
    report
}

#[test]
fn the_verdict_compares_with_the_soonest_polling_and_says_that_nothing_was_lost() {
    let text = to_text(&report(), false);
    let end = "\n\nAt 1,000 events/s the slot delivers 250 × sooner than polling every 500 ms (p99 250 ×) and takes 25 % of its Postgres CPU.\n\nNothing was lost, nothing came twice and nothing out of order in either.\n";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_verdict_against_the_slot_is_told_as_one() {
    let mut report = report();
    report.runs[0] = run(None, 500_000, Some(4.0));
    let text = to_text(&report, false);
    for sentence in [
        "At 1,000 events/s polling every 500 ms delivers 2 × sooner than the slot (p99 2 ×); the slot takes 2 × of polling's Postgres CPU.",
        "Polling is better in p50 latency: at 1,000 events/s every 500 ms (250 ms against 500 ms).",
    ] {
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
}

#[test]
fn loss_is_told_of_all_events_and_of_each_run() {
    let mut report = report();
    report.runs[1].result.losses.missing = 3;
    let mut drain = Drain::default();
    (drain.result.losses.duplicated, drain.result.losses.out_of_order) = (2, 1);
    report.drains.push(drain);
    assert_eq!(report.missing(), 3);
    let text = to_text(&report, false);
    for sentence in [
        "But of all events with CDC, 2 delivered more than once and 1 out of order; of all events with polling, 3 missing.",
        "Polling every 2 s at 1,000 events/s: of 3 events, 3 missing.",
    ] {
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
}

#[test]
fn a_report_that_was_cut_short_says_so_before_all_else() {
    let mut report = report();
    let why = "3 of 6 runs and 0 of 2 drains were finished: the broker is gone";
    report.incomplete = Some(why.to_owned());
    let text = to_text(&report, true);
    let (_, end) = text.split_once("docs/compare.md says what is in it.\n\n").unwrap();
    assert!(end.starts_with(&format!("This comparison is incomplete: {why}.\n")), "{text}");
}

#[test]
fn a_table_has_a_row_for_each_mode_and_unknown_is_not_zero() {
    let mut report = report();
    report.machine.database_is_local = false;
    report.runs[0].result.postgres.cpu_s = None;
    let text = to_text(&report, false);
    for words in ["1,000 events/s", "CDC", "polling 2 s", "polling 500 ms", "not known", "1.5 MB"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(!text.contains('█'), "{text}");
    assert!(text.contains("What either cost Postgres in CPU time is not known."), "{text}");
}

#[test]
fn bars_are_to_scale() {
    assert_eq!(bar((100.0, 100.0), 100.0), "█".repeat(32));
    assert_eq!(bar((25.0, 50.0), 100.0), format!("{}{}", "█".repeat(8), "░".repeat(8)));
    assert_eq!(bar((0.1, 0.2), 100.0), "█");
    assert_eq!(bar((0.0, 0.0), 0.0), "");
    assert_eq!(to_text(&report(), true).matches('█').count(), 1 + 1 + 16 + 4);
}

#[test]
fn a_load_that_was_late_is_told() {
    let mut report = report();
    assert!(!to_text(&report, false).contains("too small"));
    report.runs[0].written_per_second = 800.0;
    report.runs[1].load_late_p99_ms = 70.0;
    let text = to_text(&report, false);
    for words in
        ["CDC at 1,000 events/s (800/s)", "polling every 2 s at 1,000 events/s (p99 70 ms)"]
    {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn columns_stand_below_their_names() {
    let text = to_text(&report(), false);
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("Latency")).collect();
    let ends: Vec<usize> = lines[1..6].iter().map(|line| line.chars().count()).collect();
    assert_eq!(lines[2], "1,000 events/s");
    assert!(ends[0] == ends[2] && ends[2] == ends[3] && ends[3] == ends[4], "{text}");
}
