//! A message as RabbitMQ delivers it.

use bytes::Bytes;
use lapin::message::Delivery as AmqpDelivery;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use walrelay_dead_letter::header::KEY_HEADER;

use super::is_retry_queue;
use crate::message::{Message, Received, ReplayTrust};

/// The broker routes by them, and refuses them as text.
const UNUSED_HEADERS: [&str; 2] = ["CC", "BCC"];
/// Where the broker writes through which queues a message has come.
const DEATHS: &str = "x-death";
/// Headers that the broker itself writes about the way of a message; the last from RabbitMQ 4.3 on.
const BROKER_HEADERS: [&str; 9] = [
    DEATHS,
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-last-death-exchange",
    "x-last-death-queue",
    "x-last-death-reason",
    "x-delivery-count",
    "x-acquired-count",
];

pub(super) fn message(delivery: AmqpDelivery, service: &str) -> Message {
    let properties = delivery.properties;
    let text = |text: &Option<ShortString>| text.as_ref().map(ToString::to_string);
    let mut received = Received {
        topic: delivery.routing_key.to_string(),
        value: Some(Bytes::from(delivery.data)).filter(|value| !value.is_empty()),
        id: text(properties.message_id()).filter(|id| !id.is_empty()),
        event_type: text(properties.kind()),
        content_type: text(properties.content_type()),
        ..Received::default()
    };
    let headers = properties.headers().as_ref();
    // A publisher can write `x-death`, but not the exchange through which its message comes. Through
    // the default exchange comes what a person moves from the queue of a level.
    let exchange = delivery.exchange.as_str();
    let is_copy = exchange.is_empty()
        || exchange == service && headers.is_some_and(|headers| was_in_level(headers, service));
    for (name, value) in headers.into_iter().flat_map(|headers| headers.inner()) {
        let name = name.as_str();
        let of_broker = BROKER_HEADERS.contains(&name);
        let Some(value) = bytes(value).filter(|_| !of_broker) else { continue };
        if name == KEY_HEADER {
            received.key = Some(value.clone());
        }
        if !UNUSED_HEADERS.contains(&name) {
            received.headers.push((name.to_owned(), value));
        }
    }
    // A replay comes through the exchange of this consumer.
    let trust = if exchange == service { ReplayTrust::Count } else { ReplayTrust::Nothing };
    if is_copy { Message::copy(received) } else { Message::original(received, trust) }
}

/// The broker says that the message comes from a retry level of this consumer.
fn was_in_level(headers: &FieldTable, service: &str) -> bool {
    let Some(AMQPValue::FieldArray(queues)) = headers.inner().get(DEATHS) else { return false };
    queues.as_slice().iter().any(|death| {
        let AMQPValue::FieldTable(death) = death else { return false };
        let Some(AMQPValue::LongString(queue)) = death.inner().get("queue") else { return false };
        std::str::from_utf8(queue.as_bytes()).is_ok_and(|queue| is_retry_queue(queue, service))
    })
}

/// The relay's headers are text; of others, what has one obvious spelling counts as text, too.
fn bytes(value: &AMQPValue) -> Option<Bytes> {
    let text = match value {
        AMQPValue::LongString(text) => return Some(Bytes::copy_from_slice(text.as_bytes())),
        AMQPValue::ByteArray(bytes) => return Some(Bytes::copy_from_slice(bytes.as_slice())),
        AMQPValue::ShortString(text) => text.to_string(),
        AMQPValue::Boolean(it) => it.to_string(),
        AMQPValue::ShortShortInt(it) => it.to_string(),
        AMQPValue::ShortShortUInt(it) => it.to_string(),
        AMQPValue::ShortInt(it) => it.to_string(),
        AMQPValue::ShortUInt(it) => it.to_string(),
        AMQPValue::LongInt(it) => it.to_string(),
        AMQPValue::LongUInt(it) => it.to_string(),
        AMQPValue::LongLongInt(it) => it.to_string(),
        _ => return None,
    };
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use lapin::BasicProperties;

    use super::*;
    use crate::message::retry_header;

    #[test]
    fn a_copy_that_was_moved_by_hand_has_the_topic_of_its_message() {
        // GIVEN a message with the header of a copy, whose routing key is the queue of a level
        let through = |exchange: &str| {
            let mut headers = FieldTable::default();
            let topic = AMQPValue::LongString("order.created".into());
            headers.insert(retry_header::ORIGINAL_TOPIC.into(), topic);
            let key = "billing.retry.30s.0".into();
            let mut delivery = AmqpDelivery::mock(1, exchange.into(), key, false, Vec::new());
            delivery.properties = BasicProperties::default().with_headers(headers);
            message(delivery, "billing")
        };
        // WHEN a person has moved it THEN it comes from where it came first
        assert_eq!(through("").topic(), "order.created");
        assert_eq!(through("").headers().count(), 0);
        // WHEN a publisher has written it THEN the header is ignored
        for exchange in ["outbox.events", "billing"] {
            assert_eq!(through(exchange).topic(), "billing.retry.30s.0", "{exchange}");
            assert_eq!(through(exchange).headers().count(), 0);
        }
    }
}
