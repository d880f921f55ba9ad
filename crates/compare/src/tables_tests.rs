use super::*;
use crate::report::{Drain, EventCounts, PostgresCost};
use crate::testing::{self, polling};

fn steady(mode: CaptureMode, rate: u32, latency_ms: u32, cpu_s: Option<f64>) -> Run {
    let postgres = PostgresCost { cpu_s, wal_bytes: 1_500_000, ..PostgresCost::default() };
    Run {
        result: RunResult { mode, events: 3000, postgres, ..RunResult::default() },
        rate,
        latencies: vec![latency_ms * 1000; 3000].into_iter().collect(),
        ..Run::default()
    }
}

fn report(runs: Vec<Run>) -> ComparisonReport {
    ComparisonReport { runs, ..ComparisonReport::default() }
}

#[test]
fn each_figure_of_polling_is_a_multiple_of_that_of_the_slot() {
    let runs = vec![
        steady(polling(500), 1000, 250, Some(2.0)),
        steady(CaptureMode::Cdc, 1000, 2, Some(1.0)),
        steady(polling(20), 1000, 1, None),
        // Without CDC at this rate there is nothing to divide by.
        steady(polling(500), 100, 250, Some(2.0)),
    ];
    let table = factors(&report(runs));
    assert_eq!(table.header()[..5], ["events/s", "mode", "p50", "p99", "Postgres CPU"]);
    let rows: Vec<&[String]> = table.rows().iter().map(|row| &row[..7]).collect();
    assert_eq!(
        rows,
        [
            ["1,000", "polling 20 ms", "0.5 ×", "0.5 ×", "–", "–", "1 ×"],
            ["1,000", "polling 500 ms", "125 ×", "125 ×", "2 ×", "–", "1 ×"],
        ]
    );
}

#[test]
fn the_conclusion_counts_what_was_lost_in_runs_and_drains() {
    assert_eq!(conclusion(&report(Vec::new())), "No event was measured.");
    let mut report = report(vec![steady(CaptureMode::Cdc, 100, 2, None)]);
    assert_eq!(
        conclusion(&report),
        "None of 3,000 events was missing, duplicated or out of order."
    );
    report.runs[0].result.losses = EventCounts { missing: 1_234, duplicated: 0, out_of_order: 1 };
    let mut drain = testing::drain(polling(500));
    drain.result.losses.duplicated = 2;
    report.drains.push(drain);
    let told = "Of 103,000 events: 1,234 missing, 2 duplicated, 1 out of order.";
    assert_eq!(conclusion(&report), told);
}

#[test]
fn a_table_has_a_row_for_each_mode_and_unknown_is_not_zero() {
    let mut report = report(vec![steady(CaptureMode::Cdc, 1000, 2, None)]);
    report.runs[0].latencies = Latencies::default();
    report.drains.push(Drain { seconds: 2.0, ..testing::drain(polling(500)) });
    let tables = all(&report);
    let titles: Vec<&str> = tables.iter().map(Table::title).collect();
    assert_eq!(titles[0], "Latency in milliseconds");
    assert_eq!(titles[3], "A backlog of 100,000 events");
    assert_eq!(tables[0].rows(), [["1,000", "CDC", "–", "–", "–", "–", "–", "–"]]);
    assert_eq!(tables[2].rows()[0][6..8], ["1.5 MB", "–"]);
    assert_eq!(tables[3].rows()[0][..4], ["polling 500 ms", "0.09 s", "2.09 s", "50,000"]);
    for table in &tables {
        assert!(table.rows().iter().all(|row| row.len() == table.header().len()), "{table}");
    }
}
