//! The connection's thread: publishes what the order per key allows, reports what the broker
//! confirms, and connects again after each loss. What is not confirmed is kept and sent again.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lapin::{Channel, Event};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::channels::{CHANNELS_MAX, PublishChannels};
use super::connection::AmqpConnection;
use super::connection_loss::{self, AmqpResult, ConnectionLoss};
use super::deadline::PublishDeadline;
use super::fault;
use super::in_flight::PublishOutcome;
use super::limits::SharedLimits;
use super::message::AmqpMessage;
use super::probe::KnownExchanges;
use super::refusals::{Permission, Refusal, Refusals};
use super::settings::RabbitSettings;
use crate::base::backoff::Backoff;
use crate::base::error::Fault;
use crate::base::event::{Outbound, Sequence};
use crate::base::random;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::key_lanes::{KeyLanes, LaneItem as _};
use crate::sink::{Failure, SinkReport};

const RECONNECT_BASE: Duration = Duration::from_millis(50);
const RECONNECT_CAP: Duration = Duration::from_secs(5);
/// How often the connection is checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// A queue that has answered nothing for this long does not keep others waiting.
const UNANSWERED_AFTER: Duration = Duration::from_secs(2);
/// How long the broker may leave a question unanswered before that is reported.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A channel that is being opened.
type Opening = Option<Pin<Box<dyn Future<Output = AmqpResult<Channel>> + Send>>>;

/// What the sink asks its thread to do.
#[derive(Debug)]
pub(super) enum PublishOrder {
    Publish(Sequence, AmqpMessage),
    /// Publish a failed event again.
    Retry(Sequence),
    /// Publish the dead letter of a failed event in its place.
    DeadLetter(Sequence, Box<(DeadLetterWriter, DeadLetterCause)>),
}

/// What the sink and its thread share.
#[derive(Clone, Debug, Default)]
pub(super) struct PublisherState {
    /// Set while the broker accepts no messages.
    pub(super) blocked: Arc<AtomicBool>,
    /// Fingerprint of the broker of the last connection.
    pub(super) broker: Arc<AtomicU64>,
    pub(super) deadline: PublishDeadline,
    /// Those of the last connection.
    pub(super) limits: SharedLimits,
    /// The oldest event that has been without an answer for long, and where it was sent.
    pub(super) unanswered: Arc<Mutex<Option<(Sequence, String)>>>,
}

impl PublisherState {
    pub(super) fn connected(&self, connection: &AmqpConnection, settings: &RabbitSettings) {
        self.limits.agreed(connection.frame_bytes_max);
        self.broker.store(connection.broker(settings), Ordering::Release);
    }
}

pub(super) struct Publisher {
    settings: RabbitSettings,
    /// Closed when the sink is dropped.
    orders: UnboundedReceiver<Vec<PublishOrder>>,
    reports: Sender<Vec<SinkReport>>,
    shared: PublisherState,
    unconfirmed: KeyLanes<AmqpMessage>,
    exchanges: KnownExchanges,
    refusals: Refusals,
    backoff: Backoff,
    /// Why events wait, as it was reported last.
    waiting_reason: Option<String>,
    /// A question has had no answer for longer than [`ANSWER_WITHIN`].
    overdue: bool,
    /// How many channels of a connection are published on.
    channels_max: usize,
    /// Frames that are not yet handed to the connection.
    frames: Vec<u8>,
}

impl Publisher {
    pub(super) fn new(
        settings: RabbitSettings,
        orders: UnboundedReceiver<Vec<PublishOrder>>,
        reports: Sender<Vec<SinkReport>>,
        shared: PublisherState,
    ) -> Publisher {
        Publisher {
            settings,
            orders,
            reports,
            shared,
            unconfirmed: KeyLanes::default(),
            exchanges: KnownExchanges::default(),
            refusals: Refusals::default(),
            backoff: random::backoff(RECONNECT_BASE, RECONNECT_CAP),
            waiting_reason: None,
            overdue: false,
            channels_max: CHANNELS_MAX,
            frames: Vec::new(),
        }
    }

    /// Runs until the sink is dropped.
    pub(super) async fn run(mut self, mut first: Option<AmqpConnection>) {
        let mut host = 0;
        while !self.orders.is_closed() {
            let opened = match first.take() {
                Some(connection) => Ok(connection),
                None => AmqpConnection::open(&self.settings, host).await,
            };
            let is_login_refused = opened.as_ref().is_err_and(ConnectionLoss::is_login_refused);
            let (loss, trouble) = match opened {
                Ok(mut connection) => {
                    // The host that was lost may stay away for
                    // a while: the next one is tried first.
                    host = connection.host + 1;
                    self.shared.connected(&connection, &self.settings);
                    let Err(loss) = self.use_connection(&mut connection).await else {
                        // What waits to be written must not be published any more.
                        if self.unconfirmed.is_empty() {
                            connection.close().await;
                        }
                        return;
                    };
                    let is_over_one = self.lost(&loss);
                    let text = (!is_over_one).then(|| loss.interrupted(&self.settings));
                    (loss, text)
                }
                Err(loss) => {
                    let Fault { what, place, mend, .. } = loss.unreachable(&self.settings);
                    (loss, Some(format!("{what} ({place}); to mend it: {mend}")))
                }
            };
            if let Some(failure) = loss.halts(&self.settings) {
                self.report(vec![SinkReport::Unable(failure)]);
            }
            match trouble {
                Some(why) if is_login_refused => {
                    self.report_waiting_as(why, SinkReport::LoginRefused);
                }
                Some(why) => self.report_waiting(why),
                None => {}
            }
            let delay = self.backoff.next_delay();
            let waiting = async {
                while let Some(orders) = self.orders.recv().await {
                    self.take(orders);
                }
            };
            let _stopped = timeout(delay, waiting).await.is_ok();
        }
    }

    /// Publishes over one connection until it is lost or the sink is dropped.
    async fn use_connection(&mut self, connection: &mut AmqpConnection) -> AmqpResult<()> {
        let mut channels = PublishChannels::default();
        connection.channels().for_each(|number| channels.add(number));
        let published = self.publish(connection, &mut channels).await;
        // Confirms that arrived before the loss are valid.
        let collected = self.collect(connection, &mut channels);
        self.take_up(channels.release_all());
        let Err(loss) = published else { return Ok(()) };
        // lapin may have reported the end of the connection before its reason was collected.
        let loss = collected.err().filter(|reason| reason.code.is_some()).unwrap_or(loss);
        if loss.is_over_channels() {
            // The limit is that of the user: a standby and commands log in with it, too.
            self.channels_max = (connection.channels().count() / 2).max(1);
        }
        Err(loss)
    }

    async fn publish(
        &mut self,
        connection: &mut AmqpConnection,
        channels: &mut PublishChannels,
    ) -> AmqpResult<()> {
        let mut channels_max = self.channels_max.min(connection.channels_max());
        let mut opening: Opening = None;
        let (mut blocked, mut flows_since) = (false, Instant::now());
        let mut check = tokio::time::interval(CHECK_EVERY);
        check.reset();
        loop {
            if connection.multiplexer.is_blocked() != blocked {
                (blocked, flows_since) = (!blocked, Instant::now());
                self.shared.blocked.store(blocked, Ordering::Relaxed);
            }
            while let Ok(orders) = self.orders.try_recv() {
                self.take(orders);
            }
            self.collect(connection, channels)?;
            if self.orders.is_closed() {
                return Ok(());
            }
            connection.multiplexer.publish_until(&self.shared.deadline);
            if !blocked && !self.shared.deadline.is_over() {
                self.send(connection, channels);
            }
            if opening.is_none() && channels.are_all_busy() && channels.count() < channels_max {
                opening = Some(Box::pin(connection.open_channel()));
            }
            let answered = connection.multiplexer.answered();
            tokio::select! {
                orders = self.orders.recv() => match orders {
                    Some(orders) => self.take(orders),
                    None => return Ok(()),
                },
                () = answered => {}
                event = connection.event() => match event {
                    Some(Event::Error(error)) => return Err(error.into()),
                    Some(Event::ConnectionBlocked(reason)) => {
                        // The flag is set before the report. The connection may be unblocked again
                        // by now; the next turn of the loop sees that.
                        (blocked, flows_since) = (true, Instant::now());
                        self.shared.blocked.store(true, Ordering::Relaxed);
                        let trouble = format!("the broker takes no messages for now: {reason}");
                        self.report_waiting(trouble);
                    }
                    Some(_) => {}
                    None => return Err(ConnectionLoss::of("the connection ended")),
                },
                asked_at = self.exchanges.answer() => {
                    let asked_at = asked_at?;
                    self.collect(connection, channels)?;
                    self.question_answered(channels, asked_at, (blocked, flows_since));
                }
                opened = opened(&mut opening) => match opened {
                    Ok(channel) => {
                        channels.add(channel.id());
                        connection.add_channel(channel);
                        self.take_up(channels.release(Instant::now()));
                    }
                    // If the connection is not lost, it goes on with those that it has.
                    Err(_) => channels_max = channels.count(),
                },
                _ = check.tick() => self.check(connection, channels, (blocked, flows_since))?,
            }
        }
    }

    fn take_up(&mut self, waiting: Vec<Sequence>) {
        waiting.into_iter().for_each(|sequence| self.unconfirmed.take_up(sequence));
    }

    /// Looks for what has had no answer for long.
    fn check(
        &mut self,
        connection: &AmqpConnection,
        channels: &PublishChannels,
        (blocked, flows_since): (bool, Instant),
    ) -> AmqpResult<()> {
        // A connection may end without an event.
        if !connection.is_open() {
            return Err(ConnectionLoss::of("the channel is closed"));
        }
        let now = Instant::now();
        let flows = self.flows((blocked, flows_since), now);
        self.note_unanswered(channels, flows, now);
        if flows && channels.sent_for(UNANSWERED_AFTER, now).next().is_some() {
            self.exchanges.ask_anything(&connection.probe);
        }
        let asked_at = self.exchanges.asked_at();
        self.check_overdue(blocked, asked_at.map(|at| at.max(flows_since)));
        Ok(())
    }

    /// Whether messages have been sent without a pause for so long that an answer that is missing
    /// is missing because of its destination.
    fn flows(&self, (blocked, flows_since): (bool, Instant), now: Instant) -> bool {
        let flows_for = now.saturating_duration_since(flows_since);
        !blocked && flows_for > UNANSWERED_AFTER && !self.shared.deadline.is_over()
    }

    /// The broker has answered a question. What was sent before that was asked, and long ago, waits
    /// for its destination, and others do not wait for it. While the broker answers no question
    /// either, nothing more is sent than the bounds allow.
    fn question_answered(
        &mut self,
        channels: &PublishChannels,
        asked_at: Instant,
        flow: (bool, Instant),
    ) {
        let now = Instant::now();
        if self.flows(flow, now) {
            let length = UNANSWERED_AFTER.max(now.saturating_duration_since(asked_at));
            let long_ago = channels.sent_for(length, now);
            long_ago.for_each(|sequence| self.unconfirmed.unanswered(sequence));
        }
    }

    /// Notes the oldest message that has been without an answer for long, while the broker takes
    /// others.
    fn note_unanswered(&self, channels: &PublishChannels, flows: bool, now: Instant) {
        let is_old = |sent_at| now.saturating_duration_since(sent_at) >= UNANSWERED_AFTER;
        let oldest = channels.oldest().filter(|(.., sent_at)| flows && is_old(*sent_at));
        let note = oldest.map(|(sequence, message, _)| {
            let (exchange, routing_key) = (message.exchange(), message.routing_key());
            (sequence, format!("routing key {routing_key} of exchange {exchange}"))
        });
        *self.shared.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = note;
    }

    /// Reports a broker that accepts connections and answers nothing. A queue that confirms nothing
    /// is not that: the broker answers other questions meanwhile.
    fn check_overdue(&mut self, blocked: bool, asked_at: Option<Instant>) {
        let waiting = asked_at.map(|at| at.elapsed()).unwrap_or_default();
        self.overdue = !blocked && waiting > ANSWER_WITHIN;
        if self.overdue {
            // Sending again would only duplicate: the broker may have the messages already.
            let limit_s = ANSWER_WITHIN.as_secs();
            self.report_waiting(format!(
                "the broker has answered neither publishes nor questions for over {limit_s} s: see its log, and: rabbitmq-diagnostics status"
            ));
        } else if !blocked {
            self.report_reachable();
        }
    }

    fn take(&mut self, orders: Vec<PublishOrder>) {
        for order in orders {
            match order {
                PublishOrder::Publish(sequence, message) => {
                    self.unconfirmed.add(sequence, message);
                }
                PublishOrder::Retry(sequence) => {
                    if let Some(message) = self.unconfirmed.item(sequence) {
                        self.exchanges.ask_again(message.exchange());
                    }
                    self.unconfirmed.retry(sequence);
                }
                PublishOrder::DeadLetter(sequence, letter) => {
                    let (writer, cause) = *letter;
                    self.exchanges.ask_again(&writer.settings.address.exchange);
                    self.dead_letter(sequence, &writer, &cause);
                }
            }
        }
    }

    /// Replaces a failed event by its dead letter.
    fn dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        let Some(message) = self.unconfirmed.item(sequence) else { return };
        let (limits, lane) = (self.shared.limits.get(), message.lane());
        let copy = |letter: &Outbound<'_>| AmqpMessage::dead_letter(letter, &limits, lane);
        match message.with_outbound(|event| writer.compose(event, cause, copy)) {
            Ok(letter) => self.unconfirmed.replace_with_dead_letter(sequence, letter),
            Err(failure) => return self.fail(sequence, failure),
        }
        if cause.parks_key {
            let behind = self.unconfirmed.refuse_behind(sequence).into_iter();
            let parked = behind.filter_map(|behind| {
                Some(SinkReport::Failed(behind, self.unconfirmed.item(behind)?.parked()))
            });
            self.report(parked.collect());
        }
    }

    /// Sends what may be sent now.
    fn send(&mut self, connection: &AmqpConnection, channels: &mut PublishChannels) {
        let (now, limits) = (Instant::now(), self.shared.limits.get());
        while let Some((sequence, message)) = self.unconfirmed.peek() {
            // It was copied when the broker took more, or its limit was not known.
            if let Some(failure) = message.excess(&limits) {
                self.cut_or_fail(sequence, message.cut_to(&limits), failure);
                continue;
            }
            match self.refusals.of(&message) {
                Permission::Unknown => {}
                // Each close would send what is unanswered again.
                Permission::Doubtful(_) if !self.unconfirmed.has_unanswered() => {
                    if !self.unconfirmed.is_suspect(sequence) {
                        self.unconfirmed.suspect(sequence);
                        continue;
                    }
                }
                Permission::Doubtful(refusal) | Permission::Refused(refusal) => {
                    self.refuse(sequence, &refusal);
                    continue;
                }
            }
            match self.exchanges.exists(&connection.probe, message.exchange()) {
                Some(true) => match channels.publish(sequence, &message, now) {
                    Some(channel) => {
                        self.unconfirmed.sent(sequence, &message);
                        connection.put_publish(&message, channel, &mut self.frames);
                    }
                    None => self.unconfirmed.set_aside(sequence),
                },
                Some(false) => self.fail(sequence, message.no_exchange()),
                None => break,
            }
        }
        if !self.frames.is_empty() {
            connection.multiplexer.publish(&mut self.frames);
        }
    }

    /// Settles the publishes that the broker has answered.
    fn collect(
        &mut self,
        connection: &AmqpConnection,
        channels: &mut PublishChannels,
    ) -> AmqpResult<()> {
        let now = Instant::now();
        let (outcomes, end) = channels.settle(connection.multiplexer.answers(), now);
        if outcomes.is_empty() {
            return end;
        }
        self.backoff.succeeded();
        // A blocked broker still confirms what it has read already.
        if !self.shared.blocked.load(Ordering::Relaxed) && !self.overdue {
            self.report_reachable();
        }
        let mut reports = Vec::with_capacity(outcomes.len());
        for (sequence, outcome) in outcomes {
            let Some(message) = self.unconfirmed.item(sequence) else { continue };
            let failure = match outcome {
                PublishOutcome::Confirmed => {
                    self.refusals.confirmed(message);
                    self.unconfirmed.confirmed(sequence);
                    reports.push(SinkReport::Confirmed(sequence));
                    continue;
                }
                PublishOutcome::Nacked => message.nacked(),
                PublishOutcome::Returned(returned) => message.unroutable(&returned),
            };
            self.unconfirmed.refused(sequence);
            reports.push(SinkReport::Failed(sequence, failure));
        }
        self.take_up(channels.release(now));
        self.report(reports);
        end
    }

    /// Prepares what is unconfirmed for the next connection. Returns whether this one was closed over
    /// messages that are known.
    fn lost(&mut self, loss: &ConnectionLoss) -> bool {
        if let Some(code) = loss.code.filter(|code| !fault::close_class(*code).1) {
            tracing::warn!(
                code = "sink.unknown-reply",
                reply_code = code,
                "RabbitMQ closed the channel with a reply code that this version does not know"
            );
        }
        self.shared.limits.learn(loss);
        let limits = self.shared.limits.get();
        let mut is_over_one =
            loss.is_refused_publish() && self.publish_refused(loss) || self.exchange_missing(loss);
        if self.unconfirmed.in_flight().any(|(_, message)| message.excess(&limits).is_some()) {
            // It is not sent again, and all others are.
            is_over_one = true;
        } else if loss.is_over_a_message()
            && let Some(sequence) = self.unconfirmed.lone_suspect()
            && let Some(message) = self.unconfirmed.item(sequence)
        {
            is_over_one = true;
            let failure = message.closed_channel(loss);
            // Of a dead letter that is larger than a limit which the broker does not name, less is sent.
            let less = loss.is_over_size().then(|| message.halved(&limits)).flatten();
            self.cut_or_fail(sequence, less, failure);
        }
        self.unconfirmed.connection_lost(loss.sends_one_at_a_time() && !is_over_one);
        self.exchanges = KnownExchanges::default();
        *self.shared.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.shared.blocked.store(false, Ordering::Relaxed);
        self.overdue = false;
        is_over_one
    }

    /// The login may not publish somewhere. Returns whether it is known which messages are meant:
    /// those for the place that the broker names, or else the only one in flight.
    fn publish_refused(&mut self, loss: &ConnectionLoss) -> bool {
        let mut meant = self.refusals.add(loss, self.unconfirmed.in_flight());
        if meant.is_empty() {
            meant.extend(self.unconfirmed.lone_suspect());
        }
        let refusal = Refusal::NotPermitted(loss.text.clone());
        meant.iter().for_each(|sequence| self.refuse(*sequence, &refusal));
        !meant.is_empty()
    }

    /// The broker closed over an exchange for which it could not be asked, or that has just gone. Returns
    /// whether it is known which messages are meant.
    fn exchange_missing(&mut self, loss: &ConnectionLoss) -> bool {
        let in_flight = self.unconfirmed.in_flight();
        let meant = in_flight.filter(|(_, message)| loss.misses_exchange(message.exchange()));
        let (meant, names): (Vec<_>, BTreeSet<_>) =
            meant.map(|(sequence, message)| (sequence, message.exchange())).unzip();
        // The next connection can ask about one that was seen.
        let unseen = names.into_iter().filter(|name| !self.exchanges.has_seen(name));
        unseen.for_each(|name| self.refusals.add_missing(name));
        meant.iter().for_each(|sequence| self.refuse(*sequence, &Refusal::NoExchange));
        !meant.is_empty()
    }

    fn refuse(&mut self, sequence: Sequence, refusal: &Refusal) {
        let Some(message) = self.unconfirmed.item(sequence) else { return };
        let failure = match refusal {
            Refusal::NotPermitted(text) => {
                message.not_permitted(text, &connection_loss::permit(&self.settings))
            }
            Refusal::NoExchange => message.no_exchange(),
        };
        self.fail(sequence, failure);
    }

    /// Sends what was cut of a dead letter in its place; an event fails.
    fn cut_or_fail(&mut self, sequence: Sequence, cut: Option<AmqpMessage>, failure: Failure) {
        let Some(cut) = cut else { return self.fail(sequence, failure) };
        self.unconfirmed.refused(sequence);
        self.unconfirmed.replace_with_dead_letter(sequence, cut);
    }

    /// Keeps the event for a retry, and reports the failure.
    fn fail(&mut self, sequence: Sequence, failure: Failure) {
        self.unconfirmed.refused(sequence);
        self.report(vec![SinkReport::Failed(sequence, failure)]);
    }

    fn report(&self, reports: Vec<SinkReport>) {
        let _sink_is_gone = self.reports.send(reports).is_err();
    }

    fn report_reachable(&mut self) {
        if self.waiting_reason.take().is_some() {
            self.report(vec![SinkReport::Reachable]);
        }
    }

    /// Reports what keeps events waiting, unless it was reported last.
    fn report_waiting(&mut self, text: String) {
        self.report_waiting_as(text, SinkReport::Unreachable);
    }

    fn report_waiting_as(&mut self, text: String, report: fn(String) -> SinkReport) {
        if self.waiting_reason.as_ref() != Some(&text) {
            self.report(vec![report(text.clone())]);
            self.waiting_reason = Some(text);
        }
    }
}

/// Waits until the channel is opened; for ever if none is being opened.
async fn opened(opening: &mut Opening) -> AmqpResult<Channel> {
    let Some(future) = opening else { return std::future::pending().await };
    let opened = future.await;
    *opening = None;
    opened
}

#[cfg(test)]
#[path = "publisher_tests.rs"]
mod tests;
