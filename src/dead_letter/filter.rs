//! Filters that select dead letters, the same on the command line and in the admin API.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::fold::DeadLetterState;
use super::record::DeadLetter;
use crate::base::error::{Exit, Fault};
use crate::base::text::escaped;
use crate::base::time::{parse_rfc3339, rfc3339};
use crate::sink::log::ReadFrom;

/// A filter as it is typed. A dead letter must match everything that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Which dead letters")]
pub(crate) struct FilterText {
    /// Event ids.
    #[arg(value_name = "ID", help_heading = None::<&'static str>)]
    #[serde(rename = "id", deserialize_with = "one_or_several")]
    pub(crate) ids: Vec<String>,
    /// An event id as a filter beside others.
    #[arg(long = "id", value_name = "ID", hide = true)]
    #[serde(skip)]
    pub(crate) more_ids: Vec<String>,
    /// Ordering key of the event.
    #[arg(long, allow_negative_numbers = true, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Topic or routing key of the event.
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: Option<String>,
    /// Error class, as in kafka.message-size-too-large.
    #[arg(long, value_name = "CLASS")]
    pub(crate) error_class: Option<String>,
    /// Part of the id, key, topic, error class or error message, ignoring upper and lower case.
    #[arg(long, visible_alias = "contains", value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Failed at this time or later: 2026-11-21T14:00:00Z, 2026-11-21, or an age (15m, 2h, 3d).
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Failed before this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// State: open, replayed, discarded or all [default: open].
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
}

impl FilterText {
    /// The event ids that are named.
    pub(crate) fn ids(&self) -> BTreeSet<&str> {
        self.ids.iter().chain(&self.more_ids).map(String::as_str).collect()
    }

    fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let FilterText { key, topic, error_class, text, .. } = self;
        let texts = [("key", key), ("topic", topic), ("error_class", error_class), ("text", text)];
        let ids = self.ids().into_iter().map(|id| ("id", id));
        ids.chain(texts.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?))))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadLetterFilter {
    /// `text` is in lower case.
    given: FilterText,
    ids: BTreeSet<String>,
    since_unix_us: Option<i64>,
    until_unix_us: Option<i64>,
    states: &'static [DeadLetterState],
}

const OPEN: &[DeadLetterState] = &[DeadLetterState::Open];
const ALL: &[DeadLetterState] =
    &[DeadLetterState::Open, DeadLetterState::Replayed, DeadLetterState::Discarded];

impl Default for DeadLetterFilter {
    fn default() -> DeadLetterFilter {
        let (given, ids) = (FilterText::default(), BTreeSet::new());
        DeadLetterFilter { given, ids, since_unix_us: None, until_unix_us: None, states: OPEN }
    }
}

impl DeadLetterFilter {
    /// Parses `given`, or returns everything that is wrong with it.
    pub(crate) fn parse(
        given: &FilterText,
        now_unix_us: i64,
    ) -> Result<DeadLetterFilter, Vec<Fault>> {
        let mut faults = Vec::new();
        for (name, text) in given.texts() {
            // A key may be empty.
            if name != "key" && text.is_empty() {
                faults.push(bad(name, "", "a value that is not empty"));
            }
        }
        let mut time = |name, text: &Option<String>| {
            let text = text.as_deref()?;
            let read = parse_time(text, now_unix_us);
            if read.is_none() {
                let expected = "a time (2026-11-21T14:00:00Z, 2026-11-21) or an age (15m, 2h, 3d)";
                faults.push(bad(name, text, expected));
            }
            read
        };
        let since_unix_us = time("since", &given.since);
        let until_unix_us = time("until", &given.until);
        if since_unix_us.zip(until_unix_us).is_some_and(|(since, until)| since >= until) {
            let until = given.until.as_deref().unwrap_or_default();
            faults.push(bad("until", until, "a time after since"));
        }
        let states = match given.state.as_deref() {
            None | Some("open") => OPEN,
            Some("replayed") => &[DeadLetterState::Replayed],
            Some("discarded") => &[DeadLetterState::Discarded],
            Some("all") => ALL,
            Some(other) => {
                faults.push(bad("state", other, "open, replayed, discarded or all"));
                OPEN
            }
        };
        let text = given.text.as_deref().map(str::to_lowercase);
        let given = FilterText { text, ..given.clone() };
        let ids = given.ids().into_iter().map(str::to_owned).collect();
        let filter = DeadLetterFilter { given, ids, since_unix_us, until_unix_us, states };
        if faults.is_empty() { Ok(filter) } else { Err(faults) }
    }

    pub(crate) fn states(&self) -> &'static [DeadLetterState] {
        self.states
    }

    pub(crate) fn since_unix_us(&self) -> Option<i64> {
        self.since_unix_us
    }

    /// Where dead letters begin that may match.
    pub(super) fn read_from(&self) -> ReadFrom {
        self.since_unix_us.map_or(ReadFrom::Beginning, ReadFrom::Time)
    }

    /// The same for what has failed before `now_unix_us`, unless it ends earlier; and when it ends.
    pub(crate) fn until_at_most(self, now_unix_us: i64) -> (DeadLetterFilter, i64) {
        let until = self.until_unix_us.map_or(now_unix_us, |until| until.min(now_unix_us));
        (DeadLetterFilter { until_unix_us: Some(until), ..self }, until)
    }

    /// Does the filter name anything other than states?
    pub(crate) fn narrows(&self) -> bool {
        self.given.texts().next().is_some()
            || self.since_unix_us.is_some()
            || self.until_unix_us.is_some()
    }

    /// Does the dead letter match, whatever its state?
    pub(crate) fn matches(&self, letter: &DeadLetter) -> bool {
        fn holds<'a>(given: &'a Option<String>, test: impl FnOnce(&'a str) -> bool) -> bool {
            given.as_deref().is_none_or(test)
        }
        let FilterText { key, topic, error_class, text, .. } = &self.given;
        (self.ids.is_empty() || self.ids.contains(&letter.event_id))
            && holds(topic, |topic| topic == letter.topic)
            && holds(error_class, |class| class == letter.error_class)
            && holds(key, |word| letter.key.as_ref().is_some_and(|key| key.is_named(word)))
            && self.since_unix_us.is_none_or(|since| letter.failed_unix_us >= since)
            && self.until_unix_us.is_none_or(|until| letter.failed_unix_us < until)
            && holds(text, |text| mentions(letter, text))
    }
}

impl fmt::Display for DeadLetterFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, text) in self.given.texts() {
            write!(f, "{name}={} ", escaped(text))?;
        }
        for (name, time) in [("since", self.since_unix_us), ("until", self.until_unix_us)] {
            if let Some(time) = time {
                write!(f, "{name}={} ", rfc3339(time))?;
            }
        }
        let states: Vec<&str> = self.states.iter().map(|state| state.name()).collect();
        write!(f, "state={}", states.join("|"))
    }
}

/// In JSON an id, or an array of ids.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "id: expected a text or an array of texts")]
    enum Ids {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Option::<Ids>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Ids::One(id)) => vec![id],
        Some(Ids::Several(ids)) if ids.is_empty() => {
            return Err(D::Error::custom("id: an empty list names no dead letter"));
        }
        Some(Ids::Several(ids)) => ids,
    })
}

fn mentions(letter: &DeadLetter, text: &str) -> bool {
    let key = letter.key.as_ref().map(|key| key.name()).unwrap_or_default();
    let DeadLetter { error_msg, error_class, topic, event_id, .. } = letter;
    let places = [error_msg, error_class, topic, &key, event_id];
    places.iter().any(|place| place.to_lowercase().contains(text))
}

/// A time, or an age before `now_unix_us`.
pub(crate) fn parse_time(text: &str, now_unix_us: i64) -> Option<i64> {
    let age = || now_unix_us.checked_sub(i64::try_from(parse_age(text)?.as_micros()).ok()?);
    parse_rfc3339(text).or_else(age)
}

/// `90s`, `15m`, `2h`, `30d`.
pub(crate) fn parse_age(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let number = number.parse::<u32>().ok().filter(|_| !number.starts_with('+'))?;
    Some(Duration::from_secs(u64::from(number) * seconds))
}

fn bad(name: &str, text: &str, expected: &str) -> Fault {
    Fault::new(
        Exit::Usage,
        "dead-letter.bad-filter",
        format!("{text:?} is not a valid value of {name}"),
        name,
        format!("expected {expected}"),
    )
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
