//! The page as a whole: well formed, safe, complete, whatever the report.

use std::collections::HashSet;

use super::*;
use crate::compare::plan::CaptureMode;
use crate::compare::report::{Drain, Latencies, PostgresCost, RunResult, Second};
use crate::compare::testing;

/// Elements that have no end.
const VOID: &[&str] = &["meta", "link", "br", "hr", "img", "input"];

/// The tags of a page, each with its name and attributes.
fn tags(html: &str) -> Vec<&str> {
    let body = html.split_once("</style>").expect("a page has a style").1;
    body.split('<').skip(1).map(|rest| rest.split_once('>').expect("a tag ends").0).collect()
}

/// Every tag is closed by its own name, no id is used twice, no place is no number.
fn check(html: &str) {
    let mut open = vec!["html", "head"];
    let mut ids = HashSet::new();
    for tag in tags(html) {
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        if let Some((_, rest)) = tag.split_once(" id=\"") {
            let id = rest.split('"').next().unwrap_or_default();
            assert!(ids.insert(id), "id {id} twice");
        }
        for wrong in ["NaN", "inf", "href=", "src="] {
            assert!(!tag.contains(wrong), "{wrong} in <{tag}>");
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    for foreign in ["http://", "https://", "url(", "@import", "<script", "<link"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
}

fn text_of(html: &str) -> String {
    let body = html.split_once("</style>").expect("a page has a style").1;
    let pieces = body.split('<').skip(1).filter_map(|rest| rest.split_once('>'));
    let text: String = pieces.map(|(_, text)| text).collect();
    text.replace('\u{a0}', " ")
}

#[test]
fn a_full_report_makes_a_well_formed_page_of_bounded_size() {
    let html = render(&testing::report());
    check(&html);
    assert!(html.len() < 300_000, "{} bytes", html.len());
    for part in [
        "2026-11-21 13:10 UTC · PostgreSQL 17.11 · Kafka at 127.0.0.1:9092 · 2 cores",
        "Key figures",
        "Second by second",
        "What it cost Postgres",
        "Draining a backlog",
        "All numbers",
        "walrelay compare --rates 100,1000,5000 --intervals 100ms,500ms,2s --duration 30s --backlog 100000",
    ] {
        assert!(text_of(&html).contains(part), "{part}");
    }
}

#[test]
fn a_page_is_the_same_each_time() {
    assert_eq!(render(&testing::report()), render(&testing::report()));
}

#[test]
fn an_empty_report_is_a_page() {
    let html = render(&ComparisonReport::default());
    check(&html);
    assert!(text_of(&html).contains("Nothing was measured."));
    assert!(!html.contains("<figure"));
}

#[test]
fn degenerate_runs_are_drawn_within_the_paper() {
    let second =
        Second { p50_ms: f64::NAN, p99_ms: f64::INFINITY, delivered: 1, ..Second::default() };
    let latencies: [&[u32]; 5] = [&[], &[0], &[7], &[500; 900], &[0, u32::MAX]];
    for latencies_us in latencies {
        for seconds in [vec![], vec![Second::default()], vec![second; 3]] {
            let events = latencies_us.len() as u64;
            let run = |mode| Run {
                result: RunResult { mode, events, ..RunResult::default() },
                latencies: Latencies::of(latencies_us.into()),
                seconds: seconds.clone(),
                written_per_second: f64::NAN,
                ..Run::default()
            };
            let modes = [CaptureMode::Cdc, testing::polling(0), testing::polling(u64::MAX)];
            let report = ComparisonReport {
                runs: modes.map(run).into(),
                drains: vec![Drain { first_s: f64::NAN, ..Drain::default() }],
                ..ComparisonReport::default()
            };
            check(&render(&report));
        }
    }
}

#[test]
fn many_rates_and_intervals_stay_apart() {
    // GIVEN more intervals than the ramp has steps
    let modes: Vec<CaptureMode> = (1..9).map(|n| testing::polling(n * 100)).collect();
    let runs = modes.iter().map(|mode| testing::run(*mode, 100)).collect();
    let report = ComparisonReport { runs, ..ComparisonReport::default() };
    // WHEN styles are given
    let plots = Plots::new(&report, &[]);
    let given: Vec<&str> = modes.iter().map(|mode| plots.class(*mode)).collect();
    // THEN they go from the first step to the last, never back
    assert_eq!((given[0], given[7]), ("p1", "p5"));
    assert!(given.is_sorted(), "{given:?}");
    check(&render(&report));
}

#[test]
fn the_slot_has_its_look_whoever_else_takes_part() {
    for modes in
        [vec![CaptureMode::Cdc], vec![testing::polling(5), CaptureMode::Cdc, testing::polling(1)]]
    {
        let result = |mode| RunResult { mode, ..RunResult::default() };
        let runs = modes.iter().map(|mode| Run { result: result(*mode), ..Run::default() });
        let report = ComparisonReport { runs: runs.collect(), ..ComparisonReport::default() };
        assert_eq!(Plots::new(&report, &[]).class(CaptureMode::Cdc), "cdc");
    }
}

#[test]
fn what_comes_from_outside_stays_text() {
    let evil = "<script>alert('x')</script>\" onload=\"y";
    let report = ComparisonReport {
        postgres_version: evil.into(),
        sink: evil.into(),
        broker: evil.into(),
        ..testing::report()
    };
    let html = render(&report);
    check(&html);
    let safe = "&lt;script&gt;alert('x')&lt;/script&gt;&quot; onload=&quot;y";
    assert_eq!(html.matches(safe).count(), 3);
}

#[test]
fn a_loss_is_red_in_the_answer_beside_the_figures_and_in_the_table() {
    let mut report = testing::report();
    report.runs[4].result.losses.missing = 1_234;
    let html = render(&report);
    check(&html);
    assert!(html.contains(
        "<li class=\"bad\">CDC at 1,000\u{a0}events/s: of 30,000 events, 1,234 missing.</li>"
    ));
    assert!(html.contains("<span class=\"badge\">1,234 missing</span>"));
    assert!(html.contains("<td class=\"bad\"><b>1,234</b></td>"));
}

#[test]
fn a_page_that_was_cut_short_says_so_in_red_below_its_answer() {
    let mut report = testing::report();
    report.runs.truncate(4);
    report.runs[0].result.losses.missing = 1;
    report.incomplete = Some("4 of 12 runs were finished: <gone>".into());
    let html = render(&report);
    check(&html);
    assert!(html.contains(
        "<ul class=\"remarks\"><li class=\"bad\">This comparison is incomplete: 4 of 12 runs were \
         finished: &lt;gone&gt;.</li><li class=\"bad\">CDC at"
    ));
}

#[test]
fn unknown_cpu_is_called_unknown_and_zero_is_called_0() {
    let mut report = testing::report();
    for run in &mut report.runs {
        run.result.postgres = PostgresCost { cpu_s: None, ..PostgresCost::default() };
    }
    report.machine.database_is_local = false;
    let html = render(&report);
    check(&html);
    assert!(html.contains("is not known: the database runs on another machine."));
    // The bars of CPU, one for each run.
    assert_eq!(html.matches(">not known</text>").count(), report.runs.len());
    // Five measures of Postgres for each run, all of them nothing.
    assert_eq!(html.matches("text-anchor=\"start\">0</text>").count(), 5 * report.runs.len());
}

#[test]
fn a_curve_has_no_more_than_300_steps_and_ends_at_the_last_event() {
    let html = render(&testing::report());
    let paths = html.split("<path class=\"curve ").skip(1);
    let curves: Vec<&str> = paths
        .filter_map(|path| path.split("\"></path>").next())
        .filter(|path| path.contains('V'))
        .collect();
    // Three rates, four modes.
    assert_eq!(curves.len(), 12);
    for curve in curves {
        assert!(curve.matches('V').count() <= 300, "{curve}");
        assert!(curve.ends_with("V32"), "100 % is at the top: {curve}");
    }
}
