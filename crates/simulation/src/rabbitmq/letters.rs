//! Checks of a dead letter: that the broker has refused its event, and as often as the relay is to
//! try.

use walrelay_core::dead_letter::writer::{ATTEMPTS, CLASS_CRASH, ERROR_CLASS};
use walrelay_core::sink::rabbitmq::fault::{ACCESS_REFUSED, NO_EXCHANGE, close_class};

use super::queues::Poison;
use super::server::{Round, Server};
use crate::broker::Record;
use crate::process::ATTEMPTS_MAX;

/// A relay may believe that an exchange is missing for so long after it was told, and may hear of it so
/// much later.
const BELIEVED_US: u64 = 1_000_000;
const HEARD_WITHIN_US: u64 = 8_000_000;

/// The last time when a relay was told that an exchange is missing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MissingTold {
    until_us: u64,
    /// The newest event that was committed until then.
    newest: u64,
}

impl MissingTold {
    pub(super) fn note(&mut self, now_us: u64) {
        self.until_us = now_us + BELIEVED_US + HEARD_WITHIN_US;
    }

    /// An event that was committed later was tried when the relay had to ask again.
    fn explains(&self, id: &str) -> bool {
        let number = id.strip_prefix('e').and_then(|number| number.parse::<u64>().ok());
        number.is_some_and(|number| number <= self.newest)
    }
}

impl Server {
    /// Notes the newest event for the relays that may believe that an exchange is missing. While a relay stands
    /// still, so may its clock.
    pub(super) fn note_newest(&mut self, round: &Round) {
        let passed_us = round.now_us - self.now_us;
        for (told, stands_still) in self.missing_told.iter_mut().zip(round.stands_still) {
            told.until_us += if stands_still { passed_us } else { 0 };
            if round.now_us < told.until_us {
                told.newest = round.newest;
            }
        }
    }

    /// The broker has refused an event.
    pub(super) fn refused(&mut self, id: &str) {
        if !self.refused.contains(id) {
            self.refused.insert(id.to_owned());
        }
    }

    /// Why the event of this dead letter must not be given up, if it must not.
    pub(super) fn complaint(&self, letter: &Record) -> Option<String> {
        if !letter.is_dead_letter() || letter.is_parked() {
            return None;
        }
        let (id, class) = (&letter.id, text(letter, ERROR_CLASS));
        // A process that dies three times over an event gives it up unsent.
        if Poison::of_letter(letter) == Some(Poison::Closes) || class == CLASS_CRASH {
            return None;
        }
        // One refusal counts for others that were not sent.
        let is_of_place = class == NO_EXCHANGE && self.missing_told[letter.by.0].explains(id)
            || class == close_class(ACCESS_REFUSED).0 && self.counts.forbidden > 0;
        if !is_of_place && !self.refused.contains(id) {
            return Some(format!("letter: {id} is given up ({class}), and was not refused"));
        }
        let attempts: u32 = text(letter, ATTEMPTS).parse().unwrap_or_default();
        (attempts < ATTEMPTS_MAX).then(|| {
            format!(
                "letter: {id} is given up ({class}) after {attempts} attempts of {ATTEMPTS_MAX}"
            )
        })
    }
}

fn text<'a>(record: &'a Record, name: &str) -> &'a str {
    let header = record.headers.iter().find(|(header, _)| *header == name);
    header.and_then(|(_, value)| str::from_utf8(value).ok()).unwrap_or_default()
}
