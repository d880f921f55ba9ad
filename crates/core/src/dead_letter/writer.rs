//! A dead letter: an event that could not be published,
//! written as a record of the dead-letter topic.
//!
//! Key, value and headers of the event stay as they are; headers named `dlq-…` are added. An event
//! cannot forge them: headers of such names that it brings are dropped.
//!
//! A part that the dead-letter topic cannot take is cut ([`super::fit`]); a dead letter that was
//! cut is never replayed.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::base::encoding::{hex, push_unhexed};
use crate::base::error::{Exit, Fault};
use crate::base::event::{Outbound, Position};
use crate::base::settings::kind::{FILLED, TOPIC};
use crate::base::settings::{
    HOUR_MS, MIB, SECOND_MS, bytes, duration, flattened, integer, settings, text,
};
use crate::base::text::{REASON_BYTES_MAX, escaped, truncated};
use crate::base::time::rfc3339;

pub use walrelay_dead_letter::header::*;

/// Error class of an event whose key is parked.
pub const CLASS_PARKED: &str = "parked";
/// Error class of an event that made the process crash.
pub const CLASS_CRASH: &str = "crash";
/// Error class of a message without an id, which a consumer has given up.
pub const CLASS_NO_ID: &str = "consumer.no-id";

settings! {
    /// Where dead letters go.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DeadLetterAddress {
        /// Destination of events that cannot be published: a Kafka topic, or a RabbitMQ stream
        /// queue.
        pub topic: String = text(TOPIC).default("outbox.dlq"),
        /// RabbitMQ: the exchange in front of that queue.
        pub exchange: String = text(FILLED).default("outbox.dlx"),
    }
}

/// The consumer whose dead letters are in this topic, by its name `SERVICE.dlq`.
#[must_use]
pub fn service_of(topic: &str) -> Option<&str> {
    topic.strip_suffix(".dlq").filter(|service| !service.is_empty())
}

impl DeadLetterAddress {
    /// Does a record that is published to this exchange and topic reach the dead-letter topic?
    #[inline]
    #[must_use]
    pub fn is_reached_by(&self, exchange: &str, topic: &str) -> bool {
        if exchange.is_empty() { topic == self.topic } else { exchange == self.exchange }
    }

    /// That of a consumer: topic or queue `SERVICE.dlq`, in RabbitMQ behind exchange `SERVICE.dlx`.
    /// A queue of another name is reached through the default exchange.
    pub fn of_consumer(topic: &str) -> Result<DeadLetterAddress, Fault> {
        if !(TOPIC.holds)(topic) {
            let what = format!("{} is no dead-letter topic of a consumer", escaped(topic));
            let mend = format!("write {}: SERVICE.dlq", TOPIC.wanted);
            return Err(Fault::new(Exit::Usage, "dead-letter.bad-from", what, "--from", mend));
        }
        let exchange =
            service_of(topic).map(|service| format!("{service}.dlx")).unwrap_or_default();
        Ok(DeadLetterAddress { topic: topic.to_owned(), exchange })
    }
}

settings! {
    /// The `[dead_letter]` section.
    #[derive(Clone, Debug)]
    pub struct DeadLetterSettings {
        pub address: DeadLetterAddress = flattened(),
        /// A larger value is cut in its dead letter; headers give its size and SHA-256. What is
        /// still too large for the broker is cut further.
        pub value_bytes_max: usize = bytes(0, MIB << 10).default("900KiB"),
        /// The breaker: the relay stops when there are more dead letters than this within
        /// `burst_window`, because then the cause is probably not a single event. Dead letters of
        /// parked keys do not count.
        pub burst_max: usize = integer(1, 10_000_000).default("100"),
        /// Period in which `burst_max` is counted.
        pub burst_window: Duration = duration(SECOND_MS, 24 * HOUR_MS).default("60s"),
    }
}

/// Why an event could not be published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterCause {
    /// Stable name, e.g. `kafka.message-size-too-large`.
    pub class: String,
    /// For people.
    pub reason: String,
    pub attempts: u32,
    pub first_failed_unix_us: i64,
    pub failed_unix_us: i64,
    /// Two events of one transaction may have the same id; their positions differ.
    pub position: Position,
    /// The dead letter is all that is known of the event, so that it can never be published.
    pub incomplete: bool,
    pub parks_key: bool,
}

/// Writes the dead letters of one relay.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterWriter {
    pub settings: DeadLetterSettings,
    /// Value of [`RELAY`].
    pub relay: String,
    /// Value of [`SYSTEM`].
    pub system: SystemId,
}

/// The system identifier of the database, once the relay has connected to it. It changes only when
/// somebody has acknowledged that the database is another one.
#[derive(Clone, Debug, Default)]
pub struct SystemId(Arc<RwLock<Option<String>>>);

impl SystemId {
    pub fn learn(&self, system_id: &str) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *known = Some(system_id.to_owned());
    }

    pub fn get(&self) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
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
            (ERROR_MSG, truncated(&cause.reason, REASON_BYTES_MAX).to_owned()),
            (ATTEMPTS, cause.attempts.to_string()),
            (FAILED_AT, rfc3339(cause.failed_unix_us)),
            (FIRST_FAILED_AT, rfc3339(cause.first_failed_unix_us)),
            (LSN, cause.position.commit_lsn.to_string()),
            (ORDINAL, cause.position.ordinal.to_string()),
            (RELAY, self.relay.clone()),
        ];
        own.extend(self.system.get().map(|system| (SYSTEM, system)));
        let value_max = self.settings.value_bytes_max;
        let whole = event.value.filter(|value| value.len() > value_max);
        let if_true = |flag: bool| flag.then(|| "true".to_owned());
        let optional = [
            (COMMIT_TS, Some(event.commit_unix_us).filter(|at| *at != 0).map(rfc3339)),
            (ORIGINAL_EXCHANGE, Some(event.exchange.to_owned()).filter(|name| !name.is_empty())),
            (ORIGINAL_PARTITION, event.partition.map(|partition| partition.to_string())),
            (PARKS_KEY, if_true(cause.parks_key)),
            (INCOMPLETE, if_true(cause.incomplete)),
            (VALUE_SIZE, whole.map(|whole| whole.len().to_string())),
            (VALUE_SHA256, whole.map(sha256_hex)),
        ];
        own.extend(optional.into_iter().filter_map(|(name, text)| Some((name, text?))));
        let theirs = event.headers.iter().copied().filter(|(name, _)| !is_reserved_header(name));
        let headers: Vec<(&str, &[u8])> =
            theirs.chain(own.iter().map(|(name, text)| (*name, text.as_bytes()))).collect();
        then(&Outbound {
            exchange: &self.settings.address.exchange,
            topic: &self.settings.address.topic,
            value: event.value.map(|value| &value[..value.len().min(value_max)]),
            headers: &headers,
            // A record of the log is as old as what it says.
            commit_unix_us: cause.failed_unix_us,
            partition: None,
            ..*event
        })
    }
}

/// Identifies a key, also where a dead letter has only its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash([u64; 2]);

impl KeyHash {
    #[must_use]
    pub fn of(key: &[u8]) -> KeyHash {
        KeyHash(first_words(&Sha256::digest(key).into()))
    }

    /// Reads the hash of a key that was cut from its [`KEY_SHA256`].
    pub fn of_sha256(hex: &str) -> Option<KeyHash> {
        read_sha256(hex).map(|hash| KeyHash(first_words(&hash)))
    }
}

/// The first half of a hash, which is enough to tell things apart.
pub fn first_words(hash: &[u8; 32]) -> [u64; 2] {
    let word =
        |at: usize| hash[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    [word(0), word(8)]
}

const HASH_PREFIX: &str = "sha256:";

/// The name of a text that is too long: `sha256:` and its hash.
pub fn hash_name(whole: &[u8]) -> String {
    named_by_hash(&sha256_hex(whole))
}

/// The name of the text that has this hash.
pub fn named_by_hash(sha256_hex: &str) -> String {
    format!("{HASH_PREFIX}{sha256_hex}")
}

/// The hash in what [`hash_name`] returned.
pub fn hash_in(name: &str) -> Option<&str> {
    name.strip_prefix(HASH_PREFIX).filter(|hex| read_sha256(hex).is_some())
}

pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The hash that 64 hexadecimal digits stand for.
pub fn read_sha256(hex: &str) -> Option<[u8; 32]> {
    let mut hash = Vec::with_capacity(32);
    push_unhexed(hex.as_bytes(), &mut hash)?;
    hash.try_into().ok()
}

/// The fault of a relay that cannot know which keys are parked.
pub fn unreadable(reason: &str, settings: &DeadLetterSettings) -> Fault {
    Fault::new(
        Exit::Sink,
        "dead-letter.unreadable",
        format!("park_key needs to read the dead-letter topic: {reason}"),
        format!("dead_letter.topic = {:?}", settings.address.topic),
        "walrelay check; grant the right to read it, or choose another delivery.on_dead_letter",
    )
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
