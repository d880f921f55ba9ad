//! A connection between a relay and the broker: frames in one direction, answers in the other, and
//! what both ends know of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use walrelay_core::relay::ports::Clock as _;
use walrelay_core::sink::rabbitmq::answer::Answer;
use walrelay_core::sink::rabbitmq::connection_loss::ConnectionLoss;
use walrelay_core::sink::rabbitmq::port::AmqpEvent;

use crate::broker::Record;
use crate::life::Life;

/// A frame that a relay sends.
#[derive(Debug)]
pub(super) enum Frame {
    Publish(u16, Box<Publish>),
    AskExchange(String),
    OpenChannel,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Publish(channel, publish) => {
                write!(f, "{} to {} on channel {channel}", publish.record.id, publish.exchange)
            }
            Frame::AskExchange(name) => write!(f, "a question for exchange '{name}'"),
            Frame::OpenChannel => f.write_str("an order to open a channel"),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Publish {
    pub(super) exchange: String,
    pub(super) record: Record,
}

/// A message that the broker has read and not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswered {
    /// The coming answer; none while the queue has not given it.
    pub(super) acked: Option<bool>,
    pub(super) read_us: u64,
}

/// The fate of a message at the broker, of which the relay has not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unknown,
    Stored,
    Returned,
}

/// The events of a connection that happen to its messages without the knowledge of its relay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unknown {
    /// Stored, and the relay may send them again.
    pub(super) stored: u64,
    /// Returned, and the confirm has not come.
    pub(super) returned: u64,
}

/// A channel as the broker has it.
#[derive(Debug, Default)]
pub(super) struct Channel {
    /// The number of messages that were read on it.
    pub(super) tag: u64,
    pub(super) unanswered: BTreeMap<u64, Unanswered>,
    /// The queues that know the channel.
    pub(super) queues: BTreeSet<&'static str>,
    /// Messages behind the first for a queue that does not answer, and since when.
    pub(super) held: VecDeque<Publish>,
    pub(super) held_since_us: u64,
    /// It was closed over a message.
    pub(super) is_closed: bool,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The relay has asked for a login.
    Connecting {
        since_us: u64,
    },
    Open,
    /// The broker has ended it: nothing more is read.
    Ended,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) relay: usize,
    pub(super) sink: u64,
    pub(super) life: Arc<Life>,
    pub(super) phase: Phase,
    /// The host that is tried.
    pub(super) host: usize,
    /// Frames that the relay's socket has not taken.
    pub(super) outbox: VecDeque<Frame>,
    /// The socket has taken a part of the first message in the outbox.
    has_begun: bool,
    /// The socket takes little at a time.
    pub(super) is_full: bool,
    /// Frames under way to the broker, and since when.
    pub(super) up: VecDeque<(u64, Frame)>,
    /// Events under way to the relay, and since when.
    pub(super) down: VecDeque<(u64, AmqpEvent)>,
    /// Events that have arrived and are not handed over.
    pub(super) arrived: VecDeque<AmqpEvent>,
    pub(super) channels: BTreeMap<u16, Channel>,
    /// Messages that the relay has sent and not heard of, by channel and tag.
    unheard: BTreeMap<(u16, u64), Fate>,
    /// Returns that the relay has heard, of messages whose confirm it has not.
    returns: u64,
    /// The number of messages that were sent on each channel.
    sent: BTreeMap<u16, u64>,
    pub(super) publish_until: Option<Instant>,
    /// The relay has been told that the broker takes no messages.
    pub(super) is_blocked: bool,
    /// The broker has said so.
    pub(super) is_told: bool,
    /// The sink has heard of it.
    pub(super) is_heard: bool,
    /// Whether the relay has heard of a close: answers to publishes do not count after it.
    has_heard_close: bool,
    /// The relay has given the connection up.
    pub(super) is_left: bool,
    pub(super) up_is_cut: bool,
    pub(super) down_is_cut: bool,
    /// When each end has heard of the other last.
    pub(super) broker_heard_us: u64,
    pub(super) relay_heard_us: u64,
    /// The relay has noticed that it hears nothing.
    pub(super) is_timed_out: bool,
    /// Answers that came too late to count.
    pub(super) late_answers: u64,
}

impl Connection {
    pub(super) fn new(by: (usize, u64), life: &Arc<Life>, host: usize, now_us: u64) -> Connection {
        Connection {
            relay: by.0,
            sink: by.1,
            life: Arc::clone(life),
            phase: Phase::Connecting { since_us: now_us },
            host,
            outbox: VecDeque::new(),
            has_begun: false,
            is_full: false,
            up: VecDeque::new(),
            down: VecDeque::new(),
            arrived: VecDeque::new(),
            channels: BTreeMap::new(),
            unheard: BTreeMap::new(),
            returns: 0,
            sent: BTreeMap::new(),
            publish_until: None,
            is_blocked: false,
            is_told: false,
            is_heard: false,
            has_heard_close: false,
            is_left: false,
            up_is_cut: false,
            down_is_cut: false,
            broker_heard_us: now_us,
            relay_heard_us: now_us,
            is_timed_out: false,
            late_answers: 0,
        }
    }

    /// Takes a frame of the relay.
    pub(super) fn send(&mut self, frame: Frame) {
        if self.has_heard_close {
            return;
        }
        if let Frame::Publish(channel, _) = &frame {
            let sent = self.sent.entry(*channel).or_default();
            *sent += 1;
            self.unheard.insert((*channel, *sent), Fate::Unknown);
        }
        self.outbox.push_back(frame);
    }

    /// The relay's socket takes what may go out now, at most `room` frames; `begins` says whether it takes
    /// a part of one more message. Frames that are no messages go out first, but not inside a message.
    /// Returns how many messages were written, and how many are left that the socket has not taken.
    pub(super) fn write(&mut self, now_us: u64, room: usize, begins: bool) -> (usize, usize) {
        let now: Instant = self.life.instant();
        let is_over = self.publish_until.is_some_and(|until| now >= until);
        if self.has_begun && is_over {
            // The rest of the message would publish it.
            return (0, 0);
        }
        let may_publish = !self.is_blocked && !is_over;
        let is_publish = |frame: &Frame| matches!(frame, Frame::Publish(..));
        let mut messages = self.outbox.iter().filter(|frame| is_publish(frame)).count();
        let mut written = 0;
        for _ in 0..room {
            let has_other = messages < self.outbox.len();
            let is_turn_of_message = self.has_begun || !has_other && may_publish;
            let next = self.outbox.iter().position(|it| is_publish(it) == is_turn_of_message);
            let Some(frame) = next.and_then(|index| self.outbox.remove(index)) else { break };
            if is_turn_of_message {
                self.has_begun = false;
                (messages, written) = (messages - 1, written + 1);
            }
            self.up.push_back((now_us, frame));
        }
        if written > 0 {
            self.arrived.push_back(AmqpEvent::Written(written));
        }
        let left = if may_publish { messages } else { 0 };
        self.has_begun |= left > 0 && left == self.outbox.len() && begins;
        (written, left)
    }

    /// The relay's end loses the connection.
    pub(super) fn lose(&mut self, loss: ConnectionLoss) {
        self.end_of_answers();
        self.arrived.push_back(AmqpEvent::Closed(loss));
    }

    /// No message is written from here on, and no answer counts.
    fn end_of_answers(&mut self) {
        self.has_heard_close = true;
        self.outbox.clear();
        self.has_begun = false;
    }

    /// An answer or a notice of the broker is under way.
    pub(super) fn tell(&mut self, now_us: u64, event: AmqpEvent) {
        self.down.push_back((now_us, event));
    }

    pub(super) fn answer(&mut self, now_us: u64, channel: u16, answer: Answer) {
        self.tell(now_us, AmqpEvent::Answers(vec![(channel, answer)]));
    }

    /// The broker has stored the message with this tag. True if the relay has given the connection up
    /// and may send it again.
    pub(super) fn stored(&mut self, channel: u16, tag: u64) -> bool {
        self.decide(channel, tag, Fate::Stored);
        self.is_left
    }

    /// The broker has returned the message with this tag.
    pub(super) fn returned(&mut self, channel: u16, tag: u64) {
        self.decide(channel, tag, Fate::Returned);
    }

    fn decide(&mut self, channel: u16, tag: u64, fate: Fate) {
        self.unheard.get_mut(&(channel, tag)).into_iter().for_each(|it| *it = fate);
    }

    /// The broker says whether it has the message.
    pub(super) fn settle(&mut self, channel: u16, tag: u64, acked: bool) {
        let channel = self.channels.get_mut(&channel);
        let unanswered = channel.and_then(|channel| channel.unanswered.get_mut(&tag));
        unanswered.into_iter().for_each(|it| it.acked = Some(acked));
    }

    /// The oldest event that is under way arrives.
    pub(super) fn deliver(&mut self) {
        let Some((_, event)) = self.down.pop_front() else { return };
        match &event {
            AmqpEvent::Answers(_) | AmqpEvent::Closed(_) if self.has_heard_close => {
                self.late_answers += 1;
                return;
            }
            AmqpEvent::Closed(_) => self.end_of_answers(),
            AmqpEvent::Blocked(_) => self.is_blocked = true,
            AmqpEvent::Unblocked => self.is_blocked = false,
            _ => {}
        }
        self.arrived.push_back(event);
    }

    /// The next event for the relay, and how many stored messages were refused, which it may send again.
    pub(super) fn next(&mut self) -> Option<(AmqpEvent, u64)> {
        let event = self.arrived.pop_front()?;
        let mut refused = 0;
        match &event {
            AmqpEvent::Answers(answers) => {
                refused = answers.iter().map(|(channel, answer)| self.hear(*channel, answer)).sum();
            }
            AmqpEvent::Blocked(_) => self.is_heard = true,
            AmqpEvent::Unblocked => self.is_heard = false,
            _ => {}
        }
        Some((event, refused))
    }

    /// The relay hears an answer. Returns how many messages were refused that are stored.
    fn hear(&mut self, channel: u16, answer: &Answer) -> u64 {
        let (tag, multiple, acked) = match answer {
            Answer::Confirm { tag, multiple, acked } => (tag, *multiple, *acked),
            Answer::Returned(_) => {
                self.returns += 1;
                return 0;
            }
        };
        let first = if multiple { 0 } else { *tag };
        let tags: Vec<(u16, u64)> =
            self.unheard.range((channel, first)..=(channel, *tag)).map(|(it, _)| *it).collect();
        let mut stored = 0;
        for fate in tags.iter().filter_map(|it| self.unheard.remove(it)) {
            stored += u64::from(fate == Fate::Stored);
            self.returns -= u64::from(fate == Fate::Returned);
        }
        if acked { 0 } else { stored }
    }

    /// The relay ends the connection. Returns what it does not hear.
    pub(super) fn leave(&mut self) -> Unknown {
        self.arrived.clear();
        Unknown { stored: self.abandon(), returned: self.returns }
    }

    /// Messages wait for a queue that does not answer.
    pub(super) fn has_held(&self) -> bool {
        self.channels.values().any(|channel| !channel.held.is_empty())
    }

    /// How many messages are between the relay's publisher and a queue.
    pub(super) fn under_way(&self) -> u64 {
        let frames = self.outbox.iter().chain(self.up.iter().map(|(_, frame)| frame));
        let publishes = frames.filter(|it| matches!(it, Frame::Publish(..))).count();
        publishes as u64 + self.channels.values().map(|it| it.held.len() as u64).sum::<u64>()
    }

    /// The socket of the relay is closed. Returns how many messages are stored of which it has not
    /// heard.
    pub(super) fn abandon(&mut self) -> u64 {
        self.outbox.clear();
        self.has_begun = false;
        if std::mem::replace(&mut self.is_left, true) {
            return 0;
        }
        self.unheard.values().filter(|it| **it == Fate::Stored).count() as u64
    }

    /// Whether no event of the connection is to come.
    pub(super) fn is_over(&self) -> bool {
        self.is_left && (self.up.is_empty() || self.phase == Phase::Ended)
    }
}
