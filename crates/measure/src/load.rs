//! Load at an even rate, whether or not what it is written to keeps up.
//!
//! Event `n` is due at `n / rate` after the start, whatever became of the one before. A late event is written all
//! the same, and its lateness is reported, because then the machine is too small for the rate. Each writer has a
//! thread: a thread wakes within 0.1 ms of its time, but the timers of a runtime are whole milliseconds,
//! which would send the load in bursts.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::latency::Latencies;

/// The times at which the events of an even load are due.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    began: Instant,
    per_second: f64,
}

impl Schedule {
    pub fn start(per_second: f64) -> Schedule {
        Schedule { began: Instant::now(), per_second }
    }

    /// Waits until event `n` is due; returns how late it is.
    pub fn wait(&self, n: u64) -> Duration {
        let due = self.began + self.time_of(n);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due.elapsed()
    }

    /// The time that `n` events take at this rate.
    fn time_of(&self, n: u64) -> Duration {
        Duration::from_secs_f64(n as f64 / self.per_second)
    }
}

/// How the load was really written.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    pub events: u64,
    /// From the first due time to the last write; at least as long as the rate asks for.
    pub elapsed: Duration,
    pub lateness: Latencies,
}

impl Pace {
    pub fn per_second(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Writes events at a rate until all are written or `stop` is set. Event `n` goes to writer `n` modulo their
/// number, so that a key of which the number of writers is a divisor has one writer. An error ends all
/// writers, and is returned.
pub fn steady<E: Send>(
    writers: Vec<impl FnMut(u64) -> Result<(), E> + Send>,
    numbers: Range<u64>,
    per_second: f64,
    stop: &AtomicBool,
) -> Result<Pace, E> {
    let (schedule, first) = (Schedule::start(per_second), numbers.start);
    let count = writers.len() as u64;
    let (mut sum, has_failed) = (Pace::default(), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .zip(writers)
            .map(|(at, mut writer)| {
                let own = numbers.clone().filter(move |number| number % count == at);
                let own = own.take_while(|_| !stop.load(Relaxed) && !has_failed.load(Relaxed));
                scope.spawn(move || {
                    let mut lateness = Latencies::default();
                    for number in own {
                        lateness.record(schedule.wait(number - first));
                        writer(number).inspect_err(|_| has_failed.store(true, Relaxed))?;
                    }
                    Ok(lateness)
                })
            })
            .collect();
        for thread in threads {
            let lateness =
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sum.events += lateness.count();
            sum.lateness.merge(&lateness);
        }
        Ok(())
    })?;
    // The last event is due one interval before the end.
    sum.elapsed = schedule.began.elapsed().max(schedule.time_of(sum.events));
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_event_is_written_once_by_the_writer_of_its_number() {
        let written = Mutex::new(Vec::new());
        let writer = |at: u64| {
            let written = &written;
            move |number: u64| {
                written.lock().unwrap().push((number, at));
                Ok::<(), ()>(())
            }
        };
        let writers = (0..4).map(writer).collect();
        let pace = steady(writers, 5..45, 2000.0, &AtomicBool::new(false)).unwrap();
        let mut written = written.into_inner().unwrap();
        written.sort_unstable();
        assert_eq!(written, (5..45).map(|number| (number, number % 4)).collect::<Vec<_>>());
        assert_eq!((pace.events, pace.lateness.count()), (40, 40));
        assert!(pace.elapsed >= Duration::from_millis(20) && pace.per_second() <= 2000.0);
    }

    #[test]
    fn an_event_is_never_early() {
        let (schedule, began) = (Schedule::start(1000.0), Instant::now());
        schedule.wait(5);
        assert!(began.elapsed() > Duration::from_millis(4));
    }

    #[test]
    fn a_load_that_is_stopped_or_fails_ends() {
        let never = |_: u64| -> Result<(), ()> { unreachable!("it was stopped") };
        let pace = steady(vec![never], 0..10, 1.0, &AtomicBool::new(true)).unwrap();
        assert_eq!(pace.events, 0);
        let fails = |number: u64| Err(number);
        assert_eq!(steady(vec![fails], 3..10, 1e6, &AtomicBool::new(false)).unwrap_err(), 3);
    }
}
