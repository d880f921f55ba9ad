//! Where this login cannot publish to, as far as the broker has refused it: it lacks the right, the
//! exchange is missing and the login may not ask whether it exists, or a queue there has failed.
//!
//! The broker closes the channel over such a message, and everything in flight would have to be sent
//! again. It names the exchange, or the routing key in it. So messages for a place that was refused
//! fail without being sent, except one now and then, which is sent alone.

use std::time::{Duration, Instant};

use super::connection_loss::ConnectionLoss;
use super::exchanges::permission_name;
use super::message::AmqpMessage;
use crate::base::event::Sequence;
use crate::base::hash::HashMap;
use crate::mutants::{Mutant, on};

/// How long a refusal holds without another look.
const HOLDS_FOR: Duration = Duration::from_secs(1);
/// Places that are remembered: a template may lead to any number of them.
const REMEMBERED_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    exchange: String,
    /// None if nothing may be published to the exchange.
    routing_key: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Refusals(HashMap<Place, (Instant, Refusal)>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The login may not publish there, in the broker's text.
    NotPermitted(String),
    NoExchange,
    /// A queue that it leads to takes no messages, in the broker's text.
    QueueFailed(String),
}

impl Refusals {
    /// The broker has refused to publish, and the text says where. Text of RabbitMQ 3.10: `access to
    /// topic 'K' in exchange 'X' in vhost '/' refused for user 'U'`, or without the topic. Returns
    /// which of the messages in flight are meant. A place of none of them is not remembered: a
    /// routing key may contain what looks like another place.
    pub(super) fn add<'a>(
        &mut self,
        loss: &ConnectionLoss,
        in_flight: impl Iterator<Item = (Sequence, &'a AmqpMessage)>,
        now: Instant,
    ) -> Vec<Sequence> {
        let Some(place) = named(&loss.text) else { return Vec::new() };
        let meant = in_flight.filter(|(_, message)| places(message).contains(&place));
        let meant: Vec<Sequence> = meant.map(|(sequence, _)| sequence).collect();
        if !meant.is_empty() {
            self.remember(place, Refusal::NotPermitted(loss.text.clone()), now);
        }
        meant
    }

    /// The broker has closed over this exchange, of which it had not said whether it exists.
    pub(super) fn add_missing(&mut self, exchange: &str, now: Instant) {
        let place = Place { exchange: exchange.to_owned(), routing_key: None };
        self.remember(place, Refusal::NoExchange, now);
    }

    /// The broker has refused this message, which was sent alone, and has not said where.
    pub(super) fn add_alone(&mut self, message: &AmqpMessage, refusal: Refusal, now: Instant) {
        let [_, place] = places(message);
        self.remember(place, refusal, now);
    }

    fn remember(&mut self, place: Place, refusal: Refusal, now: Instant) {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        self.0.insert(place, (now, refusal));
    }

    /// The last refusal of its place, if one is known, and when that was.
    pub(super) fn of(&self, message: &AmqpMessage) -> Option<(Instant, Refusal)> {
        if self.0.is_empty() || on(Mutant::RabbitRefusalForgotten) {
            return None;
        }
        // One of its exchange may be older than one of its routing key.
        let refused = places(message).into_iter().filter_map(|place| self.0.get(&place));
        let (at, refusal) = refused.max_by_key(|(at, _)| *at)?;
        Some((*at, refusal.clone()))
    }

    /// The broker has answered a message for this place, and not closed over it. Returns whether it had
    /// refused one before.
    pub(super) fn answered(&mut self, message: &AmqpMessage) -> bool {
        let known = self.0.len();
        if known > 0 {
            places(message).iter().for_each(|place| drop(self.0.remove(place)));
        }
        self.0.len() < known
    }
}

/// Whether a refusal of this time still holds. A message for a place that was refused earlier must be sent
/// alone.
pub(super) fn holds(refused_at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(refused_at) < HOLDS_FOR
}

fn places(message: &AmqpMessage) -> [Place; 2] {
    let exchange = || permission_name(message.exchange()).to_owned();
    let routing_key = Some(message.routing_key().to_owned());
    [Place { exchange: exchange(), routing_key: None }, Place { exchange: exchange(), routing_key }]
}

fn named(text: &str) -> Option<Place> {
    let (before, rest) = text.split_once("exchange '")?;
    let (exchange, _) = rest.split_once("' in vhost")?;
    let routing_key = before.split_once("topic '").map(|(_, key)| key.trim_end());
    let routing_key = routing_key.and_then(|key| key.strip_suffix("' in")).map(str::to_owned);
    if before.contains("topic '") && routing_key.is_none() {
        return None;
    }
    Some(Place { exchange: permission_name(exchange).to_owned(), routing_key })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::rabbitmq::testing::empty_message;

    #[test]
    fn the_broker_names_the_exchange_or_the_routing_key_in_it() {
        let place = |exchange: &str, key: Option<&str>| {
            let (exchange, routing_key) = (exchange.to_owned(), key.map(str::to_owned));
            Some(Place { exchange, routing_key })
        };
        for (text, expected) in [
            (
                "ACCESS_REFUSED - access to exchange 'x' in vhost '/' refused for user 'u'",
                place("x", None),
            ),
            (
                "ACCESS_REFUSED - write access to exchange 'it's' in vhost '/' refused for user 'u'",
                place("it's", None),
            ),
            (
                "ACCESS_REFUSED - access to topic 'a.b' in exchange 'x' in vhost '/' refused for user 'u'",
                place("x", Some("a.b")),
            ),
            (
                "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'u'",
                places(&empty_message("", "q", "i")).into_iter().next(),
            ),
            ("ACCESS_REFUSED - access to topic 'a.b", None),
            ("ACCESS_REFUSED", None),
        ] {
            assert_eq!(named(text), expected, "{text}");
        }
    }

    #[test]
    fn a_place_that_no_message_in_flight_has_is_not_remembered() {
        let message = |routing_key| empty_message("x", routing_key, "i");
        let refused = |key: &str| {
            let text = format!(
                "ACCESS_REFUSED - access to topic '{key}' in exchange 'x' in vhost '/' refused for user 'u'"
            );
            ConnectionLoss::refused(403, &text)
        };
        let (plain, misread) = (message("a.b"), message("' in exchange 'z"));
        let in_flight = || [(1, &plain), (2, &misread)].into_iter();
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        assert!(refusals.add(&refused("' in exchange 'z"), in_flight(), now).is_empty());
        assert!(refusals.0.is_empty());
        assert_eq!(refusals.add(&refused("a.b"), in_flight(), now), [1]);
        let holds = |refusals: &Refusals, now| refusals.of(&plain).map(|(at, _)| holds(at, now));
        assert_eq!((holds(&refusals, now), refusals.of(&misread)), (Some(true), None));
        // WHEN the refusal is old THEN another message may be sent alone
        assert_eq!(holds(&refusals, now + HOLDS_FOR), Some(false));
        // AND the newer of two counts
        let later = now + HOLDS_FOR;
        refusals.add_missing("x", now);
        assert_eq!(refusals.add(&refused("a.b"), in_flight(), later), [1]);
        assert_eq!(holds(&refusals, later), Some(true));
    }
}
