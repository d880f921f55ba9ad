//! Arrivals at the broker, reported once a second.
//!
//! Two consumers, because the kit's either keeps every record, for the verdict, or its latency.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::screen::Screen;
use super::target;
use crate::consumer::{Consumer, Mode, Record, Seen};
use crate::{Broker, HarnessError, Result};
use walrelay_measure::latency::Latencies;
use walrelay_measure::numbers;

const TICK: Duration = Duration::from_millis(200);
const LINE: Duration = Duration::from_secs(1);
/// Above the longest load that may be asked for.
const LOAD_LIMIT: Duration = Duration::from_secs(2 * 3_600);

pub(super) struct Watcher<'a> {
    screen: &'a Screen,
    began: Instant,
    records: Consumer,
    latency: Consumer,
    line: Latencies,
    line_since: Instant,
    phase: Seen,
    quiet: Latencies,
}

impl<'a> Watcher<'a> {
    pub(super) fn start(broker: &Broker, topics: &[&str], screen: &'a Screen) -> Result<Self> {
        let now = Instant::now();
        Ok(Watcher {
            screen,
            began: now,
            records: target::consumer(broker, topics, Mode::Records)?,
            latency: target::consumer(broker, topics, Mode::Latency)?,
            line: Latencies::default(),
            line_since: now,
            phase: Seen::default(),
            quiet: Latencies::default(),
        })
    }

    pub(super) fn live(&mut self, length: Duration) -> Result<()> {
        let end = Instant::now() + length;
        while Instant::now() < end {
            std::thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
            self.tick();
        }
        Ok(())
    }

    pub(super) fn live_until(&mut self, done: impl Fn() -> bool) -> Result<()> {
        let began = Instant::now();
        while !done() {
            if began.elapsed() > LOAD_LIMIT {
                let what = "the end of the load".into();
                return Err(HarnessError::Late { what, limit: began.elapsed() });
            }
            self.live(TICK)?;
        }
        Ok(())
    }

    /// Shows what arrives until so many different events have; the verdict tells what is missing.
    pub(super) fn wait_distinct(&mut self, wanted: u64, limit: Duration) -> Result<()> {
        let began = Instant::now();
        while self.distinct() < wanted && began.elapsed() < limit {
            self.live(TICK)?;
        }
        self.tick();
        self.settle_line();
        Ok(())
    }

    fn tick(&mut self) {
        let seen = self.latency.reset();
        self.line.merge(&seen.latencies);
        merge(&mut self.phase, &seen);
        if self.line_since.elapsed() >= LINE {
            self.end_line();
        } else if self.line.count() > 0 {
            self.screen.redraw(&self.text());
        }
    }

    /// The current line stays; one on which nothing arrived is told too, for that is news.
    fn end_line(&mut self) {
        self.screen.settle(&self.text());
        self.line = Latencies::default();
        self.line_since = Instant::now();
    }

    /// Lets what is drawn stay, before something else is said.
    pub(super) fn settle_line(&mut self) {
        if self.line.count() > 0 {
            self.end_line();
        }
    }

    fn text(&self) -> String {
        let records = self.records.snapshot().records;
        let points = self.line.percentiles();
        let told =
            |ms: f64| if points.samples == 0 { "–".to_owned() } else { numbers::figure(ms) };
        let sample = records.last().map_or_else(String::new, |record| {
            let Record { topic, partition, offset, key, .. } = record;
            format!("   {topic}/{partition}@{offset}  {key}")
        });
        format!(
            "{:>5.1} s  {:>7} arrived  +{:<7} p50 {:>5} ms  p99 {:>5} ms{sample}",
            self.began.elapsed().as_secs_f64(),
            numbers::count(records.len() as u64),
            numbers::count(self.line.count()),
            told(points.p50_ms),
            told(points.p99_ms),
        )
    }

    fn distinct(&self) -> u64 {
        let seen = self.records.snapshot();
        seen.records.iter().map(|record| record.id.as_str()).collect::<HashSet<_>>().len() as u64
    }

    pub(super) fn repeated(&self) -> u64 {
        let seen = self.records.snapshot();
        let ids: HashSet<&str> = seen.records.iter().map(|record| record.id.as_str()).collect();
        (seen.records.len() - ids.len()) as u64
    }

    pub(super) fn longest_pause_since(&self, from_us: i64) -> Duration {
        let seen = self.records.snapshot();
        let mut last_us = from_us;
        let mut longest_us = 0;
        for record in seen.records.iter().filter(|record| record.arrived_us >= from_us) {
            longest_us = longest_us.max(record.arrived_us - last_us);
            last_us = record.arrived_us;
        }
        Duration::from_micros(u64::try_from(longest_us).unwrap_or(0))
    }

    pub(super) fn settle_phase(&mut self) {
        self.tick();
        let phase = std::mem::take(&mut self.phase);
        self.quiet.merge(&phase.latencies);
    }

    /// A phase with a fault ends here.
    pub(super) fn take_phase(&mut self) -> Latencies {
        self.take_seen().latencies
    }

    pub(super) fn take_seen(&mut self) -> Seen {
        self.tick();
        std::mem::take(&mut self.phase)
    }

    /// The latencies of all phases without a fault, which end here.
    pub(super) fn take_latencies(&mut self) -> Latencies {
        self.settle_phase();
        std::mem::take(&mut self.quiet)
    }

    pub(super) fn finish(self) -> Vec<Record> {
        // What a stop could still have sent would come at once.
        self.records.wait_quiet(Duration::from_millis(300), Duration::from_secs(10)).ok();
        self.records.stop().records
    }
}

fn merge(sum: &mut Seen, more: &Seen) {
    sum.count += more.count;
    sum.value_bytes += more.value_bytes;
    sum.latencies.merge(&more.latencies);
    sum.first_us = sum.first_us.or(more.first_us);
    sum.last_us = more.last_us.or(sum.last_us);
}
