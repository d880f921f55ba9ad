//! Frames: where one ends, and how one is written.

use crate::wire::{Malformed, put_length, put_numbers};

/// With which a client introduces itself.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";

const END: u8 = 0xCE;
/// Type, channel and length.
const HEAD_BYTES: usize = 7;
/// The bytes of a frame besides its payload.
pub const COST_BYTES: usize = HEAD_BYTES + 1;
/// A larger frame is refused. RabbitMQ's default is 128 KiB, but another one may be configured, and
/// on delivery it adds to the headers of a message.
const BYTES_MAX: usize = 1024 * 1024;

pub const HEARTBEAT_FRAME: [u8; COST_BYTES] = [FrameKind::Heartbeat as u8, 0, 0, 0, 0, 0, 0, END];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    Method = 1,
    /// The size and the properties of a message.
    Header = 2,
    Body = 3,
    Heartbeat = 8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: FrameKind,
    /// 0 is the connection itself.
    pub channel: u16,
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first frame, if all of it has arrived, and its length.
    pub fn split(bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, Malformed> {
        let kind = match bytes.first() {
            None => return Ok(None),
            Some(1) => FrameKind::Method,
            Some(2) => FrameKind::Header,
            Some(3) => FrameKind::Body,
            Some(8) => FrameKind::Heartbeat,
            Some(b'A') => return Err(Malformed::OtherVersion),
            Some(_) => return Err(Malformed::Frame),
        };
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [_, channel @ .., a, b, c, d] = *head;
        let size = u32::from_be_bytes([a, b, c, d]) as usize;
        if size > BYTES_MAX - COST_BYTES {
            return Err(Malformed::TooLarge);
        }
        match (rest.get(..size), rest.get(size)) {
            (Some(payload), Some(&END)) => {
                let channel = u16::from_be_bytes(channel);
                Ok(Some((Frame { kind, channel, payload }, size + COST_BYTES)))
            }
            (_, Some(_)) => Err(Malformed::Frame),
            _ => Ok(None),
        }
    }
}

/// Appends a frame with the payload that `fill` appends.
pub fn put(out: &mut Vec<u8>, kind: FrameKind, channel: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind as u8);
    put_numbers(out, [channel]);
    put_length(out, fill);
    out.push(END);
}
