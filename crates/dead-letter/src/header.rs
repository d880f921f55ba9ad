//! Names of the headers of dead letters and of replayed events, what a header takes, and the list of those that a
//! dead letter had no room for.

use crate::text::truncated;

pub const EVENT_ID: &str = "dlq-event-id";
/// Kafka topic or RabbitMQ routing key of the event.
pub const ORIGINAL_TOPIC: &str = "dlq-original-topic";
/// RabbitMQ exchange of the event.
pub const ORIGINAL_EXCHANGE: &str = "dlq-original-exchange";
/// Kafka partition, where a column gave one.
pub const ORIGINAL_PARTITION: &str = "dlq-original-partition";
pub const ERROR_CLASS: &str = "dlq-error-class";
pub const ERROR_MSG: &str = "dlq-error-msg";
pub const ATTEMPTS: &str = "dlq-attempts";
pub const FAILED_AT: &str = "dlq-failed-at";
pub const FIRST_FAILED_AT: &str = "dlq-first-failed-at";
/// Commit LSN of the event's transaction.
pub const LSN: &str = "dlq-lsn";
/// How many events of the transaction come before this one.
pub const ORDINAL: &str = "dlq-ordinal";
pub const COMMIT_TS: &str = "dlq-commit-ts";
/// The system identifier of the database that the event comes from. Without it the dead letter is
/// that of any relay whose slot has the name.
pub const SYSTEM: &str = "dlq-system";
/// The relay (`slot@host`) or the person that wrote the record.
pub const RELAY: &str = "dlq-relay";
/// `true` where later events of the key go to the dead-letter topic, too.
pub const PARKS_KEY: &str = "dlq-parks-key";
/// `true` where the row never became an event: the record is all that is known of it.
pub const INCOMPLETE: &str = "dlq-incomplete";
/// Names of the headers that the broker could not carry, separated by commas.
pub const HEADERS_DROPPED: &str = "dlq-headers-dropped";
/// Size in bytes and SHA-256 (in hexadecimal) of the value before it was cut.
pub const VALUE_SIZE: &str = "dlq-value-size";
pub const VALUE_SHA256: &str = "dlq-value-sha256";
/// The same of the key.
pub const KEY_SIZE: &str = "dlq-key-size";
pub const KEY_SHA256: &str = "dlq-key-sha256";
/// Bytes of the event id, where `dlq-event-id` is its hash.
pub const EVENT_ID_SIZE: &str = "dlq-event-id-size";
/// The type of the event, where AMQP cannot carry it as a property.
pub const TYPE: &str = "dlq-type";
/// Texts without which an event cannot be published, and the headers that take size and hash of the
/// whole text when it is cut.
pub const NOTED: [(&str, &str, &str); 3] = [
    (ORIGINAL_TOPIC, "dlq-original-topic-size", "dlq-original-topic-sha256"),
    (ORIGINAL_EXCHANGE, "dlq-original-exchange-size", "dlq-original-exchange-sha256"),
    (TYPE, "dlq-type-size", "dlq-type-sha256"),
];
/// On a resolution: `replayed`, `discarded` or `released`.
pub const RESOLUTION: &str = "dlq-resolution";
pub const RESOLVED_AT: &str = "dlq-resolved-at";
/// On a replayed event: how often it was replayed.
pub const REPLAY_COUNT: &str = "dlq-replay-count";
/// On a replayed event of a consumer's dead letter: the consumer. Others that read the topic have
/// nothing to do with it.
pub const REPLAY_FOR: &str = "dlq-replay-for";
/// Common prefix of all these headers.
pub const PREFIX: &str = "dlq-";
/// Common prefix of the headers of the copies that a consumer sends to its retry levels.
pub const RETRY_PREFIX: &str = "x-retry-";

/// AMQP has no record key: it is sent as this header.
pub const KEY_HEADER: &str = "key";

/// The bytes that Kafka adds to a header's name and value, at most.
pub const KAFKA_HEADER_BYTES: usize = 12;
/// The bytes that AMQP adds to a header's name and value: their lengths, and the type of the value.
pub const AMQP_HEADER_BYTES: usize = 1 + 1 + 4;
/// Longer names are cut in the list of headers that were left out.
const NAME_BYTES_LISTED: usize = 300;

/// The prefixes of the headers that mark a replayed record and a consumer's copy.
const RESERVED_HEADERS: [&str; 2] = [PREFIX, RETRY_PREFIX];

/// Whether only a replay or a consumer may write a header of this name: an event that brings it
/// would be taken for one that was replayed, or for a copy. Case does not matter.
#[inline]
pub fn is_reserved_header(name: &str) -> bool {
    // Most names begin with neither letter.
    matches!(name.as_bytes().first(), Some(b'd' | b'D' | b'x' | b'X'))
        && RESERVED_HEADERS.iter().any(|prefix| {
            name.get(..prefix.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(prefix))
        })
}

/// The bytes of a header in a record of a broker that adds `added` bytes to each.
#[inline]
pub fn header_cost(name: &str, value: &[u8], added: usize) -> usize {
    added + name.len() + value.len()
}

/// The names of headers as a list.
pub fn listed(names: &[&str]) -> String {
    let cut = names.iter().map(|name| truncated(name, NAME_BYTES_LISTED));
    cut.collect::<Vec<_>>().join(", ")
}

/// Returns the value of [`HEADERS_DROPPED`] after `names` were left out as well: at most so many bytes. The list
/// `before` stays as it is, because some dead letters separate names by `,` alone.
pub fn extend_list(before: &str, names: &[&str], bytes_max: usize) -> String {
    let separator = if before.is_empty() || names.is_empty() { "" } else { ", " };
    let mut list = format!("{before}{separator}{}", listed(names));
    list.truncate(truncated(&list, bytes_max).len());
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_headers_goes_on_where_it_ended() {
        assert_eq!(extend_list("", &["a", "b"], 100), "a, b");
        assert_eq!(extend_list("a, b", &[], 100), "a, b");
        assert_eq!(extend_list("a,b", &["c"], 100), "a,b, c");
        assert_eq!(extend_list("a", &["ä", "c"], 4), "a, ");
        assert_eq!(listed(&["x".repeat(1_000).as_str(), "y"]), format!("{}, y", "x".repeat(300)));
    }

    #[test]
    fn headers_of_replays_and_copies_are_reserved_whatever_their_case() {
        for name in ["dlq-event-id", "DLQ-x", "x-retry-count", "X-Retry-Due"] {
            assert!(is_reserved_header(name), "{name}");
        }
        for name in ["dlq", "id", "x-retry", "my-dlq-id", "x-request-id"] {
            assert!(!is_reserved_header(name), "{name}");
        }
    }
}
