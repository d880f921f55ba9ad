//! What the bare publisher publishes: byte for byte as much as the relay.

use std::time::{SystemTime, UNIX_EPOCH};

use walrelay_harness::rabbit::Delivery;
use walrelay_harness::{HarnessError, Result};

use crate::bare::payload;

const HEADER_FRAME: u8 = 2;
const BODY_FRAME: u8 = 3;
const FRAME_END: u8 = 0xCE;
const BASIC: u16 = 60;
const PUBLISH: u16 = 40;
const MANDATORY: u8 = 1;
const PERSISTENT: u8 = 2;
/// content_type, headers, delivery_mode, message_id, timestamp, type, app_id.
const FLAGS: u16 = 1 << 15 | 1 << 13 | 1 << 12 | 1 << 7 | 1 << 6 | 1 << 5 | 1 << 3;
const CONTENT_TYPE: &str = "application/json";
const EVENT_TYPE: &str = "created";
const APP_ID: &str = "walrelay";
const ID: &str = "00000000-0000-4000-8000-000000000000";
/// Digits of an id that differ.
const ID_DIGITS: usize = 12;
/// The headers of the default preset, with values of the usual length.
const HEADERS: [(&str, &str); 5] = [
    ("commit_ts", "2026-01-01T00:00:00.000000Z"),
    ("event_type", EVENT_TYPE),
    ("id", ID),
    ("key", "key-500"),
    ("lsn", "0/12345678"),
];
/// Keys, positions and numbers differ by a digit or two.
const SLACK_BYTES: usize = 4;

/// A message but for its body and the end of its id.
pub(crate) struct Shape {
    head: Vec<u8>,
    id_at: usize,
    size_at: usize,
}

impl Shape {
    pub(crate) fn new(exchange: &str, routing_key: &str) -> Shape {
        let mut head = Vec::new();
        put_frame(&mut head, super::METHOD_FRAME, super::CHANNEL, |out| {
            out.extend(BASIC.to_be_bytes());
            out.extend(PUBLISH.to_be_bytes());
            out.extend([0, 0]);
            put_short(out, exchange);
            put_short(out, routing_key);
            out.push(MANDATORY);
        });
        let (mut id_at, mut size_at) = (0, 0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        put_frame(&mut head, HEADER_FRAME, super::CHANNEL, |out| {
            out.extend(BASIC.to_be_bytes());
            out.extend([0, 0]);
            size_at = out.len();
            out.extend([0; 8]);
            out.extend(FLAGS.to_be_bytes());
            put_short(out, CONTENT_TYPE);
            put_headers(out);
            out.push(PERSISTENT);
            put_short(out, ID);
            id_at = out.len() - ID_DIGITS;
            out.extend(now.as_secs().to_be_bytes());
            put_short(out, EVENT_TYPE);
            put_short(out, APP_ID);
        });
        Shape { head, id_at, size_at }
    }

    /// Appends the message.
    pub(super) fn put(&mut self, number: u64, body: &[u8], out: &mut Vec<u8>) {
        let mut rest = number;
        for digit in self.head[self.id_at..][..ID_DIGITS].iter_mut().rev() {
            *digit = b"0123456789abcdef"[(rest & 15) as usize];
            rest >>= 4;
        }
        self.head[self.size_at..][..8].copy_from_slice(&(body.len() as u64).to_be_bytes());
        out.extend(&self.head);
        put_frame(out, BODY_FRAME, super::CHANNEL, |out| out.extend(body));
    }

    /// Is what the relay published the same load?
    pub(crate) fn compare(relay: &Delivery) -> Result<()> {
        let properties = &relay.properties;
        let names = [
            (properties.content_type.as_deref(), CONTENT_TYPE),
            (properties.kind.as_deref(), EVENT_TYPE),
            (properties.app_id.as_deref(), APP_ID),
        ];
        let mut same = names.iter().all(|(relay, ours)| *relay == Some(*ours));
        same &= properties.message_id.as_ref().is_some_and(|id| id.len() == ID.len());
        same &= properties.delivery_mode == Some(PERSISTENT) && properties.timestamp_s.is_some();
        same &= properties.headers.len() == HEADERS.len();
        same &= HEADERS.iter().all(|(name, value)| {
            let relay = properties.header(name);
            relay.is_some_and(|relay| relay.len().abs_diff(value.len()) <= SLACK_BYTES)
        });
        same &= relay.body.len().abs_diff(payload(0).len()) <= SLACK_BYTES + 4;
        let other = || {
            let bytes = relay.body.len();
            HarnessError::Other(format!(
                "the relay publishes otherwise: {properties:?}, {bytes} bytes"
            ))
        };
        if same { Ok(()) } else { Err(other()) }
    }
}

fn put_headers(out: &mut Vec<u8>) {
    let at = out.len();
    out.extend([0; 4]);
    for (name, value) in HEADERS {
        put_short(out, name);
        out.push(b'S');
        put_long(out, value.as_bytes());
    }
    end_length(out, at);
}

/// Writes a frame whose payload `fill` appends.
pub(super) fn put_frame(
    out: &mut Vec<u8>,
    kind: u8,
    channel: u16,
    fill: impl FnOnce(&mut Vec<u8>),
) {
    out.push(kind);
    out.extend(channel.to_be_bytes());
    let at = out.len();
    out.extend([0; 4]);
    fill(out);
    end_length(out, at);
    out.push(FRAME_END);
}

/// A name of at most 255 bytes.
pub(super) fn put_short(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.extend(text.as_bytes());
}

pub(super) fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(bytes);
}

/// Writes the length of all that follows into the four bytes at `at`.
fn end_length(out: &mut [u8], at: usize) {
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}
