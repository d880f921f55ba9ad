//! Counts what was written and what has arrived while events come, with two timestamps per event.
//!
//! An event is identified by its number. All events of a key are written one after the other by the
//! same connection, with rising numbers: within a key, numbers are in commit order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Deserialize;
use walrelay_base::lock::locked;
use walrelay_measure::latency::Latencies;

use super::plan::KEYS;
use super::report::{EventCounts, Second};
use walrelay_base::error::Fault;
use walrelay_base::runtime;
use walrelay_sink::bench_target::BenchTarget;

/// The progress line shows the median of so many of the last latencies.
const RECENT: usize = 4096;
const SECOND_NS: u64 = 1_000_000_000;
const POLL_PATIENCE: Duration = Duration::from_millis(100);

/// Every event of one run.
#[derive(Debug)]
pub(super) struct Arrivals {
    origin: Instant,
    /// When each event was sent, in nanoseconds since the origin, plus one; 0 when it was not.
    sent: Vec<AtomicU64>,
    seen: Mutex<SeenEvents>,
}

#[derive(Debug, Default)]
struct SeenEvents {
    /// When each event first arrived, in the same form.
    arrived: Vec<u64>,
    distinct: u64,
    duplicated: u64,
    out_of_order: u64,
    /// The highest number that has arrived of each key, plus one.
    highest: Vec<u64>,
    first_and_last: Option<(Instant, Instant)>,
    recent_us: VecDeque<u32>,
}

impl Arrivals {
    pub(super) fn new(events: u64) -> Arrivals {
        let events = usize::try_from(events).unwrap_or(usize::MAX);
        Arrivals {
            origin: Instant::now(),
            sent: std::iter::repeat_with(AtomicU64::default).take(events).collect(),
            seen: Mutex::new(SeenEvents {
                arrived: vec![0; events],
                highest: vec![0; KEYS as usize],
                ..SeenEvents::default()
            }),
        }
    }

    fn stamp(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX - 1) + 1
    }

    pub(super) fn note_sent(&self, number: u64, at: Instant) {
        if let Some(sent) = self.sent.get(number as usize) {
            sent.store(self.stamp(at), Relaxed);
        }
    }

    /// Counts an event at the consumer; a number that is not of this run is ignored.
    pub(super) fn note_arrived(&self, number: u64, at: Instant) {
        let (stamp, index) = (self.stamp(at), number as usize);
        let Some(sent) = self.sent.get(index).map(|sent| sent.load(Relaxed)) else { return };
        let mut seen = locked(&self.seen);
        if seen.arrived[index] != 0 {
            seen.duplicated += 1;
            return;
        }
        seen.arrived[index] = stamp;
        seen.distinct += 1;
        let first = seen.first_and_last.map_or(at, |(first, _)| first);
        seen.first_and_last = Some((first, at));
        let highest = &mut seen.highest[(number % KEYS) as usize];
        let was_overtaken = number < *highest;
        *highest = (*highest).max(number + 1);
        seen.out_of_order += u64::from(was_overtaken);
        if sent != 0 {
            seen.recent_us.truncate(RECENT - 1);
            seen.recent_us.push_front(micros(sent, stamp));
        }
    }

    /// How many different events have arrived, and when the last one did.
    pub(super) fn progress(&self) -> (u64, Option<Instant>) {
        let seen = locked(&self.seen);
        (seen.distinct, seen.first_and_last.map(|(_, last)| last))
    }

    pub(super) fn first_and_last(&self) -> Option<(Instant, Instant)> {
        locked(&self.seen).first_and_last
    }

    pub(super) fn recent_p50_ms(&self) -> Option<f64> {
        let recent = locked(&self.seen).recent_us.clone();
        recent.into_iter().collect::<Latencies>().quantile_ms(0.5)
    }

    /// Counts the outcomes of the first `written` events.
    pub(super) fn counts(&self, written: u64) -> EventCounts {
        let SeenEvents { duplicated, out_of_order, distinct, .. } = *locked(&self.seen);
        EventCounts { missing: written.saturating_sub(distinct), duplicated, out_of_order }
    }

    /// When the events from this number on were sent and when they arrived.
    fn stamps(&self, from: u64) -> Vec<(u64, u64)> {
        let seen = locked(&self.seen);
        let pairs = self.sent.iter().zip(&seen.arrived).skip(from as usize);
        let pairs = pairs.map(|(sent, arrived)| (sent.load(Relaxed), *arrived));
        pairs.filter(|(sent, _)| *sent != 0).collect()
    }

    pub(super) fn latencies(&self, from: u64) -> Latencies {
        let stamps = self.stamps(from).into_iter().filter(|(_, arrived)| *arrived != 0);
        stamps.map(|(sent, arrived)| micros(sent, arrived)).collect()
    }

    /// Each second since `began`, of the events from this number on.
    pub(super) fn seconds(&self, from: u64, began: Instant) -> Vec<Second> {
        let began = self.stamp(began);
        let at = |stamp: u64| (stamp.saturating_sub(began) / SECOND_NS) as usize;
        let stamps = self.stamps(from);
        let count = stamps.iter().map(|(sent, arrived)| at(*sent.max(arrived)) + 1).max();
        let mut seconds = vec![(Second::default(), Vec::new()); count.unwrap_or(0)];
        for (sent, arrived) in stamps {
            seconds[at(sent)].0.written += 1;
            if arrived != 0 {
                let (second, latencies) = &mut seconds[at(arrived)];
                second.delivered += 1;
                latencies.push(micros(sent, arrived));
            }
        }
        let mut backlog = 0;
        let finished = (0..).zip(seconds).map(|(at_s, (second, latencies))| {
            backlog = (backlog + second.written).saturating_sub(second.delivered);
            let latencies: Latencies = latencies.into_iter().collect();
            let quantiles_ms = latencies.quantiles_ms([0.5, 0.99]);
            let (p50_ms, p99_ms) = quantiles_ms.map(|[p50, p99]| (p50, p99)).unzip();
            Second { at_s, backlog, p50_ms, p99_ms, ..second }
        });
        finished.collect()
    }
}

fn micros(sent: u64, arrived: u64) -> u32 {
    u32::try_from(arrived.saturating_sub(sent) / 1000).unwrap_or(u32::MAX)
}

#[derive(Deserialize)]
struct EventLabel {
    n: u64,
    run: u32,
}

#[derive(Default)]
struct ReaderState {
    stop: AtomicBool,
    /// The run whose events are counted; late events of earlier runs are ignored.
    current: Mutex<Option<(u32, Arc<Arrivals>)>>,
}

/// A thread that consumes events; dropping this stops it.
pub(super) struct ArrivalReader {
    state: Arc<ReaderState>,
    thread: Option<JoinHandle<Result<(), Fault>>>,
}

impl ArrivalReader {
    pub(super) fn start(target: Box<dyn BenchTarget>) -> Result<ArrivalReader, Fault> {
        let state = Arc::new(ReaderState::default());
        let own = Arc::clone(&state);
        let thread = Some(runtime::spawn("consumer", move || read(target, &own))?);
        Ok(ArrivalReader { state, thread })
    }

    /// Counts the events of this run from now on.
    pub(super) fn count(&self, run: u32, arrivals: &Arc<Arrivals>) {
        *locked(&self.state.current) = Some((run, Arc::clone(arrivals)));
    }

    /// Fails when the broker can no longer be read.
    pub(super) fn check(&mut self) -> Result<(), Fault> {
        // A thread that panicked has already logged that.
        let ended = self.thread.take_if(|thread| thread.is_finished()).map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or(Ok(()))
    }
}

impl Drop for ArrivalReader {
    fn drop(&mut self) {
        self.state.stop.store(true, Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn read(mut target: Box<dyn BenchTarget>, state: &ReaderState) -> Result<(), Fault> {
    while !state.stop.load(Relaxed) {
        let Some(arrival) = target.consume(POLL_PATIENCE)? else { continue };
        let Ok(label) = serde_json::from_slice::<EventLabel>(&arrival.value) else { continue };
        let current = locked(&state.current).clone();
        if let Some((_, arrivals)) = current.filter(|(run, _)| *run == label.run) {
            arrivals.note_arrived(label.n, arrival.at);
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "arrivals_tests.rs"]
mod tests;
