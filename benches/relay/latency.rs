//! Commit to consumer at a steady rate, beside the two legs that nobody can shorten.
//!
//! Leg 1 ends where `pg_recvlogical` hands the bytes out, leg 2 begins at a producer that has
//! nothing before it. All three are taken one after the other at each rate, so that they do not
//! take the cores from each other.

use std::time::{Duration, Instant};

use serde::Serialize;
use walrelay_harness::bench::{Progress, load_average};
use walrelay_harness::load::{SteadyLoad, SteadyReport};
use walrelay_harness::stats::{Latencies, human_ms};
use walrelay_harness::{Result, proc};

use crate::bare;
use crate::bed::{Bed, To};
use crate::broker::Queue;
use crate::options::Options;
use crate::recvlogical::Stopwatch;

/// What is still under way when the load has ended comes within this, or never.
const LIMIT: Duration = Duration::from_secs(60);

/// The points of a distribution, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Points {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
    pub(crate) samples: u64,
}

impl Points {
    fn of(latencies: &Latencies) -> Points {
        let at = |quantile| latencies.quantile_ms(quantile);
        let samples = latencies.count();
        Points { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1.0), samples }
    }
}

/// One rate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rate {
    pub(crate) events_per_s: u64,
    /// Commit to bytes in `pg_recvlogical`'s hands.
    pub(crate) leg1_ms: Points,
    /// Bare producer to consumer.
    pub(crate) leg2_ms: Points,
    /// Commit to consumer through the relay.
    pub(crate) relay_ms: Points,
    pub(crate) relay_cpu_percent: f64,
    pub(crate) relay_rss_bytes: u64,
    /// How late the load itself was: in milliseconds, it says that the machine is saturated.
    pub(crate) load_late_p99_ms: f64,
    pub(crate) load_average_before: f64,
}

/// Runs all rates.
pub(crate) fn measure(bed: &Bed, options: &Options, progress: &Progress) -> Result<Vec<Rate>> {
    let mut rates = Vec::new();
    for rate in options.rates.iter().copied() {
        bed.empty()?;
        let load_average_before = load_average();
        let plan = Plan { bed, options, rate };
        progress.step(&format!("{rate} events/s: leg 1, commit → pg_recvlogical"));
        let leg1_ms = plan.leg1()?;
        progress.step(&format!("{rate} events/s: leg 2, producer → consumer"));
        let leg2_ms = plan.leg2()?;
        progress.step(&format!("{rate} events/s: commit → consumer"));
        let through = plan.through_relay()?;
        let measured = Rate {
            events_per_s: rate,
            leg1_ms,
            leg2_ms,
            relay_ms: through.points,
            relay_cpu_percent: through.cpu_percent,
            relay_rss_bytes: through.rss_bytes,
            load_late_p99_ms: through.load_late_p99_ms,
            load_average_before,
        };
        let pair = |points: &Points| format!("{}/{}", human_ms(points.p50), human_ms(points.p99));
        progress.say(&format!(
            "{rate} events/s: p50/p99 {} ms; legs {} + {} ms; relay {:.1} % CPU",
            pair(&measured.relay_ms),
            pair(&measured.leg1_ms),
            pair(&measured.leg2_ms),
            measured.relay_cpu_percent
        ));
        rates.push(measured);
    }
    Ok(rates)
}

struct Plan<'a> {
    bed: &'a Bed,
    options: &'a Options,
    rate: u64,
}

struct Through {
    points: Points,
    cpu_percent: f64,
    rss_bytes: u64,
    load_late_p99_ms: f64,
}

impl Plan<'_> {
    fn warm_up(&self) -> Duration {
        Duration::from_secs(self.options.warm_up_seconds())
    }

    fn measured(&self) -> Duration {
        Duration::from_secs(self.options.seconds)
    }

    fn load(&self, duration: Duration) -> Result<SteadyReport> {
        let mut load = SteadyLoad::new(self.bed.url(), self.rate as f64, duration);
        load.seed = self.bed.number();
        load.run()
    }

    fn leg1(&self) -> Result<Points> {
        let slot = self.bed.fresh_slot()?;
        let stopwatch = Stopwatch::start(self.bed, &slot)?;
        let warm = self.load(self.warm_up())?.events;
        stopwatch.wait_until(warm, LIMIT)?;
        stopwatch.take();
        let counted = self.load(self.measured())?.events;
        stopwatch.wait_until(warm + counted, LIMIT)?;
        let points = Points::of(&stopwatch.take());
        drop(stopwatch);
        self.bed.drop_slot(&slot)?;
        Ok(points)
    }

    fn leg2(&self) -> Result<Points> {
        let target = self.bed.target(Queue::Quorum)?;
        let consumer = target.consumer()?;
        let mut producer = target.bare()?;
        let warm = bare::pace(&mut *producer, self.rate, self.warm_up())?;
        consumer.wait_until(warm, LIMIT)?;
        consumer.reset();
        let counted = bare::pace(&mut *producer, self.rate, self.measured())?;
        consumer.wait_until(warm + counted, LIMIT)?;
        Ok(Points::of(&consumer.stop().latencies))
    }

    fn through_relay(&self) -> Result<Through> {
        let target = self.bed.target(Queue::Quorum)?;
        let slot = self.bed.fresh_slot()?;
        let consumer = target.consumer()?;
        let mut relay = self.bed.relay(To::Broker, &slot, &target)?;
        relay.wait_ready(LIMIT)?;
        let warm = self.load(self.warm_up())?.events;
        consumer.wait_until(warm, LIMIT)?;
        consumer.reset();
        let (began, cpu_before_s) = (Instant::now(), proc::cpu_seconds(relay.pid())?);
        let load = self.load(self.measured())?;
        consumer.wait_until(warm + load.events, LIMIT)?;
        let cpu_s = proc::cpu_seconds(relay.pid())? - cpu_before_s;
        let cpu_percent = cpu_s * 100.0 / began.elapsed().as_secs_f64();
        let rss_bytes = proc::memory(relay.pid())?.rss_bytes;
        let points = Points::of(&consumer.stop().latencies);
        self.bed.stop(relay)?;
        self.bed.drop_slot(&slot)?;
        Ok(Through { points, cpu_percent, rss_bytes, load_late_p99_ms: load.lateness.p99_ms })
    }
}
