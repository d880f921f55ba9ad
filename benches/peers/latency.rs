//! Insert to consumer at steady rates, one process of each contender for all of them.
//!
//! A burst comes first: what a JVM has not run a few thousand times it has not compiled.

use std::time::{Duration, Instant};

use serde::Serialize;
use walrelay_harness::bench::{CpuSeconds, Progress};
use walrelay_harness::consumer::{Consumer, Mode};
use walrelay_harness::load::{Backlog, SteadyLoad};
use walrelay_harness::program::Program;
use walrelay_harness::{HarnessError, Result, proc};
use walrelay_measure::latency::Percentiles;
use walrelay_measure::load::Pace;
use walrelay_measure::numbers;
use walrelay_measure::process::load_average;

use crate::options::Options;
use crate::peer::{self, Contender, Peer, Target};
use crate::place::{Place, still_runs};

/// The time within which the events under way at the end of the load arrive, or the contender fell
/// behind.
const LIMIT: Duration = Duration::from_secs(60);
/// The time within which an event that should not come at all would come.
const QUIET: Duration = Duration::from_millis(500);
const BURST_ROWS: u64 = 10_000;

/// One contender at one rate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rate {
    pub(crate) peer: Peer,
    pub(crate) events_per_s: u64,
    #[serde(flatten)]
    pub(crate) latency: Percentiles,
    /// Rows that the load committed, in a second.
    pub(crate) reached_per_s: f64,
    /// While it did, and until the last had arrived.
    pub(crate) cpu_s: CpuSeconds,
    pub(crate) rss_bytes: u64,
    /// How late the load itself was: in milliseconds, it says that the machine is saturated.
    pub(crate) load_late_p99_ms: f64,
    /// From the last insert until all had come: seconds say that the contender fell behind.
    pub(crate) behind_s: f64,
    pub(crate) load_average_before: f64,
}

/// One contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) peer: Peer,
    pub(crate) rates: Vec<Rate>,
    /// Why there are not more of them.
    pub(crate) failed: Option<String>,
    /// The comparison of all arrivals with the committed events.
    pub(crate) check: String,
    pub(crate) stop: String,
}

/// Everybody, one after the other.
pub(crate) fn measure(
    place: &Place,
    contenders: &[&Contender],
    options: &Options,
    progress: &Progress,
) -> Result<Vec<Latency>> {
    let mut all = Vec::new();
    for contender in contenders {
        place.source.empty()?;
        let target = place.target(place.source.fresh_slot()?)?;
        let run = Run { place, contender, options, progress };
        all.push(run.measure(&target)?);
        place.forget(&target)?;
    }
    Ok(all)
}

struct Run<'a> {
    place: &'a Place,
    contender: &'a Contender,
    options: &'a Options,
    progress: &'a Progress,
}

impl Run<'_> {
    fn measure(&self, target: &Target) -> Result<Latency> {
        let consumer = Consumer::start(&target.brokers, &[&target.topic], Mode::Latency)?;
        let mut program = self.place.start_contender(self.contender, target, "latency")?;
        let mut rates = Vec::new();
        let outcome = self.all_rates(target, &consumer, &mut program, &mut rates);
        let failed = outcome.err().map(|error| format!("{error}\n{}", program.tail(20)));
        if let Some(why) = &failed {
            self.progress.say(&format!("{}: {why}", self.contender.name()));
        }
        // One that repeats for ever is caught by its count.
        drop(consumer.wait_quiet(QUIET, LIMIT));
        let committed = self.place.source.ask("select count(*) from public.outbox")?;
        let came = consumer.count().to_string();
        let check =
            if came == committed { "exact".into() } else { format!("✗ {came} of {committed}") };
        let stop = peer::stop(program)?;
        Ok(Latency { peer: self.contender.peer, rates, failed, check, stop })
    }

    fn all_rates(
        &self,
        target: &Target,
        consumer: &Consumer,
        program: &mut Program,
        rates: &mut Vec<Rate>,
    ) -> Result<()> {
        let name = self.contender.name();
        self.progress.step(&format!("{name}: a burst of {BURST_ROWS} that does not count"));
        self.place.wait_streaming(target, program)?;
        let burst = Backlog {
            seed: self.place.source.number(),
            ..Backlog::new(self.place.source.url(), BURST_ROWS)
        };
        burst.fill()?;
        let mut sum = BURST_ROWS;
        consumer.wait_until(sum, LIMIT)?;
        for rate in self.options.rates.iter().copied() {
            self.progress.step(&format!("{name}: {rate} events/s"));
            let measured = self.rate(rate, &mut sum, consumer, program)?;
            self.progress.say(&format!(
                "{name:<22} {rate:>6} events/s, {:.0} reached: p50/p99 {}/{} ms; {} {}",
                measured.reached_per_s,
                numbers::figure(measured.latency.p50_ms),
                numbers::figure(measured.latency.p99_ms),
                CpuSeconds::HEADER,
                measured.cpu_s
            ));
            rates.push(measured);
        }
        Ok(())
    }

    fn rate(
        &self,
        rate: u64,
        sum: &mut u64,
        consumer: &Consumer,
        program: &mut Program,
    ) -> Result<Rate> {
        let load_average_before = load_average();
        *sum += self.load(rate, self.options.warm_up_seconds())?.events;
        consumer.wait_until(*sum, LIMIT)?;
        consumer.reset();
        let before = self.place.cpu(program)?;
        let load = self.load(rate, self.options.seconds)?;
        let loaded = Instant::now();
        *sum += load.events;
        consumer.wait_until(*sum, LIMIT)?;
        let behind_s = loaded.elapsed().as_secs_f64();
        still_runs(program)?;
        let cpu_s = self.place.cpu(program)?.since(&before);
        let latencies = consumer.reset().latencies;
        if latencies.count() < load.events {
            let text = format!("{} of {} events told their time", latencies.count(), load.events);
            return Err(HarnessError::Other(text));
        }
        Ok(Rate {
            peer: self.contender.peer,
            events_per_s: rate,
            latency: latencies.percentiles(),
            reached_per_s: load.per_second(),
            cpu_s,
            rss_bytes: proc::memory(program.pid())?.rss_bytes,
            load_late_p99_ms: load.lateness.percentiles().p99_ms,
            behind_s,
            load_average_before,
        })
    }

    fn load(&self, rate: u64, seconds: u64) -> Result<Pace> {
        let (url, seed) = (self.place.source.url(), self.place.source.number());
        SteadyLoad { seed, ..SteadyLoad::new(url, rate as f64, Duration::from_secs(seconds)) }.run()
    }
}
