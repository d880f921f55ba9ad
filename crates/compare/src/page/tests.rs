//! The page as a whole: well formed, safe, complete, whatever the report. That its plots are drawn is tested in a
//! browser (`tests/compare`).

use super::*;
use crate::plan::CaptureMode;
use crate::report::{Drain, RunResult};
use crate::testing;

/// Elements that have no end.
const VOID: &[&str] = &["meta"];

/// Every tag is closed by its own name, and nothing is loaded from elsewhere; returns the markup before the figures.
fn check(html: &str) -> &str {
    let (_, body) = html.split_once("</style>").expect("a page has a style");
    let (markup, script) = body.split_once("<script id=\"figures\"").expect("a page has figures");
    let mut open = vec!["html", "head"];
    for rest in markup.split('<').skip(1) {
        let tag = rest.split_once('>').expect("a tag ends").0;
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !VOID.contains(&name) {
            open.push(name);
        }
        assert!(!tag.contains("href=") && !tag.contains("src="), "<{tag}>");
    }
    assert_eq!(open, ["html", "body"]);
    assert_eq!(script.matches("</script>").count(), 2, "nothing ends a script early");
    for foreign in ["https://", "url(", "@import", "\nimport ", "\nexport ", "<link", "fetch("] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    markup
}

fn figures_of(html: &str) -> Value {
    let (_, figures) = html.split_once("type=\"application/json\">").expect("figures");
    serde_json::from_str(figures.split_once("</script>").expect("an end").0).unwrap()
}

#[test]
fn a_full_report_makes_a_page_with_tables_and_the_figures_of_its_plots() {
    let html = render(&testing::report());
    let markup = check(&html);
    assert_eq!(html, render(&testing::report()));
    for part in [
        "2026-11-21 13:10 UTC · PostgreSQL 17.11 · Kafka at 127.0.0.1:9092 · 2 cores",
        "None of 1,132,000 events was missing, duplicated or out of order.",
        "Polling as a multiple of CDC",
        "A backlog of 100,000 events",
        "walrelay compare --rates 100,1000,5000 --intervals 100ms,500ms,2s --duration 30s --backlog 100000",
    ] {
        assert!(markup.contains(part), "{part}");
    }
    let figures = figures_of(&html);
    let of_5000 = &figures["rates"][2];
    assert_eq!(of_5000["rate"], "5,000 events/s");
    assert_eq!(of_5000["modes"][1], "polling 100 ms");
    let (percentiles, seconds) = (&of_5000["percentiles"], &of_5000["seconds"]);
    assert_eq!(
        (percentiles.as_array().unwrap().len(), seconds.as_array().unwrap().len()),
        (41, 30)
    );
    let median = testing::run(CaptureMode::Cdc, 5000).latencies.quantile_ms(0.5).unwrap();
    assert!((percentiles[3]["ms"][0].as_f64().unwrap() - median).abs() < 0.02);
    // A second in which nothing came has no percentile.
    assert_eq!((&seconds[0]["p99_ms"][3], &seconds[1]["at"]), (&Value::Null, &json!(1)));
    assert!(seconds[0]["backlog"][3].is_number());
}

#[test]
fn an_empty_report_and_degenerate_runs_are_pages() {
    assert!(check(&render(&ComparisonReport::default())).contains("No event was measured."));
    let (p50_ms, p99_ms) = (Some(f64::NAN), Some(f64::INFINITY));
    let second = Second { p50_ms, p99_ms, delivered: 1, ..Second::default() };
    let latencies: [&[u32]; 4] = [&[], &[0], &[500; 900], &[0, u32::MAX]];
    for latencies_us in latencies {
        let run = |mode| Run {
            result: RunResult { mode, ..RunResult::default() },
            latencies: latencies_us.iter().copied().collect(),
            seconds: vec![second; 3],
            written_per_second: f64::NAN,
            ..Run::default()
        };
        let modes = [CaptureMode::Cdc, testing::polling(0), testing::polling(u64::MAX)];
        let report = ComparisonReport {
            runs: modes.map(run).into(),
            drains: vec![Drain { first_s: f64::NAN, ..Drain::default() }],
            ..ComparisonReport::default()
        };
        let html = render(&report);
        check(&html);
        figures_of(&html);
    }
}

#[test]
fn texts_from_outside_stay_texts() {
    let evil = "<script>alert('x')</script>\" onload=\"y";
    let report = ComparisonReport {
        postgres_version: evil.into(),
        sink_title: evil.into(),
        broker: evil.into(),
        incomplete: Some(evil.into()),
        ..testing::report()
    };
    let html = render(&report);
    let safe = "&lt;script&gt;alert('x')&lt;/script&gt;&quot; onload=&quot;y";
    assert_eq!(check(&html).matches(safe).count(), 4);
}

#[test]
fn a_loss_is_marked() {
    let mut report = testing::report();
    report.runs[4].result.losses.missing = 1_234;
    assert!(check(&render(&report)).contains("<td class=\"bad\">1,234</td>"));
    assert!(!render(&testing::report()).contains("<td class=\"bad\">"));
}
