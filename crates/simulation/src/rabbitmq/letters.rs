//! Checks of a dead letter: that the broker has refused its event, and as often as the relay is to
//! try.

use walrelay_core::dead_letter::writer::{ATTEMPTS, CLASS_CRASH, ERROR_CLASS};
use walrelay_core::sink::rabbitmq::fault::{ACCESS_REFUSED, NO_EXCHANGE, close_class};

use super::queues::Poison;
use super::server::Server;
use crate::broker::Record;
use crate::process::ATTEMPTS_MAX;

impl Server {
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
        let is_of_place = class == NO_EXCHANGE && !self.missed.is_empty()
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
