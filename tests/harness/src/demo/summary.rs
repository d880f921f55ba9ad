//! The end of the demo: one screen of numbers.

use std::time::Duration;

use super::screen::Screen;
use crate::consumer::Seen;
use crate::oracle::Verdict;
use crate::proc::Memory;
use walrelay_measure::latency::Latencies;
use walrelay_measure::load::Pace;
use walrelay_measure::numbers;

pub(super) struct Faulted {
    pub(super) name: &'static str,
    pub(super) repeated: u64,
    pub(super) latencies: Latencies,
}

pub(super) struct Burst {
    pub(super) rows: u64,
    pub(super) written: Duration,
    pub(super) arrival: Seen,
}

pub(super) struct Slot {
    pub(super) lag_bytes: u64,
    pub(super) retained_bytes: u64,
}

pub(super) struct Summary {
    pub(super) faults: Vec<Faulted>,
    pub(super) repeated_by_stop: u64,
    pub(super) stopped: Duration,
    pub(super) quiet: Latencies,
    pub(super) burst: Burst,
    pub(super) slot: Slot,
    pub(super) memory: Memory,
    pub(super) cpu_seconds: f64,
    pub(super) steady: Pace,
}

impl Summary {
    pub(super) fn text(&self, verdict: &Verdict, screen: &Screen) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| text.push_str(&format!("  {name:<18}{value}\n"));
        row("events committed", numbers::count(verdict.committed));
        row("lost", numbers::count(verdict.missing.count));
        row("out of order", numbers::count(verdict.out_of_order.count));
        row("repeated", numbers::count(verdict.duplicates));
        for fault in &self.faults {
            row("", format!("{:>6} {}", numbers::count(fault.repeated), fault.name));
        }
        let stopped = numbers::duration(self.stopped);
        row("", format!("{:>6} relay stopped (SIGTERM), in {stopped}", self.repeated_by_stop));
        row(
            "latency",
            format!("{}, from INSERT to consumer, at a steady rate", points(&self.quiet)),
        );
        let mut faulty = Latencies::default();
        self.faults.iter().for_each(|fault| faulty.merge(&fault.latencies));
        row("", format!("{}, around the faults", points(&faulty)));
        let lateness = self.steady.lateness.percentiles().p99_ms;
        row("", format!("the load itself was late by {} ms (p99)", numbers::figure(lateness)));
        let Burst { rows, written, arrival } = &self.burst;
        let rate = numbers::rate(arrival.rate_per_second());
        let (rows, written) = (numbers::count(*rows), numbers::duration(*written));
        row("burst", format!("{rows} rows written in {written}, consumed at {rate}"));
        let (lag, retained) =
            (numbers::bytes(self.slot.lag_bytes), numbers::bytes(self.slot.retained_bytes));
        row("slot", format!("lag {lag}, retained WAL {retained}"));
        let (rss, peak) =
            (numbers::bytes(self.memory.rss_bytes), numbers::bytes(self.memory.peak_rss_bytes));
        row("relay", format!("CPU {:.2} s, memory {rss} (peak {peak})", self.cpu_seconds));
        text.push('\n');
        if verdict.is_exact(u64::MAX) {
            let told = "nothing lost, nothing altered, order kept per key";
            text.push_str(&format!("{}\n", screen.good(told)));
        } else {
            text.push_str(&format!("{}\n{verdict}", screen.bad("not exact:")));
        }
        text
    }
}

fn points(latencies: &Latencies) -> String {
    let points = latencies.percentiles();
    let (p50, p99, max) = (
        numbers::figure(points.p50_ms),
        numbers::figure(points.p99_ms),
        numbers::figure(points.max_ms),
    );
    format!("p50 {p50} ms, p99 {p99} ms, max {max} ms")
}
