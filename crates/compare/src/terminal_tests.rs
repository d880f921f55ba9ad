use super::*;
use crate::testing;

#[test]
fn a_report_is_tables_and_one_sentence() {
    let text = to_text(&testing::report(), false);
    for part in ["Latency in milliseconds", "Cost of each run", "Polling as a multiple of CDC"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let end = "\n\nNone of 1,132,000 events was missing, duplicated or out of order.\n";
    assert!(text.ends_with(end) && !text.contains('█') && !text.contains('\u{a0}'), "{text}");
}

#[test]
fn a_report_that_was_cut_short_says_so() {
    let mut report = testing::report();
    report.incomplete = Some("3 of 6 runs were finished: the broker \u{1b}[31m is gone".to_owned());
    report.machine.database_is_local = false;
    let text = to_text(&report, true);
    assert!(
        text.contains("\nThis comparison is incomplete: 3 of 6 runs were finished: "),
        "{text}"
    );
    assert!(text.contains("Postgres CPU is not known") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn bars_are_to_scale() {
    assert_eq!(bar((100.0, 100.0), 100.0), "█".repeat(32));
    assert_eq!(bar((25.0, 50.0), 100.0), format!("{}{}", "█".repeat(8), "░".repeat(8)));
    assert_eq!(bar((0.1, 0.2), 100.0), "█");
    assert_eq!(bar((0.0, 0.0), 0.0), "");
    // The longest of each of three rates is as long as a bar can be.
    let text = to_text(&testing::report(), true);
    let bars = text.lines().map(|line| line.chars().filter(|it| "█░".contains(*it)).count());
    assert_eq!(bars.filter(|chars| *chars == 32).count(), 3, "{text}");
}
