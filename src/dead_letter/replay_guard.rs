//! When a replay must stop by itself: what it replays comes back, or the topic fills faster than it
//! is emptied. It watches what is written to the log meanwhile; time is an argument.

use std::collections::HashMap;

use super::fold::Change;
use super::record::{DeadLetter, DeadLetterId, LogRecord, Resolution, ResolutionKind};
use crate::base::error::{Exit, Fault};
use crate::base::text::{escaped, quoted};
use crate::dead_letter::record::PartitionOffset;
use crate::dead_letter::writer::CLASS_PARKED;

/// A new letter of a route and class that were replayed so recently is its doing.
const SAME_CLASS_US: i64 = 30_000_000;
/// How far back it is counted what comes in and what is resolved.
const TREND_S: i64 = 30;
/// Fewer new letters than this are no trend.
const NEW_LETTERS_MIN: usize = 20;

/// Exchange, topic and error class.
type Cause = (String, String, String);

/// What a replay has to fear.
#[derive(Debug)]
pub(super) struct Guard {
    /// Who writes our own resolutions.
    by: String,
    /// What was handed over, and where its letter stood.
    handed: HashMap<DeadLetterId, PartitionOffset>,
    /// When an event that had failed for this cause was replayed last.
    causes: HashMap<Cause, i64>,
    new_letters: Trend,
    resolved: Trend,
}

impl Guard {
    /// `by` is what our own resolutions bear.
    #[must_use]
    pub(super) fn new(by: &str) -> Guard {
        Guard {
            by: by.to_owned(),
            handed: HashMap::new(),
            causes: HashMap::new(),
            new_letters: Trend::default(),
            resolved: Trend::default(),
        }
    }

    /// The event of `letter` is on its way.
    pub(super) fn handed(&mut self, letter: &DeadLetter, now_unix_us: i64) {
        self.handed.insert(letter.identity(), letter.position);
        // What had only followed a parked key says nothing about the route.
        if letter.error_class != CLASS_PARKED {
            self.causes.insert(cause(letter), now_unix_us);
        }
    }

    /// A resolution of ours is in the log.
    pub(super) fn resolved(&mut self, now_unix_us: i64) {
        self.resolved.count(now_unix_us);
    }

    /// Looks at a record that was written after the start, and what it has changed.
    pub(super) fn look(
        &mut self,
        record: &LogRecord,
        change: Change,
        now_unix_us: i64,
    ) -> Option<Fault> {
        match record {
            LogRecord::DeadLetter(letter) => self.letter(letter, change, now_unix_us),
            LogRecord::Resolution(resolution) => self.resolution(resolution),
            LogRecord::Foreign => None,
        }
    }

    fn letter(&mut self, letter: &DeadLetter, change: Change, now_unix_us: i64) -> Option<Fault> {
        // What was handed over may have been written after the watch began: that is the same letter.
        let handed = self.handed.get(&letter.identity());
        let came_back = handed.is_some_and(|position| *position != letter.position);
        if !came_back && change != Change::Opened {
            return None;
        }
        self.new_letters.count(now_unix_us);
        let (id, class) = (escaped(&letter.event_id), escaped(&letter.error_class));
        let recent = |at: &i64| now_unix_us - at <= SAME_CLASS_US;
        if came_back {
            let what = format!("event {id} was replayed and is a dead letter again ({class})");
            return Some(came_back_fault(what, letter));
        }
        if self.causes.get(&cause(letter)).is_some_and(recent) {
            let what = format!(
                "events fail as before: event {id} has just become a dead letter ({class})"
            );
            return Some(came_back_fault(what, letter));
        }
        let (new, resolved) = (self.new_letters.sum(now_unix_us), self.resolved.sum(now_unix_us));
        (new >= NEW_LETTERS_MIN && new > resolved).then(|| {
            Fault::new(
                Exit::Failed,
                "dead-letter.refills",
                format!("{new} events have become dead letters within {TREND_S} s, while {resolved} were replayed"),
                "the dead-letter topic",
                "find out what fails now: walrelay dlq list --since 15m",
            )
        })
    }

    /// Two replays at once: what the other resolves first is passed over, what both had in hand is
    /// published twice, and then this one stops.
    fn resolution(&self, resolution: &Resolution) -> Option<Fault> {
        let doubled = resolution.kind == ResolutionKind::Replayed
            && resolution.relay != self.by
            && self.handed.contains_key(&resolution.identity());
        doubled.then(|| {
            let (id, other) = (escaped(&resolution.event_id), escaped(&resolution.relay));
            Fault::new(
                Exit::Failed,
                "dead-letter.two-replays",
                format!("another replay is at work and has replayed event {id}, too"),
                other,
                "let one of them end, then: walrelay dlq replay",
            )
        })
    }
}

fn came_back_fault(what: String, letter: &DeadLetter) -> Fault {
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

fn cause(letter: &DeadLetter) -> Cause {
    (letter.exchange.clone(), letter.topic.clone(), letter.error_class.clone())
}

/// How many there were in the last [`TREND_S`] seconds, second by second.
#[derive(Debug, Default)]
struct Trend {
    /// The second, and how many; each at its second modulo the length.
    seconds: [(i64, usize); TREND_S as usize],
}

impl Trend {
    fn count(&mut self, now_unix_us: i64) {
        let second = now_unix_us.div_euclid(1_000_000);
        let at = usize::try_from(second.rem_euclid(TREND_S)).unwrap_or_default();
        let (known, count) = &mut self.seconds[at];
        if *known != second {
            (*known, *count) = (second, 0);
        }
        *count += 1;
    }

    fn sum(&self, now_unix_us: i64) -> usize {
        let second = now_unix_us.div_euclid(1_000_000);
        let recent = |(at, _): &&(i64, usize)| (second - TREND_S + 1..=second).contains(at);
        self.seconds.iter().filter(recent).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
#[path = "replay_guard_tests.rs"]
mod tests;
