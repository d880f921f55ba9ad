//! When a replay must stop by itself: what it replays comes back, or the topic fills faster than it
//! is emptied. It watches what is written to the log meanwhile; time is an argument.

use std::collections::HashMap;

use super::fold::Change;
use super::record::{Identity, Letter, Record, Resolution, Resolved};
use crate::error::{Exit, Fault};
use crate::letter::CLASS_PARKED;
use crate::sink::log::Place;
use crate::text::{escaped, quoted};

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
    handed: HashMap<Identity, Place>,
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
    pub(super) fn handed(&mut self, letter: &Letter, now_unix_us: i64) {
        self.handed.insert(letter.identity(), letter.place);
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
        record: &Record,
        change: Change,
        now_unix_us: i64,
    ) -> Option<Fault> {
        match record {
            Record::Letter(letter) => self.letter(letter, change, now_unix_us),
            Record::Resolution(resolution) => self.resolution(resolution),
            Record::Foreign => None,
        }
    }

    fn letter(&mut self, letter: &Letter, change: Change, now_unix_us: i64) -> Option<Fault> {
        // What was handed over may have been written after the watch began: that is the same letter.
        let handed = self.handed.get(&letter.identity());
        let came_back = handed.is_some_and(|place| *place != letter.place);
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
        let doubled = resolution.kind == Resolved::Replayed
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

fn came_back_fault(what: String, letter: &Letter) -> Fault {
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

fn cause(letter: &Letter) -> Cause {
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
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn letter(id: &str, class: &str) -> Letter {
        Letter { event_id: id.to_owned(), error_class: class.to_owned(), ..Letter::default() }
    }

    fn look(guard: &mut Guard, letter: Letter, change: Change, at: i64) -> Option<&'static str> {
        guard.look(&Record::Letter(Box::new(letter)), change, at).map(|fault| fault.code)
    }

    #[test]
    fn what_comes_back_ends_it() {
        let mut guard = Guard::new("me");
        guard.handed(&letter("a", "unroutable"), 0);
        // Its own resolution may not have been read yet: then nothing has changed.
        let place = Place { partition: 0, offset: 1 };
        let again = Letter { place, ..letter("a", "other") };
        let found = look(&mut guard, again, Change::Nothing, 900 * SECOND);
        assert_eq!(found, Some("dead-letter.comes-back"));
    }

    #[test]
    fn a_letter_that_was_handed_over_before_it_was_seen_has_not_come_back() {
        let mut guard = Guard::new("me");
        guard.handed(&letter("a", "unroutable"), 0);
        assert_eq!(look(&mut guard, letter("a", "unroutable"), Change::Nothing, 0), None);
    }

    #[test]
    fn the_same_class_ends_it_for_half_a_minute() {
        let mut guard = Guard::new("me");
        guard.handed(&letter("a", "unroutable"), 0);
        guard.handed(&letter("b", CLASS_PARKED), 0);
        let mut at = |class, at| look(&mut guard, letter("n", class), Change::Opened, at);
        assert_eq!(at("too-large", SECOND), None);
        assert_eq!(at(CLASS_PARKED, SECOND), None, "its key is still parked");
        assert_eq!(at("unroutable", 31 * SECOND), None);
        assert_eq!(at("unroutable", 30 * SECOND), Some("dead-letter.comes-back"));
    }

    #[test]
    fn a_letter_that_was_open_already_is_not_new() {
        let mut guard = Guard::new("me");
        guard.handed(&letter("a", "unroutable"), 0);
        assert_eq!(look(&mut guard, letter("b", "unroutable"), Change::Nothing, 0), None);
    }

    #[test]
    fn filling_faster_than_it_empties_ends_it() {
        let mut guard = Guard::new("me");
        for _ in 0..20 {
            guard.resolved(0);
        }
        for n in 0..20 {
            assert_eq!(look(&mut guard, letter(&n.to_string(), "x"), Change::Opened, 0), None);
        }
        let found = look(&mut guard, letter("20", "x"), Change::Opened, 0);
        assert_eq!(found, Some("dead-letter.refills"));
        // THEN a few are no trend
        let mut guard = Guard::new("me");
        let few = (0..19).find_map(|_| look(&mut guard, letter("n", "x"), Change::Opened, 0));
        assert_eq!(few, None);
    }

    #[test]
    fn what_was_resolved_long_ago_does_not_hide_that_it_fills() {
        let mut guard = Guard::new("me");
        for n in 0..90_000 {
            guard.resolved(n * 1_000);
        }
        // WHEN the last of them was resolved half a minute ago and letters come, one a second
        let mut new = |n: i64| {
            let at = (120 + n) * SECOND;
            look(&mut guard, letter(&n.to_string(), "x"), Change::Opened, at)
        };
        let first = (0..60).find_map(|n| new(n).map(|code| (n, code)));
        assert_eq!(first, Some((19, "dead-letter.refills")));
    }

    #[test]
    fn letters_that_come_slowly_are_no_trend() {
        // GIVEN a replay at one event a minute, and a letter every two seconds
        let mut guard = Guard::new("me");
        let found = (0..500).find_map(|n| {
            if n % 30 == 0 {
                guard.resolved(n * 2 * SECOND);
            }
            look(&mut guard, letter(&n.to_string(), "x"), Change::Opened, n * 2 * SECOND)
        });
        assert_eq!(found, None);
    }

    #[test]
    fn the_same_class_on_another_route_is_something_else() {
        let mut guard = Guard::new("me");
        let to = |topic: &str, exchange: &str| Letter {
            topic: topic.to_owned(),
            exchange: exchange.to_owned(),
            ..letter("n", "unroutable")
        };
        guard.handed(&to("a", "events"), 0);
        let mut at = |letter| look(&mut guard, letter, Change::Opened, 0);
        assert_eq!(at(to("b", "events")), None);
        assert_eq!(at(to("a", "others")), None);
        assert_eq!(at(to("a", "events")), Some("dead-letter.comes-back"));
    }

    #[test]
    fn a_class_in_a_hint_is_one_word_of_the_shell() {
        let mut guard = Guard::new("me");
        guard.handed(&letter("a", "x'; reboot #"), 0);
        let again = Record::Letter(Box::new(letter("b", "x'; reboot #")));
        let fault = guard.look(&again, Change::Opened, 0).unwrap();
        assert!(fault.mend.contains(r"--error-class 'x'\''; reboot #')"), "{fault}");
    }

    #[test]
    fn another_replay_of_the_same_ends_it() {
        let mut guard = Guard::new("me");
        guard.handed(&letter("a", "x"), 0);
        let mut seen = |id: &str, by: &str, kind| {
            let record = Record::Resolution(letter(id, "x").resolution(kind, 1, by, 0));
            guard.look(&record, Change::Resolved, 0).map(|fault| fault.code)
        };
        assert_eq!(seen("a", "me", Resolved::Replayed), None);
        assert_eq!(seen("b", "you", Resolved::Replayed), None);
        assert_eq!(seen("a", "you", Resolved::Replayed), Some("dead-letter.two-replays"));
    }
}
