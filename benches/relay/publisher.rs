//! The bare pipelined publisher: as many messages as a backlog has rows, as fast as the broker
//! confirms them, with a window of unconfirmed ones always on its way.

use std::time::Instant;

use walrelay_harness::Result;
use walrelay_harness::bench::Progress;
use walrelay_harness::kit::run_on_thread;
use walrelay_measure::numbers;

use crate::bare::payload;
use crate::bed::Bed;
use crate::broker::{Queue, Target};
use crate::drain::Times;
use walrelay_measure::process::thread_cpu_seconds;

/// Windows that are tried.
const WINDOWS: [u64; 3] = [256, 1_024, 4_096];
/// A window is refilled when this part of it is confirmed: writes stay large, and the broker
/// always has the rest to work on.
const REFILL_PART: u64 = 4;

/// The best window for each type of queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    quorum: u64,
    classic: u64,
}

impl Windows {
    /// Publishes `events` with each window to each type of queue.
    pub(crate) fn find(bed: &Bed, events: u64, progress: &Progress) -> Result<Windows> {
        let best = |queue| best(bed, queue, events, progress);
        Ok(Windows { quorum: best(Queue::Quorum)?, classic: best(Queue::Classic)? })
    }

    pub(crate) fn of(&self, queue: Queue) -> u64 {
        match queue {
            Queue::Quorum => self.quorum,
            Queue::Classic => self.classic,
        }
    }
}

fn best(bed: &Bed, queue: Queue, events: u64, progress: &Progress) -> Result<u64> {
    let mut best = (0.0, WINDOWS[0]);
    let mut speeds = Vec::new();
    for window in WINDOWS {
        let target = bed.target(queue)?;
        let times = publish(&target, events, window)?;
        let speed = times.events_per_s(events);
        speeds.push(format!("{window}: {}", numbers::rate(speed)));
        if speed > best.0 {
            best = (speed, window);
        }
    }
    let (_, window) = best;
    let speeds = speeds.join(", ");
    progress.say(&format!("bare publisher, {queue:?} queue, by window {speeds}; taken: {window}"));
    Ok(window)
}

pub(crate) fn publish(target: &Target, events: u64, window: u64) -> Result<Times> {
    let times = run_on_thread(|| pump(target, events, window))?;
    target.expect(events)?;
    Ok(times)
}

fn pump(target: &Target, events: u64, window: u64) -> Result<Times> {
    let body = payload(0);
    let started_at = Instant::now();
    let (mut publisher, mut shape) = target.publisher()?;
    let refill_at = window - window / REFILL_PART;
    let mut left = events;
    let mut first = None;
    while publisher.confirmed() < events {
        if left > 0 && publisher.unconfirmed() <= refill_at {
            let batch = left.min(window - publisher.unconfirmed());
            (0..batch).for_each(|_| publisher.append(&mut shape, body.as_bytes()));
            left -= batch;
            publisher.flush()?;
        }
        publisher.hear(true)?;
        if publisher.confirmed() > 0 {
            first.get_or_insert_with(|| (Instant::now(), publisher.confirmed()));
        }
    }
    let done_at = Instant::now();
    let (first_at, first_events) = first.unwrap_or((done_at, 0));
    Ok(Times {
        started_at,
        first_at,
        first_events,
        done_at,
        cpu_s: thread_cpu_seconds(),
        walsender_cpu_s: f64::NAN,
        peak_rss_bytes: None,
    })
}
