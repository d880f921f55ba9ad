//! A message: basic.publish, the properties, and the body in frames of the agreed size.

use crate::frame::{self, FrameKind};
use crate::method::ClientMethod;
use crate::wire::{Malformed, Reader, put_length, put_numbers, put_short, put_string};

const BASIC: u16 = 60;
const PERSISTENT: u8 = 2;

// Bits of the properties, in the order in which they are sent.
const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PRIORITY: u16 = 1 << 11;
const CORRELATION_ID: u16 = 1 << 10;
const REPLY_TO: u16 = 1 << 9;
const EXPIRATION: u16 = 1 << 8;
const MESSAGE_ID: u16 = 1 << 7;
const TIMESTAMP: u16 = 1 << 6;
const TYPE: u16 = 1 << 5;
const APP_ID: u16 = 1 << 3;
/// Another word of bits follows.
const CONTINUES: u16 = 1;

/// A persistent message. Names have at most 255 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a, H> {
    pub exchange: &'a str,
    pub routing_key: &'a str,
    pub content_type: Option<&'a str>,
    /// Names that differ, and values, in the order in which they are sent.
    pub headers: H,
    pub message_id: &'a str,
    pub timestamp_unix_s: u64,
    pub kind: Option<&'a str>,
    pub app_id: &'a str,
    pub body: &'a [u8],
}

impl<'a, H: Iterator<Item = (&'a str, &'a [u8])>> Message<'a, H> {
    /// Appends the frames of the message. A body is split into frames of at most `frame_bytes_max`.
    pub fn put(self, channel: u16, frame_bytes_max: usize, out: &mut Vec<u8>) {
        let Message { exchange, routing_key, body, .. } = self;
        ClientMethod::Publish { exchange, routing_key }.put(channel, out);
        frame::put(out, FrameKind::Header, channel, |out| {
            put_numbers(out, [BASIC, 0]);
            out.extend_from_slice(&(body.len() as u64).to_be_bytes());
            self.put_properties(out);
        });
        let part_bytes = frame_bytes_max.saturating_sub(frame::COST_BYTES).max(1);
        for part in body.chunks(part_bytes) {
            frame::put(out, FrameKind::Body, channel, |out| out.extend_from_slice(part));
        }
    }

    fn put_properties(self, out: &mut Vec<u8>) {
        let mut flags = HEADERS | DELIVERY_MODE | MESSAGE_ID | TIMESTAMP | APP_ID;
        if self.content_type.is_some() {
            flags |= CONTENT_TYPE;
        }
        if self.kind.is_some() {
            flags |= TYPE;
        }
        put_numbers(out, [flags]);
        if let Some(name) = self.content_type {
            put_short(out, name.as_bytes());
        }
        put_length(out, |out| {
            for (name, value) in self.headers {
                put_string(out, name.as_bytes(), value);
            }
        });
        out.push(PERSISTENT);
        put_short(out, self.message_id.as_bytes());
        out.extend_from_slice(&self.timestamp_unix_s.to_be_bytes());
        if let Some(name) = self.kind {
            put_short(out, name.as_bytes());
        }
        put_short(out, self.app_id.as_bytes());
    }
}

/// Reads the size of the body and the message id, which may be empty, from the payload of a
/// header's frame.
pub fn read_header(payload: &[u8]) -> Result<(u64, String), Malformed> {
    let mut rest = Reader(payload);
    let (_class_and_weight, size, flags) = (rest.u32()?, rest.u64()?, rest.u16()?);
    let mut more = flags;
    while more & CONTINUES != 0 {
        more = rest.u16()?;
    }
    for bit in [CONTENT_TYPE, CONTENT_ENCODING] {
        if flags & bit != 0 {
            rest.short()?;
        }
    }
    if flags & HEADERS != 0 {
        rest.long()?;
    }
    for bit in [DELIVERY_MODE, PRIORITY] {
        if flags & bit != 0 {
            rest.u8()?;
        }
    }
    for bit in [CORRELATION_ID, REPLY_TO, EXPIRATION] {
        if flags & bit != 0 {
            rest.short()?;
        }
    }
    let id = if flags & MESSAGE_ID != 0 { rest.short()? } else { &[] };
    Ok((size, String::from_utf8_lossy(id).into_owned()))
}
