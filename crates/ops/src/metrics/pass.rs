//! Counters of the data thread within one pass of its loop, before they are shared.

use std::time::Duration;

use prometheus::IntCounter;
use prometheus::local::{LocalHistogram, LocalIntCounter};

use super::labels::{Ignored, KnownFrom, Outcome, Stage};
use super::{LabelSet as _, Metrics};

/// Counts without atomics; [`PassCounts::flush`] once per pass makes the counts visible.
#[derive(Debug)]
pub struct PassCounts {
    latency: LocalHistogram,
    stages: Vec<LocalHistogram>,
    outcomes: Vec<LocalIntCounter>,
    known: Vec<LocalIntCounter>,
    ignored: Vec<LocalIntCounter>,
    retries: LocalIntCounter,
}

impl PassCounts {
    pub fn new(metrics: &Metrics) -> PassCounts {
        let local = |counter: &IntCounter| counter.local();
        PassCounts {
            latency: metrics.publish_latency_seconds.local(),
            stages: metrics.stage_seconds.iter().map(|(_, stage)| stage.local()).collect(),
            outcomes: metrics.events.iter().map(|(_, counter)| local(counter)).collect(),
            known: metrics.known_events.iter().map(|(_, counter)| local(counter)).collect(),
            ignored: metrics.ignored_rows.iter().map(|(_, counter)| local(counter)).collect(),
            retries: metrics.retries.local(),
        }
    }

    /// The broker has confirmed an event. A commit time ahead of this clock counts as no latency.
    pub fn published(&mut self, commit_unix_us: i64, now_unix_us: i64) {
        let latency_us = now_unix_us.saturating_sub(commit_unix_us).max(0);
        self.latency.observe(latency_us as f64 / 1e6);
        self.outcomes[Outcome::Published.index()].inc();
    }

    /// The dead-letter topic has confirmed an event.
    pub fn dead_lettered(&mut self) {
        self.outcomes[Outcome::DeadLettered.index()].inc();
    }

    /// An event was passed over that an earlier process has published.
    pub fn known(&mut self, from: KnownFrom) {
        self.known[from.index()].inc();
    }

    pub fn retried(&mut self) {
        self.retries.inc();
    }

    pub fn ignored(&mut self, why: Ignored) {
        self.ignored[why.index()].inc();
    }

    pub fn stage(&mut self, stage: Stage, spent: Duration) {
        self.stages[stage.index()].observe(spent.as_secs_f64());
    }

    pub fn flush(&mut self) {
        self.latency.flush();
        self.stages.iter().for_each(LocalHistogram::flush);
        self.outcomes.iter().for_each(LocalIntCounter::flush);
        self.known.iter().for_each(LocalIntCounter::flush);
        self.ignored.iter().for_each(LocalIntCounter::flush);
        self.retries.flush();
    }
}
