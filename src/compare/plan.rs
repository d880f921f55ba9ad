//! What is compared: rates, modes, and how long each run takes.

use std::time::Duration;

use super::report::Mode;
use crate::base::error::{Exit, Fault};
use crate::config::units::{parse_duration_ms, show_duration};

/// Different ordering keys. Every number of connections divides it, so that a key has one writer.
pub const KEYS: u64 = 1000;
/// Bytes of a payload as it is written.
pub const PAYLOAD_BYTES: usize = 230;

const RATE_MAX: u32 = 100_000;
/// Of all runs together, or of one backlog: some numbers are kept for each, and rows are written.
const EVENTS_MAX: u64 = 20_000_000;
const DURATION_MS: std::ops::RangeInclusive<u64> = 1000..=24 * 3_600_000;
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 1..=3_600_000;
const WARM_UP: Duration = Duration::from_secs(2);
/// Tables, slot, a relay that starts, and one that stops.
const AROUND_A_RUN: Duration = Duration::from_millis(1500);

/// What to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Events per second.
    pub rates: Vec<u32>,
    /// Of polling; none when only the slot is measured.
    pub intervals: Vec<Duration>,
    /// Of each run, without its warm-up.
    pub duration: Duration,
    /// Events of a backlog; 0 for none.
    pub backlog: u64,
}

impl Plan {
    /// Reads `100,1000`, `100ms,2s` (or `none`) and `30s`.
    pub fn read(
        rates: &str,
        intervals: &str,
        duration: &str,
        backlog: u64,
    ) -> Result<Plan, Vec<Fault>> {
        let mut faults = Vec::new();
        let rates = list(rates, read_rate);
        let intervals = match intervals.trim() {
            "none" => Ok(Vec::new()),
            text => list(text, |item| read_duration(item, &INTERVAL_MS)),
        };
        let length = read_duration(duration.trim(), &DURATION_MS);
        if let Err(item) = &rates {
            let what = format!("{item:?} is no rate from 1 to {RATE_MAX} events per second");
            faults.push(misused(what, "--rates", "--rates 100,1000"));
        }
        if let Err(item) = &intervals {
            let what = format!("{item:?} is no interval from 1ms to 1h");
            faults.push(misused(what, "--intervals", "--intervals 100ms,500ms,2s"));
        }
        if length.is_none() {
            let what = format!("{duration:?} is no duration from 1s to 24h");
            faults.push(misused(what, "--duration", "--duration 30s"));
        }
        match (rates, intervals, length) {
            (Ok(rates), Ok(intervals), Some(duration)) => {
                let plan = Plan { rates, intervals, duration, backlog };
                let events = plan.events().max(backlog);
                if events <= EVENTS_MAX {
                    return Ok(plan);
                }
                let what = format!("that would be {events} events; {EVENTS_MAX} are the most");
                let place = if backlog == events { "--backlog" } else { "--duration" };
                Err(vec![misused(what, place, "lower rates, a shorter duration, fewer intervals")])
            }
            _ => Err(faults),
        }
    }

    /// Events of all runs.
    fn events(&self) -> u64 {
        let of = |mode: Mode, rate: u32| {
            ((warm_up(mode) + self.duration).as_secs_f64() * f64::from(rate)) as u64
        };
        let modes = self.modes();
        let each = |rate: &u32| modes.iter().map(|mode| of(*mode, *rate)).sum::<u64>();
        self.rates.iter().map(each).sum()
    }

    /// The slot first, then polling by interval, as they were named.
    #[must_use]
    pub fn modes(&self) -> Vec<Mode> {
        let polling = self.intervals.iter().map(|interval| Mode::Polling {
            interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
        });
        [Mode::Cdc].into_iter().chain(polling).collect()
    }

    /// A backlog is drained in one go, whatever the interval: one of polling's is enough.
    #[must_use]
    pub fn drains(&self) -> Vec<Mode> {
        if self.backlog == 0 { Vec::new() } else { self.modes().into_iter().take(2).collect() }
    }

    /// About how long all of it takes.
    #[must_use]
    pub fn takes(&self) -> Duration {
        let run = |mode: Mode| warm_up(mode) + self.duration + AROUND_A_RUN;
        let once: Duration = self.modes().into_iter().map(run).sum();
        let rates = u32::try_from(self.rates.len()).unwrap_or(u32::MAX);
        let drains = u32::try_from(self.drains().len()).unwrap_or_default();
        once * rates + AROUND_A_RUN * 2 * drains
    }

    /// What will happen, in one line.
    #[must_use]
    pub fn announcement(&self) -> String {
        let runs = self.modes().len() * self.rates.len();
        let rates: Vec<String> = self.rates.iter().map(u32::to_string).collect();
        let modes: Vec<String> = self.modes().into_iter().map(name).collect();
        let drains = match self.drains().len() {
            0 => String::new(),
            count => format!(", {} of {} events", counted(count, "drain"), self.backlog),
        };
        format!(
            "{} at {} events/s: {} of {}{drains}, one after the other; about {}",
            modes.join(", "),
            rates.join(", "),
            counted(runs, "run"),
            show_duration(self.duration),
            roughly(self.takes()),
        )
    }
}

/// For people: `cdc`, `polling 500ms`.
#[must_use]
pub fn name(mode: Mode) -> String {
    match mode {
        Mode::Cdc => "cdc".to_owned(),
        Mode::Polling { interval_ms } => {
            format!("polling {}", show_duration(Duration::from_millis(interval_ms)))
        }
    }
}

/// How long a mode runs before it is measured.
pub(super) fn warm_up(mode: Mode) -> Duration {
    WARM_UP.max(interval(mode))
}

/// How often the mode looks; the slot is told.
pub(super) fn interval(mode: Mode) -> Duration {
    match mode {
        Mode::Cdc => Duration::ZERO,
        Mode::Polling { interval_ms } => Duration::from_millis(interval_ms),
    }
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

fn roughly(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().ceil() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        _ => format!("{} min", seconds.div_ceil(60)),
    }
}

/// Each item once, in the order in which they were named; else the first that is none.
fn list<T: PartialEq>(text: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let mut found = Vec::new();
    for item in text.split(',').map(str::trim) {
        let value = read(item).ok_or_else(|| item.to_owned())?;
        if !found.contains(&value) {
            found.push(value);
        }
    }
    Ok(found)
}

fn read_rate(text: &str) -> Option<u32> {
    text.parse().ok().filter(|rate| (1..=RATE_MAX).contains(rate))
}

fn read_duration(text: &str, range: &std::ops::RangeInclusive<u64>) -> Option<Duration> {
    parse_duration_ms(text).filter(|ms| range.contains(ms)).map(Duration::from_millis)
}

fn misused(what: String, place: &str, mend: &str) -> Fault {
    Fault::new(Exit::Usage, "compare.bad-value", what, place, mend)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
