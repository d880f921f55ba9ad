//! All numbers, unrounded enough to calculate with.

use crate::base::html::escape;
use crate::compare::report::{Drain, PostgresCost, RelayCost, Report, Run};

use super::lineup::{AtRate, name, order};
use super::text;

/// A cell; a number that ought to be zero and is not stands out.
enum Cell {
    Plain(String),
    Alarm(String),
}

pub(super) fn section(report: &Report, rates: &[AtRate<'_>]) -> String {
    let mut html = String::new();
    if !rates.is_empty() {
        html.push_str(&table(
            "Latency in milliseconds, and what became of the events",
            LATENCY,
            &rows(rates, latency),
        ));
        html.push_str(&table("Cost of each run", COST, &rows(rates, run_cost)));
    }
    if !report.drains.is_empty() {
        let mut drains: Vec<&Drain> = report.drains.iter().collect();
        drains.sort_by_key(|drain| order(drain.mode));
        let rows = |cells: fn(&Drain) -> Vec<Cell>| {
            let rows = drains.iter().map(|drain| (name(drain.mode), cells(drain))).collect();
            [(String::new(), rows)]
        };
        html.push_str(&table("Backlogs", DRAIN, &rows(drained)));
        html.push_str(&table("Cost of each backlog", COST, &rows(drain_cost)));
    }
    html
}

const LATENCY: &[&str] = &[
    "p50",
    "p90",
    "p95",
    "p99",
    "p99.9",
    "max",
    "events",
    "written/s",
    "missing",
    "duplicated",
    "out of order",
    "load late p99",
    "load average",
];

fn latency(run: &Run) -> Vec<Cell> {
    let quantile = |share: f64| {
        let seen = !run.latencies_us.is_empty();
        Cell::Plain(if seen { fixed(run.quantile_ms(share), 2) } else { "–".to_owned() })
    };
    let mut cells: Vec<Cell> = [0.5, 0.9, 0.95, 0.99, 0.999, 1.0].map(quantile).into();
    cells.extend([
        plain(run.events),
        Cell::Plain(fixed(run.written_per_second, 1)),
        alarm(run.missing),
        alarm(run.duplicated),
        alarm(run.out_of_order),
        Cell::Plain(fixed(run.load_late_p99_ms, 2)),
        Cell::Plain(fixed(run.load_average, 2)),
    ]);
    cells
}

const COST: &[&str] = &[
    "transactions",
    "tuples read",
    "tuples written",
    "dead tuples",
    "WAL",
    "Postgres CPU",
    "relay CPU",
    "relay memory",
];

fn run_cost(run: &Run) -> Vec<Cell> {
    cost(&run.postgres, &run.relay)
}

fn cost(postgres: &PostgresCost, relay: &RelayCost) -> Vec<Cell> {
    let cpu =
        postgres.cpu_s.map_or_else(|| "not known".to_owned(), |s| format!("{} s", fixed(s, 2)));
    vec![
        plain(postgres.transactions),
        plain(postgres.tuples_read),
        plain(postgres.tuples_written),
        plain(postgres.dead_tuples),
        Cell::Plain(text::bytes(postgres.wal_bytes as f64)),
        Cell::Plain(cpu),
        Cell::Plain(format!("{} s", fixed(relay.cpu_s, 2))),
        Cell::Plain(text::bytes(relay.rss_peak_bytes as f64)),
    ]
}

const DRAIN: &[&str] =
    &["events", "first after", "duration", "events/s", "missing", "duplicated", "out of order"];

fn drained(drain: &Drain) -> Vec<Cell> {
    vec![
        plain(drain.events),
        Cell::Plain(format!("{} s", fixed(drain.first_s, 2))),
        Cell::Plain(format!("{} s", fixed(drain.seconds, 2))),
        Cell::Plain(text::count(drain.per_second().round() as u64)),
        alarm(drain.missing),
        alarm(drain.duplicated),
        alarm(drain.out_of_order),
    ]
}

fn drain_cost(drain: &Drain) -> Vec<Cell> {
    cost(&drain.postgres, &drain.relay)
}

/// Rows below a heading of their own.
type Rows = (String, Vec<(String, Vec<Cell>)>);

fn rows(rates: &[AtRate<'_>], cells: fn(&Run) -> Vec<Cell>) -> Vec<Rows> {
    let group = |at: &AtRate<'_>| {
        let rows = at.runs.iter().map(|run| (name(run.mode), cells(run))).collect();
        (text::rate(at.rate), rows)
    };
    rates.iter().map(group).collect()
}

fn table(caption: &str, columns: &[&str], groups: &[Rows]) -> String {
    let head: String =
        columns.iter().map(|name| format!("<th scope=\"col\">{}</th>", escape(name))).collect();
    let mut html = format!(
        "<h3>{}</h3>\n<div class=\"wide\"><table class=\"all\">\n\
         <thead><tr><th scope=\"col\">mode</th>{head}</tr></thead>\n",
        escape(caption)
    );
    for (heading, rows) in groups {
        html.push_str("<tbody>\n");
        if !heading.is_empty() {
            let (span, heading) = (columns.len() + 1, escape(heading));
            html.push_str(&format!(
                "<tr class=\"rate\"><th colspan=\"{span}\" scope=\"rowgroup\">{heading}</th></tr>\n"
            ));
        }
        for (name, cells) in rows {
            let cells: String = cells.iter().map(cell).collect();
            html.push_str(&format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", escape(name)));
        }
        html.push_str("</tbody>\n");
    }
    html.push_str("</table></div>\n");
    html
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Plain(text) => format!("<td>{}</td>", escape(text)),
        Cell::Alarm(text) => format!("<td class=\"bad\"><b>{}</b></td>", escape(text)),
    }
}

fn plain(value: u64) -> Cell {
    Cell::Plain(text::count(value))
}

fn alarm(value: u64) -> Cell {
    if value == 0 { plain(value) } else { Cell::Alarm(text::count(value)) }
}

/// With its thousands apart: `1,203.50`.
fn fixed(value: f64, decimals: usize) -> String {
    let value = if value.is_finite() { value.max(0.0) } else { 0.0 };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), text::count);
    format!("{whole}.{fraction}")
}
