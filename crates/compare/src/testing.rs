//! A report as a run would make it, the same each time.

use std::time::Duration;

use walrelay_measure::latency::Latencies;

use super::plan::{CaptureMode, ComparisonPlan};
use super::report::{
    ComparisonReport, Drain, EventCounts, Machine, PostgresCost, RelayCost, Run, RunResult, Second,
};

const SECONDS: u32 = 30;

/// Three rates, the slot and three intervals, a backlog; everything delivered.
pub(super) fn report() -> ComparisonReport {
    let modes = [CaptureMode::Cdc, polling(100), polling(500), polling(2000)];
    let rates = [100, 1000, 5000];
    ComparisonReport {
        began_unix_us: 1_795_266_631_227_183,
        machine: Machine {
            cores: 2,
            memory_bytes: 8_200_000_000,
            load_average: 0.42,
            database_is_local: true,
        },
        postgres_version: "17.11".into(),
        sink: "kafka".into(),
        sink_title: "Kafka".into(),
        broker: "127.0.0.1:9092".into(),
        plan: ComparisonPlan {
            rates: rates.into(),
            intervals_ms: vec![100, 500, 2000],
            duration: Duration::from_secs(SECONDS.into()),
            backlog: 100_000,
        },
        runs: rates.iter().flat_map(|rate| modes.map(|mode| run(mode, *rate))).collect(),
        drains: modes.map(drain).into(),
        incomplete: None,
    }
}

pub(super) fn polling(interval_ms: u64) -> CaptureMode {
    CaptureMode::Polling { interval_ms }
}

/// The latencies of the events of a second: polling waits for its next look.
fn latencies_us(mode: CaptureMode, rate: u32) -> impl Iterator<Item = u32> + Clone {
    let wait_us = mode.interval_ms().unwrap_or(0) * 1000 / u64::from(rate);
    (0..rate).map(move |at| 500 + rate / 10 + at % 100 * 10 + at * wait_us as u32)
}

pub(super) fn run(mode: CaptureMode, rate: u32) -> Run {
    let of_second: Latencies = latencies_us(mode, rate).collect();
    let [p50_ms, p99_ms] = of_second.quantiles_ms([0.5, 0.99]).unwrap().map(Some);
    let second = |at_s| {
        let second = Second { at_s, written: rate.into(), ..Second::default() };
        // In every other second nothing comes.
        let is_empty = mode == polling(2000) && at_s % 2 == 0;
        if is_empty {
            return Second { backlog: rate.into(), ..second };
        }
        Second { delivered: rate.into(), p50_ms, p99_ms, ..second }
    };
    let events = u64::from(rate * SECONDS);
    Run {
        result: result(mode, events),
        rate,
        written_per_second: f64::from(rate) * 0.9996,
        load_late_p99_ms: 0.4 + f64::from(rate) / 2500.0,
        latencies: (0..SECONDS).flat_map(|_| latencies_us(mode, rate)).collect(),
        seconds: (0..SECONDS).map(second).collect(),
        load_average: 1.1,
    }
}

fn result(mode: CaptureMode, events: u64) -> RunResult {
    // Polling writes each row again.
    let rewrites = if mode == CaptureMode::Cdc { 0 } else { events };
    let postgres = PostgresCost {
        transactions: 3 + rewrites / 100,
        tuples_read: 41 + 3 * rewrites,
        tuples_written: 2 * rewrites,
        dead_tuples: rewrites,
        wal_bytes: 2 * events + 400 * rewrites,
        cpu_s: Some(0.05 + 1e-5 * (events + 2 * rewrites) as f64),
    };
    let relay = RelayCost { cpu_s: 0.08 + 1e-5 * events as f64, rss_peak_bytes: 13_400_000 };
    RunResult { mode, events, losses: EventCounts::default(), postgres, relay }
}

pub(super) fn drain(mode: CaptureMode) -> Drain {
    let (first_s, seconds) = match mode {
        CaptureMode::Cdc => (0.06, 0.71),
        CaptureMode::Polling { interval_ms } => (0.09, 11.0 + interval_ms as f64 / 200.0),
    };
    Drain { result: result(mode, 100_000), first_s, seconds }
}
