//! A message for unit tests that are about where it goes, and not about what it holds.

use super::limits::Limits;
use super::message::AmqpMessage;
use crate::base::event::Outbound;

pub(super) fn empty_message(exchange: &str, routing_key: &str, id: &str) -> AmqpMessage {
    let event = Outbound {
        exchange,
        topic: routing_key,
        key: None,
        value: None,
        id,
        event_type: None,
        content_type: None,
        headers: &[],
        commit_unix_us: 0,
        partition: None,
    };
    AmqpMessage::event(&event, &Limits::default(), None).unwrap()
}
