//! An open connection: its channels, one question at a time, heartbeats, and what the server says.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::content::read_header;
use crate::frame::{Frame, FrameKind, HEARTBEAT_FRAME};
use crate::login::Agreed;
use crate::method::{ClientMethod, Reply, ServerMethod, Tuning};
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
    /// The answer to [`Session::ask`]: none is yes.
    Answered(Option<(u16, String)>),
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
    /// Closed by this side: what still arrives has no meaning.
    Closing,
}

/// The code and the text of a return whose properties are still to come.
type Returning = (u16, String);

#[derive(Debug)]
pub struct Session {
    agreed: Agreed,
    channels: BTreeMap<u16, ChannelState>,
    returning: BTreeMap<u16, Returning>,
    sent_at: Instant,
    heard_at: Instant,
}

impl Session {
    pub fn new(agreed: Agreed, now: Instant) -> Session {
        let (channels, returning) = (BTreeMap::new(), BTreeMap::new());
        Session { agreed, channels, returning, sent_at: now, heard_at: now }
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
                self.method(frame.channel, ServerMethod::read(frame.payload)?, out)
            }
            FrameKind::Header => self.header(frame),
            // The body of a message that is returned.
            FrameKind::Body | FrameKind::Heartbeat => Ok(None),
        }
    }

    fn header(&mut self, frame: Frame<'_>) -> Result<Option<Event>, Malformed> {
        let channel = frame.channel;
        if self.channels.get(&channel) != Some(&ChannelState::Publishing) {
            return Ok(None);
        }
        let (code, text) = self.returning.remove(&channel).ok_or(Malformed::Frame)?;
        let (_, message_id) = read_header(frame.payload)?;
        Ok(Some(Event::Returned { channel, message_id, code, text }))
    }

    fn method(
        &mut self,
        channel: u16,
        method: ServerMethod<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Malformed> {
        let state = self.channels.get(&channel).copied();
        let confirm = |tag, multiple, acked| {
            let is_ours = state == Some(ChannelState::Publishing);
            is_ours.then_some(Event::Confirm { channel, tag, multiple, acked })
        };
        Ok(match method {
            ServerMethod::Ack { tag, multiple } => confirm(tag, multiple, true),
            ServerMethod::Nack { tag, multiple } => confirm(tag, multiple, false),
            ServerMethod::Return(Reply { code, text }) => {
                self.returning.insert(channel, (code, text.into_owned()));
                None
            }
            ServerMethod::Blocked(reason) => Some(Event::Blocked(reason.into_owned())),
            ServerMethod::Unblocked => Some(Event::Unblocked),
            ServerMethod::ConfirmSelectOk if state == Some(ChannelState::Opening) => {
                self.channels.insert(channel, ChannelState::Publishing);
                Some(Event::ChannelOpened(channel))
            }
            ServerMethod::ChannelOpenOk
                if state == Some(ChannelState::Asking { is_named: false }) =>
            {
                Some(self.answered(channel, out))
            }
            ServerMethod::ExchangeDeclareOk
                if state == Some(ChannelState::Asking { is_named: true }) =>
            {
                Some(self.answered(channel, out))
            }
            ServerMethod::ChannelClose(reply) => {
                ClientMethod::ChannelCloseOk.put(channel, out);
                self.channel_closed(channel, reply)
            }
            ServerMethod::ChannelCloseOk => {
                self.channels.remove(&channel);
                None
            }
            ServerMethod::Close(Reply { code, text }) => {
                ClientMethod::CloseOk.put(0, out);
                Some(Event::Closed { code, text: text.into_owned() })
            }
            _ => None,
        })
    }

    /// The server has answered what was asked on this channel, which is closed.
    fn answered(&mut self, channel: u16, out: &mut Vec<u8>) -> Event {
        ClientMethod::ChannelClose.put(channel, out);
        self.channels.insert(channel, ChannelState::Closing);
        Event::Answered(None)
    }

    fn channel_closed(&mut self, channel: u16, reply: Reply<'_>) -> Option<Event> {
        let Reply { code, text } = reply;
        let text = text.into_owned();
        match self.channels.remove(&channel)? {
            ChannelState::Asking { .. } => Some(Event::Answered(Some((code, text)))),
            ChannelState::Opening | ChannelState::Publishing => {
                Some(Event::ChannelClosed { code, text })
            }
            // Both sides have closed it at once.
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
    /// if the answer is no. False if the server allows no more channels.
    pub fn ask(&mut self, exchange: &str, out: &mut Vec<u8>) -> bool {
        let is_named = !exchange.is_empty();
        let Some(channel) = self.open(ChannelState::Asking { is_named }, out) else {
            return false;
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

    /// Bytes were sent.
    pub fn sent(&mut self, now: Instant) {
        self.sent_at = now;
    }

    /// Bytes have arrived.
    pub fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Appends a heartbeat, if one is due. To be called after what has arrived was read. False if
    /// the server was not heard for two heartbeats: the connection is dead.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let Tuning { heartbeat_s, .. } = self.agreed.tuning;
        if heartbeat_s == 0 {
            return true;
        }
        let heartbeat = Duration::from_secs(heartbeat_s.into());
        if now.saturating_duration_since(self.sent_at) >= heartbeat / 2 {
            out.extend_from_slice(&HEARTBEAT_FRAME);
            self.sent_at = now;
        }
        now.saturating_duration_since(self.heard_at) < 2 * heartbeat
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
