//! Commit to consumer at a steady rate, beside the two legs that nobody can shorten.
//!
//! Leg 1 ends where `pg_recvlogical` hands the bytes out, leg 2 begins at a producer that has
//! nothing before it. All three are taken one after the other at each rate, so that they do not
//! take the cores from each other.

use std::time::Duration;

use serde::Serialize;
use walrelay_harness::bench::{CpuSeconds, Progress};
use walrelay_harness::load::SteadyLoad;
use walrelay_harness::{Result, proc};
use walrelay_measure::latency::Percentiles;
use walrelay_measure::load::Pace;
use walrelay_measure::numbers;
use walrelay_measure::process::load_average;

use crate::bare;
use crate::bed::Bed;
use crate::broker::Queue;
use crate::drain::Contender;
use crate::options::Options;
use crate::recvlogical::Stopwatch;

/// The time within which the events under way at the end of the load arrive, or never.
const LIMIT: Duration = Duration::from_secs(60);

/// One rate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rate {
    pub(crate) events_per_s: u64,
    /// Not measured beside other binaries.
    pub(crate) legs: Option<Legs>,
    /// This tree's binary, and then the others.
    pub(crate) relays: Vec<Through>,
    pub(crate) load_average_before: f64,
}

/// The legs of the way that no relay can shorten.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Legs {
    /// Commit to bytes in `pg_recvlogical`'s hands.
    pub(crate) source_ms: Percentiles,
    /// Bare producer to consumer.
    pub(crate) sink_ms: Percentiles,
}

/// Commit to consumer through a relay.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Through {
    pub(crate) contender: Contender,
    pub(crate) ms: Percentiles,
    /// Rows that the load committed, in a second.
    pub(crate) reached_per_s: f64,
    /// While it did, and until the last had arrived.
    pub(crate) cpu_s: CpuSeconds,
    pub(crate) rss_bytes: u64,
    /// How late the load itself was: in milliseconds, it says that the machine is saturated.
    pub(crate) load_late_p99_ms: f64,
}

/// Runs all rates.
pub(crate) fn measure(bed: &Bed, options: &Options, progress: &Progress) -> Result<Vec<Rate>> {
    let mut rates = Vec::new();
    for rate in options.rates.iter().copied() {
        bed.empty()?;
        let load_average_before = load_average();
        let plan = Plan { bed, options, progress, rate };
        let legs = if options.against.is_empty() { Some(plan.legs()?) } else { None };
        let others = (0..options.against.len()).map(Contender::Against);
        let all = std::iter::once(Contender::of(options.sink)).chain(others);
        let relays = all.map(|contender| plan.through(contender)).collect::<Result<_>>()?;
        rates.push(Rate { events_per_s: rate, legs, relays, load_average_before });
    }
    Ok(rates)
}

struct Plan<'a> {
    bed: &'a Bed,
    options: &'a Options,
    progress: &'a Progress,
    rate: u64,
}

impl Plan<'_> {
    fn warm_up(&self) -> Duration {
        Duration::from_secs(self.options.warm_up_seconds())
    }

    fn measured(&self) -> Duration {
        Duration::from_secs(self.options.seconds)
    }

    fn load(&self, duration: Duration) -> Result<Pace> {
        let mut load = SteadyLoad::new(self.bed.url(), self.rate as f64, duration);
        load.seed = self.bed.number();
        load.run()
    }

    fn say(&self, what: &str, points: &Percentiles, more: &str) {
        let (p50, p99) = (numbers::figure(points.p50_ms), numbers::figure(points.p99_ms));
        self.progress.say(&format!("{} events/s: {what}: p50/p99 {p50}/{p99} ms{more}", self.rate));
    }

    fn legs(&self) -> Result<Legs> {
        self.progress.step(&format!("{} events/s: the two legs", self.rate));
        let legs = Legs { source_ms: self.source()?, sink_ms: self.sink()? };
        self.say("commit → pg_recvlogical", &legs.source_ms, "");
        self.say("bare producer → consumer", &legs.sink_ms, "");
        Ok(legs)
    }

    fn source(&self) -> Result<Percentiles> {
        let slot = self.bed.fresh_slot()?;
        let stopwatch = Stopwatch::start(self.bed, &slot)?;
        let warm = self.load(self.warm_up())?.events;
        stopwatch.consumer.wait_until(warm, LIMIT)?;
        stopwatch.consumer.reset();
        let counted = self.load(self.measured())?.events;
        stopwatch.consumer.wait_until(warm + counted, LIMIT)?;
        let points = stopwatch.consumer.reset().latencies.percentiles();
        drop(stopwatch);
        self.bed.drop_slot(&slot)?;
        Ok(points)
    }

    fn sink(&self) -> Result<Percentiles> {
        let target = self.bed.target(Queue::Quorum)?;
        let consumer = target.consumer()?;
        let mut producer = target.bare()?;
        let warm = bare::pace(&mut *producer, self.rate, self.warm_up())?;
        consumer.wait_until(warm, LIMIT)?;
        consumer.reset();
        let counted = bare::pace(&mut *producer, self.rate, self.measured())?;
        consumer.wait_until(warm + counted, LIMIT)?;
        Ok(consumer.stop().latencies.percentiles())
    }

    fn through(&self, contender: Contender) -> Result<Through> {
        self.progress.step(&format!("{} events/s: {}", self.rate, contender.name()));
        let target = self.bed.target(Queue::Quorum)?;
        let slot = self.bed.fresh_slot()?;
        let consumer = target.consumer()?;
        let mut relay = self.bed.relay(contender, &slot, &target)?;
        relay.wait_ready(LIMIT)?;
        let warm = self.load(self.warm_up())?.events;
        consumer.wait_until(warm, LIMIT)?;
        consumer.reset();
        let before = self.bed.cpu(&relay)?;
        let load = self.load(self.measured())?;
        consumer.wait_until(warm + load.events, LIMIT)?;
        let cpu_s = self.bed.cpu(&relay)?.since(&before);
        let rss_bytes = proc::memory(relay.pid())?.rss_bytes;
        let ms = consumer.stop().latencies.percentiles();
        self.bed.stop(relay)?;
        self.bed.drop_slot(&slot)?;
        let reached_per_s = load.per_second();
        let more = format!(", {reached_per_s:.0} events/s reached, {} {cpu_s}", CpuSeconds::HEADER);
        self.say(contender.name(), &ms, &more);
        let load_late_p99_ms = load.lateness.percentiles().p99_ms;
        Ok(Through { contender, ms, reached_per_s, cpu_s, rss_bytes, load_late_p99_ms })
    }
}
