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
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn breaker(burst_max: usize) -> Breaker {
        Breaker::new(burst_max, Duration::from_secs(60))
    }

    /// Writes as many letters as are allowed at `now`.
    fn write(breaker: &mut Breaker, now: i64, class: &str) -> usize {
        let mut written = 0;
        while breaker.allow(now).is_ok() {
            breaker.count(now, class);
            written += 1;
        }
        written
    }

    #[test]
    fn exactly_the_burst_is_written_and_the_most_frequent_class_is_told() {
        let mut breaker = breaker(5);
        breaker.count(0, "a");
        breaker.count(0, "b");
        assert_eq!(write(&mut breaker, SECOND, "b"), 3);
        let burst = breaker.allow(SECOND).unwrap_err();
        assert_eq!(burst, Burst { letters: 5, class: "b".to_owned() });
        // Not before somebody has looked.
        assert!(breaker.allow(3600 * SECOND).is_err(), "it closed by itself");
        assert!(breaker.is_open(3600 * SECOND));
    }

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let mut breaker = breaker(3);
        for at in [0, 30, 59] {
            assert_eq!(breaker.allow(at * SECOND), Ok(()));
            breaker.count(at * SECOND, "a");
        }
        assert_eq!(breaker.allow(60 * SECOND), Ok(()), "the first has left the window");
        breaker.count(60 * SECOND, "a");
        assert!(breaker.is_open(89 * SECOND));
        assert!(!breaker.is_open(90 * SECOND), "nobody has met it open");
        assert!(breaker.allow(89 * SECOND).is_err());
    }

    #[test]
    fn letters_of_an_earlier_process_count_in_any_order() {
        let mut breaker = breaker(3);
        for at in [50, 10, 40, 20, 30] {
            breaker.count(at * SECOND, "a");
        }
        // Of those before, the newest three are remembered: 30, 40, 50.
        let mut later = Breaker { letters: breaker.letters.clone(), ..self::breaker(3) };
        assert!(breaker.allow(89 * SECOND).is_err());
        assert_eq!(write(&mut later, 90 * SECOND, "a"), 1);
    }
}
