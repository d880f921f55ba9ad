//! What the broker answers to publishes, among the frames that it sends. Pure: no socket, no clock.

use std::collections::BTreeMap;

use amq_protocol::frame::{AMQPFrame, parse_frame};
use amq_protocol::protocol::{AMQPClass, basic, channel, connection};
use amq_protocol::types::AMQPValue;

use super::answer::{Answer, ReturnedMessage};
use super::connection_loss::ConnectionLoss;

/// Of the properties with which a server introduces itself.
const CLUSTER_NAME: &str = "cluster_name";
pub(super) const METHOD_FRAME: u8 = 1;
pub(super) const HEADER_FRAME: u8 = 2;
pub(super) const BODY_FRAME: u8 = 3;
const HEARTBEAT_FRAME: u8 = 8;
/// Class and method.
const CONNECTION_CLOSE: [u8; 4] = [0, 10, 0, 50];
const CHANNEL_CLOSE: [u8; 4] = [0, 20, 0, 40];
/// Type, channel and length of a frame.
const HEAD_BYTES: usize = 7;
pub(super) const FRAME_END: u8 = 0xCE;
/// What a frame has besides its payload.
pub(super) const FRAME_COST_BYTES: usize = HEAD_BYTES + 1;
const PROTOCOL_HEADER_BYTES: usize = 8;
/// What claims to be larger is no frame. RabbitMQ's default is 128 KiB, but another one may be
/// configured, and on delivery it adds to the headers of a message.
const FRAME_BYTES_MAX: usize = 1024 * 1024;
pub(super) const HEARTBEAT: [u8; FRAME_COST_BYTES] = [HEARTBEAT_FRAME, 0, 0, 0, 0, 0, 0, FRAME_END];

/// What a frame is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FrameMeaning {
    /// On this channel.
    Answer(u16, Answer),
    /// Of a message that is returned.
    Part,
    /// The connection is blocked, or no longer.
    Blocked(bool),
    /// The first of a connection; with the name of the cluster, which may be empty.
    Started(String),
    /// The broker offers frames of so many bytes; 0 if of any size.
    Tuned(u32),
    Closed(ConnectionLoss),
    Other,
}

#[derive(Debug, Default)]
pub(super) struct Answers {
    /// By channel, code and text of the return whose properties are still to come.
    returning: BTreeMap<u16, (u16, String)>,
}

impl Answers {
    /// Reads a whole frame; `channels` are those that are published on.
    pub(super) fn read_frame(&mut self, frame: &[u8], channels: &[u16]) -> FrameMeaning {
        let Some([kind, high, low]) = frame.first_chunk::<3>() else { return FrameMeaning::Other };
        let number = u16::from_be_bytes([*high, *low]);
        let is_ours = channels.contains(&number);
        match *kind {
            BODY_FRAME if is_ours => FrameMeaning::Part,
            METHOD_FRAME | HEADER_FRAME if is_ours || number == 0 => match parse_frame(frame) {
                Ok((_, AMQPFrame::Method(0, AMQPClass::Connection(method)))) => {
                    connection_method(method)
                }
                Ok((_, AMQPFrame::Method(_, method))) if is_ours => {
                    self.channel_method(number, method)
                }
                Ok((_, AMQPFrame::Header(_, header))) if is_ours => {
                    let Some((code, text)) = self.returning.remove(&number) else {
                        return unreadable();
                    };
                    let id = header.properties.message_id();
                    let id = id.as_ref().map(ToString::to_string).unwrap_or_default();
                    let returned = ReturnedMessage { id, code, text };
                    FrameMeaning::Answer(number, Answer::Returned(returned))
                }
                Err(_) => match cut_close(frame, is_ours) {
                    Some(loss) => FrameMeaning::Closed(loss),
                    // It may be a return, and the confirm behind it says nothing of that.
                    None if is_ours => unreadable(),
                    None => FrameMeaning::Other,
                },
                _ => FrameMeaning::Other,
            },
            _ => FrameMeaning::Other,
        }
    }

    fn channel_method(&mut self, number: u16, method: AMQPClass) -> FrameMeaning {
        let confirm = |tag, multiple, acked| {
            FrameMeaning::Answer(number, Answer::Confirm { tag, multiple, acked })
        };
        match method {
            AMQPClass::Basic(basic::AMQPMethod::Ack(ack)) => {
                confirm(ack.delivery_tag, ack.multiple, true)
            }
            AMQPClass::Basic(basic::AMQPMethod::Nack(nack)) => {
                confirm(nack.delivery_tag, nack.multiple, false)
            }
            AMQPClass::Basic(basic::AMQPMethod::Return(returned)) => {
                let returning = (returned.reply_code, returned.reply_text.to_string());
                self.returning.insert(number, returning);
                FrameMeaning::Part
            }
            AMQPClass::Channel(channel::AMQPMethod::Close(close)) => FrameMeaning::Closed(
                ConnectionLoss::refused(close.reply_code, close.reply_text.as_str()),
            ),
            _ => FrameMeaning::Other,
        }
    }
}

fn unreadable() -> FrameMeaning {
    FrameMeaning::Closed(ConnectionLoss::of("the broker sent an answer that cannot be read"))
}

/// The close of the connection or, if the frame is of our channel, of that, whose text is no UTF-8.
/// RabbitMQ cuts a long text after 255 bytes, which may be inside a character.
fn cut_close(frame: &[u8], is_ours: bool) -> Option<ConnectionLoss> {
    let method = frame.get(HEAD_BYTES..).filter(|_| frame[0] == METHOD_FRAME)?;
    let (ids, rest) = method.split_first_chunk::<4>()?;
    let is_close = if is_ours { *ids == CHANNEL_CLOSE } else { *ids == CONNECTION_CLOSE };
    let (code, rest) = rest.split_first_chunk::<2>().filter(|_| is_close)?;
    let (length, rest) = rest.split_first()?;
    let text = String::from_utf8_lossy(rest.get(..usize::from(*length))?);
    Some(ConnectionLoss::refused(u16::from_be_bytes(*code), &text))
}

/// A method of the connection.
fn connection_method(method: connection::AMQPMethod) -> FrameMeaning {
    match method {
        connection::AMQPMethod::Start(start) => {
            let name = start.server_properties.inner().get(CLUSTER_NAME);
            let name = name.and_then(AMQPValue::as_long_string).map(ToString::to_string);
            FrameMeaning::Started(name.unwrap_or_default())
        }
        connection::AMQPMethod::Tune(tune) => FrameMeaning::Tuned(tune.frame_max),
        connection::AMQPMethod::Blocked(_) => FrameMeaning::Blocked(true),
        connection::AMQPMethod::Unblocked(_) => FrameMeaning::Blocked(false),
        connection::AMQPMethod::Close(close) => FrameMeaning::Closed(ConnectionLoss::refused(
            close.reply_code,
            close.reply_text.as_str(),
        )),
        _ => FrameMeaning::Other,
    }
}

/// The length of the first frame, if it is whole. All bytes count as one if they begin with no
/// frame: whoever reads them finds that.
pub(super) fn frame_length(bytes: &[u8]) -> Option<usize> {
    let length = match bytes.first()? {
        b'A' => PROTOCOL_HEADER_BYTES,
        &METHOD_FRAME | &HEADER_FRAME | &BODY_FRAME | &HEARTBEAT_FRAME => {
            let size = bytes.get(3..HEAD_BYTES)?.first_chunk::<4>()?;
            FRAME_COST_BYTES + u32::from_be_bytes(*size) as usize
        }
        _ => return Some(bytes.len()),
    };
    if length > FRAME_BYTES_MAX {
        return Some(bytes.len());
    }
    (bytes.len() >= length).then_some(length)
}

#[cfg(test)]
#[path = "answers_tests.rs"]
mod tests;
