//! Publishes what the order per key allows, reports what the broker confirms, and connects again
//! after each loss. What is not confirmed is kept and sent again.
//!
//! Pure: no socket, no clock. What happens comes in by [`Publisher::handle`], what is to be done
//! goes out by [`Publisher::advance`] and [`Publisher::reports`].

mod losses;
mod patience;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::answer::Answer;
use super::channels::{CHANNELS_MAX, PublishChannels};
use super::connection_loss::{AmqpAddress, ConnectionLoss};
use super::exchanges::KnownExchanges;
use super::in_flight::{AnsweredPublish, PublishOutcome};
use super::limits::Limits;
use super::message::AmqpMessage;
use super::port::{AmqpEvent, AmqpPort, ConnectionFacts};
use super::refusals::{self, Refusal, Refusals};
use crate::base::backoff::Backoff;
use crate::base::error::Fault;
use crate::base::event::{Outbound, Sequence};
use crate::base::random::{Random, Salt};
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::mutants::{Mutant, on};
use crate::sink::key_lanes::{KeyLanes, LaneItem as _};
use crate::sink::{Disposition, Failure, SinkReport};

const RECONNECT_BASE: Duration = Duration::from_millis(50);
const RECONNECT_CAP: Duration = Duration::from_secs(5);
/// So often one of the events that may end the connection is sent, whatever else is to be sent.
const DOUBTFUL_WAITS: Duration = Duration::from_secs(5);
/// How often an event that may end the connection is sent while others have been without an answer for
/// long: with each end those would be sent again. The pauses double.
const DOUBTFUL_BESIDE_UNANSWERED_EVERY: Duration = Duration::from_secs(30);
const DOUBTFUL_BESIDE_UNANSWERED_EVERY_MAX: Duration = Duration::from_secs(300);
/// How long fewer channels are used after the limit of the user was reached, before twice as many are tried. The time
/// doubles with each close over the limit.
const CHANNELS_LIMITED_FOR: Duration = Duration::from_secs(600);
const CHANNELS_LIMITED_FOR_MAX: Duration = Duration::from_secs(86_400);
/// How often an open connection is checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The facts that the sink knows of its publisher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublisherStatus {
    /// The broker accepts no messages for now.
    pub is_blocked: bool,
    /// Fingerprint of the broker of the last connection; 0 before the first.
    pub broker: u64,
    /// The limits of the last connection.
    pub limits: Limits,
    /// The oldest event that has been without an answer for long, and where it was sent.
    pub unanswered: Option<(Sequence, String)>,
}

#[derive(Debug)]
enum Connection {
    Away {
        /// None if at once.
        connect_at: Option<Instant>,
    },
    Connecting,
    Open(OpenConnection),
}

#[derive(Debug)]
struct OpenConnection {
    /// How many channels it has.
    channels: usize,
    channels_max: usize,
    is_opening: bool,
    /// Since when the broker takes messages.
    flows_since: Instant,
    check_at: Instant,
    /// A message that may end it was sent.
    has_sent_doubtful: bool,
    /// Why it ends: several channels may be closed at once.
    losses: Vec<ConnectionLoss>,
}

pub struct Publisher {
    address: AmqpAddress,
    unconfirmed: KeyLanes<AmqpMessage>,
    refusals: Refusals,
    /// Events that may end the connection, and wait until nothing else is to be sent; with the time when
    /// their place was refused last.
    doubtful: BTreeSet<(Instant, Sequence)>,
    /// The one of them that is sent next.
    trying: Option<Sequence>,
    /// Since when one of them waits; counted anew after one was sent, because there may always be something else.
    doubtful_since: Option<Instant>,
    /// When one of them was sent last while others had been without an answer for long, and the pause after it.
    doubtful_beside_unanswered: Option<(Instant, Duration)>,
    /// The pauses after attempts to connect that have failed; a connection makes them short again.
    connect_backoff: Backoff,
    /// The pauses after connections that have ended; only an answer to a publish makes them short again.
    end_backoff: Backoff,
    connection: Connection,
    /// The channels belong to the connection, as the next two fields do.
    channels: PublishChannels,
    exchanges: KnownExchanges,
    /// A question has had no answer for longer than [`patience::ANSWER_WITHIN`].
    overdue: bool,
    status: PublisherStatus,
    publish_until: Option<Instant>,
    /// Why events wait, as it was reported last.
    waiting_reason: Option<String>,
    /// How many channels of a connection are published on.
    channels_max: usize,
    /// When the limit of the user was reached, or more were tried, and how long that lasts before more are tried.
    channels_limited: Option<(Instant, Duration)>,
    /// The host that is tried first.
    next_host: usize,
    /// The salt of the channels' hashes.
    salt: Salt,
    reports: Vec<SinkReport>,
}

impl Publisher {
    /// Waits and hashes are drawn from the seed.
    pub fn new(address: AmqpAddress, seed: u64) -> Publisher {
        let mut random = Random::new(seed);
        let mut backoff = || Backoff::seeded(RECONNECT_BASE, RECONNECT_CAP, random.number());
        let (connect_backoff, end_backoff) = (backoff(), backoff());
        let salt = random.salt();
        Publisher {
            address,
            unconfirmed: KeyLanes::default(),
            refusals: Refusals::default(),
            doubtful: BTreeSet::new(),
            trying: None,
            doubtful_since: None,
            doubtful_beside_unanswered: None,
            connect_backoff,
            end_backoff,
            connection: Connection::Away { connect_at: None },
            channels: PublishChannels::new(salt),
            exchanges: KnownExchanges::default(),
            overdue: false,
            status: PublisherStatus::default(),
            publish_until: None,
            waiting_reason: None,
            channels_max: CHANNELS_MAX,
            channels_limited: None,
            next_host: 0,
            salt,
            reports: Vec::new(),
        }
    }

    /// Whether all that was ordered is confirmed.
    pub fn is_empty(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    pub fn status(&self) -> &PublisherStatus {
        &self.status
    }

    /// Takes out what there is to report, in its order.
    pub fn reports(&mut self) -> Vec<SinkReport> {
        std::mem::take(&mut self.reports)
    }

    /// When [`Publisher::advance`] has something to do, if nothing happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        match &self.connection {
            Connection::Away { connect_at } => *connect_at,
            Connection::Connecting => None,
            Connection::Open(open) => Some(open.check_at),
        }
    }

    /// Sets the time after which no message is sent, until a later time is given.
    pub fn publish_until(&mut self, until: Instant) {
        self.publish_until = Some(until);
    }

    fn may_not_send(&self, now: Instant) -> bool {
        self.publish_until.is_some_and(|until| now >= until)
    }

    pub fn publish(&mut self, sequence: Sequence, message: AmqpMessage) {
        self.unconfirmed.add(sequence, message);
    }

    /// Publishes a failed event again.
    pub fn retry(&mut self, sequence: Sequence) {
        if let Some(message) = self.unconfirmed.item(sequence) {
            self.exchanges.ask_again(message.exchange());
        }
        self.unconfirmed.retry(sequence);
    }

    /// Replaces a failed event by its dead letter.
    pub fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        self.exchanges.ask_again(&writer.settings.address.exchange);
        let Some(message) = self.unconfirmed.item(sequence) else { return };
        let (limits, lane) = (self.status.limits, message.lane());
        let copy = |letter: &Outbound<'_>| AmqpMessage::dead_letter(letter, &limits, lane);
        match message.with_outbound(|event| writer.compose(event, cause, copy)) {
            Ok(letter) => self.unconfirmed.replace_with_dead_letter(sequence, letter),
            Err(failure) => return self.fail(sequence, failure),
        }
        if cause.parks_key {
            for behind in self.unconfirmed.refuse_behind(sequence) {
                let failure = self.unconfirmed.item(behind).map(AmqpMessage::parked);
                self.reports.extend(failure.map(|it| SinkReport::Failed(behind, it)));
            }
        }
    }

    pub fn handle(&mut self, event: AmqpEvent, now: Instant) {
        match event {
            AmqpEvent::Connected(facts) => return self.begin_connection(facts, now),
            AmqpEvent::ConnectFailed(loss) => return self.fail_connection(&loss, now),
            _ => {}
        }
        let Connection::Open(open) = &mut self.connection else { return };
        match event {
            AmqpEvent::Connected(_) | AmqpEvent::ConnectFailed(_) => {}
            AmqpEvent::Answers(answers) => self.take_answers(answers, now),
            AmqpEvent::Closed(loss) => {
                self.channels.close();
                self.note_loss(loss);
            }
            AmqpEvent::ExchangeAnswered(Ok(existence)) => self.take_existence(existence, now),
            AmqpEvent::ExchangeAnswered(Err(loss)) => self.note_loss(loss),
            AmqpEvent::Written(count) => self.channels.note_written(count, now),
            AmqpEvent::ChannelOpened(number) => {
                (open.channels, open.is_opening) = (open.channels + 1, false);
                self.channels.add(number);
                self.release(now);
            }
            AmqpEvent::ChannelRefused => {
                (open.channels_max, open.is_opening) = (open.channels, false);
            }
            AmqpEvent::Blocked(_) if on(Mutant::RabbitBlockedForgotten) => {}
            AmqpEvent::Unblocked if on(Mutant::RabbitUnblockedForgotten) => {}
            AmqpEvent::Blocked(reason) => {
                self.set_blocked(true, now);
                let what = "the broker takes no messages for now (rabbitmq-diagnostics alarms)";
                self.report_waiting(format!("{what}: {reason}"));
            }
            AmqpEvent::Unblocked => self.set_blocked(false, now),
        }
    }

    fn set_blocked(&mut self, is_blocked: bool, now: Instant) {
        if let Connection::Open(open) = &mut self.connection
            && self.status.is_blocked != is_blocked
        {
            (self.status.is_blocked, open.flows_since) = (is_blocked, now);
        }
    }

    /// Does what the time and all that has happened allow: ends and makes connections, asks, and
    /// sends.
    pub fn advance(&mut self, now: Instant, port: &mut impl AmqpPort) {
        if matches!(&self.connection, Connection::Open(open) if !open.losses.is_empty()) {
            port.disconnect();
            self.end_connection(now);
        }
        match &self.connection {
            Connection::Away { connect_at } if connect_at.is_none_or(|at| now >= at) => {
                self.connection = Connection::Connecting;
                port.connect(self.next_host);
            }
            Connection::Open(_) => {
                self.check(now, port);
                if !self.status.is_blocked && !self.may_not_send(now) {
                    self.send(now, port);
                }
                self.open_channel(port);
            }
            _ => {}
        }
    }

    fn begin_connection(&mut self, facts: ConnectionFacts, now: Instant) {
        // The host that is lost may stay away for a while: the next one is tried first.
        self.next_host = facts.host + 1;
        self.connect_backoff.succeeded();
        self.status.broker = facts.broker;
        self.status.limits.frame_bytes = facts.frame_bytes;
        facts.channels.iter().for_each(|number| self.channels.add(*number));
        self.connection = Connection::Open(OpenConnection {
            channels: facts.channels.len(),
            channels_max: facts.channels_max,
            is_opening: false,
            flows_since: now,
            check_at: now + CHECK_EVERY,
            has_sent_doubtful: false,
            losses: Vec::new(),
        });
    }

    fn fail_connection(&mut self, loss: &ConnectionLoss, now: Instant) {
        let Fault { what, place, mend, .. } = loss.unreachable(&self.address);
        let why = format!("{what} ({place}); help: {mend}");
        self.report_unable(loss);
        if loss.is_login_refused() {
            self.report_waiting_as(why, SinkReport::LoginRefused);
        } else {
            self.report_waiting(why);
        }
        self.connection =
            Connection::Away { connect_at: Some(now + self.connect_backoff.next_delay()) };
    }

    /// Notes why the connection ends. Its end may be seen before its reasons have arrived, and each
    /// of them twice.
    fn note_loss(&mut self, loss: ConnectionLoss) {
        let Connection::Open(OpenConnection { losses, .. }) = &mut self.connection else { return };
        if loss.code.is_some() {
            losses.retain(|it| it.code.is_some() && *it != loss);
            losses.push(loss);
        } else if losses.is_empty() {
            losses.push(loss);
        }
    }

    fn open_channel(&mut self, port: &mut impl AmqpPort) {
        if let Connection::Open(open) = &mut self.connection
            && !open.is_opening
            && self.channels.are_all_busy()
            && open.channels < open.channels_max.min(self.channels_max)
        {
            open.is_opening = true;
            port.open_channel();
        }
    }

    /// Whether what is unanswered may be sent again because of a message that ends the connection.
    fn may_end_connection(&self, now: Instant) -> bool {
        let last = self.doubtful_beside_unanswered;
        let is_due = |(at, pause)| now.saturating_duration_since(at) >= pause;
        !self.unconfirmed.has_unanswered() || last.is_none_or(is_due)
    }

    fn lengthen_pause(&mut self, now: Instant) {
        self.doubtful_beside_unanswered = Some(doubled(
            self.doubtful_beside_unanswered,
            now,
            [DOUBTFUL_BESIDE_UNANSWERED_EVERY, DOUBTFUL_BESIDE_UNANSWERED_EVERY_MAX],
        ));
    }

    /// Takes up the message that may end the connection, and whose place was refused longest ago: another
    /// place may be refused again and again. Returns whether there is one, and no other is taken up.
    fn take_up_doubtful(&mut self) -> bool {
        if self.trying.is_some_and(|sequence| self.unconfirmed.is_free(sequence)) {
            return false;
        }
        let Some((_, sequence)) = self.doubtful.pop_first() else { return false };
        self.trying = Some(sequence);
        self.unconfirmed.take_up(sequence);
        true
    }

    /// Looks again at the messages that wait because their place was refused: that has changed.
    fn review_doubtful(&mut self, now: Instant) {
        for (_, sequence) in std::mem::take(&mut self.doubtful) {
            let refused = self.unconfirmed.item(sequence).and_then(|it| self.refusals.of(it));
            match refused.filter(|(refused_at, _)| !refusals::holds(*refused_at, now)) {
                Some((refused_at, _)) => drop(self.doubtful.insert((refused_at, sequence))),
                None => self.unconfirmed.take_up(sequence),
            }
        }
    }

    fn release(&mut self, now: Instant) {
        let released = self.channels.release(now);
        released.into_iter().for_each(|sequence| self.unconfirmed.take_up(sequence));
    }

    fn ask(&mut self, exchange: &str, now: Instant, port: &mut impl AmqpPort) {
        if self.exchanges.ask(exchange, now) {
            port.ask_exchange(exchange);
        }
    }

    /// Sends what may be sent now. What may end the connection goes once nothing else is to be sent, or
    /// answered, or once it has waited for a while.
    fn send(&mut self, now: Instant, port: &mut impl AmqpPort) {
        if !self.doubtful.is_empty() {
            self.doubtful_since.get_or_insert(now);
        }
        let waited = self.doubtful_since.map(|since| now.saturating_duration_since(since));
        if waited.is_some_and(|waited| waited >= DOUBTFUL_WAITS) {
            self.take_up_doubtful();
        }
        self.send_ready(now, port);
        while self.unconfirmed.is_idle()
            && self.exchanges.asked_at().is_none()
            && self.take_up_doubtful()
        {
            self.send_ready(now, port);
        }
        if self.doubtful.is_empty() && self.trying.is_none() {
            self.doubtful_since = None;
        }
    }

    fn send_ready(&mut self, now: Instant, port: &mut impl AmqpPort) {
        let limits = self.status.limits;
        while let Some((sequence, message)) = self.unconfirmed.peek() {
            // It was copied when the broker took more, or its limit was not known.
            if let Some(failure) = message.excess(&limits) {
                self.cut_or_fail(sequence, message.cut_to(&limits), failure);
                continue;
            }
            let refusal = self.refusals.of(&message);
            let is_doubtful = refusal.is_some();
            if let Some((refused_at, refusal)) = refusal {
                if refusals::holds(refused_at, now) {
                    self.refuse(sequence, &refusal);
                    continue;
                }
                if self.trying != Some(sequence) && !on(Mutant::RabbitDoubtfulFirst) {
                    self.unconfirmed.set_aside(sequence);
                    self.doubtful.insert((refused_at, sequence));
                    continue;
                }
                // Each close would send what is unanswered again. The broker may have changed its mind.
                if !self.may_end_connection(now) {
                    self.delay(sequence, &refusal);
                    continue;
                }
                if !self.unconfirmed.is_suspect(sequence) {
                    self.unconfirmed.suspect(sequence);
                    continue;
                }
            }
            // While there are suspects, a message is sent when all in flight has been without an answer for long.
            // Behind one for its destination it would have none either, and would hold up all others until then.
            let is_alone = self.unconfirmed.has_suspects();
            if is_alone && self.channels.wait_behind(sequence, &message) {
                self.set_aside(sequence);
                continue;
            }
            match self.exchanges.exists(message.exchange(), now) {
                Some(true) => match self.channels.publish(sequence, &message, now) {
                    Some(channel) => {
                        if self.trying == Some(sequence)
                            && let Connection::Open(open) = &mut self.connection
                        {
                            (self.trying, self.doubtful_since) = (None, None);
                            open.has_sent_doubtful = true;
                        }
                        if is_doubtful && self.unconfirmed.has_unanswered() {
                            self.lengthen_pause(now);
                        }
                        self.unconfirmed.sent(sequence, &message);
                        port.send(channel, &message);
                    }
                    None => self.set_aside(sequence),
                },
                Some(false) => {
                    self.fail(sequence, message.no_exchange(&self.address));
                }
                None => {
                    self.ask(message.exchange(), now, port);
                    break;
                }
            }
        }
    }

    /// The message waits for its destination, or for a channel.
    fn set_aside(&mut self, sequence: Sequence) {
        self.trying = self.trying.filter(|it| *it != sequence);
        self.unconfirmed.set_aside(sequence);
    }

    /// The broker has answered publishes: it has confirmed, refused or returned them.
    fn take_answers(&mut self, answers: Vec<(u16, Answer)>, now: Instant) {
        let (answered, loss) = self.channels.take_answers(answers, now);
        loss.into_iter().for_each(|loss| self.note_loss(loss));
        if answered.is_empty() {
            return;
        }
        self.end_backoff.succeeded();
        // A blocked broker still confirms what it has read already.
        if !self.status.is_blocked && !self.overdue {
            self.report_reachable();
        }
        let mut was_refused = false;
        for AnsweredPublish { sequence, outcome, .. } in answered {
            let Some(message) = self.unconfirmed.item(sequence) else { continue };
            if self.refusals.answered(message) {
                self.doubtful_beside_unanswered = None;
                was_refused = true;
            }
            let failure = match outcome {
                PublishOutcome::Confirmed => {
                    self.unconfirmed.confirmed(sequence);
                    self.reports.push(SinkReport::Confirmed(sequence));
                    continue;
                }
                PublishOutcome::Nacked => message.nacked(&self.address),
                PublishOutcome::Returned(returned) => message.unroutable(&returned, &self.address),
            };
            self.fail(sequence, failure);
        }
        if was_refused {
            self.review_doubtful(now);
        }
        self.release(now);
    }

    fn refuse(&mut self, sequence: Sequence, refusal: &Refusal) {
        let failure = self.failure_of(sequence, refusal);
        failure.into_iter().for_each(|failure| self.fail(sequence, failure));
    }

    /// The same without an attempt that counts.
    fn delay(&mut self, sequence: Sequence, refusal: &Refusal) {
        let Some(failure) = self.failure_of(sequence, refusal) else { return };
        self.fail(sequence, Failure { disposition: Disposition::Delayed, ..failure });
    }

    fn failure_of(&self, sequence: Sequence, refusal: &Refusal) -> Option<Failure> {
        let message = self.unconfirmed.item(sequence)?;
        Some(match refusal {
            Refusal::NotPermitted(text) => message.not_permitted(text, &self.address.permit()),
            Refusal::NoExchange => message.no_exchange(&self.address),
            Refusal::QueueFailed(text) => message.queue_failed(text, &self.address),
        })
    }

    /// Sends what was cut of a dead letter in its place; an event fails.
    fn cut_or_fail(&mut self, sequence: Sequence, cut: Option<AmqpMessage>, failure: Failure) {
        let Some(cut) = cut else { return self.fail(sequence, failure) };
        self.unconfirmed.refused(sequence);
        self.unconfirmed.replace_with_dead_letter(sequence, cut);
    }

    /// Keeps the event for a retry, and reports the failure.
    fn fail(&mut self, sequence: Sequence, failure: Failure) {
        self.trying = self.trying.filter(|it| *it != sequence);
        self.unconfirmed.refused(sequence);
        self.reports.push(SinkReport::Failed(sequence, failure));
    }

    fn report_unable(&mut self, loss: &ConnectionLoss) {
        self.reports.extend(loss.halting_failure(&self.address).map(SinkReport::Unable));
    }

    fn report_reachable(&mut self) {
        if self.waiting_reason.take().is_some() && !on(Mutant::RabbitReachableForgotten) {
            self.reports.push(SinkReport::Reachable);
        }
    }

    /// Reports what keeps events waiting, unless it was reported last.
    fn report_waiting(&mut self, text: String) {
        self.report_waiting_as(text, SinkReport::Unreachable);
    }

    fn report_waiting_as(&mut self, text: String, report: fn(String) -> SinkReport) {
        if self.waiting_reason.as_ref() != Some(&text) {
            self.reports.push(report(text.clone()));
            self.waiting_reason = Some(text);
        }
    }
}

/// The pause that begins now: the first one, or twice the last one, up to the longest.
fn doubled(
    last: Option<(Instant, Duration)>,
    now: Instant,
    [first, longest]: [Duration; 2],
) -> (Instant, Duration) {
    (now, last.map_or(first, |(_, pause)| 2 * pause).min(longest))
}

#[cfg(test)]
mod tests;
