//! Which exchanges exist, as far as one connection has asked.
//!
//! A publish to an exchange that does not exist closes the channel, and everything in flight would
//! have to be sent again. So each exchange is asked for before its first event, one question at a
//! time, while confirms are still collected. A question also shows whether the broker is there,
//! while it confirms nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::connection_loss::{AmqpResult, ConnectionLoss};
use super::fault::{ACCESS_REFUSED, NOT_FOUND};
use crate::mutants::{Mutant, on};

/// Exchanges that are remembered; a template can name any number of them.
const REMEMBERED_MAX: usize = 1024;
/// How long an exchange counts as missing without another question.
const MISSING_FOR: Duration = Duration::from_secs(1);

/// Whether an exchange or a queue exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existence {
    There,
    Missing,
    /// From RabbitMQ 4.3 on only a login with some right on it may ask; in 4.2.6 and 4.3.0, with the
    /// right to configure it.
    Hidden,
}

impl Existence {
    /// Reads the outcome of a passive declaration.
    pub fn of(declared: AmqpResult<()>) -> AmqpResult<Existence> {
        match declared {
            Ok(()) => Ok(Existence::There),
            Err(ConnectionLoss { code: Some(NOT_FOUND), .. }) => Ok(Existence::Missing),
            Err(ConnectionLoss { code: Some(ACCESS_REFUSED), .. }) => Ok(Existence::Hidden),
            Err(loss) => Err(loss),
        }
    }
}

/// The name of an exchange in permissions, and in the broker's texts about them.
pub fn permission_name(exchange: &str) -> &str {
    if exchange.is_empty() { "amq.default" } else { exchange }
}

#[derive(Debug)]
struct Question {
    exchange: String,
    asked_at: Instant,
}

#[derive(Debug, Default)]
pub(super) struct KnownExchanges {
    /// The last answer for each, and when it came.
    known: BTreeMap<String, (Existence, Instant)>,
    /// The outstanding question.
    question: Option<Question>,
}

impl KnownExchanges {
    /// Whether the exchange exists, or may exist; `None` as long as the broker must be asked.
    pub(super) fn exists(&self, name: &str, now: Instant) -> Option<bool> {
        match self.known.get(name) {
            // The default exchange always exists, and the broker refuses a question for it.
            _ if name.is_empty() => Some(true),
            // The broker removes line ends from the name in a question, and not from that in a publish.
            _ if name.contains(['\r', '\n']) => Some(false),
            Some((Existence::Missing, since)) => {
                let is_fresh = now.saturating_duration_since(*since) < MISSING_FOR;
                (is_fresh || on(Mutant::RabbitMissingForEver)).then_some(false)
            }
            Some((Existence::There | Existence::Hidden, _)) => Some(true),
            None => None,
        }
    }

    /// Notes the question whether this exchange exists, unless another is outstanding. Returns
    /// whether the broker is to be asked now.
    pub(super) fn ask(&mut self, name: &str, now: Instant) -> bool {
        let is_free = self.question.is_none();
        if is_free {
            self.question = Some(Question { exchange: name.to_owned(), asked_at: now });
        }
        is_free
    }

    /// Forgets that the exchange was missing: an event that failed for that is tried again.
    pub(super) fn ask_again(&mut self, name: &str) {
        let is_missing = |(answer, _): &(Existence, Instant)| *answer == Existence::Missing;
        if self.known.get(name).is_some_and(is_missing) && !on(Mutant::RabbitMissingForEver) {
            self.known.remove(name);
        }
    }

    /// Whether the broker has said that the exchange exists.
    pub(super) fn has_seen(&self, name: &str) -> bool {
        self.known.get(name).is_some_and(|(answer, _)| *answer == Existence::There)
    }

    /// When the outstanding question was asked.
    pub(super) fn asked_at(&self) -> Option<Instant> {
        self.question.as_ref().map(|question| question.asked_at)
    }

    /// Takes the broker's answer to the outstanding question. Returns when that was asked.
    pub(super) fn take_answer(&mut self, existence: Existence, now: Instant) -> Option<Instant> {
        let Question { exchange, asked_at } = self.question.take()?;
        if !exchange.is_empty() {
            if self.known.len() >= REMEMBERED_MAX {
                let oldest = self.known.iter().min_by_key(|(_, (_, since))| *since);
                let oldest = oldest.map(|(name, _)| name.clone());
                oldest.and_then(|name| self.known.remove(&name));
            }
            self.known.insert(exchange, (existence, now));
        }
        Some(asked_at)
    }
}

#[cfg(test)]
#[path = "exchanges_tests.rs"]
mod tests;
