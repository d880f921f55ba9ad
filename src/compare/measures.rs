//! What is compared beyond latency: each cost once, for the bars and for the verdict.

use super::numbers;
use super::report::RunResult;

/// A cost, such that less is better.
pub(crate) struct CostMeasure {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// None when it is not known, or when there were no events.
    pub(crate) of: fn(&RunResult) -> Option<f64>,
    /// For people.
    pub(crate) show: fn(f64) -> String,
}

/// Milliseconds for 1,000 events are microseconds for one.
pub(crate) const POSTGRES_CPU: CostMeasure = CostMeasure {
    title: "Postgres CPU",
    unit: "per 1,000 events",
    of: |result| per_event(result, result.postgres.cpu_s? * 1e6),
    show: numbers::ms,
};

/// What Postgres did, its CPU first.
pub(crate) const POSTGRES: &[CostMeasure] = &[
    POSTGRES_CPU,
    CostMeasure {
        title: "transactions",
        unit: "per 1,000 events",
        of: |result| per_event(result, result.postgres.transactions as f64 * 1000.0),
        show: numbers::figure,
    },
    CostMeasure {
        title: "tuples read",
        unit: "per event",
        of: |result| per_event(result, result.postgres.tuples_read as f64),
        show: numbers::figure,
    },
    CostMeasure {
        title: "tuples written",
        unit: "per event",
        of: |result| per_event(result, result.postgres.tuples_written as f64),
        show: numbers::figure,
    },
    CostMeasure {
        title: "dead tuples",
        unit: "per event",
        of: |result| per_event(result, result.postgres.dead_tuples as f64),
        show: numbers::figure,
    },
    CostMeasure {
        title: "WAL",
        unit: "per event",
        of: |result| per_event(result, result.postgres.wal_bytes as f64),
        show: numbers::bytes,
    },
];

/// What the relay's process took.
pub(crate) const RELAY: &[CostMeasure] = &[
    CostMeasure {
        title: "relay CPU",
        unit: "per 1,000 events",
        of: |result| per_event(result, result.relay.cpu_s * 1e6),
        show: numbers::ms,
    },
    CostMeasure {
        title: "relay memory",
        unit: "resident at its peak",
        of: |result| Some(result.relay.rss_peak_bytes as f64),
        show: numbers::bytes,
    },
];

fn per_event(result: &RunResult, total: f64) -> Option<f64> {
    (result.events > 0 && total.is_finite()).then(|| total / result.events as f64)
}
