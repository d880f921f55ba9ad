//! One record as a line of JSON, in the shape of `kcat -J`:
//! `{"topic":"orders","ts":1700000000000,"headers":["id","7"],"key":"a","payload":"{}"}`.
//!
//! Bytes that are valid UTF-8 are a string, other bytes are `{"base64":"…"}`, and NULL is `null`,
//! so a line loses nothing. It never contains a NUL byte: JSON escapes it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::base::event::Outbound;

#[derive(Serialize)]
struct Record<'a> {
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<i32>,
    /// When it was published, milliseconds since the Unix epoch.
    ts: i64,
    /// Names and values in turns.
    headers: Vec<Data<'a>>,
    key: Option<Data<'a>>,
    payload: Option<Data<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Text(&'a str),
    Binary { base64: String },
}

impl<'a> From<&'a [u8]> for Data<'a> {
    fn from(bytes: &'a [u8]) -> Data<'a> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Data::Text(text),
            Err(_) => Data::Binary { base64: STANDARD.encode(bytes) },
        }
    }
}

/// The line of an event that is published now, with its newline.
pub(super) fn write(event: &Outbound<'_>, now_unix_us: i64) -> Result<Vec<u8>, serde_json::Error> {
    let headers = event.headers.iter().flat_map(|(name, value)| [name.as_bytes(), value]);
    let record = Record {
        topic: event.topic,
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

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
