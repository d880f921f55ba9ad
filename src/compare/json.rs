//! The report as JSON, for scripts: names and units as in DESIGN section 9, every time in its unit.

use serde_json::{Map, Value, json};

use super::report::{Drain, Mode, PostgresCost, RelayCost, Report, Run, Second};
use crate::base::time::rfc3339;

/// The whole report.
#[must_use]
pub fn to_json(report: &Report) -> Value {
    let Report { machine, settings, .. } = report;
    json!({
        "began": rfc3339(report.began_unix_us),
        "walrelay_version": env!("CARGO_PKG_VERSION"),
        "postgres_version": report.postgres_version,
        "sink": report.sink,
        "broker": report.broker,
        "machine": {
            "cores": machine.cores,
            "memory_bytes": machine.memory_bytes,
            "load_average": machine.load_average,
            "database_is_local": machine.database_is_local,
        },
        "settings": {
            "rates": settings.rates,
            "intervals_ms": settings.intervals_ms,
            "duration_s": settings.duration_s,
            "payload_bytes": settings.payload_bytes,
            "keys": settings.keys,
            "backlog_events": settings.backlog_events,
        },
        "incomplete": report.incomplete,
        "runs": report.runs.iter().map(run).collect::<Vec<_>>(),
        "drains": report.drains.iter().map(drain).collect::<Vec<_>>(),
    })
}

fn of_mode(mode: Mode) -> Map<String, Value> {
    let mut object = Map::new();
    match mode {
        Mode::Cdc => {
            object.insert("mode".to_owned(), json!("cdc"));
        }
        Mode::Polling { interval_ms } => {
            object.insert("mode".to_owned(), json!("polling"));
            object.insert("interval_ms".to_owned(), json!(interval_ms));
        }
    }
    object
}

fn with(mode: Mode, rest: Value) -> Value {
    let mut object = of_mode(mode);
    if let Value::Object(rest) = rest {
        object.extend(rest);
    }
    Value::Object(object)
}

fn run(run: &Run) -> Value {
    // Of nothing there is no quantile.
    let at = |share| (!run.latencies_us.is_empty()).then(|| run.quantile_ms(share));
    let rest = json!({
        "rate": run.rate,
        "written_per_second": run.written_per_second,
        "delivered_per_second": run.delivered_per_second(),
        "load_late_p99_ms": run.load_late_p99_ms,
        "events": run.events,
        "latency_ms": {
            "p50": at(0.5),
            "p90": at(0.9),
            "p95": at(0.95),
            "p99": at(0.99),
            "p999": at(0.999),
            "max": at(1.0),
        },
        "missing": run.missing,
        "duplicated": run.duplicated,
        "out_of_order": run.out_of_order,
        "postgres": postgres(&run.postgres),
        "relay": relay(&run.relay),
        "load_average": run.load_average,
        "seconds": run.seconds.iter().map(second).collect::<Vec<_>>(),
    });
    with(run.mode, rest)
}

fn drain(drain: &Drain) -> Value {
    let rest = json!({
        "events": drain.events,
        "first_s": drain.first_s,
        "seconds": drain.seconds,
        "per_second": drain.per_second(),
        "missing": drain.missing,
        "duplicated": drain.duplicated,
        "out_of_order": drain.out_of_order,
        "postgres": postgres(&drain.postgres),
        "relay": relay(&drain.relay),
    });
    with(drain.mode, rest)
}

fn postgres(cost: &PostgresCost) -> Value {
    json!({
        "transactions": cost.transactions,
        "tuples_read": cost.tuples_read,
        "tuples_written": cost.tuples_written,
        "dead_tuples": cost.dead_tuples,
        "wal_bytes": cost.wal_bytes,
        "cpu_s": cost.cpu_s.map(hundredths),
    })
}

fn relay(cost: &RelayCost) -> Value {
    json!({ "cpu_s": hundredths(cost.cpu_s), "rss_peak_bytes": cost.rss_peak_bytes })
}

/// CPU time is counted in these; more digits would only be noise.
fn hundredths(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

fn second(second: &Second) -> Value {
    json!({
        "at_s": second.at_s,
        "written": second.written,
        "delivered": second.delivered,
        "backlog": second.backlog,
        "p50_ms": second.p50_ms,
        "p99_ms": second.p99_ms,
    })
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
