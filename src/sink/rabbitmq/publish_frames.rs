//! The frames of a publish: basic.publish, the properties, the body.
//!
//! Written here because `amq-protocol` needs an allocation for each name and value. The bytes are
//! those that it would write.

use std::collections::BTreeMap;

use super::answers::{BODY_FRAME, FRAME_COST_BYTES, FRAME_END, HEADER_FRAME, METHOD_FRAME};
use super::message::AmqpMessage;

const BASIC: u16 = 60;
const PUBLISH: u16 = 40;
const MANDATORY: u8 = 1;
const PERSISTENT: u8 = 2;
const APP_ID: &str = "walrelay";
const LONG_STRING: u8 = b'S';

// Bits of the properties that are sent.
const CONTENT_TYPE: u16 = 1 << 15;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const MESSAGE_ID: u16 = 1 << 7;
const TIMESTAMP: u16 = 1 << 6;
const TYPE: u16 = 1 << 5;
const APP: u16 = 1 << 3;

/// Appends a message to what is sent on `channel`. Its `timestamp` is the time of this publish.
pub(super) fn put_publish(
    message: &AmqpMessage,
    now_unix_s: u64,
    channel: u16,
    frame_bytes_max: usize,
    frames: &mut Vec<u8>,
) {
    let (body, parts_bytes) = (message.body(), frame_bytes_max.saturating_sub(FRAME_COST_BYTES));
    put_frame(frames, METHOD_FRAME, channel, |out| {
        put_numbers(out, [BASIC, PUBLISH, 0]);
        put_short(out, message.exchange());
        put_short(out, message.routing_key());
        out.push(MANDATORY);
    });
    put_frame(frames, HEADER_FRAME, channel, |out| {
        put_numbers(out, [BASIC, 0]);
        out.extend((body.len() as u64).to_be_bytes());
        put_properties(out, message, now_unix_s);
    });
    for part in body.chunks(parts_bytes.max(1)) {
        put_frame(frames, BODY_FRAME, channel, |out| out.extend(part));
    }
}

fn put_properties(out: &mut Vec<u8>, message: &AmqpMessage, now_unix_s: u64) {
    let (content_type, event_type) = (message.content_type(), message.event_type());
    let optional = [(content_type, CONTENT_TYPE), (event_type, TYPE)];
    let present = optional.iter().filter(|(name, _)| name.is_some()).map(|(_, flag)| flag);
    let always = HEADERS | DELIVERY_MODE | MESSAGE_ID | TIMESTAMP | APP;
    put_numbers(out, [present.fold(always, |flags, flag| flags | flag)]);
    if let Some(name) = content_type {
        put_short(out, name);
    }
    put_length(out, |out| {
        // Of headers of one name the last is sent.
        let headers: BTreeMap<&str, &[u8]> = message.headers_and_key().collect();
        for (name, value) in headers {
            put_short(out, name);
            out.push(LONG_STRING);
            put_length(out, |out| out.extend(value));
        }
    });
    out.push(PERSISTENT);
    put_short(out, message.id());
    out.extend(now_unix_s.to_be_bytes());
    if let Some(name) = event_type {
        put_short(out, name);
    }
    put_short(out, APP_ID);
}

fn put_frame(out: &mut Vec<u8>, kind: u8, channel: u16, payload: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    put_numbers(out, [channel]);
    put_length(out, payload);
    out.push(FRAME_END);
}

/// Puts what `fill` appends behind its length.
fn put_length(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend([0; 4]);
    fill(out);
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// A name, whose length was checked.
fn put_short(out: &mut Vec<u8>, name: &str) {
    out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    out.extend(name.as_bytes());
}

fn put_numbers<const N: usize>(out: &mut Vec<u8>, numbers: [u16; N]) {
    numbers.iter().for_each(|number| out.extend(number.to_be_bytes()));
}

#[cfg(test)]
#[path = "publish_frames_tests.rs"]
mod tests;
