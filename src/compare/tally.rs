//! What was written and what has arrived: counted while events come, so that only a few numbers are
//! kept for each.
//!
//! An event is known by its number. Numbers rise in the order of writing, and all events of a key are
//! written by one connection one after the other: so within a key, numbers are in commit order.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::plan::KEYS;
use super::report::Second;

/// How many of the last latencies tell how it goes.
const RECENT: usize = 4096;
const SECOND_NS: u64 = 1_000_000_000;

/// Every event of one run.
#[derive(Debug)]
pub(super) struct Tally {
    origin: Instant,
    /// When it was sent, in nanoseconds since the origin, plus one; 0 when it was not.
    sent: Vec<AtomicU64>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// The same of its first arrival.
    arrived: Vec<u64>,
    distinct: u64,
    duplicated: u64,
    out_of_order: u64,
    /// By key: the highest number that has arrived, plus one.
    highest: Vec<u64>,
    first: Option<Instant>,
    last: Option<Instant>,
    recent_us: Vec<u32>,
    recent_at: usize,
}

/// What is counted over all events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Written and not seen.
    pub(super) missing: u64,
    /// Deliveries beyond the first.
    pub(super) duplicated: u64,
    /// First deliveries behind a later event of their key.
    pub(super) out_of_order: u64,
}

impl Tally {
    pub(super) fn new(events: u64) -> Tally {
        let events = usize::try_from(events).unwrap_or(usize::MAX);
        Tally {
            origin: Instant::now(),
            sent: std::iter::repeat_with(AtomicU64::default).take(events).collect(),
            seen: Mutex::new(Seen {
                arrived: vec![0; events],
                distinct: 0,
                duplicated: 0,
                out_of_order: 0,
                highest: vec![0; KEYS as usize],
                first: None,
                last: None,
                recent_us: Vec::new(),
                recent_at: 0,
            }),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stamp(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX - 1) + 1
    }

    /// The event is about to be sent.
    pub(super) fn sends(&self, number: u64, at: Instant) {
        if let Some(sent) = self.sent.get(number as usize) {
            sent.store(self.stamp(at), Relaxed);
        }
    }

    /// The event is at the consumer. One that nobody wrote is none of ours.
    pub(super) fn arrives(&self, number: u64, at: Instant) {
        let stamp = self.stamp(at);
        let index = number as usize;
        let Some(sent) = self.sent.get(index).map(|sent| sent.load(Relaxed)) else { return };
        let mut seen = self.seen();
        if seen.arrived[index] != 0 {
            seen.duplicated += 1;
            return;
        }
        seen.arrived[index] = stamp;
        seen.distinct += 1;
        seen.first.get_or_insert(at);
        seen.last = Some(at);
        let highest = &mut seen.highest[(number % KEYS) as usize];
        let late = number < *highest;
        *highest = (*highest).max(number + 1);
        seen.out_of_order += u64::from(late);
        if sent != 0 {
            seen.remember(micros(sent, stamp));
        }
    }

    /// How many different events have arrived, and when the last did.
    pub(super) fn progress(&self) -> (u64, Option<Instant>) {
        let seen = self.seen();
        (seen.distinct, seen.last)
    }

    /// When the first and the last arrived.
    pub(super) fn span(&self) -> Option<(Instant, Instant)> {
        let seen = self.seen();
        Some((seen.first?, seen.last?))
    }

    /// Of the last events, in milliseconds.
    pub(super) fn recent_p50_ms(&self) -> Option<f64> {
        let mut recent = self.seen().recent_us.clone();
        let middle = recent.len() / 2;
        let (_, median, _) = (!recent.is_empty()).then(|| recent.select_nth_unstable(middle))?;
        Some(f64::from(*median) / 1000.0)
    }

    /// Over the first `written` events.
    pub(super) fn counts(&self, written: u64) -> Counts {
        let seen = self.seen();
        let Seen { duplicated, out_of_order, distinct, .. } = *seen;
        Counts { missing: written.saturating_sub(distinct), duplicated, out_of_order }
    }

    /// Latencies of the events from this number on, ascending.
    pub(super) fn latencies_us(&self, from: u64) -> Vec<u32> {
        let seen = self.seen();
        let pairs = self.sent.iter().zip(&seen.arrived).skip(from as usize);
        let pairs = pairs.map(|(sent, arrived)| (sent.load(Relaxed), *arrived));
        let mut all: Vec<u32> = pairs
            .filter(|(sent, arrived)| *sent != 0 && *arrived != 0)
            .map(|(sent, arrived)| micros(sent, arrived))
            .collect();
        all.sort_unstable();
        all
    }

    /// Second by second since `began`, of the events from this number on.
    pub(super) fn seconds(&self, from: u64, began: Instant) -> Vec<Second> {
        let began = self.stamp(began);
        let at = |stamp: u64| (stamp.saturating_sub(began) / SECOND_NS) as usize;
        let seen = self.seen();
        let pairs: Vec<(u64, u64)> = self
            .sent
            .iter()
            .zip(&seen.arrived)
            .skip(from as usize)
            .map(|(sent, arrived)| (sent.load(Relaxed), *arrived))
            .filter(|(sent, _)| *sent != 0)
            .collect();
        let last = pairs.iter().map(|(sent, arrived)| at(*sent.max(arrived))).max();
        let mut seconds: Vec<Second> = (0..last.map_or(0, |last| last + 1))
            .map(|at| Second { at_s: u32::try_from(at).unwrap_or(u32::MAX), ..Second::default() })
            .collect();
        let mut latencies: Vec<Vec<u32>> = vec![Vec::new(); seconds.len()];
        for (sent, arrived) in pairs {
            seconds[at(sent)].written += 1;
            if arrived != 0 {
                seconds[at(arrived)].delivered += 1;
                latencies[at(arrived)].push(micros(sent, arrived));
            }
        }
        let mut backlog = 0;
        for (second, mut latencies) in seconds.iter_mut().zip(latencies) {
            backlog += second.written;
            backlog -= second.delivered.min(backlog);
            second.backlog = backlog;
            latencies.sort_unstable();
            second.p50_ms = quantile_ms(&latencies, 0.5);
            second.p99_ms = quantile_ms(&latencies, 0.99);
        }
        seconds
    }
}

impl Seen {
    fn remember(&mut self, latency_us: u32) {
        if self.recent_us.len() < RECENT {
            self.recent_us.push(latency_us);
        } else {
            self.recent_us[self.recent_at % RECENT] = latency_us;
            self.recent_at += 1;
        }
    }
}

fn micros(sent: u64, arrived: u64) -> u32 {
    u32::try_from(arrived.saturating_sub(sent) / 1000).unwrap_or(u32::MAX)
}

/// The value that this share of an ascending list did not exceed, in milliseconds.
pub(super) fn quantile_ms(ascending_us: &[u32], share: f64) -> f64 {
    let count = ascending_us.len();
    let rank = (share * count as f64).ceil() as usize;
    let at = rank.clamp(1, count.max(1)) - 1;
    ascending_us.get(at).map_or(0.0, |us| f64::from(*us) / 1000.0)
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
