//! The report for the terminal: the tables, then what follows from them in sentences.

use super::report::ComparisonReport;
use super::tables::{self, NumberTable, TableGroup};
use super::verdict::{Remark, RemarkWeight, Verdict};
use crate::base::text::escaped;

const BAR_CHARS: f64 = 32.0;
const ABOUT: &str = "\
Latency: from before the INSERT was sent, which commits by itself, to the consumer; one clock.
Cost: what Postgres did besides the load's own INSERTs; docs/compare.md says what is in it.
";

/// The whole report. `bars` draws the latencies, for a terminal.
pub(crate) fn to_text(report: &ComparisonReport, bars: bool) -> String {
    let mut text = format!("{}\n", escaped(&report.place()));
    for (at, table) in tables::all(report).iter().enumerate() {
        text += &format!("\n{}\n", table.title);
        // The first is that of the latencies.
        aligned(table, bars && at == 0).iter().for_each(|line| text += &format!("{line}\n"));
    }
    text += &format!("\n{ABOUT}");
    if !report.machine.database_is_local {
        text += "Postgres CPU is not known: the database's processes are not on this machine.\n";
    }
    let verdict = Verdict::of(report);
    // What breaks a promise, or that it is not all, comes before all else.
    let is_bad = |remark: &&Remark| remark.weight == RemarkWeight::Bad;
    let bad = verdict.remarks.iter().filter(is_bad).map(|remark| remark.text.as_str());
    let other = verdict.remarks.iter().filter(|it| !is_bad(it)).map(|it| it.text.as_str());
    for sentence in bad.chain(verdict.sentences()).chain(other) {
        text += &format!("\n{}\n", escaped(sentence));
    }
    // On the page it keeps a number and its unit on one line.
    text.replace('\u{a0}', " ")
}

/// The first column to the left, the others to the right.
fn aligned(table: &NumberTable, bars: bool) -> Vec<String> {
    let rows = || table.groups.iter().flat_map(|group| &group.rows);
    let chars = |text: &str| text.chars().count();
    let first = rows().map(|row| chars(&row.name)).max().unwrap_or(0);
    let width = |(at, name): (usize, &&str)| {
        let cells = rows().filter_map(|row| row.cells.get(at)).map(|cell| chars(&cell.text));
        cells.max().unwrap_or(0).max(chars(name))
    };
    let widths: Vec<usize> = table.columns.iter().enumerate().map(width).collect();
    let line = |name: &str, cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).map(|(cell, width)| format!("  {cell:>width$}"));
        format!("  {name:<first$}{}", cells.collect::<String>())
    };
    let legend = if bars { "  █ p50  ░ p99" } else { "" };
    let mut lines = vec![line("", &mut table.columns.iter().copied()) + legend];
    for group in &table.groups {
        if !group.heading.is_empty() {
            lines.push(group.heading.clone());
        }
        let drawn = if bars { bars_of(group) } else { vec![String::new(); group.rows.len()] };
        for (row, bar) in group.rows.iter().zip(drawn) {
            lines.push(line(&row.name, &mut row.cells.iter().map(|it| it.text.as_str())) + &bar);
        }
    }
    lines
}

/// To scale within a group.
fn bars_of(group: &TableGroup) -> Vec<String> {
    let longest = group.rows.iter().filter_map(|row| row.bar_ms).map(|(_, p99)| p99);
    let longest = longest.fold(0.0, f64::max);
    let drawn = group.rows.iter().map(|row| row.bar_ms.map(|it| bar(it, longest)));
    drawn.map(|bar| bar.map_or_else(String::new, |bar| format!("  {bar}"))).collect()
}

/// Full up to the median, shaded up to the 99th percentile.
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
