//! Reads an entry of the dead-letter log as a record.
//!
//! Anybody may write to a topic: what is neither a dead letter nor a resolution is foreign. A
//! header that is missing or malformed leaves its field empty; it is never an error. Texts are cut
//! to what relays and consumers write at most, so that whatever stands in the topic, what is kept of
//! a record is bounded; a dead letter of which something was cut here is not replayed.

use super::record::{
    CLOCK_SKEW_US, DeadLetter, LogEntry, LogRecord, PartitionOffset, RecordKey, Resolution,
    ResolutionKind, StopRecord, Uncut,
};
use super::writer;
use crate::base::event::is_reserved_header;
use crate::base::text::truncated;
use crate::base::time::{parse_rfc3339, rfc3339};

/// Most bytes of an error class, which is counted and kept; of a name (topic, exchange, type,
/// relay, LSN); and of an error message.
const CLASS_BYTES_MAX: usize = 200;
const NAME_BYTES_MAX: usize = 2048;
const MESSAGE_BYTES_MAX: usize = 4096;
/// A longer id and a longer key are known by their hashes. None is kept for many dead letters at once.
const ID_BYTES_MAX: usize = 1 << 20;
const KEY_BYTES_MAX: usize = 1 << 20;
/// Most headers of an event, and most bytes of all.
const HEADERS_MAX: usize = 1024;
const HEADERS_BYTES_MAX: usize = 2 << 20;

pub fn parse(entry: LogEntry) -> LogRecord {
    let own = DlqHeaders(&entry.headers);
    let Some(event_id) = own.event_id() else { return LogRecord::Foreign };
    if let Some(name) = own.text(writer::RESOLUTION) {
        use ResolutionKind::{Discarded, Released, Replayed};
        if let Some(stop) = StopRecord::parse(&entry, &name) {
            return LogRecord::Stop(Box::new(stop));
        }
        let kind = [Replayed, Discarded, Released].into_iter().find(|it| it.name() == name);
        return kind.map_or(LogRecord::Foreign, |kind| {
            LogRecord::Resolution(parse_resolution(entry, kind, event_id))
        });
    }
    match own.cut(writer::ERROR_CLASS, CLASS_BYTES_MAX) {
        Some(class) => LogRecord::DeadLetter(Box::new(parse_letter(entry, event_id, class))),
        None => LogRecord::Foreign,
    }
}

fn parse_resolution(entry: LogEntry, kind: ResolutionKind, event_id: String) -> Resolution {
    let own = DlqHeaders(&entry.headers);
    let uncut = own.uncut(writer::KEY_SIZE, writer::KEY_SHA256);
    Resolution {
        position: entry.position,
        kind,
        event_id,
        system: own.name(writer::SYSTEM),
        lsn: own.name(writer::LSN),
        ordinal: own.number(writer::ORDINAL).unwrap_or_default(),
        resolved_unix_us: own.time(writer::RESOLVED_AT).unwrap_or(entry.written_unix_us),
        relay: own.name(writer::RELAY),
        replays: own.number(writer::REPLAY_COUNT).unwrap_or_default(),
        key: entry.key.map(|bytes| key(bytes, uncut)),
    }
}

/// A key as it was written; one that is too long is cut, and known by its hash.
fn key(bytes: Vec<u8>, uncut: Option<Uncut>) -> RecordKey {
    RecordKey { bytes, uncut }.cut_above(KEY_BYTES_MAX)
}

/// The headers of the event, and whether some had to be left out.
fn headers(all: Vec<(String, Vec<u8>)>) -> (Vec<(String, Vec<u8>)>, bool) {
    let (mut kept, mut bytes, mut is_cut) = (Vec::new(), 0, false);
    for (name, value) in all.into_iter().filter(|(name, _)| !is_reserved_header(name)) {
        bytes += name.len() + value.len();
        is_cut |= kept.len() == HEADERS_MAX || bytes > HEADERS_BYTES_MAX;
        if is_cut {
            break;
        }
        kept.push((name, value));
    }
    (kept, is_cut)
}

fn parse_letter(entry: LogEntry, event_id: String, error_class: String) -> DeadLetter {
    let own = DlqHeaders(&entry.headers);
    let PartitionOffset { partition, offset } = entry.position;
    let written_unix_us = entry.written_unix_us;
    let failed_unix_us = own.time(writer::FAILED_AT).unwrap_or(written_unix_us);
    // It is written once it has failed: a later time is not believed, where the record has one.
    let latest = written_unix_us.saturating_add(CLOCK_SKEW_US);
    let is_ahead = written_unix_us > 0 && failed_unix_us > latest;
    let failed_unix_us = if is_ahead { written_unix_us } else { failed_unix_us };
    let key = entry.key.map(|bytes| {
        let uncut = own.uncut(writer::KEY_SIZE, writer::KEY_SHA256);
        key(bytes, uncut)
    });
    let is_cut = key.as_ref().is_some_and(|key| key.uncut.is_some()) || own.lacks_parts();
    let types = [entry.event_type, entry.content_type];
    let is_cut = is_cut || types.iter().flatten().any(|name| name.len() > NAME_BYTES_MAX);
    let [event_type, content_type] = types.map(|name| name.map(|name| cut(&name, NAME_BYTES_MAX)));
    // Offsets begin again in a topic that is made anew, and consumers remember the ids of replays.
    let place = || format!("@{partition}:{offset}@{}", rfc3339(failed_unix_us));
    let letter = DeadLetter {
        position: entry.position,
        event_id: if event_id.is_empty() { place() } else { event_id },
        topic: own.name(writer::ORIGINAL_TOPIC),
        exchange: own.name(writer::ORIGINAL_EXCHANGE),
        partition: own.number(writer::ORIGINAL_PARTITION),
        error_class,
        error_msg: own.cut(writer::ERROR_MSG, MESSAGE_BYTES_MAX).unwrap_or_default(),
        attempts: own.number(writer::ATTEMPTS).unwrap_or_default(),
        failed_unix_us,
        first_failed_unix_us: own.time(writer::FIRST_FAILED_AT).unwrap_or(failed_unix_us),
        system: own.name(writer::SYSTEM),
        lsn: own.name(writer::LSN),
        ordinal: own.number(writer::ORDINAL).unwrap_or_default(),
        commit_unix_us: own.time(writer::COMMIT_TS).unwrap_or(failed_unix_us),
        relay: own.name(writer::RELAY),
        parks_key: own.is_true(writer::PARKS_KEY),
        incomplete: own.is_true(writer::INCOMPLETE) || is_cut,
        uncut: own.uncut(writer::VALUE_SIZE, writer::VALUE_SHA256),
        replays: own.number(writer::REPLAY_COUNT).unwrap_or_default(),
        key,
        value: entry.value,
        event_type,
        content_type,
        headers: Vec::new(),
    };
    let (headers, lacks_headers) = headers(entry.headers);
    DeadLetter { headers, incomplete: letter.incomplete || lacks_headers, ..letter }
}

fn cut(text: &str, bytes_max: usize) -> String {
    truncated(text, bytes_max).to_owned()
}

/// The headers of [`writer`]. A foreign producer may have set some twice; the last one counts.
struct DlqHeaders<'a>(&'a [(String, Vec<u8>)]);

impl DlqHeaders<'_> {
    fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }

    /// At most so many bytes of a text.
    fn cut(&self, name: &str, bytes_max: usize) -> Option<String> {
        let bytes = self.bytes(name)?;
        // What is cut within a character loses it.
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(bytes_max)]);
        Some(truncated(&text, bytes_max).to_owned())
    }

    fn name(&self, name: &str) -> String {
        self.cut(name, NAME_BYTES_MAX).unwrap_or_default()
    }

    fn text(&self, name: &str) -> Option<String> {
        self.cut(name, NAME_BYTES_MAX)
    }

    /// A longer one is its hash, as in a dead letter in which it did not fit.
    fn event_id(&self) -> Option<String> {
        let bytes = self.bytes(writer::EVENT_ID)?;
        if bytes.len() > ID_BYTES_MAX {
            return Some(writer::hash_name(bytes));
        }
        self.cut(writer::EVENT_ID, ID_BYTES_MAX)
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    fn uncut(&self, size: &str, sha256: &str) -> Option<Uncut> {
        Some(Uncut { size_bytes: self.number(size)?, sha256: self.name(sha256) })
    }

    /// Were headers left out, or was a text cut without which the event cannot be published?
    fn lacks_parts(&self) -> bool {
        let sizes = writer::NOTED.map(|(_, size, _)| size);
        let long =
            |name: &str, bytes_max: usize| self.bytes(name).is_some_and(|it| it.len() > bytes_max);
        let is_cut_here = [writer::ORIGINAL_TOPIC, writer::ORIGINAL_EXCHANGE]
            .iter()
            .any(|name| long(name, NAME_BYTES_MAX));
        is_cut_here
            || long(writer::EVENT_ID, ID_BYTES_MAX)
            || self.0.iter().map(|(name, _)| name.as_str()).any(|name| {
                [writer::HEADERS_DROPPED, writer::EVENT_ID_SIZE].contains(&name)
                    || sizes.contains(&name)
            })
    }

    fn is_true(&self, name: &str) -> bool {
        self.text(name).is_some_and(|text| text == "true")
    }

    fn time(&self, name: &str) -> Option<i64> {
        parse_rfc3339(&self.text(name)?)
    }
}
