//! Tests of the page's sentences, for each way in which a comparison can come out.

use super::*;
use crate::compare::report::{Latencies, Machine, PostgresCost};
use crate::compare::testing::{drain, polling, report, run};

/// A run in which every event took as long.
fn steady(mode: CaptureMode, rate: u32, ms: u32, cpu_s: Option<f64>) -> Run {
    let latencies = Latencies::of(vec![ms * 1000; 100]);
    let mut run = Run { latencies, ..run(mode, 100) };
    (run.rate, run.written_per_second, run.load_late_p99_ms) = (rate, f64::from(rate), 0.1);
    run.result.postgres = PostgresCost { cpu_s, ..PostgresCost::default() };
    run
}

fn told(runs: Vec<Run>) -> (String, Vec<(RemarkWeight, String)>) {
    let verdict = Verdict::of(&ComparisonReport { runs, ..ComparisonReport::default() });
    let plain = |text: &str| text.replace('\u{a0}', " ");
    let remarks = verdict.remarks.iter().map(|remark| (remark.weight, plain(&remark.text)));
    (plain(&verdict.headline()), remarks.collect())
}

#[test]
fn the_slot_is_sooner_and_cheaper() {
    let (headline, remarks) = told(vec![
        steady(CaptureMode::Cdc, 1000, 2, Some(0.3)),
        steady(polling(500), 1000, 300, Some(1.0)),
    ]);
    assert_eq!(
        headline,
        "At 1,000 events/s the slot delivers 150 × sooner than polling every 500 ms (p99 150 ×) and \
         takes 30 % of its Postgres CPU. Nothing was lost, nothing came twice and nothing out of \
         order in either."
    );
    assert_eq!(remarks, []);
}

#[test]
fn the_middle_rate_and_the_soonest_polling_speak_for_all() {
    let headline = Verdict::of(&report()).headline();
    assert!(headline.starts_with("At 1,000\u{a0}events/s the slot delivers"), "{headline}");
    assert!(headline.contains("polling every 100\u{a0}ms"), "{headline}");
}

#[test]
fn polling_that_is_sooner_and_cheaper_is_said_to_be() {
    let (headline, remarks) = told(vec![
        steady(CaptureMode::Cdc, 100, 40, Some(2.0)),
        steady(polling(20), 100, 10, Some(1.0)),
    ]);
    assert!(
        headline.starts_with(
            "At 100 events/s polling every 20 ms delivers 4 × sooner than the slot (p99 4 ×); the \
             slot takes 2 × of polling's Postgres CPU."
        ),
        "{headline}"
    );
    let texts: Vec<&str> = remarks.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "Polling is better in p50 latency: at 100 events/s every 20 ms (10 ms against 40 ms).",
            "Polling is better in p99 latency: at 100 events/s every 20 ms (10 ms against 40 ms).",
            "Polling is better in Postgres CPU per 1,000 events: at 100 events/s every 20 ms \
             (333 ms against 667 ms).",
        ]
    );
    assert!(remarks.iter().all(|(weight, _)| *weight == RemarkWeight::Note));
}

#[test]
fn a_worse_tail_is_not_hidden_behind_a_better_median() {
    let mut cdc = steady(CaptureMode::Cdc, 100, 2, Some(1.0));
    let mut micros = vec![2000; 98];
    micros.extend([800_000; 2]);
    cdc.latencies = Latencies::of(micros);
    let (headline, remarks) = told(vec![cdc, steady(polling(500), 100, 400, Some(1.0))]);
    assert!(
        headline.starts_with(
            "At 100 events/s the slot delivers 200 × sooner than polling every 500 ms (but the \
             slot's p99 is 2 × as long) and takes as much Postgres CPU."
        ),
        "{headline}"
    );
    assert!(remarks[0].1.starts_with("Polling is better in p99 latency"), "{remarks:?}");
}

#[test]
fn what_is_alike_is_called_alike() {
    let (headline, remarks) = told(vec![
        steady(CaptureMode::Cdc, 100, 100, Some(1.0)),
        steady(polling(100), 100, 102, Some(1.02)),
    ]);
    assert!(
        headline.starts_with(
            "At 100 events/s the slot and polling every 100 ms deliver equally soon; the slot takes \
             as much Postgres CPU."
        ),
        "{headline}"
    );
    assert_eq!(remarks, []);
}

#[test]
fn events_that_are_missing_come_first_and_are_not_called_whole() {
    let mut lossy = steady(CaptureMode::Cdc, 100, 2, Some(1.0));
    lossy.result.losses = EventCounts { missing: 3, duplicated: 0, out_of_order: 1 };
    let mut twice = steady(polling(500), 100, 300, Some(1.0));
    twice.result.losses.duplicated = 1_700;
    let (headline, remarks) = told(vec![twice, lossy]);
    assert!(
        headline.ends_with(
            "But of all events with CDC, 3 missing and 1 out of order; of all events with polling, \
             1,700 delivered more than once."
        ),
        "{headline}"
    );
    assert_eq!(
        remarks,
        [
            (
                RemarkWeight::Bad,
                "CDC at 100 events/s: of 3,000 events, 3 missing and 1 out of order.".into()
            ),
            (
                RemarkWeight::Warning,
                "Polling every 500 ms at 100 events/s: of 3,000 events, 1,700 delivered more than \
                 once."
                    .into()
            ),
        ]
    );
}

#[test]
fn a_drain_that_loses_events_is_told_too() {
    let mut lossy = drain(CaptureMode::Cdc);
    lossy.result.losses.missing = 5;
    let report = ComparisonReport { drains: vec![lossy], ..ComparisonReport::default() };
    let verdict = Verdict::of(&report);
    assert_eq!(
        verdict.headline(),
        "Only backlogs were measured, and no latency. But of all events with CDC, 5 missing."
    );
    assert_eq!(verdict.remarks[0].text, "CDC, draining a backlog: of 100,000 events, 5 missing.");
}

#[test]
fn a_drain_in_which_polling_is_faster_is_told() {
    let faster = Drain { seconds: 0.1, first_s: 0.01, ..drain(polling(100)) };
    let report = ComparisonReport {
        drains: vec![drain(CaptureMode::Cdc), faster],
        ..ComparisonReport::default()
    };
    let texts: Vec<String> = Verdict::of(&report)
        .remarks
        .iter()
        .map(|remark| remark.text.replace('\u{a0}', " "))
        .collect();
    assert_eq!(
        texts,
        [
            "Polling is better in the speed of a drain: every 100 ms (999,990/s against 140,844/s).",
            "Polling is better in the time to the first event: every 100 ms (0.01 s against 0.06 s).",
        ]
    );
}

#[test]
fn nobody_is_compared_with_an_absent_one() {
    let (headline, _) = told(vec![steady(CaptureMode::Cdc, 100, 2, None)]);
    assert_eq!(
        headline,
        "Only CDC was measured: CDC at 100 events/s has a p50 of 2 ms and a p99 of 2 ms. Without \
         polling there is nothing to compare. Nothing was lost, nothing came twice and nothing out \
         of order."
    );
    let (headline, _) = told(vec![steady(polling(500), 100, 300, None)]);
    assert!(
        headline.starts_with("Only polling was measured: polling every 500 ms at 100 events/s")
    );
    let (headline, _) =
        told(vec![steady(CaptureMode::Cdc, 100, 2, None), steady(polling(500), 200, 300, None)]);
    assert!(headline.starts_with("CDC and polling have no rate in common"), "{headline}");
    assert_eq!(told(Vec::new()), ("Nothing was measured.".into(), vec![]));
}

#[test]
fn cpu_that_is_not_known_is_said_to_be() {
    let (headline, _) =
        told(vec![steady(CaptureMode::Cdc, 100, 2, None), steady(polling(500), 100, 300, None)]);
    assert!(
        headline.contains("(p99 150 ×). What either cost Postgres in CPU time is not known."),
        "{headline}"
    );
}

#[test]
fn cpu_that_is_too_little_to_be_seen_makes_no_factor() {
    let (headline, _) = told(vec![
        steady(CaptureMode::Cdc, 100, 2, Some(0.0)),
        steady(polling(500), 100, 300, Some(1.0)),
    ]);
    assert!(headline.contains("The Postgres CPU time of the slot is too little to be seen."));
}

#[test]
fn a_run_from_which_nothing_came_is_not_called_soon() {
    let mut silent = Run { latencies: Latencies::default(), ..run(CaptureMode::Cdc, 100) };
    silent.result.losses.missing = 3_000;
    let (headline, remarks) = told(vec![silent, steady(polling(500), 100, 300, Some(1.0))]);
    assert_eq!(
        headline,
        "At 100 events/s nothing arrived from the slot: there is nothing to compare. But of all events \
         with CDC, 3,000 missing."
    );
    assert_eq!(remarks[0].0, RemarkWeight::Bad);
}

#[test]
fn a_load_that_was_late_or_too_little_casts_doubt() {
    let mut late = steady(CaptureMode::Cdc, 5000, 2, None);
    (late.load_late_p99_ms, late.written_per_second) = (320.0, 4_100.0);
    let machine = Machine { cores: 2, load_average: 3.5, ..Machine::default() };
    let verdict =
        Verdict::of(&ComparisonReport { runs: vec![late], machine, ..ComparisonReport::default() });
    let texts: Vec<String> =
        verdict.remarks.iter().map(|remark| remark.text.replace('\u{a0}', " ")).collect();
    assert!(texts[0].starts_with("The load itself was late: CDC at 5,000 events/s (p99 320 ms)."));
    assert!(
        texts[1].starts_with(
            "Fewer events were written than asked for: CDC at 5,000 events/s (4,100/s)."
        )
    );
    assert!(texts[2].ends_with("a load average of 3.5 on 2 cores."));
}
