//! All figures of a run: on the terminal, as Markdown, as JSON.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use walrelay_harness::bench::{CpuSeconds, commit, markdown, terminal, unix_seconds, write_report};
use walrelay_harness::{HarnessError, Result};
use walrelay_measure::numbers;
use walrelay_measure::process::load_average;
use walrelay_measure::table::Table;

use crate::drain::{Contender, Run};
use crate::growth::Cost;
use crate::latency::Rate;
use crate::options::Options;
use crate::targets::{self, Limit, Target};
use walrelay_measure::latency::Percentiles;

/// The findings of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) relay_version: &'static str,
    pub(crate) commit: String,
    pub(crate) server_version: String,
    pub(crate) broker_version: String,
    pub(crate) started_unix_s: u64,
    pub(crate) took_s: f64,
    pub(crate) cores: usize,
    pub(crate) load_average_at_start: f64,
    pub(crate) rows: u64,
    pub(crate) seconds_per_rate: u64,
    pub(crate) drain: Vec<Run>,
    pub(crate) latency: Vec<Rate>,
    pub(crate) growth: Vec<Cost>,
    pub(crate) targets: Vec<Target>,
}

impl Report {
    pub(crate) fn new(options: &Options) -> Report {
        Report {
            relay_version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            server_version: String::new(),
            broker_version: String::new(),
            started_unix_s: unix_seconds(),
            took_s: 0.0,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            load_average_at_start: load_average(),
            rows: options.rows,
            seconds_per_rate: options.seconds,
            drain: Vec::new(),
            latency: Vec::new(),
            growth: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// Judges what was measured.
    pub(crate) fn finish(&mut self, took: Duration) {
        self.took_s = took.as_secs_f64();
        self.targets = targets::drain(&self.drain);
        self.targets.extend(targets::latency(&self.latency));
        self.targets.extend(targets::growth(&self.growth));
    }

    /// For a terminal.
    pub(crate) fn terminal(&self) -> String {
        let grids = self.grids();
        format!("{}\n{}", terminal(&grids), self.conditions())
    }

    /// Writes both files; tells their names.
    pub(crate) fn write(&self, folder: &Path) -> Result<String> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| HarnessError::Other(format!("the report: {error}")))?;
        let markdown = format!("{}\n{}\n", markdown(&self.grids()), self.conditions());
        write_report(folder, "relay", &(json + "\n"), &markdown)
    }

    fn conditions(&self) -> String {
        format!(
            "walrelay {} · commit {} · PostgreSQL {} · {}{} · {} cores · load {:.1} at the start · {:.0} s",
            self.relay_version,
            self.commit,
            self.server_version,
            self.broker_version,
            self.windows(),
            self.cores,
            self.load_average_at_start,
            self.took_s
        )
    }

    /// Describes the windows of the bare publisher.
    fn windows(&self) -> String {
        let first = self.drain.iter().filter(|run| run.round == 1);
        let told = first.filter_map(|run| {
            let window = numbers::count(run.window_events?);
            Some(format!(" · {}: {window} unconfirmed", run.contender.name()))
        });
        told.collect()
    }

    fn grids(&self) -> Vec<Table> {
        let grids =
            [self.drain_grid(), self.latency_grid(), self.growth_grid(), self.target_grid()];
        grids.into_iter().filter(|grid| !grid.is_empty()).collect()
    }

    fn drain_grid(&self) -> Table {
        let rounds = self.drain.iter().map(|run| run.round).max().unwrap_or(0);
        let title = format!(
            "Drain of {} rows, median of {rounds} (lowest – highest)",
            numbers::count(self.rows)
        );
        let header = [
            "reader",
            "events/s",
            "range",
            "CPU-s per million",
            "walsender CPU-s",
            "peak memory",
            "first event",
            "load before",
        ];
        let mut grid = Table::new(title, header);
        let mut contenders: Vec<Contender> = Vec::new();
        for run in &self.drain {
            if !contenders.contains(&run.contender) {
                contenders.push(run.contender);
            }
        }
        for contender in contenders {
            let own = |figure: fn(&Run) -> f64| targets::of(&self.drain, contender, figure);
            let Some(speed) = own(|run| run.events_per_s) else { continue };
            let runs = self.drain.iter().filter(|run| run.contender == contender);
            let speeds: Vec<f64> = runs.map(|run| run.events_per_s).collect();
            let lowest = speeds.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = speeds.iter().copied().fold(0.0, f64::max);
            let number = |figure: Option<f64>| figure.map_or("–".into(), |f| format!("{f:.2}"));
            let peak = own(|run| run.peak_rss_bytes.map_or(f64::NAN, |bytes| bytes as f64));
            let first = own(|run| run.first_event_ms).unwrap_or(0.0);
            grid.row(vec![
                contender.name().into(),
                numbers::rate(speed),
                format!("{} – {}", numbers::rate(lowest), numbers::rate(highest)),
                number(own(|run| run.cpu_s_per_million)),
                number(own(|run| run.walsender_cpu_s_per_million)),
                peak.map_or("–".into(), |bytes| numbers::bytes(bytes as u64)),
                format!("{} ms", numbers::figure(first)),
                number(own(|run| run.load_average_before)),
            ]);
        }
        grid
    }

    fn latency_grid(&self) -> Table {
        let title = format!("Latency in ms, {} s at each rate", self.seconds_per_rate);
        let header = [
            "events/s",
            "from → to",
            "p50",
            "p95",
            "p99",
            "max",
            "reached",
            CpuSeconds::HEADER,
            "memory",
            "load late p99",
        ];
        let mut grid = Table::new(title, header);
        for rate in &self.latency {
            let mut row = |name: &str, points: &Percentiles, more: [String; 4]| {
                let ms = [points.p50_ms, points.p95_ms, points.p99_ms, points.max_ms];
                let first = [numbers::count(rate.events_per_s), name.to_owned()];
                grid.row(
                    first
                        .into_iter()
                        .chain(ms.map(numbers::figure))
                        .chain(more)
                        .collect::<Vec<_>>(),
                );
            };
            if let Some(legs) = &rate.legs {
                let nothing = || [const { String::new() }; 4];
                row("commit → pg_recvlogical", &legs.source_ms, nothing());
                row("bare producer → consumer", &legs.sink_ms, nothing());
            }
            for relay in &rate.relays {
                let cost = [
                    numbers::count(relay.reached_per_s.round() as u64),
                    relay.cpu_s.to_string(),
                    numbers::bytes(relay.rss_bytes),
                    numbers::figure(relay.load_late_p99_ms),
                ];
                let name = format!("commit → consumer, {}", relay.contender.name());
                row(&name, &relay.ms, cost);
            }
        }
        grid
    }

    fn growth_grid(&self) -> Table {
        let header =
            ["grows", "rows", "per transaction", "keys", "CPU-µs per event", "peak memory"];
        let mut grid = Table::new("Growth, through Kafka", header);
        for cost in &self.growth {
            grid.row(vec![
                cost.case.axis.name().into(),
                numbers::count(cost.case.rows),
                numbers::count(cost.case.rows_per_transaction),
                numbers::count(cost.case.keys),
                format!("{:.2}", cost.cpu_us_per_event),
                numbers::bytes(cost.peak_rss_bytes),
            ]);
        }
        grid
    }

    fn target_grid(&self) -> Table {
        let mut grid = Table::new("Targets", ["", "what", "measured", "target"]);
        for target in &self.targets {
            let number = |value: f64| match target.unit {
                "×" => format!("{value:.2} ×"),
                unit => format!("{} {unit}", numbers::figure(value)),
            };
            let limit = match target.limit {
                Limit::AtLeast(least) => format!("≥ {}", number(least)),
                Limit::AtMost(most) => format!("≤ {}", number(most)),
            };
            let mark = if target.met { "✓" } else { "✗" };
            grid.row(vec![mark.into(), target.what.clone(), number(target.measured), limit]);
        }
        grid
    }
}
