//! Reads an entry of the dead-letter log as a record.
//!
//! Anybody may write to a topic: what is neither a dead letter nor a resolution is foreign. A
//! header that is missing or malformed leaves its field empty; it is never an error.

use super::record::{
    DeadLetter, LogEntry, LogRecord, PartitionOffset, RecordKey, Resolution, ResolutionKind,
    StopRecord, Uncut,
};
use super::writer;
use crate::base::time::{parse_rfc3339, rfc3339};

pub(super) fn parse(entry: LogEntry) -> LogRecord {
    let own = DlqHeaders(&entry.headers);
    let Some(event_id) = own.text(writer::EVENT_ID) else { return LogRecord::Foreign };
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
    match own.text(writer::ERROR_CLASS) {
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
        lsn: own.text_or_empty(writer::LSN),
        ordinal: own.number(writer::ORDINAL).unwrap_or_default(),
        resolved_unix_us: own.time(writer::RESOLVED_AT).unwrap_or(entry.written_unix_us),
        relay: own.text_or_empty(writer::RELAY),
        replays: own.number(writer::REPLAY_COUNT).unwrap_or_default(),
        key: entry.key.map(|bytes| RecordKey { bytes, uncut }),
    }
}

fn parse_letter(entry: LogEntry, event_id: String, error_class: String) -> DeadLetter {
    let own = DlqHeaders(&entry.headers);
    let PartitionOffset { partition, offset } = entry.position;
    let failed_unix_us = own.time(writer::FAILED_AT).unwrap_or(entry.written_unix_us);
    let uncut_key = own.uncut(writer::KEY_SIZE, writer::KEY_SHA256);
    // Offsets begin again in a topic that is made anew, and consumers remember the ids of replays.
    let place = || format!("@{partition}:{offset}@{}", rfc3339(failed_unix_us));
    DeadLetter {
        position: entry.position,
        event_id: if event_id.is_empty() { place() } else { event_id },
        topic: own.text_or_empty(writer::ORIGINAL_TOPIC),
        exchange: own.text_or_empty(writer::ORIGINAL_EXCHANGE),
        partition: own.number(writer::ORIGINAL_PARTITION),
        error_class,
        error_msg: own.text_or_empty(writer::ERROR_MSG),
        attempts: own.number(writer::ATTEMPTS).unwrap_or_default(),
        failed_unix_us,
        first_failed_unix_us: own.time(writer::FIRST_FAILED_AT).unwrap_or(failed_unix_us),
        lsn: own.text_or_empty(writer::LSN),
        ordinal: own.number(writer::ORDINAL).unwrap_or_default(),
        commit_unix_us: own.time(writer::COMMIT_TS).unwrap_or(failed_unix_us),
        relay: own.text_or_empty(writer::RELAY),
        parks_key: own.is_true(writer::PARKS_KEY),
        incomplete: own.is_true(writer::INCOMPLETE) || uncut_key.is_some() || own.lacks_parts(),
        uncut: own.uncut(writer::VALUE_SIZE, writer::VALUE_SHA256),
        replays: own.number(writer::REPLAY_COUNT).unwrap_or_default(),
        key: entry.key.map(|bytes| RecordKey { bytes, uncut: uncut_key }),
        value: entry.value,
        event_type: entry.event_type,
        content_type: entry.content_type,
        headers: entry
            .headers
            .into_iter()
            .filter(|(name, _)| !name.starts_with(writer::PREFIX))
            .collect(),
    }
}

/// The headers of [`writer`]. A foreign producer may have set some twice; the last one counts.
struct DlqHeaders<'a>(&'a [(String, Vec<u8>)]);

impl DlqHeaders<'_> {
    fn text(&self, name: &str) -> Option<String> {
        let found = self.0.iter().rev().find(|(known, _)| known == name)?;
        Some(String::from_utf8_lossy(&found.1).into_owned())
    }

    fn text_or_empty(&self, name: &str) -> String {
        self.text(name).unwrap_or_default()
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    fn uncut(&self, size: &str, sha256: &str) -> Option<Uncut> {
        Some(Uncut { size_bytes: self.number(size)?, sha256: self.text_or_empty(sha256) })
    }

    /// Were headers left out, or was a text cut without which the event cannot be published?
    fn lacks_parts(&self) -> bool {
        let sizes = writer::NOTED.map(|(_, size, _)| size);
        self.0.iter().map(|(name, _)| name.as_str()).any(|name| {
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
