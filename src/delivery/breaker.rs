//! When dead letters are too many: then something else is wrong than the events.
//!
//! At most `burst_max` letters are written within any `burst_window`. Letters of an earlier process
//! count too, or a supervisor that starts the relay again and again would drain the outbox into the
//! dead-letter topic burst by burst. Once open, it stays open for the life of the process.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The letters of the last window.
#[derive(Debug)]
pub struct Breaker {
    burst_max: usize,
    window_us: i64,
    /// When each was given up (microseconds since the Unix epoch), and its class; in order.
    letters: VecDeque<(i64, Box<str>)>,
    open: bool,
}

/// There are as many letters as there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burst {
    /// How many.
    pub letters: usize,
    /// The class that most of them have.
    pub class: String,
}

impl Breaker {
    /// No letters.
    #[must_use]
    pub fn new(burst_max: usize, window: Duration) -> Breaker {
        let window_us = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
        Breaker { burst_max, window_us, letters: VecDeque::new(), open: false }
    }

    /// May one more be written?
    pub fn allow(&mut self, now_unix_us: i64) -> Result<(), Burst> {
        let until = now_unix_us.saturating_sub(self.window_us);
        while self.letters.front().is_some_and(|(at, _)| *at <= until) {
            self.letters.pop_front();
        }
        self.open |= self.letters.len() >= self.burst_max;
        if self.open { Err(self.burst()) } else { Ok(()) }
    }

    /// Would one more be too many?
    #[must_use]
    pub fn is_open(&self, now_unix_us: i64) -> bool {
        let until = now_unix_us.saturating_sub(self.window_us);
        let old = self.letters.partition_point(|(at, _)| *at <= until);
        self.open || self.letters.len() - old >= self.burst_max
    }

    /// One was written, perhaps by an earlier process and told out of order.
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
