//! The records of the dead-letter topic: dead letters, and the resolutions that are written later.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::writer::{self, DeadLetterAddress, KeyHash};
use crate::base::event::Outbound;
use crate::base::stop::{BREAKER_OPEN, Stop};
use crate::base::text::{escaped, shown};
use crate::base::time::rfc3339;

/// The most by which the clocks of relays, consumers and brokers differ: a dead letter may have failed
/// later than its record was written, but not by more.
pub const CLOCK_SKEW_US: i64 = 60_000_000;

/// The position of a record. Offsets rise within a partition; RabbitMQ has one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PartitionOffset {
    pub partition: i32,
    pub offset: i64,
}

/// A record of the log as the broker returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEntry {
    pub position: PartitionOffset,
    /// When the record was written, by the clock of the broker or of the writer.
    pub written_unix_us: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// Headers of the event, and those of [`super::writer`].
    pub headers: Vec<(String, Vec<u8>)>,
    /// Properties of AMQP messages.
    pub event_type: Option<String>,
    pub content_type: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord {
    DeadLetter(Box<DeadLetter>),
    Resolution(Resolution),
    Stop(Box<StopRecord>),
    /// Not written by a relay or by a command of ours.
    Foreign,
}

/// Position and time of a record, which order the records about one dead letter.
#[derive(Clone, Copy, Debug)]
pub struct RecordMark {
    pub position: PartitionOffset,
    pub unix_us: i64,
}

impl RecordMark {
    /// Offsets of different partitions cannot be compared, so time decides there.
    pub fn is_after(&self, other: &RecordMark) -> bool {
        if self.position.partition == other.position.partition {
            self.position.offset > other.position.offset
        } else {
            self.unix_us > other.unix_us
        }
    }
}

/// Size and SHA-256 (in hexadecimal) of a value or a key before it was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncut {
    pub size_bytes: u64,
    pub sha256: String,
}

/// The bytes that stay of a key that is cut when it is read.
const KEY_BYTES_KEPT: usize = 1024;
/// Longer ids and keys are known by their hashes where many are kept.
const KEPT_BYTES_MAX: usize = 1024;

/// The key of an event; `uncut` is set where `bytes` are only its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordKey {
    pub bytes: Vec<u8>,
    pub uncut: Option<Uncut>,
}

impl RecordKey {
    pub fn hash(&self) -> KeyHash {
        let uncut = self.uncut.as_ref().and_then(|uncut| KeyHash::of_sha256(&uncut.sha256));
        uncut.unwrap_or_else(|| KeyHash::of(&self.bytes))
    }

    /// The same, cut if it has more bytes; then it is known by its hash.
    pub fn cut_above(self, bytes_max: usize) -> RecordKey {
        let RecordKey { bytes, uncut } = self;
        if bytes.len() <= bytes_max {
            return RecordKey { bytes, uncut };
        }
        let whole = || Uncut { size_bytes: bytes.len() as u64, sha256: writer::sha256_hex(&bytes) };
        let uncut = Some(uncut.unwrap_or_else(whole));
        RecordKey { bytes: bytes[..KEY_BYTES_KEPT.min(bytes_max)].to_vec(), uncut }
    }

    /// The key as it is shown; a key that was cut is shown as its hash.
    pub fn name(&self) -> String {
        match &self.uncut {
            None => shown(&self.bytes),
            Some(uncut) => escaped(&writer::named_by_hash(&uncut.sha256)),
        }
    }

    /// Whether these are the bytes of the key.
    pub fn is(&self, bytes: &[u8]) -> bool {
        self.hash() == KeyHash::of(bytes)
    }

    /// Does `word`, typed by a person, mean this key? It may be the key itself, the key as it is
    /// shown, or `sha256:` and its hash.
    pub fn is_named(&self, word: &str) -> bool {
        let is_hash = || writer::hash_in(word).and_then(KeyHash::of_sha256) == Some(self.hash());
        let is_text = match &self.uncut {
            None => self.bytes == word.as_bytes() || shown(&self.bytes) == word,
            Some(_) => KeyHash::of(word.as_bytes()) == self.hash(),
        };
        is_text || is_hash()
    }
}

/// An event that could not be published, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetter {
    pub position: PartitionOffset,
    /// `@PARTITION:OFFSET@TIME` of the dead letter for an event without an id.
    pub event_id: String,
    pub key: Option<RecordKey>,
    /// Kafka topic or RabbitMQ routing key of the event; empty where it could not be determined, and
    /// where an exchange needs no routing key.
    pub topic: String,
    pub exchange: String,
    /// Kafka partition of the event, where a column gave one.
    pub partition: Option<i32>,
    pub error_class: String,
    pub error_msg: String,
    pub attempts: u32,
    pub failed_unix_us: i64,
    pub first_failed_unix_us: i64,
    /// The system identifier of the database that it comes from; empty where it is not known.
    pub system: String,
    /// Commit LSN of the event's transaction, as it was written.
    pub lsn: String,
    /// How many events of the transaction come before this one.
    pub ordinal: u64,
    pub commit_unix_us: i64,
    /// Who wrote the dead letter.
    pub relay: String,
    pub parks_key: bool,
    /// Something other than the end of the value is missing.
    pub incomplete: bool,
    /// Set where the value was cut.
    pub uncut: Option<Uncut>,
    /// How often the event had been replayed when it failed.
    pub replays: u32,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Vec<u8>)>,
    pub event_type: Option<String>,
    pub content_type: Option<String>,
}

/// The resolution of a dead letter or of a parked key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Its own position; before it is written, that of its dead letter.
    pub position: PartitionOffset,
    pub kind: ResolutionKind,
    /// Event id of the dead letter; for a released key, of the one that parked it.
    pub event_id: String,
    /// That of the dead letter.
    pub system: String,
    pub lsn: String,
    pub ordinal: u64,
    pub key: Option<RecordKey>,
    pub resolved_unix_us: i64,
    /// Who wrote the resolution.
    pub relay: String,
    /// How often the event has been replayed by now.
    pub replays: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolutionKind {
    /// The event of the dead letter was published.
    Replayed,
    /// A person decided that the event is not to be published.
    Discarded,
    /// Later events of the key are published again.
    Released,
}

impl ResolutionKind {
    pub fn name(self) -> &'static str {
        match self {
            ResolutionKind::Replayed => "replayed",
            ResolutionKind::Discarded => "discarded",
            ResolutionKind::Released => "released",
        }
    }
}

/// Identifies the dead letter that a record is about. Two tables may use the same event ids, so the
/// position in the transaction is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeadLetterId(pub [u64; 2]);

impl DeadLetterId {
    fn of(event_id: &str, system: &str, lsn: &str, ordinal: u64) -> DeadLetterId {
        // One dead letter of an event may have the id, and another one only the hash of it.
        let cut_id = writer::hash_in(event_id).and_then(writer::read_sha256);
        let id: [u8; 32] = cut_id.unwrap_or_else(|| Sha256::digest(event_id).into());
        let hash = Sha256::new().chain_update(id).chain_update(lsn);
        // Nothing of it where it is not known, as in records of earlier versions.
        let hash = hash.chain_update(ordinal.to_be_bytes()).chain_update(system).finalize();
        DeadLetterId(writer::first_words(&hash.into()))
    }
}

/// Why a dead letter cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotReplayable {
    /// The end of the value is missing.
    Cut,
    /// The destination is unknown.
    Unrouted,
    /// The row never became an event, headers are missing, or key, id, topic or type was cut.
    Incomplete,
    /// It has no id, and its consumer would give it up again.
    Nameless,
    /// The route leads into a dead-letter topic, where the event would be lost as a foreign
    /// record.
    Misrouted,
    /// No route of the configuration leads there.
    Elsewhere,
    /// The broker cannot carry it.
    Uncarried,
    /// An earlier event of its key cannot be replayed.
    Behind,
}

impl NotReplayable {
    /// In the order of their numbers.
    pub const ALL: [NotReplayable; 8] = {
        use NotReplayable::{
            Behind, Cut, Elsewhere, Incomplete, Misrouted, Nameless, Uncarried, Unrouted,
        };
        [Cut, Unrouted, Incomplete, Nameless, Misrouted, Elsewhere, Uncarried, Behind]
    };

    /// The reason in words, for one dead letter or several.
    pub fn reason(self) -> &'static str {
        match self {
            NotReplayable::Cut => "the value is cut",
            NotReplayable::Unrouted => "the destination is unknown",
            NotReplayable::Incomplete => {
                "the row never became an event, headers are lost, or the key, id, topic or type is cut"
            }
            NotReplayable::Nameless => {
                "there is no id, without which the consumer gives up the event again"
            }
            NotReplayable::Misrouted => "the destination is a dead-letter topic",
            NotReplayable::Elsewhere => "no route of the configuration leads to the destination",
            NotReplayable::Uncarried => "the broker cannot carry the event",
            NotReplayable::Behind => "an earlier event of the key cannot be replayed",
        }
    }
}

impl DeadLetter {
    pub fn id(&self) -> DeadLetterId {
        DeadLetterId::of(&self.event_id, &self.system, &self.lsn, self.ordinal)
    }

    pub fn mark(&self) -> RecordMark {
        RecordMark { position: self.position, unix_us: self.failed_unix_us }
    }

    pub fn key_hash(&self) -> Option<KeyHash> {
        self.key.as_ref().map(RecordKey::hash)
    }

    /// Why the event cannot be published; `closed` are dead-letter topics, to which it must not go.
    pub fn not_replayable(&self, closed: &[&DeadLetterAddress]) -> Option<NotReplayable> {
        if self.uncut.is_some() {
            return Some(NotReplayable::Cut);
        }
        if self.topic.is_empty() && self.exchange.is_empty() {
            return Some(NotReplayable::Unrouted);
        }
        if self.incomplete {
            return Some(NotReplayable::Incomplete);
        }
        // In RabbitMQ a replay gives the message an id: that of the dead letter.
        if self.error_class == writer::CLASS_NO_ID && self.exchange.is_empty() {
            return Some(NotReplayable::Nameless);
        }
        let reaches = |it: &&DeadLetterAddress| it.is_reached_by(&self.exchange, &self.topic);
        let is_misrouted = closed.iter().any(reaches);
        is_misrouted.then_some(NotReplayable::Misrouted)
    }

    /// Was it written by a consumer? A relay names the system of its database if it may ask for it.
    pub fn is_of_consumer(&self) -> bool {
        self.system.is_empty()
    }

    /// The consumer that wrote this to its topic `SERVICE.dlq`, if the event goes to a topic that
    /// others read, too. In RabbitMQ an exchange leads to the consumer alone.
    pub fn consumer(&self, written_to: &str) -> Option<&str> {
        let (consumer, _host) = self.relay.rsplit_once('@').filter(|_| self.is_of_consumer())?;
        let is_own = writer::service_of(written_to) == Some(consumer);
        (is_own && self.exchange.is_empty()).then_some(consumer)
    }

    /// Passes the event to `then`, with headers that say how often it has been replayed, and for
    /// which consumer alone.
    pub fn event<T>(
        &self,
        replay: u32,
        consumer: Option<&str>,
        then: impl FnOnce(&Outbound<'_>) -> T,
    ) -> T {
        let replay = replay.to_string();
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let mut headers: Vec<(&str, &[u8])> = headers.collect();
        headers.push((writer::REPLAY_COUNT, replay.as_bytes()));
        headers.extend(consumer.map(|consumer| (writer::REPLAY_FOR, consumer.as_bytes())));
        then(&Outbound {
            exchange: &self.exchange,
            topic: &self.topic,
            key: self.key.as_ref().map(|key| &*key.bytes),
            value: self.value.as_deref(),
            id: &self.event_id,
            event_type: self.event_type.as_deref(),
            content_type: self.content_type.as_deref(),
            headers: &headers,
            commit_unix_us: self.commit_unix_us,
            partition: self.partition,
        })
    }

    /// A record that resolves the dead letter, or releases its key.
    pub fn resolution(
        &self,
        kind: ResolutionKind,
        replays: u32,
        by: &str,
        unix_us: i64,
    ) -> Resolution {
        Resolution {
            position: self.position,
            kind,
            event_id: self.event_id.clone(),
            system: self.system.clone(),
            lsn: self.lsn.clone(),
            ordinal: self.ordinal,
            key: self.key.clone(),
            resolved_unix_us: unix_us,
            relay: by.to_owned(),
            replays,
        }
    }
}

impl Resolution {
    /// The same, in a few kilobytes at most.
    pub fn bounded(self) -> Resolution {
        let is_long = self.event_id.len() > KEPT_BYTES_MAX;
        let hash = is_long.then(|| writer::hash_name(self.event_id.as_bytes()));
        Resolution {
            event_id: hash.unwrap_or(self.event_id),
            key: self.key.map(|key| key.cut_above(KEPT_BYTES_MAX)),
            ..self
        }
    }

    pub fn id(&self) -> DeadLetterId {
        DeadLetterId::of(&self.event_id, &self.system, &self.lsn, self.ordinal)
    }

    pub fn mark(&self) -> RecordMark {
        RecordMark { position: self.position, unix_us: self.resolved_unix_us }
    }

    pub fn key_hash(&self) -> Option<KeyHash> {
        self.key.as_ref().map(RecordKey::hash)
    }

    /// Passes the record to `then`, ready to be published. It names the partition of the dead
    /// letter, because order is certain only within a partition and the key may hash to another
    /// one by now.
    pub fn record<T>(&self, to: &DeadLetterAddress, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
        let resolved_at = rfc3339(self.resolved_unix_us);
        let (replays, ordinal) = (self.replays.to_string(), self.ordinal.to_string());
        let mut headers: Vec<(&str, &[u8])> = vec![
            (writer::EVENT_ID, self.event_id.as_bytes()),
            (writer::RESOLUTION, self.kind.name().as_bytes()),
            (writer::RESOLVED_AT, resolved_at.as_bytes()),
            (writer::RELAY, self.relay.as_bytes()),
            (writer::LSN, self.lsn.as_bytes()),
            (writer::ORDINAL, ordinal.as_bytes()),
        ];
        if !self.system.is_empty() {
            headers.push((writer::SYSTEM, self.system.as_bytes()));
        }
        if self.replays > 0 {
            headers.push((writer::REPLAY_COUNT, replays.as_bytes()));
        }
        let uncut = self.key.as_ref().and_then(|key| key.uncut.as_ref());
        let size = uncut.map(|uncut| uncut.size_bytes.to_string()).unwrap_or_default();
        if let Some(uncut) = uncut {
            headers.push((writer::KEY_SIZE, size.as_bytes()));
            headers.push((writer::KEY_SHA256, uncut.sha256.as_bytes()));
        }
        then(&Outbound {
            exchange: &to.exchange,
            topic: &to.topic,
            key: self.key.as_ref().map(|key| &*key.bytes),
            value: None,
            id: &self.event_id,
            event_type: None,
            content_type: None,
            headers: &headers,
            commit_unix_us: self.resolved_unix_us,
            partition: Some(self.position.partition),
        })
    }
}

/// The partition of the records about stops, so that their offsets are their order.
const STOP_PARTITION: i32 = 0;

/// Longest value of such a record; the texts of a stop are much shorter.
const STOP_BYTES_MAX: usize = 64 << 10;

/// A record about a stop of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRecord {
    pub position: PartitionOffset,
    pub kind: StopRecordKind,
    pub body: StopBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRecordKind {
    /// The relay has stopped.
    Stopped,
    /// Somebody has acknowledged it.
    Resumed,
}

/// The value of the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StopBody {
    /// The relay's slot, and the system identifier of its database; empty if it is not known.
    pub slot: String,
    pub system: String,
    pub stop: Stop,
    /// Who wrote the record, and when.
    pub by: String,
    pub unix_us: i64,
    /// Why the stop was acknowledged.
    pub reason: String,
    /// The state of the publication that was acknowledged with it.
    pub publication: Option<String>,
}

/// Names of [`writer::RESOLUTION`]: those of the breaker, and of every other stop.
const STOP_NAMES: [(&str, StopRecordKind, bool); 4] = [
    ("breaker-opened", StopRecordKind::Stopped, true),
    ("breaker-resumed", StopRecordKind::Resumed, true),
    ("stopped", StopRecordKind::Stopped, false),
    ("resumed", StopRecordKind::Resumed, false),
];

impl StopRecord {
    pub fn new(kind: StopRecordKind, body: StopBody) -> StopRecord {
        StopRecord { position: PartitionOffset::default(), kind, body }
    }

    pub fn is_of_breaker(&self) -> bool {
        self.body.stop.code == BREAKER_OPEN
    }

    fn name(&self) -> &'static str {
        let own = (self.kind, self.is_of_breaker());
        let named = STOP_NAMES.iter().find(|(_, kind, breaker)| (*kind, *breaker) == own);
        named.map_or("", |(name, ..)| name)
    }

    /// None where the entry is not of this kind, or its value is no known stop.
    pub fn parse(entry: &LogEntry, resolution: &str) -> Option<StopRecord> {
        let (_, kind, of_breaker) =
            STOP_NAMES.into_iter().find(|(name, ..)| *name == resolution)?;
        let value = entry.value.as_deref().filter(|value| value.len() <= STOP_BYTES_MAX)?;
        let body: StopBody = serde_json::from_slice(value).ok()?;
        let record = StopRecord { position: entry.position, kind, body };
        (record.is_of_breaker() == of_breaker && record.body.stop.fault().is_some())
            .then_some(record)
    }

    /// Passes the record to `then`, ready to be published.
    pub fn record<T>(&self, to: &DeadLetterAddress, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
        let StopBody { slot, stop, by, unix_us, .. } = &self.body;
        // Numbers and texts always have a form in JSON.
        let value = serde_json::to_vec(&self.body).unwrap_or_default();
        let (id, at) = (format!("stop-{slot}-{}", stop.since_unix_us), rfc3339(*unix_us));
        let headers: [(&str, &[u8]); 4] = [
            (writer::EVENT_ID, id.as_bytes()),
            (writer::RESOLUTION, self.name().as_bytes()),
            (writer::RESOLVED_AT, at.as_bytes()),
            (writer::RELAY, by.as_bytes()),
        ];
        then(&Outbound {
            exchange: &to.exchange,
            topic: &to.topic,
            key: None,
            value: Some(&value),
            id: &id,
            event_type: None,
            content_type: Some("application/json"),
            headers: &headers,
            commit_unix_us: *unix_us,
            partition: Some(STOP_PARTITION),
        })
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
