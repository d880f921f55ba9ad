//! The state of an open connection: its channels, one question at a time, and heartbeats.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::content::read_header;
use crate::frame::{Frame, FrameKind, HEARTBEAT_FRAME};
use crate::login::Agreed;
use crate::method::{ClientMethod, Reply, ServerMethod};
use crate::wire::Malformed;

/// Which answers of the server matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An ack or a nack, of all messages up to the tag if `multiple`.
    Confirm {
        channel: u16,
        tag: u64,
        multiple: bool,
        acked: bool,
    },
    /// Comes before the confirm of the message.
    Returned {
        channel: u16,
        message_id: String,
        code: u16,
        text: String,
    },
    Blocked(String),
    Unblocked,
    /// The channel is in confirm mode.
    ChannelOpened(u16),
    /// The answer to [`Session::ask`], or code and text of the refusal.
    Answered(Result<(), (u16, String)>),
    /// The server has closed a channel that is published on.
    ChannelClosed {
        code: u16,
        text: String,
    },
    /// The server has closed the connection.
    Closed {
        code: u16,
        text: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChannelState {
    Opening,
    Publishing,
    /// A question about an exchange, or anything that the server answers.
    Asking {
        is_named: bool,
    },
    /// Closed by this side, and not yet by the server: what still arrives has no meaning.
    Closing,
}

/// The next frames of a message that the server returns on a channel.
#[derive(Debug)]
enum ReturnFrames {
    /// The properties. The code and the text of the return have arrived.
    Header(u16, String),
    /// So many bytes of the body.
    Body(u64),
}

#[derive(Debug)]
pub struct Session {
    agreed: Agreed,
    channels: BTreeMap<u16, ChannelState>,
    /// The returns that have arrived in part, by channel.
    returns: BTreeMap<u16, ReturnFrames>,
    /// The exchange of a question that waits for the number of a channel.
    waiting_question: Option<String>,
    written_at: Instant,
    read_at: Instant,
}

impl Session {
    pub fn new(agreed: Agreed, now: Instant) -> Session {
        Session {
            agreed,
            channels: BTreeMap::new(),
            returns: BTreeMap::new(),
            waiting_question: None,
            written_at: now,
            read_at: now,
        }
    }

    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// Takes a frame, and appends the answer, if the protocol wants one.
    pub fn take(
        &mut self,
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Malformed> {
        match frame.kind {
            FrameKind::Method => {
                self.take_method(frame.channel, ServerMethod::read(frame.payload)?, out)
            }
            FrameKind::Header => self.take_header(frame),
            FrameKind::Body => self.take_body(frame),
            FrameKind::Heartbeat => Ok(None),
        }
    }

    fn publishes_on(&self, channel: u16) -> bool {
        self.channels.get(&channel) == Some(&ChannelState::Publishing)
    }

    fn take_header(&mut self, frame: Frame<'_>) -> Result<Option<Event>, Malformed> {
        let channel = frame.channel;
        if !self.publishes_on(channel) {
            return Ok(None);
        }
        let Some(ReturnFrames::Header(code, text)) = self.returns.remove(&channel) else {
            return Err(Malformed::Order);
        };
        let (body_bytes, message_id) = read_header(frame.payload)?;
        if body_bytes > 0 {
            self.returns.insert(channel, ReturnFrames::Body(body_bytes));
        }
        Ok(Some(Event::Returned { channel, message_id, code, text }))
    }

    fn take_body(&mut self, frame: Frame<'_>) -> Result<Option<Event>, Malformed> {
        if !self.publishes_on(frame.channel) {
            return Ok(None);
        }
        let Some(ReturnFrames::Body(bytes)) = self.returns.get_mut(&frame.channel) else {
            return Err(Malformed::Order);
        };
        let left = bytes.checked_sub(frame.payload.len() as u64).ok_or(Malformed::Order)?;
        *bytes = left;
        if left == 0 {
            self.returns.remove(&frame.channel);
        }
        Ok(None)
    }

    fn take_method(
        &mut self,
        channel: u16,
        method: ServerMethod<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Malformed> {
        let state = self.channels.get(&channel).copied();
        if self.returns.contains_key(&channel) && !matches!(method, ServerMethod::ChannelClose(_)) {
            return Err(Malformed::Order);
        }
        Ok(match method {
            ServerMethod::Confirm { tag, multiple, acked } => self
                .publishes_on(channel)
                .then_some(Event::Confirm { channel, tag, multiple, acked }),
            ServerMethod::Return(Reply { code, text }) => {
                if self.publishes_on(channel) {
                    let header = ReturnFrames::Header(code, text.into_owned());
                    self.returns.insert(channel, header);
                }
                None
            }
            ServerMethod::Blocked(reason) => Some(Event::Blocked(reason.into_owned())),
            ServerMethod::Unblocked => Some(Event::Unblocked),
            ServerMethod::ConfirmSelectOk if state == Some(ChannelState::Opening) => {
                self.channels.insert(channel, ChannelState::Publishing);
                Some(Event::ChannelOpened(channel))
            }
            ServerMethod::ChannelOpenOk | ServerMethod::ExchangeDeclareOk => {
                let is_named = method == ServerMethod::ExchangeDeclareOk;
                let is_answer = state == Some(ChannelState::Asking { is_named });
                is_answer.then(|| {
                    ClientMethod::ChannelClose.put(channel, out);
                    self.channels.insert(channel, ChannelState::Closing);
                    Event::Answered(Ok(()))
                })
            }
            ServerMethod::ChannelClose(reply) => {
                ClientMethod::ChannelCloseOk.put(channel, out);
                self.take_channel_close(channel, reply)
            }
            ServerMethod::ChannelCloseOk if state == Some(ChannelState::Closing) => {
                self.channels.remove(&channel);
                if let Some(exchange) = self.waiting_question.take() {
                    self.ask(&exchange, out);
                }
                None
            }
            ServerMethod::Close(Reply { code, text }) => {
                ClientMethod::CloseOk.put(0, out);
                Some(Event::Closed { code, text: text.into_owned() })
            }
            _ => None,
        })
    }

    fn take_channel_close(&mut self, channel: u16, reply: Reply<'_>) -> Option<Event> {
        let Reply { code, text } = reply;
        let text = text.into_owned();
        self.returns.remove(&channel);
        match self.channels.get(&channel)? {
            ChannelState::Asking { .. } => {
                self.channels.remove(&channel);
                Some(Event::Answered(Err((code, text))))
            }
            ChannelState::Opening | ChannelState::Publishing => {
                self.channels.remove(&channel);
                Some(Event::ChannelClosed { code, text })
            }
            // Both sides have closed it at once: the server still answers the close of this side.
            ChannelState::Closing => None,
        }
    }

    /// Opens a channel in confirm mode: [`Event::ChannelOpened`] follows. False if the server allows
    /// no more channels.
    pub fn open_channel(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(channel) = self.open(ChannelState::Opening, out) else { return false };
        ClientMethod::ConfirmSelect.put(channel, out);
        true
    }

    /// Asks whether an exchange exists, or without a name anything that the server answers:
    /// [`Event::Answered`] follows. The question has a channel of its own, which the server closes
    /// if the answer is no. The question waits if it needs the number of a channel that is being
    /// closed. False if the server allows no more channels.
    pub fn ask(&mut self, exchange: &str, out: &mut Vec<u8>) -> bool {
        let is_named = !exchange.is_empty();
        let Some(channel) = self.open(ChannelState::Asking { is_named }, out) else {
            let waits = self.channels.values().any(|state| *state == ChannelState::Closing);
            self.waiting_question = waits.then(|| exchange.to_owned());
            return waits;
        };
        if is_named {
            ClientMethod::ExchangeDeclarePassive { exchange }.put(channel, out);
        }
        true
    }

    fn open(&mut self, state: ChannelState, out: &mut Vec<u8>) -> Option<u16> {
        let mut numbers = 1..=self.agreed.tuning.channel_max;
        let channel = numbers.find(|number| !self.channels.contains_key(number))?;
        self.channels.insert(channel, state);
        ClientMethod::ChannelOpen.put(channel, out);
        Some(channel)
    }

    /// Appends the last frame of a connection that ends in good order.
    pub fn close(&self, out: &mut Vec<u8>) {
        ClientMethod::Close.put(0, out);
    }

    /// Notes that the socket has taken bytes.
    pub fn note_write(&mut self, now: Instant) {
        self.written_at = now;
    }

    /// Notes that bytes have arrived.
    pub fn note_read(&mut self, now: Instant) {
        self.read_at = now;
    }

    fn heartbeat(&self) -> Option<Duration> {
        let seconds = self.agreed.tuning.heartbeat_s;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// Appends a heartbeat if one is due, and nothing else is to be written.
    pub fn put_heartbeat(&self, now: Instant, out: &mut Vec<u8>) {
        let silence = now.saturating_duration_since(self.written_at);
        if out.is_empty() && self.heartbeat().is_some_and(|heartbeat| silence >= heartbeat / 2) {
            out.extend_from_slice(&HEARTBEAT_FRAME);
        }
    }

    /// Whether nothing has arrived for two heartbeats: the connection is dead. To be called after
    /// what has arrived was read.
    pub fn is_silent(&self, now: Instant) -> bool {
        let silence = now.saturating_duration_since(self.read_at);
        self.heartbeat().is_some_and(|heartbeat| silence >= 2 * heartbeat)
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
