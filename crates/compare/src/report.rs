//! The result of a comparison as plain values, from which tables, JSON and page are made.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use walrelay_measure::latency::Latencies;
use walrelay_measure::numbers;

use super::plan::{CaptureMode, ComparisonPlan};
use walrelay_base::time::rfc3339;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ComparisonReport {
    #[serde(rename = "began", serialize_with = "as_rfc3339")]
    pub began_unix_us: i64,
    pub machine: Machine,
    pub postgres_version: String,
    /// The value of `sink.kind`.
    pub sink: String,
    /// The name of the sink for people.
    #[serde(skip)]
    pub sink_title: String,
    /// Its address, without credentials.
    pub broker: String,
    #[serde(rename = "settings")]
    pub plan: ComparisonPlan,
    /// In the order in which they ran.
    pub runs: Vec<Run>,
    /// The drain of the slot comes first.
    pub drains: Vec<Drain>,
    /// How far it came and why it ended, when not everything was measured.
    pub incomplete: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    pub cores: usize,
    pub memory_bytes: u64,
    /// The load average of the last minute before the first run.
    pub load_average: f64,
    /// Only then is the CPU time of Postgres known.
    pub database_is_local: bool,
}

/// One mode at one rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    #[serde(flatten)]
    pub result: RunResult,
    /// Events per second that the load should write.
    pub rate: u32,
    /// Events per second that it did write.
    pub written_per_second: f64,
    /// How late the load was. If this is much, the machine is too small for the rate, and the
    /// latencies say little.
    pub load_late_p99_ms: f64,
    /// From just before the INSERT is sent, which commits by itself, to the event at the consumer.
    #[serde(rename = "latency_ms", serialize_with = "as_quantiles")]
    pub latencies: Latencies,
    pub seconds: Vec<Second>,
    /// At the beginning of the run.
    pub load_average: f64,
}

/// A backlog that was written before the relay began.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Drain {
    #[serde(flatten)]
    pub result: RunResult,
    /// From the start of the relay's process to the first event at the consumer.
    pub first_s: f64,
    /// From the first event to the last.
    pub seconds: f64,
}

/// The results that a run and a drain have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunResult {
    #[serde(flatten)]
    pub mode: CaptureMode,
    /// Written in the measured time.
    pub events: u64,
    #[serde(flatten)]
    pub losses: EventCounts,
    pub postgres: PostgresCost,
    pub relay: RelayCost,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventCounts {
    /// Written and never seen by the consumer.
    pub missing: u64,
    /// Deliveries beyond the first.
    pub duplicated: u64,
    /// First deliveries that came after a later event of the same key.
    pub out_of_order: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Second {
    /// Since the run began.
    pub at_s: u32,
    pub written: u64,
    /// First deliveries in this second.
    pub delivered: u64,
    /// Written and not yet delivered at its end.
    pub backlog: u64,
    /// The median of the events delivered in this second, if there are any.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// The work of Postgres, from its own statistics, without the share of the load itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PostgresCost {
    /// Committed and rolled back.
    pub transactions: u64,
    pub tuples_read: u64,
    pub tuples_written: u64,
    /// Created in the outbox table, whether or not vacuum has removed them.
    pub dead_tuples: u64,
    pub wal_bytes: u64,
    /// The CPU time of the backends that worked for the relay; none when they are on
    /// another machine.
    pub cpu_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RelayCost {
    pub cpu_s: f64,
    pub rss_peak_bytes: u64,
}

/// The runs of one rate, sorted by mode.
pub struct RateGroup<'a> {
    pub rate: u32,
    pub runs: Vec<&'a Run>,
}

/// The reported quantiles, and their names in tables and in JSON.
pub const QUANTILES: [f64; 6] = [0.5, 0.9, 0.95, 0.99, 0.999, 1.0];
pub const QUANTILE_NAMES: [&str; 6] = ["p50", "p90", "p95", "p99", "p99.9", "max"];

impl Run {
    /// First deliveries per second, within the whole seconds of the load.
    pub fn delivered_per_second(&self) -> f64 {
        let lasted_s = self.result.events as f64 / self.written_per_second.max(f64::MIN_POSITIVE);
        // A load that is a little late ends shortly after the beginning of one more second.
        let whole = ((lasted_s + 0.001) as usize).clamp(1, self.seconds.len().max(1));
        let delivered: u64 = self.seconds.iter().take(whole).map(|it| it.delivered).sum();
        delivered as f64 / whole as f64
    }
}

impl Drain {
    /// Between the first and the last event.
    pub fn per_second(&self) -> f64 {
        let arrived = self.result.events.saturating_sub(self.result.losses.missing);
        let after_the_first = arrived.saturating_sub(1) as f64;
        if self.seconds > 0.0 { after_the_first / self.seconds } else { 0.0 }
    }
}

impl RateGroup<'_> {
    pub fn name(&self) -> String {
        format!("{} events/s", numbers::count(self.rate.into()))
    }
}

impl ComparisonReport {
    /// All results, runs first.
    pub fn results(&self) -> impl Iterator<Item = &RunResult> {
        let runs = self.runs.iter().map(|run| &run.result);
        runs.chain(self.drains.iter().map(|drain| &drain.result))
    }

    pub fn losses(&self) -> EventCounts {
        self.results().fold(EventCounts::default(), |sum, RunResult { losses, .. }| EventCounts {
            missing: sum.missing + losses.missing,
            duplicated: sum.duplicated + losses.duplicated,
            out_of_order: sum.out_of_order + losses.out_of_order,
        })
    }

    pub fn by_rate(&self) -> Vec<RateGroup<'_>> {
        let mut runs: Vec<&Run> = self.runs.iter().collect();
        runs.sort_by_key(|run| (run.rate, run.result.mode));
        let groups = runs.chunk_by(|a, b| a.rate == b.rate);
        groups.map(|runs| RateGroup { rate: runs[0].rate, runs: runs.to_vec() }).collect()
    }

    /// When and where it was measured, in one line.
    pub fn place(&self) -> String {
        let began = rfc3339(self.began_unix_us);
        let date = began.get(..16).unwrap_or(&began).replace('T', " ");
        let sink = &self.sink_title;
        let Machine { cores, memory_bytes, load_average, .. } = self.machine;
        let word = if cores == 1 { "core" } else { "cores" };
        let parts = [
            (true, format!("{date} UTC")),
            (!self.postgres_version.is_empty(), format!("PostgreSQL {}", self.postgres_version)),
            (!sink.is_empty(), format!("{sink} at {}", self.broker)),
            (cores > 0, format!("{cores} {word}")),
            (cores > 0, format!("{} of memory", numbers::bytes(memory_bytes))),
            (cores > 0, format!("load average {} before", numbers::figure(load_average))),
        ];
        let known = parts.into_iter().filter(|(known, _)| *known).map(|(_, part)| part);
        known.collect::<Vec<_>>().join(" · ")
    }

    pub fn to_json(&self) -> Value {
        let mut value = json!(self);
        value["walrelay_version"] = json!(env!("CARGO_PKG_VERSION"));
        for (at, run) in self.runs.iter().enumerate() {
            value["runs"][at]["delivered_per_second"] = json!(run.delivered_per_second());
        }
        for (at, drain) in self.drains.iter().enumerate() {
            value["drains"][at]["per_second"] = json!(drain.per_second());
        }
        value
    }
}

fn as_quantiles<S: Serializer>(latencies: &Latencies, serializer: S) -> Result<S::Ok, S::Error> {
    let values = latencies.quantiles_ms(QUANTILES);
    let named = |(at, name): (usize, &str)| (name.replace('.', ""), values.map(|ms| ms[at]));
    serializer.collect_map(QUANTILE_NAMES.into_iter().enumerate().map(named))
}

fn as_rfc3339<S: Serializer>(unix_us: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*unix_us))
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
