//! A message as the handler sees it, and what earlier attempts have left in its headers.

use bytes::Bytes;
use walrelay_dead_letter::header::{PREFIX, REPLAY_COUNT, REPLAY_FOR};

use crate::settings::is_service_name;

/// Headers of copies in the retry levels. A handler does not see them.
pub(crate) mod retry_header {
    use walrelay_dead_letter::header::RETRY_PREFIX;

    /// Failed attempts so far; missing where the message only waits for an earlier one of its key.
    pub(crate) const COUNT: &str = "x-retry-count";
    /// Number of the copy: of several copies only the newest is handled.
    pub(crate) const COPY: &str = "x-retry-copy";
    /// Milliseconds since the Unix epoch. Kafka only: RabbitMQ keeps the time itself.
    pub(crate) const DUE: &str = "x-retry-due";
    /// `transient`, or `waiting` behind an earlier message of its key.
    pub(crate) const CLASS: &str = "x-retry-class";
    pub(crate) const FIRST_FAILED_AT: &str = "x-first-failed-at";
    /// Kafka topic or RabbitMQ routing key of the message: a person may move a copy elsewhere.
    pub(crate) const ORIGINAL_TOPIC: &str = "x-original-topic";

    pub(crate) fn is_one(name: &str) -> bool {
        name.starts_with(RETRY_PREFIX) || name == FIRST_FAILED_AT || name == ORIGINAL_TOPIC
    }
}

/// Longer ids do not fit the index of `processed_messages`.
const ID_BYTES_MAX: usize = 1024;

/// A message as a broker delivers it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    /// Kafka topic or RabbitMQ routing key.
    pub(crate) topic: String,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
    pub(crate) headers: Vec<(String, Bytes)>,
    /// Properties of AMQP; headers of the same meaning are used where they are missing.
    pub(crate) id: Option<String>,
    pub(crate) event_type: Option<String>,
    pub(crate) content_type: Option<String>,
}

/// A message of the broker.
#[derive(Clone, Debug)]
pub struct Message {
    id: String,
    /// Without headers of retries and replays.
    pub(crate) received: Received,
    pub(crate) retry: RetryState,
    replay: ReplayState,
    #[cfg(feature = "otel")]
    pub(crate) context: opentelemetry::Context,
}

/// The state of retries in the headers of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RetryState {
    pub(crate) attempts: u32,
    /// 0 for a message that is no copy.
    pub(crate) copy: i32,
    pub(crate) due_unix_ms: Option<u64>,
    pub(crate) first_failed_at: Option<String>,
}

/// The trust in the headers of a replay, by the way on which the message has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplayTrust {
    /// No header of a replay is believed: replays come another way.
    Nothing,
    /// Others write here, too: both headers together, as `walrelay dlq replay` writes them.
    Both,
    /// The count: this way leads to this consumer alone.
    Count,
}

/// The state of a replay in its headers. A replay is handled though its message is known as a dead
/// letter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReplayState {
    /// 0 for a message that is no replay.
    count: i32,
    service: Option<String>,
}

impl ReplayState {
    fn of(headers: &[(String, Bytes)], trust: ReplayTrust) -> ReplayState {
        let count = number::<i32>(headers, REPLAY_COUNT).filter(|count| *count > 0);
        let service = text(headers, REPLAY_FOR).filter(|name| is_service_name(name));
        match (trust, count, service) {
            (ReplayTrust::Both, Some(count), Some(service)) => {
                ReplayState { count, service: Some(service.to_owned()) }
            }
            (ReplayTrust::Count, Some(count), _) => ReplayState { count, service: None },
            _ => ReplayState::default(),
        }
    }
}

impl Message {
    /// Reads a message of no retry level. Whatever it says of retries was not written
    /// here, and is ignored.
    pub(crate) fn original(received: Received, trust: ReplayTrust) -> Message {
        Message::new(received, RetryState::default(), trust)
    }

    /// Reads a message of a retry level of the consumer.
    pub(crate) fn copy(mut received: Received) -> Message {
        let headers = &received.headers;
        let copy = number::<u32>(headers, retry_header::COPY).unwrap_or_default();
        let retry = RetryState {
            attempts: number(headers, retry_header::COUNT).unwrap_or_default(),
            copy: i32::try_from(copy).unwrap_or_default(),
            due_unix_ms: number(headers, retry_header::DUE),
            first_failed_at: text(headers, retry_header::FIRST_FAILED_AT).map(str::to_owned),
        };
        if let Some(topic) = text(headers, retry_header::ORIGINAL_TOPIC) {
            received.topic = topic.to_owned();
        }
        Message::new(received, retry, ReplayTrust::Count)
    }

    fn new(mut received: Received, retry: RetryState, trust: ReplayTrust) -> Message {
        let replay = ReplayState::of(&received.headers, trust);
        let is_ours = |name: &str| retry_header::is_one(name) || name.starts_with(PREFIX);
        received.headers.retain(|(name, _)| !is_ours(name));
        let id = received.id.as_deref().or_else(|| text(&received.headers, "id"));
        Message {
            id: id.filter(|id| is_usable(id)).unwrap_or_default().to_owned(),
            received,
            retry,
            replay,
            #[cfg(feature = "otel")]
            context: opentelemetry::Context::new(),
        }
    }

    /// Identifies the message: the same for each of its deliveries.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The message has an id by which a repetition can be recognised.
    pub(crate) fn has_id(&self) -> bool {
        !self.id.is_empty()
    }

    /// Messages of one key are handled in their order.
    pub fn key(&self) -> Option<&[u8]> {
        self.received.key.as_deref()
    }

    pub fn value(&self) -> Option<&[u8]> {
        self.received.value.as_deref()
    }

    /// The Kafka topic or the RabbitMQ routing key of the event.
    pub fn topic(&self) -> &str {
        &self.received.topic
    }

    /// The header `event_type`, or the AMQP property `type`.
    pub fn event_type(&self) -> Option<&str> {
        let property = self.received.event_type.as_deref();
        property.or_else(|| text(&self.received.headers, "event_type"))
    }

    /// The AMQP property of this name.
    pub fn content_type(&self) -> Option<&str> {
        self.received.content_type.as_deref()
    }

    /// All headers but those of retries and replays, which must not be copied into other messages.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.received.headers.iter().map(|(name, value)| (name.as_str(), value.as_ref()))
    }

    /// One of [`Message::headers`] as text. Of several of one name it is the last.
    pub fn header(&self, name: &str) -> Option<&str> {
        text(&self.received.headers, name)
    }

    /// How often the dead letter of the message was replayed.
    pub(crate) fn replays(&self) -> i32 {
        self.replay.count
    }

    /// For which consumer the message was replayed, if for one.
    pub(crate) fn replayed_for(&self) -> Option<&str> {
        self.replay.service.as_deref()
    }

    /// How often the handler has failed with this message.
    pub fn failed_attempts(&self) -> u32 {
        self.retry.attempts
    }

    /// The context of the span in which the message is handled; its parent is what the header
    /// `traceparent` says.
    #[cfg(feature = "otel")]
    pub fn trace_context(&self) -> &opentelemetry::Context {
        &self.context
    }

    /// The row of an earlier delivery may know of more attempts than the headers.
    pub(crate) fn count_attempts(&mut self, attempts: u32) {
        self.retry.attempts = self.retry.attempts.max(attempts);
    }

    /// The hash that decides on the lane, and on RabbitMQ's queue of a level: of the key, and without one
    /// of the id.
    pub(crate) fn lane_hash(&self) -> u64 {
        stable_hash(self.key().unwrap_or(self.id.as_bytes()))
    }
}

/// FNV-1a: the same in each process and version.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Postgres takes no NUL in a text.
fn is_usable(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && !id.contains('\0')
}

fn text<'h>(headers: &'h [(String, Bytes)], name: &str) -> Option<&'h str> {
    let (_, value) = headers.iter().rev().find(|(known, _)| known == name)?;
    std::str::from_utf8(value).ok()
}

fn number<T: std::str::FromStr>(headers: &[(String, Bytes)], name: &str) -> Option<T> {
    text(headers, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn received(headers: &[(&str, &str)]) -> Received {
        testing::received("retry", headers)
    }

    #[test]
    fn a_copy_says_what_it_is_a_copy_of() {
        let received = received(&[
            ("id", "e-1"),
            ("x-retry-count", "2"),
            ("x-retry-copy", "3"),
            ("x-retry-due", "1700000000000"),
            ("x-first-failed-at", "2026-01-02T03:04:05Z"),
            ("x-original-topic", "orders"),
        ]);
        let copy = Message::copy(received.clone());
        assert_eq!((copy.id(), copy.topic(), copy.failed_attempts()), ("e-1", "orders", 2));
        assert_eq!((copy.retry.copy, copy.retry.due_unix_ms), (3, Some(1_700_000_000_000)));
        assert_eq!(copy.headers().map(|(name, _)| name).collect::<Vec<_>>(), ["id"]);
        // A message of somebody else may have the same headers.
        let original = Message::original(received, ReplayTrust::Both);
        assert_eq!((original.topic(), original.failed_attempts()), ("retry", 0));
        assert_eq!(original.retry, RetryState::default());
        assert_eq!(original.headers().map(|(name, _)| name).collect::<Vec<_>>(), ["id"]);
    }

    #[test]
    fn no_number_of_a_copy_is_below_zero() {
        for number in ["-1", "4294967295", "x"] {
            assert_eq!(Message::copy(received(&[("x-retry-copy", number)])).retry.copy, 0);
        }
    }

    #[test]
    fn a_replay_is_told_from_an_event_that_looks_like_one() {
        let replay = |headers: &[(&str, &str)], trust| {
            let message = Message::original(received(headers), trust);
            assert_eq!(message.headers().count(), 0);
            (message.replays(), message.replayed_for().map(str::to_owned))
        };
        let (count, service) = (("dlq-replay-count", "2"), ("dlq-replay-for", "billing"));
        let both = (2, Some("billing".to_owned()));
        assert_eq!(replay(&[count, service], ReplayTrust::Both), both);
        assert_eq!(replay(&[count, service], ReplayTrust::Count), (2, None));
        assert_eq!(replay(&[count, service], ReplayTrust::Nothing), (0, None));
        for incomplete in [
            &[count][..],
            &[service],
            &[service, ("dlq-replay-count", "0")],
            &[service, ("dlq-replay-count", "-1")],
            &[service, ("dlq-replay-count", "2147483648")],
            &[count, ("dlq-replay-for", "")],
            &[count, ("dlq-replay-for", "bill ing")],
        ] {
            assert_eq!(replay(incomplete, ReplayTrust::Both), (0, None), "{incomplete:?}");
        }
    }

    #[test]
    fn an_id_that_postgres_cannot_store_is_none() {
        let message =
            |headers: &[(&str, &str)]| Message::original(received(headers), ReplayTrust::Both);
        let long = "x".repeat(ID_BYTES_MAX + 1);
        for id in ["", "a\0b", &long] {
            assert!(!message(&[("id", id)]).has_id());
        }
        assert!(!message(&[]).has_id());
        assert!(message(&[("id", &long[1..])]).has_id());
    }

    #[test]
    fn the_hash_is_that_of_the_published_vectors() {
        assert_eq!(stable_hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(stable_hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
