//! Stops the relay when there are too many dead letters: then the cause is not a single event.
//!
//! At most `burst_max` dead letters are written within any `burst_window`.
//! Dead letters of an earlier process count too, or a supervisor that restarts the relay again and
//! again would move the whole outbox to the dead-letter topic. A breaker that has opened stays open
//! until somebody acknowledges that; the dead letters from before do not count then.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

#[derive(Debug)]
pub struct Breaker {
    burst_max: usize,
    window_us: i64,
    /// When each dead letter of the last window was given up (microseconds since the Unix epoch),
    /// and its class; in order.
    letters: VecDeque<(i64, Box<str>)>,
    open: bool,
    /// When it was last acknowledged that it had opened.
    resumed_unix_us: i64,
}

/// The dead letters that have opened the breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burst {
    pub letters: usize,
    /// The class that most of them have.
    pub class: String,
}

impl Breaker {
    pub fn new(burst_max: usize, window: Duration) -> Breaker {
        let window_us = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
        Breaker {
            burst_max,
            window_us,
            letters: VecDeque::new(),
            open: false,
            resumed_unix_us: i64::MIN,
        }
    }

    /// Whether one more may be written.
    pub fn allow(&mut self, now_unix_us: i64) -> Result<(), Burst> {
        let recent = self.recent(now_unix_us);
        while self.letters.front().is_some_and(|(at, _)| at < recent.start()) {
            self.letters.pop_front();
        }
        while self.letters.back().is_some_and(|(at, _)| at > recent.end()) {
            self.letters.pop_back();
        }
        self.open |= self.letters.len() >= self.burst_max;
        if self.open { Err(self.burst()) } else { Ok(()) }
    }

    /// Whether one more would be too many.
    pub fn is_open(&self, now_unix_us: i64) -> bool {
        let recent = self.recent(now_unix_us);
        // They are in the order of their times, and there may be a million of them.
        let from = self.letters.partition_point(|(at, _)| at < recent.start());
        let until = self.letters.partition_point(|(at, _)| at <= recent.end());
        self.open || until.saturating_sub(from) >= self.burst_max
    }

    /// The times of the dead letters that count. A time that is farther ahead is from before the clock was set
    /// back, and would stay recent.
    fn recent(&self, now_unix_us: i64) -> RangeInclusive<i64> {
        let earlier = now_unix_us.saturating_sub(self.window_us);
        earlier + 1..=now_unix_us.saturating_add(self.window_us)
    }

    /// All that count will be counted anew.
    pub fn forget(&mut self) {
        self.letters.clear();
    }

    /// It has opened in an earlier process.
    pub fn opened(&mut self) {
        self.open = true;
    }

    /// Somebody has acknowledged, at this time, that it had opened.
    pub fn resumed(&mut self, unix_us: i64) {
        self.open = false;
        self.resumed_unix_us = self.resumed_unix_us.max(unix_us);
        self.letters.retain(|(at, _)| *at > unix_us);
    }

    /// A dead letter was read in the topic. Those of an earlier process may be counted out of order.
    pub fn count_read(&mut self, failed_unix_us: i64, class: &str) {
        if failed_unix_us > self.resumed_unix_us {
            self.count(failed_unix_us, class);
        }
    }

    /// A dead letter was written.
    pub fn count(&mut self, failed_unix_us: i64, class: &str) {
        let at = self.letters.partition_point(|(at, _)| *at <= failed_unix_us);
        self.letters.insert(at, (failed_unix_us, class.into()));
        if self.letters.len() > self.burst_max {
            self.letters.pop_front();
        }
    }

    fn burst(&self) -> Burst {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, class) in &self.letters {
            *counts.entry(class).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let class = most.map_or_else(String::new, |(class, _)| class.to_owned());
        Burst { letters: self.letters.len(), class }
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
