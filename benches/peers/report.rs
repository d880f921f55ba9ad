//! All figures of a run: on the terminal, as Markdown, as JSON.

use std::path::Path;

use serde::Serialize;
use walrelay_harness::bench::{CpuSeconds, commit, markdown, terminal, unix_seconds, write_report};
use walrelay_harness::{HarnessError, Result};
use walrelay_measure::numbers;
use walrelay_measure::numbers::median;
use walrelay_measure::process::{load_average, machine_memory_bytes};
use walrelay_measure::table::Table;

use crate::chaos::{Chaos, Kills};
use crate::drain::{Figures, Run};
use crate::latency::Latency;
use crate::options::{Options, Part};
use crate::peer::{Contender, Outcome, Peer};

/// One contender as it was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) peer: Peer,
    pub(crate) name: &'static str,
    pub(crate) runtime: Option<String>,
    /// Command and configuration.
    pub(crate) settings: String,
    /// Why it was not measured.
    pub(crate) missing: Option<String>,
}

/// The findings of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) command: String,
    pub(crate) commit: String,
    pub(crate) seed: u64,
    pub(crate) machine: String,
    pub(crate) server_version: String,
    pub(crate) broker_version: String,
    pub(crate) started_unix_s: u64,
    pub(crate) took_s: f64,
    pub(crate) load_average_at_start: f64,
    pub(crate) rows: u64,
    pub(crate) seconds_per_rate: u64,
    pub(crate) contenders: Vec<Entry>,
    pub(crate) drain: Vec<Run>,
    pub(crate) latency: Vec<Latency>,
    pub(crate) chaos: Vec<Kills>,
    #[serde(skip)]
    parts: Vec<Part>,
}

impl Report {
    pub(crate) fn new(options: &Options, contenders: &[Contender]) -> Report {
        let entry = |contender: &Contender| Entry {
            peer: contender.peer,
            name: contender.name(),
            runtime: contender.installed.runtime.clone(),
            settings: contender.settings(),
            missing: contender.installed.missing.clone(),
        };
        let all = [Part::Drain, Part::Latency, Part::Chaos];
        Report {
            command: command(),
            commit: commit(),
            seed: options.seed,
            machine: machine(),
            server_version: String::new(),
            broker_version: String::new(),
            started_unix_s: unix_seconds(),
            took_s: 0.0,
            load_average_at_start: load_average(),
            rows: options.rows,
            seconds_per_rate: options.seconds,
            contenders: contenders.iter().map(entry).collect(),
            drain: Vec::new(),
            latency: Vec::new(),
            chaos: Vec::new(),
            parts: all.into_iter().filter(|part| options.runs_part(*part)).collect(),
        }
    }

    /// For a terminal.
    pub(crate) fn terminal(&self) -> String {
        format!("{}\n{}", terminal(&self.grids()), self.conditions())
    }

    /// Writes both files; tells their names.
    pub(crate) fn write(&self, folder: &Path) -> Result<String> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| HarnessError::Other(format!("the report: {error}")))?;
        let settings: String = self.contenders.iter().map(settings).collect();
        let markdown = format!(
            "{}\n{}\n\n### Settings\n{settings}",
            markdown(&self.grids()),
            self.conditions()
        );
        write_report(folder, "peers", &json, &markdown)
    }

    fn conditions(&self) -> String {
        let runtimes = self.contenders.iter().filter_map(|entry| {
            let runtime = entry.runtime.as_ref()?;
            Some(format!(" · {} on {runtime}", entry.name))
        });
        format!(
            "`{}` · commit {} · seed {} · PostgreSQL {} · {}{} · {} · load {:.1} at the start · {:.0} s",
            self.command,
            self.commit,
            self.seed,
            self.server_version,
            self.broker_version,
            runtimes.collect::<String>(),
            self.machine,
            self.load_average_at_start,
            self.took_s
        )
    }

    fn grids(&self) -> Vec<Table> {
        let grid = |part: &Part| match part {
            Part::Drain => self.drain_grid(),
            Part::Latency => self.latency_grid(),
            Part::Chaos => self.chaos_grid(),
        };
        self.parts.iter().map(grid).collect()
    }

    fn drain_grid(&self) -> Table {
        let header = [
            "relay",
            "events/s",
            "second half",
            "CPU-s per million",
            "peak memory",
            "first event",
            "every event",
            "load before",
        ];
        let rounds = self.drain.iter().map(|run| run.round).max().unwrap_or(0);
        let title = format!("Drain of {} rows, median of {rounds}", numbers::count(self.rows));
        let mut grid = Table::new(title, header);
        for entry in &self.contenders {
            if self.is_missing(entry, &mut grid, header.len()) {
                continue;
            }
            let own: Vec<&Run> = self.drain.iter().filter(|run| run.peer == entry.peer).collect();
            let failed = own.iter().find_map(|run| match &run.outcome {
                Outcome::Failed(why) => Some(why),
                Outcome::Measured(_) => None,
            });
            match failed {
                Some(why) => without_figures(entry.name, why, &mut grid, header.len()),
                None => grid.row(drained(entry.name, &own)),
            }
        }
        grid
    }

    fn latency_grid(&self) -> Table {
        let header = [
            "relay",
            "events/s",
            "p50",
            "p95",
            "p99",
            "max",
            "reached",
            CpuSeconds::HEADER,
            "memory",
            "load late p99",
            "behind",
            "every event",
            "load before",
        ];
        let title = format!("Latency in ms, insert → consumer, {} s a rate", self.seconds_per_rate);
        let mut grid = Table::new(title, header);
        for entry in &self.contenders {
            if self.is_missing(entry, &mut grid, header.len()) {
                continue;
            }
            for own in self.latency.iter().filter(|own| own.peer == entry.peer) {
                for rate in &own.rates {
                    grid.row(vec![
                        entry.name.into(),
                        numbers::count(rate.events_per_s),
                        numbers::figure(rate.latency.p50_ms),
                        numbers::figure(rate.latency.p95_ms),
                        numbers::figure(rate.latency.p99_ms),
                        numbers::figure(rate.latency.max_ms),
                        numbers::count(rate.reached_per_s.round() as u64),
                        rate.cpu_s.to_string(),
                        numbers::bytes(rate.rss_bytes),
                        numbers::figure(rate.load_late_p99_ms),
                        format!("{:.1} s", rate.behind_s),
                        own.check.clone(),
                        format!("{:.1}", rate.load_average_before),
                    ]);
                }
                if let Some(why) = &own.failed {
                    without_figures(entry.name, why, &mut grid, header.len());
                }
            }
        }
        grid
    }

    fn chaos_grid(&self) -> Table {
        let header = [
            "relay",
            "committed",
            "there at the last fault",
            "lost",
            "out of order",
            "repeated",
            "otherwise wrong",
            "died by itself",
            "all there after",
            "confirmed after",
            "load before",
        ];
        let mut grid = Table::new(format!("Kills: {}", self.kills()), header);
        let seconds =
            |time: Option<f64>| time.map_or("not in time".into(), |s| format!("{s:.1} s"));
        for entry in &self.contenders {
            if self.is_missing(entry, &mut grid, header.len()) {
                continue;
            }
            for kills in self.chaos.iter().filter(|kills| kills.peer == entry.peer) {
                let own = match &kills.outcome {
                    Outcome::Measured(own) => own,
                    Outcome::Failed(why) => {
                        without_figures(entry.name, why, &mut grid, header.len());
                        continue;
                    }
                };
                grid.row(vec![
                    entry.name.into(),
                    numbers::count(own.committed),
                    numbers::count(own.held_at_end),
                    numbers::count(own.lost),
                    numbers::count(own.out_of_order),
                    numbers::count(own.repeated),
                    numbers::count(own.otherwise_wrong),
                    numbers::count(own.relay.deaths),
                    seconds(own.caught_up_s),
                    seconds(own.confirmed_s),
                    format!("{:.1}", own.load_average_before),
                ]);
            }
        }
        grid
    }

    /// The kills of the first contender: the plan is the same for all.
    fn kills(&self) -> String {
        let mut measured = self.chaos.iter().filter_map(|kills| match &kills.outcome {
            Outcome::Measured(own) => Some(own),
            Outcome::Failed(_) => None,
        });
        measured.next().map_or_else(String::new, |own: &Chaos| {
            format!(
                "relay {} × kill -9, {} × frozen, {} × walsender terminated, {} × PostgreSQL crash, \
                 {} × Kafka kill -9",
                own.relay.kills,
                own.relay.freezes,
                own.terminations,
                own.crashes,
                own.broker_kills
            )
        })
    }

    fn is_missing(&self, entry: &Entry, grid: &mut Table, columns: usize) -> bool {
        let Some(why) = &entry.missing else { return false };
        without_figures(entry.name, &format!("not measured: {why}"), grid, columns);
        true
    }
}

fn drained(name: &str, runs: &[&Run]) -> Vec<String> {
    let figures = || {
        runs.iter().filter_map(|run| match &run.outcome {
            Outcome::Measured(figures) => Some(figures),
            Outcome::Failed(_) => None,
        })
    };
    let of = |figure: fn(&Figures) -> f64| median(figures().map(figure).collect());
    let told = |value: Option<f64>, tell: fn(f64) -> String| value.map_or("–".into(), tell);
    let wrong = figures().map(|figures| &figures.check).find(|check| *check != "exact");
    let load = runs.iter().map(|run| run.load_average_before).collect();
    vec![
        name.into(),
        told(of(|figures| figures.events_per_s), numbers::rate),
        told(of(|figures| figures.second_half_per_s), numbers::rate),
        told(of(|figures| figures.cpu_s_per_million), |seconds| format!("{seconds:.1}")),
        told(of(|figures| figures.peak_rss_bytes as f64), |bytes| numbers::bytes(bytes as u64)),
        told(of(|figures| figures.first_event_ms), |ms| format!("{} ms", numbers::figure(ms))),
        wrong.cloned().unwrap_or_else(|| "exact".into()),
        told(median(load), |load| format!("{load:.1}")),
    ]
}

/// A row that says why it has none.
fn without_figures(name: &str, why: &str, grid: &mut Table, columns: usize) {
    let head: Vec<&str> = why.lines().take(2).map(str::trim).collect();
    let mut cells = vec![name.to_owned(), head.join(": ")];
    cells.resize(columns, "–".into());
    grid.row(cells);
}

fn settings(entry: &Entry) -> String {
    format!("\n{}:\n\n```text\n{}\n```\n", entry.name, entry.settings.trim_end())
}

/// As somebody would repeat it.
fn command() -> String {
    let given: Vec<String> = std::env::args().skip(1).collect();
    format!("make bench-peers BENCH_ARGS={:?}", given.join(" "))
}

/// Cores, model, memory.
fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown CPU", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores, {model}, {}", numbers::bytes(machine_memory_bytes()))
}
