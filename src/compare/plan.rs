//! What is compared: rates, modes, and how long each run takes.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::json;

use super::numbers;
use crate::base::error::{Exit, Fault};
use crate::base::settings::units::{parse_duration_ms, show_duration};
use crate::config::{Config, Request};

/// Different ordering keys. Every number of connections divides it, so that a key has one writer.
pub(super) const KEYS: u64 = 1000;
/// Bytes of a payload as it is written.
pub(super) const PAYLOAD_BYTES: usize = 230;

const RATE_MAX: u32 = 100_000;
/// Most events of all runs together, or of one backlog: each takes memory here and a row there.
const EVENTS_MAX: u64 = 20_000_000;
const DURATION_MS: RangeInclusive<u64> = 1000..=24 * 3_600_000;
const INTERVAL_MS: RangeInclusive<u64> = 1..=3_600_000;
const WARM_UP: Duration = Duration::from_secs(2);
/// Time around a run: tables and slot are made, a relay starts and stops.
const AROUND_A_RUN: Duration = Duration::from_millis(1500);

/// How a relay finds events. The slot comes before polling, a short interval before a long one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub(crate) enum CaptureMode {
    /// Read from the replication slot.
    #[default]
    Cdc,
    /// Claimed from the table at this interval.
    Polling { interval_ms: u64 },
}

/// A comparison to make, and the configuration to make it with.
#[derive(Clone, Copy)]
pub(crate) struct ComparisonRequest<'a> {
    pub(crate) config: &'a Config,
    /// Where the configuration came from, for the relay that is measured.
    pub(crate) origin: &'a Request,
    pub(crate) plan: &'a ComparisonPlan,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ComparisonPlan {
    /// Events per second.
    pub(crate) rates: Vec<u32>,
    /// Of polling; none when only the slot is measured.
    pub(crate) intervals: Vec<Duration>,
    /// Of each run, without its warm-up.
    pub(crate) duration: Duration,
    /// Events of a backlog; 0 for none.
    pub(crate) backlog: u64,
}

impl CaptureMode {
    /// How long the relay waits between two claims; the slot does not wait.
    pub(crate) fn interval_ms(self) -> Option<u64> {
        match self {
            CaptureMode::Cdc => None,
            CaptureMode::Polling { interval_ms } => Some(interval_ms),
        }
    }

    /// Beside a line: `CDC`, `500 ms`.
    pub(crate) fn short(self) -> String {
        self.interval_ms().map_or_else(|| "CDC".to_owned(), |ms| numbers::ms(ms as f64))
    }

    /// In a table: `CDC`, `polling 500 ms`.
    pub(crate) fn name(self) -> String {
        let polling = if self == CaptureMode::Cdc { "" } else { "polling " };
        format!("{polling}{}", self.short())
    }

    /// In a sentence: `CDC`, `polling every 500 ms`.
    pub(crate) fn long(self) -> String {
        self.name().replace("polling ", "polling every ")
    }
}

impl ComparisonPlan {
    /// Reads `100,1000`, `100ms,2s` (or `none`) and `30s`.
    pub(crate) fn read(
        rates: &str,
        intervals: &str,
        duration: &str,
        backlog: u64,
    ) -> Result<ComparisonPlan, Vec<Fault>> {
        let mut faults = Vec::new();
        let rates = list(rates, read_rate).unwrap_or_else(|item| {
            let what = format!("{item:?} is no rate from 1 to {RATE_MAX} events per second");
            faults.push(misused(what, "--rates", "--rates 100,1000"));
            Vec::new()
        });
        let found = match intervals.trim() {
            "none" => Ok(Vec::new()),
            text => list(text, |item| read_duration(item, &INTERVAL_MS)),
        };
        let intervals = found.unwrap_or_else(|item| {
            let what = format!("{item:?} is no interval from 1ms to 1h");
            faults.push(misused(what, "--intervals", "--intervals 100ms,500ms,2s"));
            Vec::new()
        });
        let Some(duration) = read_duration(duration.trim(), &DURATION_MS) else {
            let what = format!("{duration:?} is no duration from 1s to 24h");
            faults.push(misused(what, "--duration", "--duration 30s"));
            return Err(faults);
        };
        let plan = ComparisonPlan { rates, intervals, duration, backlog };
        let events = plan.events().max(backlog);
        if events > EVENTS_MAX {
            let what = format!("that would be {events} events; {EVENTS_MAX} are the most");
            let place = if backlog == events { "--backlog" } else { "--duration" };
            faults.push(misused(what, place, "lower rates, a shorter duration, fewer intervals"));
        }
        if faults.is_empty() { Ok(plan) } else { Err(faults) }
    }

    /// Events of all runs.
    fn events(&self) -> u64 {
        let seconds = |mode: CaptureMode| (warm_up(mode) + self.duration).as_secs_f64();
        let seconds: Vec<f64> = self.modes().into_iter().map(seconds).collect();
        let each =
            |rate: &u32| seconds.iter().map(|it| (it * f64::from(*rate)) as u64).sum::<u64>();
        self.rates.iter().map(each).sum()
    }

    /// The slot first, then polling by interval, as they were named.
    pub(crate) fn modes(&self) -> Vec<CaptureMode> {
        let polling = self.intervals.iter().map(|interval| CaptureMode::Polling {
            interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
        });
        [CaptureMode::Cdc].into_iter().chain(polling).collect()
    }

    /// A backlog is drained in one go, whatever the interval: one of polling's is enough.
    pub(crate) fn drains(&self) -> Vec<CaptureMode> {
        if self.backlog == 0 { Vec::new() } else { self.modes().into_iter().take(2).collect() }
    }

    /// About how long all of it takes.
    fn takes(&self) -> Duration {
        let run = |mode: CaptureMode| warm_up(mode) + self.duration + AROUND_A_RUN;
        let once: Duration = self.modes().into_iter().map(run).sum();
        let rates = u32::try_from(self.rates.len()).unwrap_or(u32::MAX);
        let drains = u32::try_from(self.drains().len()).unwrap_or_default();
        once * rates + AROUND_A_RUN * 2 * drains
    }

    /// The command line that asks for the same.
    pub(crate) fn command(&self) -> String {
        let rates: Vec<String> = self.rates.iter().map(u32::to_string).collect();
        let intervals: Vec<String> = self.intervals.iter().map(|it| show_duration(*it)).collect();
        let intervals = if intervals.is_empty() { "none".to_owned() } else { intervals.join(",") };
        format!(
            "walrelay compare --rates {} --intervals {intervals} --duration {} --backlog {}",
            rates.join(","),
            show_duration(self.duration),
            self.backlog
        )
    }

    /// What will happen, in one line.
    pub(crate) fn announcement(&self) -> String {
        let rates: Vec<String> = self.rates.iter().map(u32::to_string).collect();
        let modes: Vec<String> = self.modes().into_iter().map(CaptureMode::name).collect();
        let drains = match self.drains().len() {
            0 => String::new(),
            count => format!(", {} of {} events", counted(count, "drain"), self.backlog),
        };
        let about = match self.takes().as_secs_f64().ceil() as u64 {
            seconds @ 0..120 => format!("{seconds} s"),
            seconds => format!("{} min", seconds.div_ceil(60)),
        };
        format!(
            "{} at {} events/s: {} of {}{drains}, one after the other; about {about}",
            modes.join(", "),
            rates.join(", "),
            counted(self.modes().len() * self.rates.len(), "run"),
            show_duration(self.duration),
        )
    }
}

impl Serialize for ComparisonPlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let intervals_ms = self.intervals.iter().map(|it| it.as_millis() as u64);
        let settings = json!({
            "rates": self.rates,
            "intervals_ms": intervals_ms.collect::<Vec<_>>(),
            "duration_s": self.duration.as_secs_f64(),
            "payload_bytes": PAYLOAD_BYTES,
            "keys": KEYS,
            "backlog_events": self.backlog,
        });
        settings.serialize(serializer)
    }
}

/// How long a mode runs before it is measured.
pub(super) fn warm_up(mode: CaptureMode) -> Duration {
    WARM_UP.max(interval(mode))
}

/// How long a mode waits between two looks; the slot does not wait.
pub(super) fn interval(mode: CaptureMode) -> Duration {
    Duration::from_millis(mode.interval_ms().unwrap_or(0))
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Each item once, in the order in which they were named; the error is the first that is invalid.
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

fn read_duration(text: &str, range: &RangeInclusive<u64>) -> Option<Duration> {
    parse_duration_ms(text).filter(|ms| range.contains(ms)).map(Duration::from_millis)
}

fn misused(what: String, place: &str, mend: &str) -> Fault {
    Fault::new(Exit::Usage, "compare.bad-value", what, place, mend)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
