//! Which dead letters are meant. The same words on the command line and in the admin API.

use std::fmt;

use super::fold::State;
use super::record::{DeadLetter, Truncated, key_id};
use crate::base::error::{Exit, Fault};
use crate::base::text::{escaped, shown};
use crate::base::time::{parse_rfc3339, rfc3339};
use crate::dead_letter::writer::{KeyHash, hash_in};

/// A filter as it is written. All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Which dead letters")]
pub struct FilterText {
    /// Event id.
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Ordering key.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Topic or routing key that the event was on its way to.
    #[arg(long, value_name = "TOPIC")]
    pub topic: Option<String>,
    /// What went wrong, as in kafka.message-size-too-large.
    #[arg(long, value_name = "CLASS")]
    pub error_class: Option<String>,
    /// Part of the id, key, topic, error class or error message; case does not matter.
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// Given up at this time or later: 2026-11-21T14:00:00Z, 2026-11-21, or an age (15m, 2h, 3d).
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Given up before this time.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// open, replayed, discarded or all [default: open].
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
}

/// A filter that has been understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterFilter {
    id: Option<String>,
    key: Option<String>,
    topic: Option<String>,
    error_class: Option<String>,
    text: Option<String>,
    since_unix_us: Option<i64>,
    until_unix_us: Option<i64>,
    states: &'static [State],
}

const ALL: &[State] = &[State::Open, State::Replayed, State::Discarded];

impl Default for DeadLetterFilter {
    fn default() -> DeadLetterFilter {
        DeadLetterFilter {
            id: None,
            key: None,
            topic: None,
            error_class: None,
            text: None,
            since_unix_us: None,
            until_unix_us: None,
            states: &[State::Open],
        }
    }
}

impl DeadLetterFilter {
    /// Everything, whatever its state.
    #[must_use]
    pub fn everything() -> DeadLetterFilter {
        DeadLetterFilter { states: ALL, ..DeadLetterFilter::default() }
    }

    /// Understands `words`, or tells everything that is wrong with them.
    pub fn read(words: &FilterText, now_unix_us: i64) -> Result<DeadLetterFilter, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut take = |name, word: &Option<String>| {
            if word.as_deref() == Some("") {
                faults.push(bad(name, "", "a value that is not empty"));
            }
            word.clone()
        };
        let mut filter = DeadLetterFilter {
            id: take("id", &words.id),
            // A key may be empty.
            key: words.key.clone(),
            topic: take("topic", &words.topic),
            error_class: take("error_class", &words.error_class),
            text: take("text", &words.text).map(|text| text.to_lowercase()),
            ..DeadLetterFilter::default()
        };
        let mut time = |name, word: &Option<String>| {
            let word = word.as_deref()?;
            let read = read_time(word, now_unix_us);
            if read.is_none() {
                faults.push(bad(
                    name,
                    word,
                    "a time (2026-11-21T14:00:00Z, 2026-11-21) or an age (15m, 2h, 3d)",
                ));
            }
            read
        };
        filter.since_unix_us = time("since", &words.since);
        filter.until_unix_us = time("until", &words.until);
        if let (Some(since), Some(until)) = (filter.since_unix_us, filter.until_unix_us)
            && since >= until
        {
            let word = words.until.as_deref().unwrap_or_default();
            faults.push(bad("until", word, "a time after since"));
        }
        match words.state.as_deref().map_or(Some(filter.states), states) {
            Some(states) => filter.states = states,
            None => {
                let word = words.state.as_deref().unwrap_or_default();
                faults.push(bad("state", word, "open, replayed, discarded or all"));
            }
        }
        if faults.is_empty() { Ok(filter) } else { Err(faults) }
    }

    /// Which states it lets through.
    #[must_use]
    pub fn states(&self) -> &'static [State] {
        self.states
    }

    /// No earlier letter is meant.
    #[must_use]
    pub fn since_unix_us(&self) -> Option<i64> {
        self.since_unix_us
    }

    /// Does it name anything beside states?
    #[must_use]
    pub fn narrows(&self) -> bool {
        *self != DeadLetterFilter { states: self.states, ..DeadLetterFilter::default() }
    }

    /// Is the letter meant, whatever its state?
    #[must_use]
    pub fn matches(&self, letter: &DeadLetter) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        is(&self.id, &letter.event_id)
            && is(&self.topic, &letter.topic)
            && is(&self.error_class, &letter.error_class)
            && self.key.as_deref().is_none_or(|word| {
                let key = letter.key.as_deref();
                key.is_some_and(|key| is_key(word, key, letter.key_cut.as_ref()))
            })
            && self.since_unix_us.is_none_or(|since| letter.failed_unix_us >= since)
            && self.until_unix_us.is_none_or(|until| letter.failed_unix_us < until)
            && self.text.as_deref().is_none_or(|text| mentions(letter, text))
    }
}

impl fmt::Display for DeadLetterFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = [
            ("id", &self.id),
            ("key", &self.key),
            ("topic", &self.topic),
            ("error_class", &self.error_class),
            ("text", &self.text),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                write!(f, "{name}={} ", escaped(text))?;
            }
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

/// Is `word`, as a person writes it, this key? One that is no text is written as it is shown, and a
/// long one may be named by its hash, as `sha256:` and 64 digits.
#[must_use]
pub fn is_key(word: &str, key: &[u8], cut: Option<&Truncated>) -> bool {
    let id = || key_id(key, cut);
    match hash_in(word).and_then(KeyHash::of_sha256) {
        Some(hashed) => hashed == id() || (cut.is_none() && key == word.as_bytes()),
        None if cut.is_some() => KeyHash::of(word.as_bytes()) == id(),
        None => key == word.as_bytes() || shown(key) == word,
    }
}

fn mentions(letter: &DeadLetter, text: &str) -> bool {
    let key = letter.key_name().unwrap_or_default();
    let places = [&letter.error_msg, &letter.error_class, &letter.topic, &key, &letter.event_id];
    places.iter().any(|place| place.to_lowercase().contains(text))
}

fn states(word: &str) -> Option<&'static [State]> {
    match word {
        "open" => Some(&[State::Open]),
        "replayed" => Some(&[State::Replayed]),
        "discarded" => Some(&[State::Discarded]),
        "all" => Some(ALL),
        _ => None,
    }
}

fn read_time(word: &str, now_unix_us: i64) -> Option<i64> {
    let age = || {
        let (number, unit) = word.split_at_checked(word.len().checked_sub(1)?)?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return None,
        };
        let number = number.parse::<u32>().ok().filter(|_| !number.starts_with('+'))?;
        let age_us = i64::from(number).checked_mul(seconds * 1_000_000)?;
        now_unix_us.checked_sub(age_us)
    };
    parse_rfc3339(word).or_else(age)
}

fn bad(name: &str, word: &str, expected: &str) -> Fault {
    Fault::new(
        Exit::Usage,
        "dead-letter.bad-filter",
        format!("{word:?} will not do for {name}"),
        name,
        format!("expected {expected}"),
    )
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
