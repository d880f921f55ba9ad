//! All numbers of a comparison as tables, for the terminal and the page alike.

use super::numbers::{self, count, fixed};
use super::report::{ComparisonReport, Drain, EventCounts, QUANTILES, RateGroup, Run, RunResult};

pub(crate) struct NumberTable {
    pub(crate) title: String,
    pub(crate) columns: Vec<&'static str>,
    /// Rows under a heading, which may be empty.
    pub(crate) groups: Vec<(String, Vec<TableRow>)>,
}

pub(crate) struct TableRow {
    pub(crate) name: String,
    pub(crate) cells: Vec<TableCell>,
}

pub(crate) struct TableCell {
    pub(crate) text: String,
    /// A number that ought to be zero and is not.
    pub(crate) alarm: bool,
}

/// The tables of what was measured.
pub(crate) fn all(report: &ComparisonReport) -> Vec<NumberTable> {
    let rates = report.by_rate();
    let mut tables = Vec::new();
    if !rates.is_empty() {
        let names = QUANTILES.map(|(_, name, _)| name);
        tables.push(of_runs("Latency in milliseconds", &names, &rates, latency));
        tables.push(of_runs("Events", &EVENTS, &rates, events));
        tables.push(of_runs("Cost of each run", &COST, &rates, |run| cost(&run.result)));
    }
    let drains = report.drains_by_mode();
    if let Some(first) = drains.first() {
        let title = format!("A backlog of {} events", count(first.result.events));
        tables.push(of_drains(title, &DRAIN, &drains, drained));
        let title = "Cost of draining it".to_owned();
        tables.push(of_drains(title, &COST, &drains, |drain| cost(&drain.result)));
    }
    tables
}

fn of_runs(
    title: &str,
    columns: &[&'static str],
    rates: &[RateGroup<'_>],
    cells: impl Fn(&Run) -> Vec<TableCell>,
) -> NumberTable {
    let row = |run: &&Run| TableRow { name: run.result.mode.name(), cells: cells(run) };
    let groups = rates.iter().map(|at| (numbers::rate(at.rate), at.runs.iter().map(row).collect()));
    NumberTable { title: title.to_owned(), columns: columns.to_vec(), groups: groups.collect() }
}

fn of_drains(
    title: String,
    columns: &[&'static str],
    drains: &[&Drain],
    cells: impl Fn(&Drain) -> Vec<TableCell>,
) -> NumberTable {
    let row = |drain: &&Drain| TableRow { name: drain.result.mode.name(), cells: cells(drain) };
    let groups = vec![(String::new(), drains.iter().map(row).collect())];
    NumberTable { title, columns: columns.to_vec(), groups }
}

fn latency(run: &Run) -> Vec<TableCell> {
    let quantile = |share| run.latencies.quantile_ms(share);
    let shown = |value: Option<f64>| plain(value.map_or("–".to_owned(), |ms| fixed(ms, 2)));
    QUANTILES.map(|(share, ..)| shown(quantile(share))).into()
}

const EVENTS: [&str; 8] = [
    "events",
    "written/s",
    "delivered/s",
    "missing",
    "duplicated",
    "out of order",
    "load late p99",
    "load average",
];

fn events(run: &Run) -> Vec<TableCell> {
    let mut cells = vec![
        plain(count(run.result.events)),
        plain(fixed(run.written_per_second, 1)),
        plain(fixed(run.delivered_per_second(), 1)),
    ];
    cells.extend(losses(run.result.losses));
    cells.push(plain(format!("{} ms", fixed(run.load_late_p99_ms, 2))));
    cells.push(plain(fixed(run.load_average, 2)));
    cells
}

const COST: [&str; 8] = [
    "transactions",
    "tuples read",
    "tuples written",
    "dead tuples",
    "WAL",
    "Postgres CPU",
    "relay CPU",
    "relay memory",
];

fn cost(result: &RunResult) -> Vec<TableCell> {
    let RunResult { postgres, relay, .. } = result;
    let cpu = |seconds: f64| format!("{} s", fixed(seconds, 2));
    let cells = [
        count(postgres.transactions),
        count(postgres.tuples_read),
        count(postgres.tuples_written),
        count(postgres.dead_tuples),
        numbers::bytes(postgres.wal_bytes as f64),
        postgres.cpu_s.map_or_else(|| "not known".to_owned(), cpu),
        cpu(relay.cpu_s),
        numbers::bytes(relay.rss_peak_bytes as f64),
    ];
    cells.map(plain).into()
}

const DRAIN: [&str; 6] =
    ["first after", "all after", "events/s", "missing", "duplicated", "out of order"];

fn drained(drain: &Drain) -> Vec<TableCell> {
    let mut cells = vec![
        plain(format!("{} s", fixed(drain.first_s, 2))),
        plain(format!("{} s", fixed(drain.first_s + drain.seconds, 2))),
        plain(count(drain.per_second().round() as u64)),
    ];
    cells.extend(losses(drain.result.losses));
    cells
}

fn losses(counts: EventCounts) -> [TableCell; 3] {
    let alarm = |events| TableCell { text: count(events), alarm: events > 0 };
    [counts.missing, counts.duplicated, counts.out_of_order].map(alarm)
}

fn plain(text: String) -> TableCell {
    TableCell { text, alarm: false }
}
