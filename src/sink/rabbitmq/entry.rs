//! A record of the dead-letter queue as it was written: key, headers and body out of an AMQP message.

use lapin::message::Delivery;
use lapin::types::{AMQPValue, ShortString};

use super::log::OFFSET;
use super::message::KEY_HEADER;
use crate::dead_letter::record::{LogEntry, PartitionOffset};
use crate::dead_letter::writer::TYPE;

/// A record as it was written; none without a place in a stream.
pub(super) fn entry(record: Delivery) -> Option<LogEntry> {
    let properties = record.properties;
    let text = |text: &Option<ShortString>| text.as_ref().map(ToString::to_string);
    let mut entry = LogEntry {
        written_unix_us: properties.timestamp().map_or(0, microseconds),
        value: Some(record.data).filter(|value| !value.is_empty()),
        event_type: text(properties.kind()),
        content_type: text(properties.content_type()),
        ..LogEntry::default()
    };
    let mut offset = None;
    for (name, value) in properties.headers().as_ref()?.inner() {
        match (name.as_str(), value) {
            (OFFSET, AMQPValue::LongLongInt(found)) => offset = Some(*found),
            (KEY_HEADER, value) => entry.key = bytes(value),
            (TYPE, value) => {
                let long = bytes(value).unwrap_or_default();
                entry.event_type = Some(String::from_utf8_lossy(&long).into_owned());
            }
            (name, value) => {
                entry.headers.extend(bytes(value).map(|bytes| (name.to_owned(), bytes)));
            }
        }
    }
    entry.position = PartitionOffset { partition: 0, offset: offset? };
    Some(entry)
}

fn microseconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or_default().saturating_mul(1_000_000)
}

/// What we write comes back as text, and from later brokers as bytes where it is no text. Numbers
/// and tables are not ours.
fn bytes(value: &AMQPValue) -> Option<Vec<u8>> {
    match value {
        AMQPValue::LongString(text) => Some(text.as_bytes().to_vec()),
        AMQPValue::ShortString(text) => Some(text.as_str().as_bytes().to_vec()),
        AMQPValue::ByteArray(bytes) => Some(bytes.as_slice().to_vec()),
        _ => None,
    }
}
