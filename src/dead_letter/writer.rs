//! A dead letter: an event that could not be published, as a record of the dead-letter topic.
//!
//! Key, value and headers stay as they are; what became of the event is added in headers of its own,
//! named below. No event can forge these: headers of such names that it brings are dropped.
//!
//! The topic is a log: a replay, a discard or the release of a key appends a resolution, and what is
//! open is a fold over the log.
//!
//! What is too large for the topic is cut ([`fit`]): such a letter has what there is room for, and is
//! never replayed.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::base::encoding::{hex, push_unhexed};
use crate::base::event::{Outbound, Position};
use crate::base::settings::kind::{FILLED, TOPIC};
use crate::base::settings::{
    HOUR_MS, MIB, SECOND_MS, bytes, duration, flattened, integer, settings, text,
};
use crate::base::time::rfc3339;

/// Event id.
pub const EVENT_ID: &str = "dlq-event-id";
/// Kafka topic or routing key it was on its way to.
pub const ORIGINAL_TOPIC: &str = "dlq-original-topic";
/// RabbitMQ exchange it was on its way to.
pub const ORIGINAL_EXCHANGE: &str = "dlq-original-exchange";
/// Kafka partition, where a column gave one.
pub const ORIGINAL_PARTITION: &str = "dlq-original-partition";
/// Stable name of what went wrong.
pub const ERROR_CLASS: &str = "dlq-error-class";
/// The same for people.
pub const ERROR_MSG: &str = "dlq-error-msg";
/// How often it was tried.
pub const ATTEMPTS: &str = "dlq-attempts";
/// When it was given up.
pub const FAILED_AT: &str = "dlq-failed-at";
/// When it failed for the first time.
pub const FIRST_FAILED_AT: &str = "dlq-first-failed-at";
/// Commit LSN of its transaction.
pub const LSN: &str = "dlq-lsn";
/// Events of its transaction before it.
pub const ORDINAL: &str = "dlq-ordinal";
/// Commit time of its transaction.
pub const COMMIT_TS: &str = "dlq-commit-ts";
/// Who wrote the record.
pub const RELAY: &str = "dlq-relay";
/// `true` where later events of the key go to the dead-letter topic, too.
pub const PARKS_KEY: &str = "dlq-parks-key";
/// `true` where the record is all that is known of a row that never became an event.
pub const INCOMPLETE: &str = "dlq-incomplete";
/// Names of the headers that the broker could not carry, with commas.
pub const HEADERS_DROPPED: &str = "dlq-headers-dropped";
/// Bytes of the value before it was cut.
pub const VALUE_SIZE: &str = "dlq-value-size";
/// SHA-256 of the value before it was cut, in hexadecimal.
pub const VALUE_SHA256: &str = "dlq-value-sha256";
/// Bytes of the key before it was cut.
pub const KEY_SIZE: &str = "dlq-key-size";
/// SHA-256 of the key before it was cut, in hexadecimal.
pub const KEY_SHA256: &str = "dlq-key-sha256";
/// Bytes of the event id, where `dlq-event-id` is its hash.
pub const EVENT_ID_SIZE: &str = "dlq-event-id-size";
/// The type of the event, where AMQP cannot carry it as a property.
pub const TYPE: &str = "dlq-type";
/// Texts that an event cannot be published without, and the headers with size and hash of the whole
/// when they are cut.
pub const NOTED: [(&str, &str, &str); 3] = [
    (ORIGINAL_TOPIC, "dlq-original-topic-size", "dlq-original-topic-sha256"),
    (ORIGINAL_EXCHANGE, "dlq-original-exchange-size", "dlq-original-exchange-sha256"),
    (TYPE, "dlq-type-size", "dlq-type-sha256"),
];
/// On a resolution: `replayed`, `discarded` or `released`.
pub const RESOLUTION: &str = "dlq-resolution";
/// On a resolution: when.
pub const RESOLVED_AT: &str = "dlq-resolved-at";
/// On a replayed event: how often it was replayed.
pub const REPLAY_COUNT: &str = "dlq-replay-count";
/// What all of ours begin with.
pub const PREFIX: &str = "dlq-";

/// Class of what follows a dead letter of its key.
pub const CLASS_PARKED: &str = "parked";
/// Class of what killed the process.
pub const CLASS_CRASH: &str = "crash";

settings! {
    /// Where dead letters go.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DeadLetterAddress {
        /// Where events go that cannot be published: Kafka topic, or RabbitMQ stream queue.
        pub topic: String = text(TOPIC).default("outbox.dlq"),
        /// RabbitMQ: the exchange in front of that queue.
        pub exchange: String = text(FILLED).default("outbox.dlx"),
    }
}

impl DeadLetterAddress {
    /// Does a record with this exchange and topic reach the dead-letter topic?
    #[inline]
    #[must_use]
    pub fn is_reached_by(&self, exchange: &str, topic: &str) -> bool {
        if exchange.is_empty() { topic == self.topic } else { exchange == self.exchange }
    }
}

settings! {
    /// The `[dead_letter]` section.
    #[derive(Clone, Debug)]
    pub struct DeadLetterSettings {
        /// Where they go.
        pub address: DeadLetterAddress = flattened(),
        /// A larger value is cut in its dead letter; its size and SHA-256 stand in headers. What
        /// the broker finds too large is cut further.
        pub value_bytes_max: usize = bytes(0, MIB << 10).default("900KiB"),
        /// The breaker: with more dead letters than this in `burst_window` the relay stops, because
        /// something else is wrong than the events. Letters that follow a parked key do not count.
        pub burst_max: usize = integer(1, 10_000_000).default("100"),
        /// What `burst_max` is counted in.
        pub burst_window: Duration = duration(SECOND_MS, 24 * HOUR_MS).default("60s"),
    }
}

/// Why an event is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterCause {
    /// Stable name, e.g. `kafka.message-size-too-large`.
    pub class: String,
    /// For people.
    pub reason: String,
    /// How often it was tried.
    pub attempts: u32,
    /// Microseconds since the Unix epoch.
    pub first_failed_unix_us: i64,
    /// Microseconds since the Unix epoch.
    pub failed_unix_us: i64,
    /// Its position in the log: two events of one transaction may have the same id.
    pub position: Position,
    /// Is the letter all that is known of it? Then it can never be published after all.
    pub incomplete: bool,
    /// Does it park its key, so that later events follow it?
    pub parks_key: bool,
}

/// Writes letters.
#[derive(Clone, Debug)]
pub struct DeadLetterWriter {
    /// Where to.
    pub settings: DeadLetterSettings,
    /// Who writes, for [`RELAY`].
    pub relay: String,
}

impl DeadLetterWriter {
    /// Passes the dead letter of an event to `then`, ready to be published.
    pub fn compose<T>(
        &self,
        event: &Outbound<'_>,
        cause: &DeadLetterCause,
        then: impl FnOnce(&Outbound<'_>) -> T,
    ) -> T {
        let mut own = vec![
            (EVENT_ID, event.id.to_owned()),
            (ORIGINAL_TOPIC, event.topic.to_owned()),
            (ERROR_CLASS, cause.class.clone()),
            (ERROR_MSG, cause.reason.clone()),
            (ATTEMPTS, cause.attempts.to_string()),
            (FAILED_AT, rfc3339(cause.failed_unix_us)),
            (FIRST_FAILED_AT, rfc3339(cause.first_failed_unix_us)),
            (LSN, cause.position.commit_lsn.to_string()),
            (ORDINAL, cause.position.ordinal.to_string()),
            (COMMIT_TS, rfc3339(event.commit_unix_us)),
            (RELAY, self.relay.clone()),
        ];
        if !event.exchange.is_empty() {
            own.push((ORIGINAL_EXCHANGE, event.exchange.to_owned()));
        }
        if let Some(partition) = event.partition {
            own.push((ORIGINAL_PARTITION, partition.to_string()));
        }
        if cause.parks_key {
            own.push((PARKS_KEY, "true".to_owned()));
        }
        if cause.incomplete {
            own.push((INCOMPLETE, "true".to_owned()));
        }
        let mut value = event.value;
        if let Some(whole) = value.filter(|whole| whole.len() > self.settings.value_bytes_max) {
            own.push((VALUE_SIZE, whole.len().to_string()));
            own.push((VALUE_SHA256, sha256_hex(whole)));
            value = Some(&whole[..self.settings.value_bytes_max]);
        }
        // An event must not forge what became of it.
        let theirs = event.headers.iter().copied().filter(|(name, _)| !name.starts_with(PREFIX));
        let headers: Vec<(&str, &[u8])> =
            theirs.chain(own.iter().map(|(name, text)| (*name, text.as_bytes()))).collect();
        then(&Outbound {
            exchange: &self.settings.address.exchange,
            topic: &self.settings.address.topic,
            value,
            headers: &headers,
            // What was given up last is last in the log, so that it can be sought by time.
            commit_unix_us: cause.failed_unix_us,
            partition: None,
            ..*event
        })
    }
}

/// Identifies a key, whether a letter has all of it or it was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash([u64; 2]);

impl KeyHash {
    /// Of a whole key.
    #[must_use]
    pub fn of(key: &[u8]) -> KeyHash {
        KeyHash(first_words(&Sha256::digest(key).into()))
    }

    /// Of a key that was cut, by [`KEY_SHA256`].
    pub(crate) fn of_sha256(hex: &str) -> Option<KeyHash> {
        read_sha256(hex).map(|hash| KeyHash(first_words(&hash)))
    }
}

/// Half of a hash is enough to distinguish things.
pub(crate) fn first_words(hash: &[u8; 32]) -> [u64; 2] {
    let word =
        |at: usize| hash[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    [word(0), word(8)]
}

const HASH_PREFIX: &str = "sha256:";

/// What is written instead of something that is too long: `sha256:` and its hash.
pub(crate) fn hash_name(whole: &[u8]) -> String {
    named_by_hash(&sha256_hex(whole))
}

/// The same, where the hash is known.
pub(crate) fn named_by_hash(sha256_hex: &str) -> String {
    format!("{HASH_PREFIX}{sha256_hex}")
}

/// The hash in such a name.
pub(crate) fn hash_in(name: &str) -> Option<&str> {
    name.strip_prefix(HASH_PREFIX).filter(|hex| read_sha256(hex).is_some())
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// A hash of 64 hexadecimal digits.
pub(crate) fn read_sha256(hex: &str) -> Option<[u8; 32]> {
    let mut hash = Vec::with_capacity(32);
    push_unhexed(hex.as_bytes(), &mut hash)?;
    hash.try_into().ok()
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
