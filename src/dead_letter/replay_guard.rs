//! When a replay must stop by itself: an event that it has replayed is a dead letter again, or dead
//! letters come in faster than they are resolved. It checks what is written to the log meanwhile;
//! time is an argument.

use std::collections::{HashMap, VecDeque};

use super::fold::Change;
use super::record::{
    DeadLetter, DeadLetterId, LogRecord, PartitionOffset, Resolution, ResolutionKind,
};
use super::writer::CLASS_PARKED;
use crate::base::error::{Exit, Fault};
use crate::base::text::{escaped, quoted};

/// A new dead letter is blamed on the replay if an event of its route and error class was replayed
/// within this time.
const SAME_CLASS_US: i64 = 30_000_000;
/// The period in which new dead letters and resolutions are counted.
const TREND_S: i64 = 30;
/// Fewer new dead letters than this are no trend.
const NEW_LETTERS_MIN: usize = 20;

/// The code of the fault of a replay beside which another one runs.
pub(super) const TWO_REPLAYS: &str = "dead-letter.two-replays";

/// Exchange, topic and error class.
type RouteAndClass = (String, String, String);

#[derive(Debug)]
pub(super) struct ReplayGuard {
    /// Who writes the resolutions of this replay.
    pub(super) by: String,
    /// The dead letters of published events, and their positions.
    published: HashMap<DeadLetterId, PartitionOffset>,
    /// When an event that had failed like this was last published.
    last_published: HashMap<RouteAndClass, i64>,
    trend: Trend,
}

impl ReplayGuard {
    pub(super) fn new(by: &str) -> ReplayGuard {
        ReplayGuard {
            by: by.to_owned(),
            published: HashMap::new(),
            last_published: HashMap::new(),
            trend: Trend::default(),
        }
    }

    /// The event of `letter` was given to the sink.
    pub(super) fn published(&mut self, letter: &DeadLetter, now_unix_us: i64) {
        self.published.insert(letter.id(), letter.position);
        // An event of a parked key did not fail itself, so it says nothing about its route.
        if letter.error_class != CLASS_PARKED {
            self.last_published.insert(route_and_class(letter), now_unix_us);
        }
    }

    /// So many resolutions of this replay have reached the log.
    pub(super) fn resolved(&mut self, count: usize, now_unix_us: i64) {
        self.trend.add(0, count, now_unix_us);
    }

    /// Checks a record that was written after the replay began; `change` is what it has changed.
    pub(super) fn check(
        &mut self,
        record: &LogRecord,
        change: Change,
        now_unix_us: i64,
    ) -> Result<(), Fault> {
        match record {
            LogRecord::DeadLetter(letter) => self.check_letter(letter, change, now_unix_us),
            LogRecord::Resolution(resolution) if self.is_replayed_twice(resolution) => {
                let id = escaped(&resolution.event_id);
                Err(Fault::new(
                    Exit::Failed,
                    TWO_REPLAYS,
                    format!("another replay is running and has replayed event {id}, too"),
                    escaped(&resolution.relay),
                    "let one of them end, then repeat the replay",
                ))
            }
            LogRecord::Resolution(_) | LogRecord::Stop(_) | LogRecord::Foreign => Ok(()),
        }
    }

    /// Whether another replay has published the same event. Two replays at once skip what
    /// the other one has resolved; but an event that both have published before that
    /// arrives twice.
    fn is_replayed_twice(&self, resolution: &Resolution) -> bool {
        resolution.kind == ResolutionKind::Replayed
            && resolution.relay != self.by
            && self.published.contains_key(&resolution.id())
    }

    fn check_letter(&mut self, letter: &DeadLetter, change: Change, now: i64) -> Result<(), Fault> {
        // A dead letter that was written after the replay began may be among those replayed.
        let published = self.published.get(&letter.id());
        let came_back = published.is_some_and(|position| *position != letter.position);
        if !came_back && change != Change::Opened {
            return Ok(());
        }
        // What follows a parked key fails by itself.
        let counts = usize::from(letter.error_class != CLASS_PARKED);
        let (new, resolved) = self.trend.add(counts, 0, now);
        let (id, class) = (escaped(&letter.event_id), escaped(&letter.error_class));
        if came_back {
            let what = format!("event {id} was replayed and is a dead letter again ({class})");
            return Err(repeated(what, letter));
        }
        let last = self.last_published.get(&route_and_class(letter));
        if last.is_some_and(|at| now - at <= SAME_CLASS_US) {
            let what = format!(
                "events fail as before: event {id} has just become a dead letter ({class})"
            );
            return Err(repeated(what, letter));
        }
        if new < NEW_LETTERS_MIN || new <= resolved {
            return Ok(());
        }
        Err(Fault::new(
            Exit::Failed,
            "dead-letter.refills",
            format!(
                "{new} events have become dead letters within {TREND_S} s, while {resolved} were replayed"
            ),
            "the dead-letter topic",
            "find out what fails now: walrelay dlq list --since 15m",
        ))
    }
}

fn repeated(what: String, letter: &DeadLetter) -> Fault {
    Fault::new(
        Exit::Sink,
        "dead-letter.comes-back",
        format!("{what}: {}", escaped(&letter.error_msg)),
        escaped(&letter.topic),
        format!(
            "mend what fails (walrelay dlq list --error-class {}), then replay the rest",
            quoted(&letter.error_class)
        ),
    )
}

fn route_and_class(letter: &DeadLetter) -> RouteAndClass {
    (letter.exchange.clone(), letter.topic.clone(), letter.error_class.clone())
}

/// How many dead letters are new, and how many were resolved, in the last [`TREND_S`] seconds.
#[derive(Debug, Default)]
struct Trend {
    /// Each second with its counts, oldest first.
    seconds: VecDeque<(i64, usize, usize)>,
}

impl Trend {
    /// Adds to the counts, and returns them.
    fn add(&mut self, new: usize, resolved: usize, now_unix_us: i64) -> (usize, usize) {
        let second = now_unix_us.div_euclid(1_000_000);
        match self.seconds.back_mut() {
            Some((at, ..)) if *at == second => {}
            _ => self.seconds.push_back((second, 0, 0)),
        }
        if let Some(now) = self.seconds.back_mut() {
            (now.1, now.2) = (now.1 + new, now.2 + resolved);
        }
        self.seconds.retain(|(at, ..)| *at > second - TREND_S);
        let sum = |sum: (usize, usize), it: &(i64, usize, usize)| (sum.0 + it.1, sum.1 + it.2);
        self.seconds.iter().fold((0, 0), sum)
    }
}

#[cfg(test)]
#[path = "replay_guard_tests.rs"]
mod tests;
