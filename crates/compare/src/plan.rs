//! Plan of a comparison: rates, modes, and how long each run takes.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use walrelay_measure::numbers;
use walrelay_postgres::settings::SourceSettings;
use walrelay_sink::Broker;

use walrelay_base::error::{Exit, Fault};
use walrelay_base::figures::counted;
use walrelay_base::settings::units::{parse_duration_ms, show_duration};

/// Different ordering keys. Every number of connections divides it, so that a key has one writer.
pub(super) const KEYS: u64 = 1000;
pub(super) const PAYLOAD_BYTES: usize = 230;

const RATE_MAX: u32 = 100_000;
/// Most events of all runs together, or of one backlog: each takes memory here and a row there.
const EVENTS_MAX: u64 = 20_000_000;
const DURATION_MS: RangeInclusive<u64> = 1000..=24 * 3_600_000;
const INTERVAL_MS: RangeInclusive<u64> = 1..=3_600_000;
const WARM_UP: Duration = Duration::from_secs(2);
/// Creating table and slot, starting and stopping the relay.
const AROUND_A_RUN: Duration = Duration::from_millis(1500);

/// How a relay finds events. Sorts the slot before polling, a short interval before a long one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum CaptureMode {
    /// From the replication slot.
    #[default]
    Cdc,
    /// Claimed from the table at this interval.
    Polling { interval_ms: u64 },
}

/// A comparison to make, and the settings to make it with.
#[derive(Clone, Copy)]
pub struct ComparisonRequest<'a> {
    pub source: &'a SourceSettings,
    pub sink: &'a Arc<dyn Broker>,
    /// The longest pause of the relay between two attempts.
    pub backoff_cap: Duration,
    /// Where the configuration came from: the relay that is measured reads it again.
    pub origin: &'a Value,
    pub plan: &'a ComparisonPlan,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparisonPlan {
    /// Events per second.
    pub rates: Vec<u32>,
    /// The intervals of polling; empty when only the slot is measured.
    pub intervals_ms: Vec<u64>,
    /// The length of each run, without its warm-up.
    pub duration: Duration,
    /// Events of a backlog; 0 for none.
    pub backlog: u64,
}

impl CaptureMode {
    pub fn interval_ms(self) -> Option<u64> {
        match self {
            CaptureMode::Cdc => None,
            CaptureMode::Polling { interval_ms } => Some(interval_ms),
        }
    }

    /// The time between two claims; zero for the slot.
    pub(super) fn interval(self) -> Duration {
        Duration::from_millis(self.interval_ms().unwrap_or(0))
    }

    /// How long the mode runs before it is measured.
    pub(super) fn warm_up(self) -> Duration {
        WARM_UP.max(self.interval())
    }

    /// For people: `CDC`, `polling 500 ms`.
    pub fn name(self) -> String {
        let polling = |ms| format!("polling {}", numbers::ms(ms as f64));
        self.interval_ms().map_or_else(|| "CDC".to_owned(), polling)
    }
}

impl ComparisonPlan {
    /// Reads `100,1000`, `100ms,2s` (or `none`) and `30s`.
    pub fn read(
        rates: &str,
        intervals: &str,
        duration: &str,
        backlog: u64,
    ) -> Result<ComparisonPlan, Vec<Fault>> {
        let mut faults = Vec::new();
        let read_rate = |text: &str| text.parse().ok().filter(|it| (1..=RATE_MAX).contains(it));
        let rates = list(rates, read_rate).unwrap_or_else(|item| {
            let what = format!("{item:?} is no rate from 1 to {RATE_MAX} events per second");
            faults.push(misused(what, "--rates", "--rates 100,1000"));
            Vec::new()
        });
        let found = match intervals.trim() {
            "none" => Ok(Vec::new()),
            text => list(text, |item| read_duration_ms(item, &INTERVAL_MS)),
        };
        let intervals_ms = found.unwrap_or_else(|item| {
            let what = format!("{item:?} is no interval from 1ms to 1h");
            faults.push(misused(what, "--intervals", "--intervals 100ms,500ms,2s"));
            Vec::new()
        });
        let Some(duration_ms) = read_duration_ms(duration.trim(), &DURATION_MS) else {
            let what = format!("{duration:?} is no duration from 1s to 24h");
            faults.push(misused(what, "--duration", "--duration 30s"));
            return Err(faults);
        };
        let duration = Duration::from_millis(duration_ms);
        let plan = ComparisonPlan { rates, intervals_ms, duration, backlog };
        let events = plan.events().max(backlog);
        if events > EVENTS_MAX {
            let what = format!("that would be {events} events; {EVENTS_MAX} are the most");
            let (place, mend) = if backlog == events {
                ("--backlog", "--backlog 20000")
            } else {
                ("--duration", "lower rates, a shorter duration, fewer intervals")
            };
            faults.push(misused(what, place, mend));
        }
        if faults.is_empty() { Ok(plan) } else { Err(faults) }
    }

    /// Events of all runs.
    fn events(&self) -> u64 {
        let of_run = |rate: u32, mode: CaptureMode| {
            ((mode.warm_up() + self.duration).as_secs_f64() * f64::from(rate)) as u64
        };
        let modes = self.modes();
        self.rates.iter().flat_map(|rate| modes.iter().map(|mode| of_run(*rate, *mode))).sum()
    }

    /// The slot first, then polling, with the intervals in the order in which they were given.
    pub fn modes(&self) -> Vec<CaptureMode> {
        let polling = self.intervals_ms.iter();
        let polling = polling.map(|&interval_ms| CaptureMode::Polling { interval_ms });
        [CaptureMode::Cdc].into_iter().chain(polling).collect()
    }

    /// Polling drains a backlog without waiting between claims, so that one interval is enough.
    pub fn drains(&self) -> Vec<CaptureMode> {
        if self.backlog == 0 { Vec::new() } else { self.modes().into_iter().take(2).collect() }
    }

    /// About how long all of it takes.
    fn length(&self) -> Duration {
        let run = |mode: CaptureMode| mode.warm_up() + self.duration + AROUND_A_RUN;
        let once: Duration = self.modes().into_iter().map(run).sum();
        once * self.rates.len() as u32 + AROUND_A_RUN * 2 * self.drains().len() as u32
    }

    fn rates_joined(&self, separator: &str) -> String {
        self.rates.iter().map(u32::to_string).collect::<Vec<_>>().join(separator)
    }

    /// The command line that repeats the comparison.
    pub fn command(&self) -> String {
        let show = |ms: &u64| show_duration(Duration::from_millis(*ms));
        let intervals: Vec<String> = self.intervals_ms.iter().map(show).collect();
        let intervals = if intervals.is_empty() { "none".to_owned() } else { intervals.join(",") };
        format!(
            "walrelay compare --rates {} --intervals {intervals} --duration {} --backlog {}",
            self.rates_joined(","),
            show_duration(self.duration),
            self.backlog
        )
    }

    /// Announces what will be measured and how long it takes, in one line.
    pub fn announcement(&self) -> String {
        let modes: Vec<String> = self.modes().into_iter().map(CaptureMode::name).collect();
        let drains = match self.drains().len() {
            0 => String::new(),
            count => format!(", {} of {} events", counted(count, "drain"), self.backlog),
        };
        let about = match self.length().as_secs_f64().ceil() as u64 {
            seconds @ 0..120 => format!("{seconds} s"),
            seconds => format!("{} min", seconds.div_ceil(60)),
        };
        format!(
            "{} at {} events/s: {} of {}{drains}, one after the other; about {about}",
            modes.join(", "),
            self.rates_joined(", "),
            counted(modes.len() * self.rates.len(), "run"),
            show_duration(self.duration),
        )
    }
}

impl Serialize for ComparisonPlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let settings = json!({
            "rates": self.rates,
            "intervals_ms": self.intervals_ms,
            "duration_s": self.duration.as_secs_f64(),
            "payload_bytes": PAYLOAD_BYTES,
            "keys": KEYS,
            "backlog_events": self.backlog,
        });
        settings.serialize(serializer)
    }
}

/// Each item once, in the order of the list; the error is the first item that is invalid.
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

fn read_duration_ms(text: &str, range: &RangeInclusive<u64>) -> Option<u64> {
    parse_duration_ms(text).filter(|ms| range.contains(ms))
}

fn misused(what: String, place: &str, mend: &str) -> Fault {
    Fault::new(Exit::Usage, "compare.bad-value", what, place, mend)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
