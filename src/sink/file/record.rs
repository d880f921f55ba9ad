//! One record as a line of JSON, in the shape of `kcat -J`:
//! `{"topic":"orders","ts":1700000000000,"headers":["id","7"],"key":"a","payload":"{}"}`.
//!
//! Bytes that are valid UTF-8 are a string, other bytes are `{"base64":"…"}`, and NULL is `null`,
//! so a line loses nothing. It never contains a NUL byte: JSON escapes it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::base::event::Outbound;
use crate::dead_letter::record::{LogEntry, PartitionOffset};

/// How every line begins.
pub(super) const BEGINNING: &[u8] = br#"{"topic":""#;

#[derive(Serialize, Deserialize)]
struct Record<'a> {
    topic: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<i32>,
    /// When it was published, milliseconds since the Unix epoch.
    ts: i64,
    /// Names and values in turns.
    headers: Vec<Data<'a>>,
    key: Option<Data<'a>>,
    payload: Option<Data<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Data<'a> {
    Text(Cow<'a, str>),
    Binary { base64: Cow<'a, str> },
}

impl<'a> From<&'a [u8]> for Data<'a> {
    fn from(bytes: &'a [u8]) -> Data<'a> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Data::Text(text.into()),
            Err(_) => Data::Binary { base64: STANDARD.encode(bytes).into() },
        }
    }
}

impl Data<'_> {
    fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Data::Text(text) => Some(text.into_owned().into_bytes()),
            Data::Binary { base64 } => STANDARD.decode(base64.as_bytes()).ok(),
        }
    }
}

/// The line of an event that is published now, with its newline.
pub(super) fn write(event: &Outbound<'_>, now_unix_us: i64) -> Result<Vec<u8>, serde_json::Error> {
    let headers = event.headers.iter().flat_map(|(name, value)| [name.as_bytes(), value]);
    let record = Record {
        topic: event.topic.into(),
        partition: event.partition,
        ts: now_unix_us.div_euclid(1000),
        headers: headers.map(Data::from).collect(),
        key: event.key.map(Data::from),
        payload: event.value.map(Data::from),
    };
    let mut line = serde_json::to_vec(&record)?;
    line.push(b'\n');
    Ok(line)
}

/// The record that stands at `offset`; empty if the line is not one of ours.
pub(super) fn read(line: &[u8], offset: u64) -> LogEntry {
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let position = PartitionOffset { partition: 0, offset };
    parse(line, position).unwrap_or(LogEntry { position, ..LogEntry::default() })
}

fn parse(line: &[u8], position: PartitionOffset) -> Option<LogEntry> {
    let record: Record<'_> = serde_json::from_slice(line).ok()?;
    let data = |data: Option<Data<'_>>| data.map_or(Some(None), |data| data.bytes().map(Some));
    let mut headers = Vec::new();
    let mut rest = record.headers.into_iter();
    while let (Some(name), Some(value)) = (rest.next(), rest.next()) {
        headers.push((String::from_utf8(name.bytes()?).ok()?, value.bytes()?));
    }
    Some(LogEntry {
        position,
        written_unix_us: record.ts.saturating_mul(1000),
        key: data(record.key)?,
        value: data(record.payload)?,
        headers,
        ..LogEntry::default()
    })
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
