//! What is set side by side beyond latency: each cost once, for the bars, the table and the verdict.

use crate::compare::report::{PostgresCost, Run};

use super::text;

/// A cost, such that less is better.
pub(super) struct Measure {
    /// Above its bars.
    pub(super) title: &'static str,
    /// Of what.
    pub(super) unit: &'static str,
    /// In a sentence, as what there is less of.
    pub(super) noun: &'static str,
    /// Per event or per 1,000 events; none when it is not known, or when there were no events.
    pub(super) of: fn(&Run) -> Option<f64>,
    /// For people.
    pub(super) show: fn(f64) -> String,
}

fn per_event(run: &Run, total: f64) -> Option<f64> {
    (run.events > 0 && total.is_finite()).then(|| total / run.events as f64)
}

fn postgres(run: &Run, part: fn(&PostgresCost) -> u64) -> Option<f64> {
    per_event(run, part(&run.postgres) as f64)
}

/// Milliseconds for 1,000 events are microseconds for one.
fn cpu_ms(run: &Run, seconds: f64) -> Option<f64> {
    per_event(run, seconds).map(|each| each * 1e6)
}

pub(super) const POSTGRES_CPU: Measure = Measure {
    title: "Postgres CPU",
    unit: "per 1,000 events",
    noun: "Postgres CPU per 1,000 events",
    of: |run| cpu_ms(run, run.postgres.cpu_s?),
    show: text::ms,
};

/// What Postgres did, its CPU first.
pub(super) const POSTGRES: &[Measure] = &[
    POSTGRES_CPU,
    Measure {
        title: "Transactions",
        unit: "per 1,000 events",
        noun: "transactions per 1,000 events",
        of: |run| postgres(run, |cost| cost.transactions).map(|each| each * 1000.0),
        show: text::figure,
    },
    Measure {
        title: "Tuples read",
        unit: "per event",
        noun: "tuples read per event",
        of: |run| postgres(run, |cost| cost.tuples_read),
        show: text::figure,
    },
    Measure {
        title: "Tuples written",
        unit: "per event",
        noun: "tuples written per event",
        of: |run| postgres(run, |cost| cost.tuples_written),
        show: text::figure,
    },
    Measure {
        title: "Dead tuples",
        unit: "per event",
        noun: "dead tuples per event",
        of: |run| postgres(run, |cost| cost.dead_tuples),
        show: text::figure,
    },
    Measure {
        title: "WAL",
        unit: "per event",
        noun: "WAL per event",
        of: |run| postgres(run, |cost| cost.wal_bytes),
        show: text::bytes,
    },
];

/// What the relay's process took.
pub(super) const RELAY: &[Measure] = &[
    Measure {
        title: "Relay CPU",
        unit: "per 1,000 events",
        noun: "CPU of the relay per 1,000 events",
        of: |run| cpu_ms(run, run.relay.cpu_s),
        show: text::ms,
    },
    Measure {
        title: "Relay memory",
        unit: "peak, resident",
        noun: "peak memory of the relay",
        of: |run| Some(run.relay.rss_peak_bytes as f64),
        show: text::bytes,
    },
];
