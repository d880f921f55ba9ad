//! What a record of the dead-letter topic says, and what is written because of it.
//!
//! Anybody may write to a topic: what is neither a letter nor a resolution is foreign, and passed
//! over. What a letter leaves out is empty, never an error.

pub use super::identity::{DeadLetterId, Truncated, key_id, key_name};
use crate::base::event::Outbound;
use crate::base::time::{parse_rfc3339, rfc3339};
use crate::dead_letter::writer::{self, DeadLetterAddress, KeyHash};

/// Where a record stands. Offsets rise within a partition; RabbitMQ has one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionOffset {
    /// Partition.
    pub partition: i32,
    /// Offset in it.
    pub offset: i64,
}

/// A record of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEntry {
    /// Where it stands.
    pub position: PartitionOffset,
    /// When the broker or its writer says that it was written; microseconds since the Unix epoch.
    pub written_unix_us: i64,
    /// Key of the event.
    pub key: Option<Vec<u8>>,
    /// Value of the event, perhaps cut.
    pub value: Option<Vec<u8>>,
    /// Headers of the event, and those of [`super::writer`].
    pub headers: Vec<(String, Vec<u8>)>,
    /// A property of AMQP messages.
    pub event_type: Option<String>,
    /// A property of AMQP messages.
    pub content_type: Option<String>,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord {
    /// An event that could not be published.
    DeadLetter(Box<DeadLetter>),
    /// What became of a letter or of a parked key.
    Resolution(Resolution),
    /// Something of somebody else.
    Foreign,
}

/// An event that could not be published, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it stands.
    pub position: PartitionOffset,
    /// Event id; `@PARTITION:OFFSET` of the letter for an event without one.
    pub event_id: String,
    /// Key, perhaps cut.
    pub key: Option<Vec<u8>>,
    /// What the key was before it was cut.
    pub key_cut: Option<Truncated>,
    /// Kafka topic or routing key it was on its way to; empty when that could not be told.
    pub topic: String,
    /// RabbitMQ exchange it was on its way to.
    pub exchange: String,
    /// Kafka partition, where a column gave one.
    pub partition: Option<i32>,
    /// Stable name of what went wrong.
    pub error_class: String,
    /// The same for people.
    pub error_msg: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up; microseconds since the Unix epoch.
    pub failed_unix_us: i64,
    /// When it failed for the first time.
    pub first_failed_unix_us: i64,
    /// Commit LSN of its transaction, as it was written.
    pub lsn: String,
    /// Events of its transaction before it.
    pub ordinal: u64,
    /// Commit time of its transaction.
    pub commit_unix_us: i64,
    /// Who gave it up.
    pub relay: String,
    /// Do later events of its key follow it?
    pub parks_key: bool,
    /// Is it less than the event, apart from a value that was cut?
    pub incomplete: bool,
    /// What the value was before it was cut.
    pub cut: Option<Truncated>,
    /// How often it had been replayed when it failed.
    pub replays: u32,
    /// Value, perhaps cut.
    pub value: Option<Vec<u8>>,
    /// Headers of the event.
    pub headers: Vec<(String, Vec<u8>)>,
    /// A property of AMQP messages.
    pub event_type: Option<String>,
    /// A property of AMQP messages.
    pub content_type: Option<String>,
}

/// What became of a letter or of a parked key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Where it stands.
    pub position: PartitionOffset,
    /// What it says.
    pub kind: ResolutionKind,
    /// Event id of the letter; for a released key, of the one that parked it.
    pub event_id: String,
    /// Commit LSN of the letter.
    pub lsn: String,
    /// Events of its transaction before that of the letter.
    pub ordinal: u64,
    /// Key of the letter.
    pub key: Option<Vec<u8>>,
    /// What the key was before it was cut.
    pub key_cut: Option<Truncated>,
    /// When; microseconds since the Unix epoch.
    pub resolved_unix_us: i64,
    /// Who.
    pub relay: String,
    /// How often the event has been replayed by now.
    pub replays: u32,
}

/// What a resolution says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolutionKind {
    /// The event was published after all.
    Replayed,
    /// A person gave the event up.
    Discarded,
    /// Later events of the key are published again.
    Released,
}

impl ResolutionKind {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ResolutionKind::Replayed => "replayed",
            ResolutionKind::Discarded => "discarded",
            ResolutionKind::Released => "released",
        }
    }

    fn read(name: &str) -> Option<ResolutionKind> {
        let all = [ResolutionKind::Replayed, ResolutionKind::Discarded, ResolutionKind::Released];
        all.into_iter().find(|known| known.name() == name)
    }
}

impl LogRecord {
    /// What an entry of the log says.
    #[must_use]
    pub fn read(entry: LogEntry) -> LogRecord {
        let own = Own(&entry.headers);
        match (own.text(writer::EVENT_ID), own.text(writer::RESOLUTION)) {
            (Some(id), Some(what)) => match ResolutionKind::read(&what) {
                Some(kind) => LogRecord::Resolution(resolution(&entry, kind, id)),
                None => LogRecord::Foreign,
            },
            (Some(id), None) => match own.text(writer::ERROR_CLASS) {
                Some(class) => LogRecord::DeadLetter(Box::new(read_letter(entry, id, class))),
                None => LogRecord::Foreign,
            },
            (None, _) => LogRecord::Foreign,
        }
    }
}

fn resolution(entry: &LogEntry, kind: ResolutionKind, event_id: String) -> Resolution {
    let own = Own(&entry.headers);
    Resolution {
        position: entry.position,
        kind,
        event_id,
        lsn: own.text(writer::LSN).unwrap_or_default(),
        ordinal: own.number(writer::ORDINAL).unwrap_or_default(),
        key: entry.key.clone(),
        key_cut: own.cut(writer::KEY_SIZE, writer::KEY_SHA256),
        resolved_unix_us: own.time(writer::RESOLVED_AT).unwrap_or(entry.written_unix_us),
        relay: own.text(writer::RELAY).unwrap_or_default(),
        replays: own.number(writer::REPLAY_COUNT).unwrap_or_default(),
    }
}

fn read_letter(entry: LogEntry, event_id: String, error_class: String) -> DeadLetter {
    let own = Own(&entry.headers);
    let PartitionOffset { partition, offset } = entry.position;
    let nameless = event_id.is_empty();
    let failed_unix_us = own.time(writer::FAILED_AT).unwrap_or(entry.written_unix_us);
    let cut = own.cut(writer::VALUE_SIZE, writer::VALUE_SHA256);
    let key_cut = own.cut(writer::KEY_SIZE, writer::KEY_SHA256);
    DeadLetter {
        position: entry.position,
        event_id: if nameless { format!("@{partition}:{offset}") } else { event_id },
        topic: own.text(writer::ORIGINAL_TOPIC).unwrap_or_default(),
        exchange: own.text(writer::ORIGINAL_EXCHANGE).unwrap_or_default(),
        partition: own.number(writer::ORIGINAL_PARTITION),
        error_class,
        error_msg: own.text(writer::ERROR_MSG).unwrap_or_default(),
        attempts: own.number(writer::ATTEMPTS).unwrap_or_default(),
        failed_unix_us,
        first_failed_unix_us: own.time(writer::FIRST_FAILED_AT).unwrap_or(failed_unix_us),
        lsn: own.text(writer::LSN).unwrap_or_default(),
        ordinal: own.number(writer::ORDINAL).unwrap_or_default(),
        commit_unix_us: own.time(writer::COMMIT_TS).unwrap_or(failed_unix_us),
        relay: own.text(writer::RELAY).unwrap_or_default(),
        parks_key: own.is_true(writer::PARKS_KEY),
        incomplete: own.is_true(writer::INCOMPLETE) || key_cut.is_some() || own.lacks_something(),
        cut,
        key_cut,
        replays: own.number(writer::REPLAY_COUNT).unwrap_or_default(),
        key: entry.key,
        value: entry.value,
        headers: entry
            .headers
            .into_iter()
            .filter(|(name, _)| !name.starts_with(writer::PREFIX))
            .collect(),
        event_type: entry.event_type,
        content_type: entry.content_type,
    }
}

/// Headers of ours. An event may have brought some of these names; ours stand behind them.
struct Own<'a>(&'a [(String, Vec<u8>)]);

impl Own<'_> {
    fn text(&self, name: &str) -> Option<String> {
        let found = self.0.iter().rev().find(|(known, _)| known == name)?;
        Some(String::from_utf8_lossy(&found.1).into_owned())
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    fn cut(&self, size: &str, sha256: &str) -> Option<Truncated> {
        let size_bytes = self.number(size)?;
        Some(Truncated { size_bytes, sha256: self.text(sha256).unwrap_or_default() })
    }

    /// Headers were left out, or a text was cut that the event cannot be published without.
    fn lacks_something(&self) -> bool {
        let noted = writer::NOTED.map(|(_, size, _)| size);
        let lacks = |name: &str| {
            [writer::HEADERS_DROPPED, writer::EVENT_ID_SIZE].contains(&name)
                || noted.contains(&name)
        };
        self.0.iter().any(|(name, _)| lacks(name))
    }

    fn is_true(&self, name: &str) -> bool {
        self.text(name).is_some_and(|text| text == "true")
    }

    fn time(&self, name: &str) -> Option<i64> {
        parse_rfc3339(&self.text(name)?)
    }
}

/// Why a letter cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReplayable {
    /// The end of its value is missing.
    Cut,
    /// Nobody knows where it was to go.
    Unrouted,
    /// It never became an event, has lost headers, or its key, id, topic or type was cut.
    Incomplete,
    /// Its route leads into the dead-letter topic, where it would be lost as a foreign record.
    Misrouted,
}

impl DeadLetter {
    /// Which dead letter it is.
    #[must_use]
    pub fn identity(&self) -> DeadLetterId {
        DeadLetterId::of(&self.event_id, &self.lsn, self.ordinal)
    }

    /// Which key it has.
    #[must_use]
    pub fn key_id(&self) -> Option<KeyHash> {
        Some(key_id(self.key.as_deref()?, self.key_cut.as_ref()))
    }

    /// Its key as it is shown.
    #[must_use]
    pub fn key_name(&self) -> Option<String> {
        Some(key_name(self.key.as_deref()?, self.key_cut.as_ref()))
    }

    /// Why it cannot be replayed, if it cannot; `letters` is where dead letters are.
    #[must_use]
    pub fn unfit(&self, letters: &DeadLetterAddress) -> Option<NotReplayable> {
        if self.cut.is_some() {
            return Some(NotReplayable::Cut);
        }
        if self.topic.is_empty() {
            return Some(NotReplayable::Unrouted);
        }
        if self.incomplete {
            return Some(NotReplayable::Incomplete);
        }
        letters.is_reached_by(&self.exchange, &self.topic).then_some(NotReplayable::Misrouted)
    }

    /// Hands the event as it was to `then`, marked as the `replay`-th repetition.
    pub fn event<T>(&self, replay: u32, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
        let replay = replay.to_string();
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let mut headers: Vec<(&str, &[u8])> = headers.collect();
        headers.push((writer::REPLAY_COUNT, replay.as_bytes()));
        then(&Outbound {
            exchange: &self.exchange,
            topic: &self.topic,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            id: &self.event_id,
            event_type: self.event_type.as_deref(),
            content_type: self.content_type.as_deref(),
            headers: &headers,
            commit_unix_us: self.commit_unix_us,
            partition: self.partition,
        })
    }

    /// What resolves it.
    #[must_use]
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
            lsn: self.lsn.clone(),
            ordinal: self.ordinal,
            key: self.key.clone(),
            key_cut: self.key_cut.clone(),
            resolved_unix_us: unix_us,
            relay: by.to_owned(),
            replays,
        }
    }
}

impl Resolution {
    /// Which dead letter it is about.
    #[must_use]
    pub fn identity(&self) -> DeadLetterId {
        DeadLetterId::of(&self.event_id, &self.lsn, self.ordinal)
    }

    /// Which key it is about.
    #[must_use]
    pub fn key_id(&self) -> Option<KeyHash> {
        Some(key_id(self.key.as_deref()?, self.key_cut.as_ref()))
    }

    /// Hands it to `then` as a record of the partition it names, ready to be published. Keys may
    /// have moved to other partitions since; within one, order is certain.
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
        if self.replays > 0 {
            headers.push((writer::REPLAY_COUNT, replays.as_bytes()));
        }
        let key_size = self.key_cut.as_ref().map(|cut| cut.size_bytes.to_string());
        if let (Some(size), Some(cut)) = (&key_size, &self.key_cut) {
            headers.push((writer::KEY_SIZE, size.as_bytes()));
            headers.push((writer::KEY_SHA256, cut.sha256.as_bytes()));
        }
        then(&Outbound {
            exchange: &to.exchange,
            topic: &to.topic,
            key: self.key.as_deref(),
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

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
