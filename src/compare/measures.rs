//! Measures that are compared beyond latency, for the bars of the page and for the verdict.

use super::numbers;
use super::report::RunResult;

/// A cost: less is better.
pub(crate) struct CostMeasure {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// None when it is not known, or when there were no events.
    pub(crate) of: fn(&RunResult) -> Option<f64>,
    pub(crate) show: fn(f64) -> String,
}

/// Milliseconds per 1,000 events, which are microseconds per event.
pub(crate) const POSTGRES_CPU: CostMeasure =
    per_1000("Postgres CPU", |it| per_event(it, it.postgres.cpu_s? * 1e6), numbers::ms);

pub(crate) const POSTGRES: &[CostMeasure] = &[
    POSTGRES_CPU,
    per_1000(
        "transactions",
        |it| per_event(it, it.postgres.transactions as f64 * 1000.0),
        numbers::figure,
    ),
    each("tuples read", |it| per_event(it, it.postgres.tuples_read as f64), numbers::figure),
    each("tuples written", |it| per_event(it, it.postgres.tuples_written as f64), numbers::figure),
    each("dead tuples", |it| per_event(it, it.postgres.dead_tuples as f64), numbers::figure),
    each("WAL", |it| per_event(it, it.postgres.wal_bytes as f64), numbers::bytes),
];

pub(crate) const RELAY: &[CostMeasure] = &[
    per_1000("relay CPU", |it| per_event(it, it.relay.cpu_s * 1e6), numbers::ms),
    CostMeasure {
        title: "relay memory",
        unit: "resident at its peak",
        of: |it| Some(it.relay.rss_peak_bytes as f64),
        show: numbers::bytes,
    },
];

type Of = fn(&RunResult) -> Option<f64>;

const fn per_1000(title: &'static str, of: Of, show: fn(f64) -> String) -> CostMeasure {
    CostMeasure { title, unit: "per 1,000 events", of, show }
}

const fn each(title: &'static str, of: Of, show: fn(f64) -> String) -> CostMeasure {
    CostMeasure { title, unit: "per event", of, show }
}

fn per_event(result: &RunResult, total: f64) -> Option<f64> {
    (result.events > 0 && total.is_finite()).then(|| total / result.events as f64)
}
