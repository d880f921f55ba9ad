//! One run after the other: a relay is started on a fresh table, loaded, watched, and stopped.
//!
//! A run is: the first event (the relay works), a warm-up that is not measured, the measured load, and
//! the wait for its last event. Events that do not come while none come for [`patience`] are missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::child::Child;
use super::consumer::Consumer;
use super::cost::{Meter, Share, measured_part};
use super::load::{self, Load, Pace};
use super::plan::{self, interval, warm_up};
use super::relay::Order;
use super::report::{Drain, Mode, PostgresCost, RelayCost, Run};
use super::site::{self, Site};
use super::tally::Tally;
use super::{Asked, Live, Watcher, proc};
use crate::base::error::{Exit, Fault};

/// How long the first event of a relay may take.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
const PATIENCE_MIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_millis(200);
/// Ticks between two looks at the backends.
const CPU_EVERY: u32 = 5;
/// Events from which the load's own WAL is known.
const WEIGHED: u64 = 500;

/// How long nothing may come before what is missing is missing: longer than a relay waits between
/// two attempts.
fn patience(mode: Mode, longest_wait: Duration) -> Duration {
    PATIENCE_MIN.max(3 * interval(mode)).max(longest_wait + Duration::from_secs(5))
}

/// Everything that outlives a run.
pub(super) struct Bench<'a> {
    asked: Asked<'a>,
    site: &'a Site,
    consumer: Consumer,
    meter: Meter,
    /// Number of the run, by which its events are known.
    number: u32,
    /// Bytes of WAL of one event of the load, by whether the table is that of polling.
    wal_of_event: BTreeMap<bool, f64>,
}

/// A run that is under way.
struct Under {
    mode: Mode,
    what: String,
    child: Child,
    tally: Arc<Tally>,
    events: u64,
    ends: Instant,
}

impl<'a> Bench<'a> {
    pub(super) async fn open(
        asked: Asked<'a>,
        site: &'a Site,
        consumer: Consumer,
    ) -> Result<Bench<'a>, Fault> {
        let meter = Meter::open(&asked.config.source.connection, &site.name).await?;
        Ok(Bench { asked, site, consumer, meter, number: 0, wal_of_event: BTreeMap::new() })
    }

    pub(super) fn is_local(&self) -> bool {
        self.meter.is_local
    }

    async fn load(&self, rate: u32) -> Result<Load, Fault> {
        Load::open(&self.asked.config.source.connection, &self.site.name, rate).await
    }

    /// Begins to count the events of a new run.
    fn attend(&mut self, events: u64) -> Arc<Tally> {
        self.number += 1;
        let tally = Arc::new(Tally::new(events));
        self.consumer.attend(self.number, &tally);
        tally
    }

    fn start(&self, mode: Mode) -> Result<Child, Fault> {
        let request = self.asked.request;
        let name = &self.site.name;
        Child::start(&Order {
            file: request.file.clone(),
            settings: request.settings.clone(),
            slot: request.slot.clone(),
            name: name.clone(),
            interval_ms: match mode {
                Mode::Cdc => None,
                Mode::Polling { interval_ms } => Some(interval_ms),
            },
            crash_file: std::env::temp_dir().join(format!("{name}.crash")),
        })
    }

    /// A fresh table. What the run before has left goes only now: its figures are out of danger.
    async fn make(&self, mode: Mode) -> Result<(), Fault> {
        site::remove(&self.asked.config.source.connection, &self.site.name).await?;
        self.site.make(mode).await
    }

    /// What one event of the load costs in WAL when nobody relays it.
    async fn weigh(&mut self, mode: Mode) -> Result<f64, Fault> {
        let polls = mode != Mode::Cdc;
        if let Some(bytes) = self.wal_of_event.get(&polls) {
            return Ok(*bytes);
        }
        self.make(mode).await?;
        let load = self.load(1).await?;
        let tally = self.attend(WEIGHED);
        let before = self.meter.read().await?.wal_bytes;
        load.write(&tally, self.number, 0..WEIGHED, 100_000).await?;
        let bytes = (self.meter.read().await?.wal_bytes - before) as f64 / WEIGHED as f64;
        drop(load);
        self.wal_of_event.insert(polls, bytes);
        Ok(bytes)
    }

    /// One mode at one rate.
    pub(super) async fn run(
        &mut self,
        mode: Mode,
        rate: u32,
        watcher: &mut dyn Watcher,
    ) -> Result<Run, Fault> {
        let what = format!("{} at {rate}/s", plan::name(mode));
        watcher.say(&what);
        let wal_of_event = self.weigh(mode).await?;
        self.make(mode).await?;
        let load = self.load(rate).await?;
        let of = |length: Duration| (length.as_secs_f64() * f64::from(rate)).ceil() as u64;
        let warm = of(warm_up(mode)).max(1);
        let total = warm + of(self.asked.plan.duration).max(1);
        let tally = self.attend(total);
        let before = self.meter.settled(0).await?;
        let looks = self.meter.looks();
        let ends = Instant::now() + warm_up(mode) + self.asked.plan.duration;
        let child = self.start(mode)?;
        let mut under = Under { mode, what, child, tally, events: total, ends };
        self.warm_up(&mut under, &load, warm, rate, watcher).await?;

        self.meter.begin_cpu().await?;
        let relay_before = under.child.cost();
        let load_average = proc::load_average();
        let (began, tally, number) = (Instant::now(), Arc::clone(&under.tally), self.number);
        under.ends = began + self.asked.plan.duration;
        let writing = load.write(&tally, number, warm..total, rate);
        let pace: Pace = self.watched(&mut under, watcher, writing).await?;
        self.arrival_of(&mut under, total, self.patience(mode), watcher).await?;
        self.meter.look_at_cpu().await?;
        let cpu_s = self.meter.cpu_s();
        let relay = less(under.child.cost(), relay_before);
        under.child.stop().await?;
        drop(load);
        let after = self.meter.settled(total).await?;
        let events = total - warm;
        let share =
            Share { transactions: total, rows: total, wal_bytes: total as f64 * wal_of_event };
        let whole = after.since(before, share, self.meter.looks() - looks);
        let counts = tally.counts(total);
        Ok(Run {
            mode,
            rate,
            written_per_second: pace.per_second,
            load_late_p99_ms: pace.late_p99_ms,
            events,
            missing: counts.missing,
            duplicated: counts.duplicated,
            out_of_order: counts.out_of_order,
            latencies_us: tally.latencies_us(warm),
            seconds: tally.seconds(warm, began),
            postgres: PostgresCost { cpu_s, ..measured_part(whole, events, total) },
            relay,
            load_average,
        })
    }

    async fn warm_up(
        &mut self,
        under: &mut Under,
        load: &Load,
        warm: u64,
        rate: u32,
        watcher: &mut dyn Watcher,
    ) -> Result<(), Fault> {
        let (tally, number) = (Arc::clone(&under.tally), self.number);
        load.write(&tally, number, 0..1, rate).await?;
        self.first_of(under, watcher).await?;
        let writing = load.write(&tally, number, 1..warm, rate);
        self.watched(under, watcher, writing).await?;
        self.arrival_of(under, warm, self.patience(under.mode), watcher).await.map(drop)
    }

    fn patience(&self, mode: Mode) -> Duration {
        patience(mode, self.asked.config.delivery.backoff_cap)
    }

    /// Waits for the first event of a relay.
    async fn first_of(
        &mut self,
        under: &mut Under,
        watcher: &mut dyn Watcher,
    ) -> Result<(), Fault> {
        let within = STARTS_WITHIN + interval(under.mode);
        if self.arrival_of(under, 1, within, watcher).await? > 0 {
            return Ok(());
        }
        let what = format!(
            "{}: the first event has not arrived within {} s",
            under.what,
            within.as_secs()
        );
        Err(Fault::new(Exit::Failed, "compare.nothing-arrived", what, "", "walrelay check"))
    }

    /// A backlog that was there before the relay.
    pub(super) async fn drain(
        &mut self,
        mode: Mode,
        events: u64,
        watcher: &mut dyn Watcher,
    ) -> Result<Drain, Fault> {
        let what = format!("{} drains {events} events", plan::name(mode));
        watcher.say(&what);
        self.make(mode).await?;
        let tally = self.attend(events);
        let name = &self.site.name;
        let writer = super::connect(&self.asked.config.source.connection, name).await?;
        load::backlog(&writer, name, &tally, self.number, events).await?;
        drop(writer);
        let before = self.meter.settled(events).await?;
        let looks = self.meter.looks();
        self.meter.begin_cpu().await?;
        let began = Instant::now();
        let child = self.start(mode)?;
        let mut under = Under { mode, what, child, tally, events, ends: began };
        self.first_of(&mut under, watcher).await?;
        self.arrival_of(&mut under, events, self.patience(mode), watcher).await?;
        self.meter.look_at_cpu().await?;
        let cpu_s = self.meter.cpu_s();
        let relay = under.child.cost();
        under.child.stop().await?;
        let after = self.meter.settled(events).await?;
        let counts = under.tally.counts(events);
        let (first, last) = under.tally.span().unwrap_or((began, began));
        Ok(Drain {
            mode,
            events,
            first_s: (first - began).as_secs_f64(),
            seconds: (last - first).as_secs_f64(),
            missing: counts.missing,
            duplicated: counts.duplicated,
            out_of_order: counts.out_of_order,
            postgres: PostgresCost {
                cpu_s,
                ..after.since(before, Share::default(), self.meter.looks() - looks)
            },
            relay,
        })
    }

    /// Waits until so many events have arrived, or none has for `patience`; how many have.
    async fn arrival_of(
        &mut self,
        under: &mut Under,
        events: u64,
        patience: Duration,
        watcher: &mut dyn Watcher,
    ) -> Result<u64, Fault> {
        let tally = Arc::clone(&under.tally);
        let began = Instant::now();
        let arriving = async {
            loop {
                let (count, last) = tally.progress();
                let since = last.map_or(began, |last| last.max(began));
                if count >= events || since.elapsed() > patience {
                    return Ok(count);
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        self.watched(under, watcher, arriving).await
    }

    /// Does something, and meanwhile sees that everything lives, and tells.
    async fn watched<T>(
        &mut self,
        under: &mut Under,
        watcher: &mut dyn Watcher,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let mut work = std::pin::pin!(work);
        let mut ticks: u32 = 0;
        loop {
            if let Ok(done) = tokio::time::timeout(TICK, &mut work).await {
                return done;
            }
            under.child.alive()?;
            self.consumer.fault()?;
            ticks += 1;
            if ticks.is_multiple_of(CPU_EVERY) {
                self.meter.look_at_cpu().await?;
            }
            watcher.live(&Live {
                what: under.what.clone(),
                left: under.ends.saturating_duration_since(Instant::now()),
                delivered: under.tally.progress().0,
                events: under.events,
                p50_ms: under.tally.recent_p50_ms(),
            });
        }
    }
}

fn less(now: RelayCost, before: RelayCost) -> RelayCost {
    RelayCost { cpu_s: (now.cpu_s - before.cpu_s).max(0.0), ..now }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
