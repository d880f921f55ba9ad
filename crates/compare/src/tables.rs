//! A comparison in tables, for the terminal and the page alike, and what became of its events in one sentence.

use walrelay_measure::latency::Latencies;
use walrelay_measure::numbers::{bytes, count, figure, fixed};
use walrelay_measure::table::Table;

use super::plan::CaptureMode;
use super::report::{ComparisonReport, QUANTILE_NAMES, QUANTILES, RateGroup, Run, RunResult};

/// The columns of events that were lost, repeated or reordered.
pub(crate) const LOSSES: [&str; 3] = ["missing", "duplicated", "out of order"];
const COSTS: [&str; 8] = [
    "transactions",
    "tuples read",
    "tuples written",
    "dead tuples",
    "WAL",
    "Postgres CPU",
    "relay CPU",
    "relay memory",
];
/// The cell of a value that is not known.
const UNKNOWN: &str = "–";

/// All numbers. The first table is that of the latencies, if there are any.
pub(crate) fn all(report: &ComparisonReport) -> Vec<Table> {
    let mut tables = of_runs(report, &report.by_rate());
    tables.extend(of_drains(report));
    tables
}

fn of_runs(report: &ComparisonReport, rates: &[RateGroup<'_>]) -> Vec<Table> {
    let table = |title: &str, columns: &[&str]| {
        Table::new(title, ["events/s", "mode"].iter().chain(columns).copied())
    };
    let of_events = ["events", "written/s", "delivered/s"].iter().chain(&LOSSES).copied();
    let of_events: Vec<&str> = of_events.chain(["load late p99", "load average"]).collect();
    let mut latency = table("Latency in milliseconds", &QUANTILE_NAMES);
    let mut events = table("Events", &of_events);
    let mut costs = table("Cost of each run", &COSTS);
    for run in rates.iter().flat_map(|at| &at.runs) {
        let result = &run.result;
        let add = |table: &mut Table, cells: Vec<String>| {
            table.row([count(run.rate.into()), result.mode.name()].into_iter().chain(cells));
        };
        add(&mut latency, quantiles(&run.latencies));
        add(&mut costs, cost(result));
        let mut cells = vec![count(result.events)];
        cells.extend([run.written_per_second, run.delivered_per_second()].map(|it| fixed(it, 1)));
        cells.extend(losses(result));
        cells.push(format!("{} ms", fixed(run.load_late_p99_ms, 2)));
        cells.push(fixed(run.load_average, 2));
        add(&mut events, cells);
    }
    if report.runs.is_empty() { Vec::new() } else { vec![latency, events, costs] }
}

fn of_drains(report: &ComparisonReport) -> Vec<Table> {
    let Some(first) = report.drains.first() else { return Vec::new() };
    let title = format!("A backlog of {} events", count(first.result.events));
    let columns = ["mode", "first after", "all after", "events/s"];
    let mut speeds = Table::new(title, columns.iter().chain(&LOSSES).copied());
    let mut costs = Table::new("Cost of draining it", ["mode"].iter().chain(&COSTS).copied());
    for drain in &report.drains {
        let name = drain.result.mode.name();
        let mut cells = vec![name.clone(), seconds(drain.first_s)];
        cells.push(seconds(drain.first_s + drain.seconds));
        cells.push(count(drain.per_second().round() as u64));
        speeds.row(cells.into_iter().chain(losses(&drain.result)));
        costs.row([name].into_iter().chain(cost(&drain.result)));
    }
    vec![speeds, costs]
}

fn quantiles(latencies: &Latencies) -> Vec<String> {
    let values = latencies.quantiles_ms(QUANTILES);
    values.map_or_else(|| vec![UNKNOWN.to_owned(); 6], |ms| ms.map(|it| fixed(it, 2)).into())
}

fn losses(RunResult { losses, .. }: &RunResult) -> [String; 3] {
    [losses.missing, losses.duplicated, losses.out_of_order].map(count)
}

fn cost(RunResult { postgres, relay, .. }: &RunResult) -> Vec<String> {
    vec![
        count(postgres.transactions),
        count(postgres.tuples_read),
        count(postgres.tuples_written),
        count(postgres.dead_tuples),
        bytes(postgres.wal_bytes),
        postgres.cpu_s.map_or(UNKNOWN.to_owned(), seconds),
        seconds(relay.cpu_s),
        bytes(relay.rss_peak_bytes),
    ]
}

fn seconds(value: f64) -> String {
    format!("{} s", fixed(value, 2))
}

/// Each figure of polling as a multiple of that of the slot at the same rate.
pub(crate) fn factors(report: &ComparisonReport) -> Table {
    type Figure = fn(&Run) -> Option<f64>;
    let figures: [(&str, Figure); 7] = [
        ("p50", |run| run.latencies.quantile_ms(0.5)),
        ("p99", |run| run.latencies.quantile_ms(0.99)),
        ("Postgres CPU", |run| run.result.postgres.cpu_s),
        ("transactions", |run| Some(run.result.postgres.transactions as f64)),
        ("WAL", |run| Some(run.result.postgres.wal_bytes as f64)),
        ("relay CPU", |run| Some(run.result.relay.cpu_s)),
        ("relay memory", |run| Some(run.result.relay.rss_peak_bytes as f64)),
    ];
    let columns = ["events/s", "mode"].into_iter().chain(figures.map(|(name, _)| name));
    let mut table = Table::new("Polling as a multiple of CDC", columns);
    for at in report.by_rate() {
        let Some(cdc) = at.runs.iter().find(|run| run.result.mode == CaptureMode::Cdc) else {
            continue;
        };
        for polling in at.runs.iter().filter(|run| run.result.mode != CaptureMode::Cdc) {
            let cells = figures.map(|(_, of)| factor(of(polling), of(cdc)));
            table.row([count(at.rate.into()), polling.result.mode.name()].into_iter().chain(cells));
        }
    }
    table
}

/// A figure that is zero or not known has no multiple.
fn factor(above: Option<f64>, below: Option<f64>) -> String {
    let known = above.zip(below).filter(|(above, below)| *above > 0.0 && *below > 0.0);
    known.map_or(UNKNOWN.to_owned(), |(above, below)| format!("{} ×", figure(above / below)))
}

/// One sentence on what became of all events.
pub(crate) fn conclusion(report: &ComparisonReport) -> String {
    let (losses, events) = (report.losses(), report.results().map(|it| it.events).sum());
    let counts = [losses.missing, losses.duplicated, losses.out_of_order];
    let wrong = counts.into_iter().zip(LOSSES).filter(|(events, _)| *events > 0);
    let wrong: Vec<String> =
        wrong.map(|(events, what)| format!("{} {what}", count(events))).collect();
    match (events, wrong.as_slice()) {
        (0, []) => "No event was measured.".to_owned(),
        (_, []) => {
            format!("None of {} events was missing, duplicated or out of order.", count(events))
        }
        (_, wrong) => format!("Of {} events: {}.", count(events), wrong.join(", ")),
    }
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
