//! The report for the terminal: the tables, then the verdict.

use super::report::ComparisonReport;
use super::tables::{self, NumberTable};
use super::verdict::{Remark, RemarkWeight, Verdict};
use crate::base::text::escaped;

const BAR_CHARS: f64 = 32.0;
const ABOUT: &str = "\
Latency: from before the INSERT was sent, which commits by itself, to the consumer; one clock.
Cost: what Postgres did besides the load's own INSERTs; docs/compare.md says what is in it.
";

/// `draws`: with bars beside the latencies.
pub(crate) fn to_text(report: &ComparisonReport, draws: bool) -> String {
    let mut text = format!("{}\n", escaped(&report.place()));
    for (at, table) in tables::all(report).iter().enumerate() {
        text += &format!("\n{}\n", table.title);
        // The first table is that of the latencies.
        let ends = if draws && at == 0 { bars(report) } else { Vec::new() };
        aligned(table, &ends).iter().for_each(|line| text += &format!("{line}\n"));
    }
    text += &format!("\n{ABOUT}");
    if !report.machine.database_is_local {
        text += "Postgres CPU is not known: the database's processes are not on this machine.\n";
    }
    let verdict = Verdict::of(report);
    // Broken promises and missing parts come first.
    let is_bad = |remark: &&Remark| remark.weight == RemarkWeight::Bad;
    let bad = verdict.remarks.iter().filter(is_bad).map(|remark| remark.text.as_str());
    let other = verdict.remarks.iter().filter(|it| !is_bad(it)).map(|it| it.text.as_str());
    for sentence in bad.chain(verdict.sentences()).chain(other) {
        text += &format!("\n{}\n", escaped(sentence));
    }
    // The no-break spaces are for the page.
    text.replace('\u{a0}', " ")
}

/// The lines of a table, the head among them, each followed by its `end`.
fn aligned(table: &NumberTable, ends: &[String]) -> Vec<String> {
    let chars = |text: &str| text.chars().count();
    let columns = table.columns();
    let first = table.rows().map(|row| chars(&row.name)).max().unwrap_or(0);
    let width = |(at, name): (usize, &&str)| {
        let cells = table.rows().filter_map(|row| row.cells.get(at)).map(|cell| chars(&cell.text));
        cells.max().unwrap_or(0).max(chars(name))
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(width).collect();
    let mut ends = ends.iter().map(String::as_str);
    let mut line = |name: &str, cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).map(|(cell, width)| format!("  {cell:>width$}"));
        let end = ends.next().unwrap_or_default();
        format!("  {name:<first$}{}{end}", cells.collect::<String>())
    };
    let mut lines = vec![line("", &mut columns.iter().copied())];
    for (heading, rows) in &table.groups {
        lines.extend((!heading.is_empty()).then(|| heading.clone()));
        for row in rows {
            lines.push(line(&row.name, &mut row.cells.iter().map(|it| it.text.as_str())));
        }
    }
    lines
}

/// The bars beside the table of latencies, to scale within each rate.
fn bars(report: &ComparisonReport) -> Vec<String> {
    let mut ends = vec!["  █ p50  ░ p99".to_owned()];
    for at in report.by_rate() {
        let p99 = at.runs.iter().filter_map(|run| run.latencies.p99_ms());
        let longest = p99.fold(0.0, f64::max);
        for run in at.runs {
            let ms = run.latencies.p50_ms().zip(run.latencies.p99_ms());
            ends.push(ms.map_or_else(String::new, |ms| format!("  {}", bar(ms, longest))));
        }
    }
    ends
}

/// Solid up to the median, shaded up to the 99th percentile.
fn bar((p50, p99): (f64, f64), longest: f64) -> String {
    let chars = |value: f64| match longest > 0.0 {
        true => ((value / longest * BAR_CHARS).round() as usize).clamp(1, BAR_CHARS as usize),
        false => 0,
    };
    let full = chars(p50);
    format!("{}{}", "█".repeat(full), "░".repeat(chars(p99).saturating_sub(full)))
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
