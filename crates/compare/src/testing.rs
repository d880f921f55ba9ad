//! A report as a run would make it, the same each time.

use std::time::Duration;

use super::plan::{CaptureMode, ComparisonPlan};
use super::report::{
    ComparisonReport, Drain, EventCounts, Machine, PostgresCost, RelayCost, Run, RunResult, Second,
};

const SECONDS: u32 = 30;

/// Numbers that look like chance and are not.
struct Dice(u64);

impl Dice {
    /// From 0 up to 1.
    fn roll(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

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

/// One event's latency: the legs nobody can shorten, a tail, and the wait for the next poll.
fn latency_ms(mode: CaptureMode, rate: u32, dice: &mut Dice) -> f64 {
    let crowd = 1.0 + f64::from(rate) / 4000.0;
    let mut ms =
        0.7 * crowd * (0.6 + 1.2 * dice.roll()) - 0.35 * crowd * dice.roll().max(1e-9).ln();
    if dice.roll() < 0.015 {
        ms += 4.0 * crowd * dice.roll();
    }
    if let CaptureMode::Polling { interval_ms } = mode {
        ms += interval_ms as f64 * dice.roll() + 2.5 * crowd * (1.0 + dice.roll());
    }
    ms
}

pub(super) fn run(mode: CaptureMode, rate: u32) -> Run {
    let mut dice = Dice(u64::from(rate) * 31 + if mode == CaptureMode::Cdc { 1 } else { 7 });
    let mut all = Vec::new();
    let mut seconds = Vec::new();
    for at_s in 0..SECONDS {
        let mut here: Vec<u32> =
            (0..rate).map(|_| (latency_ms(mode, rate, &mut dice) * 1000.0) as u32).collect();
        // The consumer's machine held its breath once.
        if at_s == 17 && rate == 5000 {
            here.iter_mut().for_each(|us| *us += 21_000);
        }
        here.sort_unstable();
        let at = |share: f64| f64::from(here[(share * (here.len() - 1) as f64) as usize]) / 1000.0;
        let backlog = (f64::from(rate) * at(0.5) / 1000.0 * (0.5 + dice.roll())) as u64;
        let nothing = mode == polling(2000) && at_s % 2 == 0;
        seconds.push(Second {
            at_s,
            written: rate.into(),
            delivered: if nothing { 0 } else { rate.into() },
            backlog,
            p50_ms: if nothing { 0.0 } else { at(0.5) },
            p99_ms: if nothing { 0.0 } else { at(0.99) },
        });
        all.extend(here);
    }
    let events = u64::from(rate * SECONDS);
    Run {
        result: RunResult {
            mode,
            events,
            losses: EventCounts::default(),
            postgres: postgres(mode, events),
            relay: RelayCost { cpu_s: 0.08 + events as f64 * 9e-6, rss_peak_bytes: 13_400_000 },
        },
        rate,
        written_per_second: f64::from(rate) * 0.9996,
        load_late_p99_ms: 0.4 + f64::from(rate) / 2500.0,
        latencies: all.into_iter().collect(),
        seconds,
        load_average: 1.1,
    }
}

fn postgres(mode: CaptureMode, events: u64) -> PostgresCost {
    let share = events as f64 / 150_000.0;
    match mode {
        CaptureMode::Cdc => PostgresCost {
            transactions: 3,
            tuples_read: 41,
            wal_bytes: events * 2,
            cpu_s: Some(0.05 + 1.3 * share),
            ..PostgresCost::default()
        },
        CaptureMode::Polling { interval_ms } => {
            let polls = u64::from(SECONDS) * 1000 / interval_ms * 4;
            PostgresCost {
                transactions: polls + events / 250,
                tuples_read: events * 3 + polls * 12,
                tuples_written: events * 2,
                dead_tuples: events * 2 - events / 7,
                wal_bytes: events * 412 + polls * 90,
                cpu_s: Some(4.4 * share + polls as f64 * 0.0004),
            }
        }
    }
}

pub(super) fn drain(mode: CaptureMode) -> Drain {
    let (first_s, seconds) = match mode {
        CaptureMode::Cdc => (0.06, 0.71),
        CaptureMode::Polling { interval_ms } => (0.09, 11.0 + interval_ms as f64 / 200.0),
    };
    let result = RunResult {
        mode,
        events: 100_000,
        losses: EventCounts::default(),
        postgres: postgres(mode, 100_000),
        relay: RelayCost { cpu_s: 0.3, rss_peak_bytes: 27_000_000 },
    };
    Drain { result, first_s, seconds }
}
