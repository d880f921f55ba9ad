//! Measures one run after the other: starts a relay
//! on a fresh table, loads it, watches it, stops it.
//!
//! A run consists of the first event (the relay works), a warm-up
//! that is not measured, the measured load, and the wait for its last
//! event. An event is missing if none has arrived for [`patience`].

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use walrelay_measure::process::{in_ticks, load_average};

use super::arrivals::{ArrivalReader, Arrivals};
use super::load::{self, LoadWriters};
use super::plan::{CaptureMode, ComparisonRequest};
use super::postgres_cost::{LoadShare, PostgresCounters, PostgresMeter};
use super::relay_process::{RelayOrder, RelayProcess};
use super::report::{Drain, PostgresCost, RelayCost, Run, RunResult};
use super::scratch_source::{self, ScratchSource};
use walrelay_base::error::{Exit, Fault};
use walrelay_postgres::settings::ConnInfo;

/// How long the first event of a relay may take.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
const PATIENCE_MIN: Duration = Duration::from_secs(10);
const ARRIVALS_CHECKED_EVERY: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_millis(200);
const TICKS_PER_CPU_SAMPLE: u32 = 5;
/// So many events are written to find out how much WAL one of them takes.
const WEIGHED_EVENTS: u64 = 500;

/// Shows the progress of a comparison.
pub trait ComparisonWatcher {
    fn announce(&mut self, text: &str);

    /// Called several times a second.
    fn progress(&mut self, now: &RunProgress);
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunProgress {
    /// `CDC at 100/s`.
    pub what: String,
    /// Time until the load ends.
    pub left: Duration,
    pub delivered: u64,
    /// Events of the whole load.
    pub events: u64,
    /// Median latency of the last events.
    pub p50_ms: Option<f64>,
}

/// Longer than a relay waits between two attempts.
fn patience(mode: CaptureMode, longest_wait: Duration) -> Duration {
    PATIENCE_MIN.max(3 * mode.interval()).max(longest_wait + Duration::from_secs(5))
}

/// The state that all runs share.
pub(super) struct Measurement<'a> {
    request: ComparisonRequest<'a>,
    source: &'a ScratchSource,
    reader: ArrivalReader,
    meter: PostgresMeter,
    watcher: &'a mut dyn ComparisonWatcher,
    /// Number of the run, which its events carry.
    number: u32,
    /// Bytes of WAL per event of the load, by whether the table is that of polling.
    wal_of_event: BTreeMap<bool, f64>,
}

/// A run or a drain that is under way.
struct MeasuredRelay {
    mode: CaptureMode,
    what: String,
    process: RelayProcess,
    arrivals: Arc<Arrivals>,
    /// Events of the whole load, warm-up included.
    events: u64,
    ends: Instant,
    before: PostgresCounters,
    /// The resources that the process had used when the measured time began.
    used_before: RelayCost,
}

/// The state file of the relays that a comparison of this name runs.
pub(super) fn state_file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{name}.state"))
}

impl<'a> Measurement<'a> {
    pub(super) async fn open(
        request: ComparisonRequest<'a>,
        source: &'a ScratchSource,
        reader: ArrivalReader,
        watcher: &'a mut dyn ComparisonWatcher,
    ) -> Result<Measurement<'a>, Fault> {
        let meter = PostgresMeter::open(&request.source.connection, &source.name).await?;
        let wal_of_event = BTreeMap::new();
        Ok(Measurement { request, source, reader, meter, watcher, number: 0, wal_of_event })
    }

    pub(super) fn database_is_local(&self) -> bool {
        self.meter.is_local
    }

    fn connection(&self) -> &'a ConnInfo {
        &self.request.source.connection
    }

    async fn writers(&self, rate: u32) -> Result<LoadWriters, Fault> {
        LoadWriters::open(self.connection(), &self.source.name, rate).await
    }

    /// Creates a fresh table and counts its events from now on. The table of the run before is
    /// dropped only here, because its statistics were still needed.
    async fn begin(&mut self, mode: CaptureMode, events: u64) -> Result<Arc<Arrivals>, Fault> {
        scratch_source::remove(self.connection(), &self.source.name).await?;
        self.source.make(mode).await?;
        self.number += 1;
        let arrivals = Arc::new(Arrivals::new(events));
        self.reader.count(self.number, &arrivals);
        Ok(arrivals)
    }

    fn start(
        &self,
        mode: CaptureMode,
        what: String,
        (arrivals, events): (Arc<Arrivals>, u64),
        before: PostgresCounters,
    ) -> Result<MeasuredRelay, Fault> {
        let name = &self.source.name;
        let state_file = state_file(name);
        // A container may have no directory to write to.
        let state_file = File::create_new(&state_file).ok().map(|_| state_file);
        let process = RelayProcess::start(&RelayOrder {
            config: self.request.origin.clone(),
            name: name.clone(),
            interval_ms: mode.interval_ms(),
            state_file,
        })?;
        let (ends, used_before) = (Instant::now(), RelayCost::default());
        Ok(MeasuredRelay { mode, what, process, arrivals, events, ends, before, used_before })
    }

    /// Bytes of WAL that one event of the load takes without a relay.
    async fn wal_of_event(&mut self, mode: CaptureMode) -> Result<f64, Fault> {
        let is_polling = mode != CaptureMode::Cdc;
        if let Some(bytes) = self.wal_of_event.get(&is_polling) {
            return Ok(*bytes);
        }
        let arrivals = self.begin(mode, WEIGHED_EVENTS).await?;
        let load = self.writers(1).await?;
        let before = self.meter.read().await?.wal_bytes;
        load.write(&arrivals, self.number, 0..WEIGHED_EVENTS, 100_000).await?;
        let bytes = (self.meter.read().await?.wal_bytes - before) as f64 / WEIGHED_EVENTS as f64;
        self.wal_of_event.insert(is_polling, bytes);
        Ok(bytes)
    }

    /// One mode at one rate.
    pub(super) async fn run(&mut self, mode: CaptureMode, rate: u32) -> Result<Run, Fault> {
        let duration = self.request.plan.duration;
        let what = format!("{} at {rate}/s", mode.name());
        self.watcher.announce(&what);
        let wal_of_event = self.wal_of_event(mode).await?;
        let count = |length: Duration| (length.as_secs_f64() * f64::from(rate)).ceil() as u64;
        let warm = count(mode.warm_up()).max(1);
        let total = warm + count(duration).max(1);
        let arrivals = self.begin(mode, total).await?;
        let load = self.writers(rate).await?;
        let before = self.meter.settled(0).await?;
        let mut relay = self.start(mode, what, (Arc::clone(&arrivals), total), before)?;
        relay.ends = Instant::now() + mode.warm_up() + duration;
        load.write(&arrivals, self.number, 0..1, rate).await?;
        self.first_arrival(&mut relay).await?;
        let warming = load.write(&arrivals, self.number, 1..warm, rate);
        self.watched(&mut relay, warming).await?;
        self.arrival_of(&mut relay, warm).await?;

        self.meter.begin_cpu().await?;
        relay.used_before = relay.process.cost();
        let load_average = load_average();
        let began = Instant::now();
        relay.ends = began + duration;
        let writing = load.write(&arrivals, self.number, warm..total, rate);
        let pace = self.watched(&mut relay, writing).await?;
        self.arrival_of(&mut relay, total).await?;
        let wal_bytes = total as f64 * wal_of_event;
        let measured = (total - warm) as f64 / total as f64;
        let share = LoadShare { rows: total, wal_bytes, measured };
        Ok(Run {
            result: self.finish(relay, Some(load), share, total - warm).await?,
            rate,
            written_per_second: pace.per_second(),
            load_late_p99_ms: pace.lateness.quantile_ms(0.99).unwrap_or_default(),
            latencies: arrivals.latencies(warm),
            seconds: arrivals.seconds(warm, began),
            load_average,
        })
    }

    /// Starts a relay on a backlog.
    pub(super) async fn drain(&mut self, mode: CaptureMode) -> Result<Drain, Fault> {
        let events = self.request.plan.backlog;
        let what = format!("{} drains {events} events", mode.name());
        self.watcher.announce(&what);
        let arrivals = self.begin(mode, events).await?;
        let (info, name) = (self.connection(), &self.source.name);
        load::backlog(info, name, &arrivals, self.number, events).await?;
        let before = self.meter.settled(events).await?;
        self.meter.begin_cpu().await?;
        let began = Instant::now();
        let mut relay = self.start(mode, what, (Arc::clone(&arrivals), events), before)?;
        self.first_arrival(&mut relay).await?;
        self.arrival_of(&mut relay, events).await?;
        let no_load = LoadShare { rows: 0, wal_bytes: 0.0, measured: 1.0 };
        let result = self.finish(relay, None, no_load, events).await?;
        let (first, last) = arrivals.first_and_last().unwrap_or((began, began));
        Ok(Drain {
            result,
            first_s: (first - began).as_secs_f64(),
            seconds: (last - first).as_secs_f64(),
        })
    }

    /// Stops the relay and the load, and reads what became of the events and what they cost.
    async fn finish(
        &mut self,
        relay: MeasuredRelay,
        load: Option<LoadWriters>,
        share: LoadShare,
        measured: u64,
    ) -> Result<RunResult, Fault> {
        self.meter.sample_cpu(false).await?;
        let cpu_s = self.meter.cpu_s();
        let used = less(relay.process.cost(), relay.used_before);
        relay.process.stop().await?;
        // Their backends report the last statistics when they end.
        drop(load);
        let after = self.meter.settled(relay.events).await?;
        Ok(RunResult {
            mode: relay.mode,
            events: measured,
            losses: relay.arrivals.counts(relay.events),
            postgres: PostgresCost { cpu_s, ..after.since(relay.before, share) },
            relay: used,
        })
    }

    async fn first_arrival(&mut self, relay: &mut MeasuredRelay) -> Result<(), Fault> {
        let within = STARTS_WITHIN + relay.mode.interval();
        if self.arrival_within(relay, 1, within).await? > 0 {
            return Ok(());
        }
        let seconds = within.as_secs();
        let what = format!("{}: the first event has not arrived within {seconds} s", relay.what);
        Err(Fault::new(Exit::Failed, "compare.nothing-arrived", what, "", "walrelay check"))
    }

    async fn arrival_of(&mut self, relay: &mut MeasuredRelay, events: u64) -> Result<(), Fault> {
        let patience = patience(relay.mode, self.request.backoff_cap);
        self.arrival_within(relay, events, patience).await.map(drop)
    }

    /// Waits until so many events have arrived, or none has for `patience`; returns how many have.
    async fn arrival_within(
        &mut self,
        relay: &mut MeasuredRelay,
        events: u64,
        patience: Duration,
    ) -> Result<u64, Fault> {
        let arrivals = Arc::clone(&relay.arrivals);
        let began = Instant::now();
        let arriving = async {
            loop {
                let (count, last) = arrivals.progress();
                let since = last.map_or(began, |last| last.max(began));
                if count >= events || since.elapsed() > patience {
                    return Ok(count);
                }
                tokio::time::sleep(ARRIVALS_CHECKED_EVERY).await;
            }
        };
        self.watched(relay, arriving).await
    }

    /// Awaits some work, and meanwhile checks relay and consumer, samples CPU, and shows progress.
    async fn watched<T>(
        &mut self,
        relay: &mut MeasuredRelay,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let mut work = std::pin::pin!(work);
        let mut ticks: u32 = 0;
        loop {
            if let Ok(done) = tokio::time::timeout(TICK, &mut work).await {
                return done;
            }
            relay.process.check()?;
            self.reader.check()?;
            ticks += 1;
            if ticks.is_multiple_of(TICKS_PER_CPU_SAMPLE) {
                self.meter.sample_cpu(false).await?;
            }
            self.watcher.progress(&RunProgress {
                what: relay.what.clone(),
                left: relay.ends.saturating_duration_since(Instant::now()),
                delivered: relay.arrivals.progress().0,
                events: relay.events,
                p50_ms: relay.arrivals.recent_p50_ms(),
            });
        }
    }
}

/// The peak of memory is that of the whole process.
fn less(now: RelayCost, before: RelayCost) -> RelayCost {
    RelayCost { cpu_s: in_ticks((now.cpu_s - before.cpu_s).max(0.0)), ..now }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
