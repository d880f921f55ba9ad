//! A connection that is published on: its socket, which is never waited for, and the frames in both
//! directions.
//!
//! Messages wait while the broker is blocked, and nothing is written of them behind the limits that
//! the relay was given: those are looked at before each write, so that a process that was frozen
//! sends nothing when it runs again and another relay may have taken over.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use walrelay_amqp::content::Message;
use walrelay_amqp::frame::Frame;
use walrelay_amqp::session::{Event, Session};
use walrelay_amqp::wire::Malformed;

use super::answer::{Answer, ReturnedMessage};
use super::connection_loss::ConnectionLoss;
use super::exchanges::Existence;
use super::message::AmqpMessage;
use super::outgoing::Outgoing;
use super::port::{AmqpEvent, ConnectionFacts};
use super::tls;
use walrelay_base::clock::unix_now_us;
use walrelay_base::fingerprint::fingerprint;
use walrelay_base::readiness::Readiness;
use walrelay_base::transport::Transport;

/// The bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// How often is read before the next write: answers without end must not keep heartbeats waiting.
const READS_MAX: usize = 16;
/// How long the broker's reason is waited for after a write has failed: a write fails when the broker
/// has closed, although its reason was not read yet.
const REASON_WITHIN: Duration = Duration::from_millis(100);
/// Channels that questions need at the same time.
const QUESTION_CHANNELS: u16 = 2;
const APP_ID: &str = "walrelay";

pub(super) struct PublishConnection {
    transport: Transport,
    session: Session,
    host: usize,
    /// The channel with which the connection was opened.
    first_channel: u16,
    /// The bytes that have arrived and are not parsed, up to `filled`.
    input: Vec<u8>,
    filled: usize,
    /// Frames that are no messages. They are written between messages, before those that wait.
    control: Vec<u8>,
    messages: Outgoing,
    /// The broker takes no messages for now.
    is_blocked: bool,
    /// The broker has closed the connection or a channel: nothing that is written counts.
    is_closed: bool,
    /// It has closed the connection: it reads nothing but the answer to that.
    awaits_close_ok: bool,
    /// Whether the connection has ended, and nothing is read any more.
    has_ended: bool,
    write_failure: Option<(Instant, ConnectionLoss)>,
    /// The socket took nothing more at the last write.
    is_full: bool,
    /// How often may be read before the next write.
    reads_left: usize,
    /// Answers behind the last event.
    answers: Vec<(u16, Answer)>,
    events: VecDeque<AmqpEvent>,
}

impl PublishConnection {
    /// `input` is what has arrived and was not taken by the session, and `events` what it has taken.
    pub(super) fn new(
        transport: Transport,
        session: Session,
        host: usize,
        first_channel: u16,
        events: Vec<Event>,
        mut input: Vec<u8>,
    ) -> PublishConnection {
        let filled = input.len();
        input.resize(READ_BYTES.max(filled), 0);
        let mut connection = PublishConnection {
            transport,
            session,
            host,
            first_channel,
            input,
            filled,
            control: Vec::new(),
            messages: Outgoing::default(),
            is_blocked: false,
            is_closed: false,
            awaits_close_ok: false,
            has_ended: false,
            write_failure: None,
            is_full: false,
            reads_left: READS_MAX,
            answers: Vec::new(),
            events: VecDeque::new(),
        };
        events.into_iter().for_each(|event| connection.take_event(event));
        connection.parse();
        connection
    }

    /// The facts that the login has agreed on.
    pub(super) fn facts(&self, vhost: &str) -> ConnectionFacts {
        let agreed = self.session.agreed();
        ConnectionFacts {
            broker: fingerprint(&format!("rabbitmq/{}/{vhost}", agreed.cluster_name)),
            host: self.host,
            frame_bytes: self.frame_bytes(),
            channels: vec![self.first_channel],
            channels_max: agreed.tuning.channel_max.saturating_sub(QUESTION_CHANNELS).into(),
        }
    }

    fn frame_bytes(&self) -> usize {
        self.session.agreed().tuning.frame_max as usize
    }

    pub(super) fn next_event(&mut self) -> Option<AmqpEvent> {
        if self.events.is_empty() && self.answers.is_empty() {
            self.read();
        }
        let answers = |answers: &mut Vec<_>| AmqpEvent::Answers(std::mem::take(answers));
        self.events
            .pop_front()
            .or_else(|| (!self.answers.is_empty()).then(|| answers(&mut self.answers)))
    }

    pub(super) fn publish(&mut self, channel: u16, message: &AmqpMessage) {
        if self.is_closed {
            return;
        }
        let now_unix_s = u64::try_from(unix_now_us() / 1_000_000).unwrap_or_default();
        let frame_bytes = self.frame_bytes();
        self.messages.add(|out| put_message(message, now_unix_s, channel, frame_bytes, out));
    }

    /// Asks whether the exchange exists.
    pub(super) fn ask(&mut self, exchange: &str) {
        if !self.session.ask(exchange, &mut self.control) {
            let loss = ConnectionLoss::of("the broker allows no channel for a question");
            self.push(AmqpEvent::ExchangeAnswered(Err(loss)));
        }
    }

    pub(super) fn open_channel(&mut self) {
        if !self.session.open_channel(&mut self.control) {
            self.push(AmqpEvent::ChannelRefused);
        }
    }

    /// Writes as much as the socket takes, and after `until` nothing of a message, not even the rest of one
    /// that is begun: that would publish it.
    pub(super) fn write(&mut self, until: Option<Instant>) {
        let now = Instant::now();
        self.reads_left = READS_MAX;
        if self.session.is_silent(now) {
            // The process may have stood still since the last read.
            self.read();
            if self.session.is_silent(now) {
                self.end(ConnectionLoss::of("nothing was heard for two heartbeats"));
            }
        }
        self.session.put_heartbeat(now, &mut self.control);
        if self.has_ended {
            return;
        }
        match &self.write_failure {
            Some((at, loss)) if now.saturating_duration_since(*at) > REASON_WITHIN => {
                let loss = loss.clone();
                self.end(loss);
            }
            Some(_) => {}
            None => {
                if let Err(error) = self.try_write(until) {
                    self.write_failure = Some((now, tls::loss_of(&error)));
                }
            }
        }
    }

    fn try_write(&mut self, until: Option<Instant>) -> io::Result<()> {
        let mut messages = 0;
        let outcome = self.write_parts(until, &mut messages);
        if messages > 0 {
            self.push(AmqpEvent::Written(messages));
        }
        outcome
    }

    /// Adds how many messages are written to their ends.
    fn write_parts(&mut self, until: Option<Instant>, messages: &mut usize) -> io::Result<()> {
        self.is_full = false;
        loop {
            let now = Instant::now();
            let writes_control = !self.control.is_empty() && !self.messages.has_begun();
            let is_over = until.is_some_and(|until| now >= until);
            if is_over && (self.messages.has_begun() || self.transport.pending_write()) {
                return Ok(());
            }
            let only_begun =
                self.is_blocked || self.is_closed || is_over || !self.control.is_empty();
            let rest = if writes_control { &self.control } else { self.messages.rest(only_begun) };
            let is_empty = rest.is_empty();
            if is_empty && !self.transport.pending_write() {
                return Ok(());
            }
            let count = self.transport.write_some(rest)?;
            if count == 0 {
                self.is_full = self.transport.pending_write() || !is_empty;
                return Ok(());
            }
            self.session.note_write(now);
            if writes_control {
                self.control.drain(..count);
            } else {
                *messages += self.messages.advance(count);
            }
        }
    }

    pub(super) fn readiness(&self) -> Option<Readiness<'_>> {
        let socket = self.transport.as_fd();
        (!self.has_ended).then_some(Readiness { socket, wants_write: self.is_full })
    }

    /// Waits until something has arrived, or can be written.
    pub(super) fn wait(&self, patience: Duration) {
        let is_there = !self.events.is_empty() || !self.answers.is_empty() || self.has_ended;
        // A socket that cannot be waited for is found broken by the next read.
        if !is_there && self.transport.wait(patience, self.is_full).is_err() {
            std::thread::sleep(patience);
        }
    }

    /// Ends the connection in good order, without waiting for the broker's answer.
    pub(super) fn close(mut self) {
        self.reads_left = READS_MAX;
        self.read();
        if self.has_ended || self.is_closed || !self.messages.is_empty() {
            return self.abandon();
        }
        self.session.close(&mut self.control);
        self.write_last();
    }

    /// Ends the connection at once. The answer to a close of the broker is written, if the socket
    /// takes it and no message is written in part.
    pub(super) fn abandon(mut self) {
        let is_free = !self.messages.has_begun() && !self.transport.pending_write();
        if is_free && self.awaits_close_ok && !self.has_ended {
            self.write_last();
        }
    }

    /// Writes `control`. The kernel sends it also after the socket is closed here.
    fn write_last(&mut self) {
        let is_sent = self.try_write(None).is_ok() && !self.is_full;
        if is_sent && self.transport.set_linger(None).is_ok() {
            let _is_gone = self.transport.shutdown().is_err();
        }
    }

    /// Reads what has arrived, as often as is allowed.
    fn read(&mut self) {
        while !self.has_ended && self.reads_left > 0 {
            self.reads_left -= 1;
            if self.filled == self.input.len() {
                self.input.resize(2 * self.filled, 0);
            }
            match self.transport.read(&mut self.input[self.filled..]) {
                Ok(0) => self.end(ConnectionLoss::of("the broker closed the connection")),
                Ok(count) => {
                    self.filled += count;
                    self.session.note_read(Instant::now());
                    self.parse();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => self.end(tls::loss_of(&error)),
            }
        }
    }

    fn parse(&mut self) {
        let mut at = 0;
        loop {
            let taken = match Frame::split(&self.input[at..self.filled]) {
                Ok(None) => break,
                Ok(Some((frame, length))) => {
                    at += length;
                    self.session.take(frame, &mut self.control)
                }
                Err(malformed) => Err(malformed),
            };
            match taken {
                Ok(event) => {
                    if let Some(event) = event {
                        self.take_event(event);
                    }
                }
                Err(malformed) => {
                    self.end(unreadable(malformed));
                    break;
                }
            }
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        if self.filled < READ_BYTES {
            self.input.truncate(READ_BYTES);
        }
    }

    fn take_event(&mut self, event: Event) {
        match event {
            // What is answered after a close counts no more.
            Event::Confirm { .. } | Event::Returned { .. } if self.is_closed => {}
            Event::Confirm { channel, tag, multiple, acked } => {
                self.answers.push((channel, Answer::Confirm { tag, multiple, acked }));
            }
            Event::Returned { channel, message_id: id, code, text } => {
                let returned = ReturnedMessage { id, code, text };
                self.answers.push((channel, Answer::Returned(returned)));
            }
            Event::Blocked(reason) => {
                self.is_blocked = true;
                self.push(AmqpEvent::Blocked(reason));
            }
            Event::Unblocked => {
                self.is_blocked = false;
                self.push(AmqpEvent::Unblocked);
            }
            Event::ChannelOpened(channel) => self.push(AmqpEvent::ChannelOpened(channel)),
            Event::Answered(answer) => {
                let declared = answer.map_err(|(code, text)| ConnectionLoss::refused(code, &text));
                self.push(AmqpEvent::ExchangeAnswered(Existence::of(declared)));
            }
            Event::Closed { code, text } => {
                self.awaits_close_ok = true;
                self.take_event(Event::ChannelClosed { code, text });
            }
            Event::ChannelClosed { code, text } => {
                self.is_closed = true;
                self.push(AmqpEvent::Closed(ConnectionLoss::refused(code, &text)));
            }
        }
    }

    /// Adds an event behind the answers that came before it.
    fn push(&mut self, event: AmqpEvent) {
        if !self.answers.is_empty() {
            self.events.push_back(AmqpEvent::Answers(std::mem::take(&mut self.answers)));
        }
        self.events.push_back(event);
    }

    fn end(&mut self, loss: ConnectionLoss) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.push(AmqpEvent::Closed(loss));
        }
    }
}

pub(super) fn unreadable(malformed: Malformed) -> ConnectionLoss {
    ConnectionLoss::of(malformed.to_string())
}

/// Appends the frames of a message, whose `timestamp` is the time of this publish.
fn put_message(
    message: &AmqpMessage,
    now_unix_s: u64,
    channel: u16,
    frame_bytes: usize,
    out: &mut Vec<u8>,
) {
    // Of headers of one name the last is sent.
    let headers: BTreeMap<&str, &[u8]> = message.headers_and_key().collect();
    let message = Message {
        exchange: message.exchange(),
        routing_key: message.routing_key(),
        content_type: message.content_type(),
        headers: headers.into_iter(),
        message_id: message.id(),
        timestamp_unix_s: now_unix_s,
        kind: message.event_type(),
        app_id: APP_ID,
        body: message.body(),
    };
    message.put(channel, frame_bytes, out);
}

#[cfg(test)]
#[path = "publish_connection_tests.rs"]
mod tests;
