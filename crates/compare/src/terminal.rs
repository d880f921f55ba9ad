//! The report for the terminal: tables, and what became of the events.

use walrelay_measure::table::Table;

use super::report::ComparisonReport;
use super::tables;
use walrelay_base::text::escaped;

const BAR_CHARS: f64 = 32.0;
const ABOUT: &str = "\
Latency: from before the INSERT was sent, which commits by itself, to the consumer; one clock.
Cost: what Postgres did besides the load's own INSERTs; docs/compare.md says what is in it.
";

/// `draws`: with bars beside the latencies.
pub fn to_text(report: &ComparisonReport, draws: bool) -> String {
    let mut text = format!("{}\n", escaped(&report.place()));
    let mut tables = tables::all(report);
    if draws && !report.runs.is_empty() {
        tables[0] = with_bars(&tables[0], report);
    }
    let factors = tables::factors(report);
    tables.extend((!factors.rows().is_empty()).then_some(factors));
    tables.iter().for_each(|table| text += &format!("\n{table}"));
    text += &format!("\n{ABOUT}");
    if !report.machine.database_is_local {
        text += "Postgres CPU is not known: the database's processes are not on this machine.\n";
    }
    let incomplete = report.incomplete.as_ref();
    let incomplete = incomplete.map(|why| format!("This comparison is incomplete: {why}."));
    for sentence in incomplete.into_iter().chain([tables::conclusion(report)]) {
        text += &format!("\n{}\n", escaped(&sentence));
    }
    text
}

/// The table of the latencies with a column of bars, to scale within each rate.
fn with_bars(latency: &Table, report: &ComparisonReport) -> Table {
    let header = latency.header().iter().cloned();
    let mut table = Table::new(latency.title(), header.chain(["█ p50  ░ p99".to_owned()]));
    let mut rows = latency.rows().iter();
    for at in report.by_rate() {
        let points = at.runs.iter().map(|run| run.latencies.quantiles_ms([0.5, 0.99]));
        let longest =
            points.clone().flatten().fold(0.0, |longest, [_, p99]| f64::max(longest, p99));
        for (points, row) in points.zip(&mut rows) {
            let bar = points.map_or_else(String::new, |[p50, p99]| bar((p50, p99), longest));
            table.row(row.iter().cloned().chain([bar]));
        }
    }
    table
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
