//! All numbers of a comparison as tables, for the terminal and the page alike.

use super::numbers::{self, count, fixed};
use super::report::{ComparisonReport, Drain, QUANTILES, Run, RunResult};

pub(crate) struct NumberTable {
    pub(crate) title: String,
    /// Rows under a heading, which may be empty.
    pub(crate) groups: Vec<(String, Vec<TableRow>)>,
}

pub(crate) struct TableRow {
    pub(crate) name: String,
    pub(crate) cells: Vec<TableCell>,
}

pub(crate) struct TableCell {
    pub(crate) column: &'static str,
    pub(crate) text: String,
    /// A count of lost, repeated or reordered events that is not zero.
    pub(crate) alarm: bool,
}

impl NumberTable {
    pub(crate) fn rows(&self) -> impl Iterator<Item = &TableRow> {
        self.groups.iter().flat_map(|(_, rows)| rows)
    }

    pub(crate) fn columns(&self) -> Vec<&'static str> {
        let first = self.rows().next().map(|row| row.cells.as_slice()).unwrap_or_default();
        first.iter().map(|cell| cell.column).collect()
    }
}

pub(crate) fn all(report: &ComparisonReport) -> Vec<NumberTable> {
    let (rates, drains) = (report.by_rate(), report.drains_by_mode());
    let of_runs = |title: &str, cells: fn(&Run) -> Vec<TableCell>| {
        let row = |run: &&Run| TableRow { name: run.result.mode.name(), cells: cells(run) };
        let groups =
            rates.iter().map(|at| (numbers::rate(at.rate), at.runs.iter().map(row).collect()));
        NumberTable { title: title.to_owned(), groups: groups.collect() }
    };
    let of_drains = |title: String, cells: fn(&Drain) -> Vec<TableCell>| {
        let row = |drain: &&Drain| TableRow { name: drain.result.mode.name(), cells: cells(drain) };
        NumberTable { title, groups: vec![(String::new(), drains.iter().map(row).collect())] }
    };
    let mut tables = Vec::new();
    if !rates.is_empty() {
        tables.push(of_runs("Latency in milliseconds", latency));
        tables.push(of_runs("Events", events));
        tables.push(of_runs("Cost of each run", |run| cost(&run.result)));
    }
    if let Some(first) = drains.first() {
        let title = format!("A backlog of {} events", count(first.result.events));
        tables.push(of_drains(title, drained));
        tables.push(of_drains("Cost of draining it".to_owned(), |drain| cost(&drain.result)));
    }
    tables
}

fn latency(run: &Run) -> Vec<TableCell> {
    let shown =
        |share| run.latencies.quantile_ms(share).map_or("–".to_owned(), |it| fixed(it, 2));
    QUANTILES.map(|(share, name, _)| cell(name, shown(share))).into()
}

fn events(run: &Run) -> Vec<TableCell> {
    let mut cells = vec![
        cell("events", count(run.result.events)),
        cell("written/s", fixed(run.written_per_second, 1)),
        cell("delivered/s", fixed(run.delivered_per_second(), 1)),
    ];
    cells.extend(losses(&run.result));
    cells.push(cell("load late p99", format!("{} ms", fixed(run.load_late_p99_ms, 2))));
    cells.push(cell("load average", fixed(run.load_average, 2)));
    cells
}

fn cost(RunResult { postgres, relay, .. }: &RunResult) -> Vec<TableCell> {
    vec![
        cell("transactions", count(postgres.transactions)),
        cell("tuples read", count(postgres.tuples_read)),
        cell("tuples written", count(postgres.tuples_written)),
        cell("dead tuples", count(postgres.dead_tuples)),
        cell("WAL", numbers::bytes(postgres.wal_bytes as f64)),
        cell("Postgres CPU", postgres.cpu_s.map_or("not known".to_owned(), seconds)),
        cell("relay CPU", seconds(relay.cpu_s)),
        cell("relay memory", numbers::bytes(relay.rss_peak_bytes as f64)),
    ]
}

fn drained(drain: &Drain) -> Vec<TableCell> {
    let mut cells = vec![
        cell("first after", seconds(drain.first_s)),
        cell("all after", seconds(drain.first_s + drain.seconds)),
        cell("events/s", count(drain.per_second().round() as u64)),
    ];
    cells.extend(losses(&drain.result));
    cells
}

fn losses(RunResult { losses, .. }: &RunResult) -> [TableCell; 3] {
    let lost = |column, events| TableCell { column, text: count(events), alarm: events > 0 };
    [
        lost("missing", losses.missing),
        lost("duplicated", losses.duplicated),
        lost("out of order", losses.out_of_order),
    ]
}

fn cell(column: &'static str, text: String) -> TableCell {
    TableCell { column, text, alarm: false }
}

fn seconds(value: f64) -> String {
    format!("{} s", fixed(value, 2))
}
