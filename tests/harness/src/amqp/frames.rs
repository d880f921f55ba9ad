//! Frames out of a stream of bytes, and messages out of frames.

use super::wire::{Properties, Reader};

const END: u8 = 0xCE;
const HEAD_BYTES: usize = 7;
/// Above what any broker agrees to.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// Class and method.
pub(crate) type Method = (u16, u16);

/// What a frame holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// A method and its arguments.
    Method(Method, Vec<u8>),
    /// What is before a body, and the body's length.
    Header(Properties, u64),
    /// A piece of a body.
    Body(Vec<u8>),
    Heartbeat,
}

/// A frame and its channel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) channel: u16,
    pub(crate) content: Content,
}

/// Not AMQP.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// Bytes as they come, whole frames as they are complete.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    at: usize,
}

impl Frames {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.at));
        self.bytes.extend(bytes);
    }

    /// The next whole frame.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Garbled> {
        let mut reader = Reader(&self.bytes[self.at..]);
        let head = (reader.u8(), reader.u16(), reader.u32());
        let (Some(kind), Some(channel), Some(size)) = head else { return Ok(None) };
        let size = size as usize;
        if size > FRAME_BYTES_MAX {
            return Err(Garbled);
        }
        let (Some(payload), Some(end)) = (reader.take(size), reader.u8()) else { return Ok(None) };
        if end != END {
            return Err(Garbled);
        }
        let content = content(kind, payload).ok_or(Garbled)?;
        self.at += HEAD_BYTES + size + 1;
        Ok(Some(Frame { channel, content }))
    }
}

fn content(kind: u8, payload: &[u8]) -> Option<Content> {
    let mut reader = Reader(payload);
    Some(match kind {
        1 => {
            let method = (reader.u16()?, reader.u16()?);
            Content::Method(method, reader.0.to_vec())
        }
        2 => {
            // Class and weight say nothing.
            reader.take(4)?;
            let length = reader.u64()?;
            Content::Header(Properties::read(&mut reader)?, length)
        }
        3 => Content::Body(payload.to_vec()),
        8 => Content::Heartbeat,
        _ => return None,
    })
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
    let size = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&size.to_be_bytes());
    out.push(END);
}

pub(super) fn put_method(out: &mut Vec<u8>, channel: u16, method: Method, arguments: &[u8]) {
    put_frame(out, 1, channel, |out| {
        out.extend(method.0.to_be_bytes());
        out.extend(method.1.to_be_bytes());
        out.extend(arguments);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_however_the_bytes_come() {
        let mut bytes = Vec::new();
        put_method(&mut bytes, 1, (60, 80), &[0, 0, 0, 0, 0, 0, 0, 9, 1]);
        put_frame(&mut bytes, 8, 0, |_| {});
        put_frame(&mut bytes, 3, 1, |out| out.extend([0xCE; 5]));
        let want = [
            (1, Content::Method((60, 80), vec![0, 0, 0, 0, 0, 0, 0, 9, 1])),
            (0, Content::Heartbeat),
            (1, Content::Body(vec![0xCE; 5])),
        ];
        for step in 1..=bytes.len() {
            let mut frames = Frames::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(step) {
                frames.push(piece);
                while let Some(frame) = frames.next().unwrap() {
                    got.push((frame.channel, frame.content));
                }
            }
            assert_eq!(got, want, "in steps of {step}");
        }
    }

    #[test]
    fn a_frame_without_its_end_is_garbled() {
        let mut frames = Frames::default();
        frames.push(&[8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(frames.next(), Err(Garbled));
        let mut frames = Frames::default();
        frames.push(b"HTTP/1.1 400");
        assert_eq!(frames.next(), Err(Garbled));
    }
}
