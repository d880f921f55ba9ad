//! The thread that owns the connection: sends what the order per key allows, settles what the broker
//! confirms, and connects again after every loss, with the unconfirmed kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use lapin::{Channel, Event};
use tokio::sync::mpsc::UnboundedReceiver;

use super::connection::AmqpConnection;
use super::fault::{AmqpResult, ConnectionLoss};
use super::in_flight::PublishesInFlight;
use super::message::AmqpMessage;
use super::probe::KnownExchanges;
use super::returns::PublishOutcome;
use super::settings::RabbitSettings;
use crate::base::backoff::Backoff;
use crate::base::event::{Outbound, Sequence};
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::SinkReport;
use crate::sink::key_lanes::{KeyLanes, LaneItem as _};

const RECONNECT_BASE: Duration = Duration::from_millis(50);
const RECONNECT_CAP: Duration = Duration::from_secs(5);
/// How often an idle connection is looked at.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How long the broker's reason for a close may take.
const REASON_WITHIN: Duration = Duration::from_millis(200);
/// How long a message may be in flight before that is reported.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The client library copies a message into one piece for each frame. Those of a larger message leave
/// malloc's arenas full of holes.
const LARGE_BYTES: usize = 8 << 20;

/// What the sink asks for.
#[derive(Debug)]
pub(super) enum PublishOrder {
    Publish(Sequence, AmqpMessage),
    /// Publish a refused event again.
    Retry(Sequence),
    /// Publish its dead letter in its place.
    DeadLetter(Sequence, Box<(DeadLetterWriter, DeadLetterCause)>),
}

/// The thread's ends of what connects it with the sink.
pub(super) struct SinkChannels {
    /// Closed when the sink is gone.
    pub(super) orders: UnboundedReceiver<Vec<PublishOrder>>,
    pub(super) news: Sender<Vec<SinkReport>>,
    /// The broker takes nothing for now.
    pub(super) blocked: Arc<AtomicBool>,
}

pub(super) struct Publisher<'a> {
    settings: &'a RabbitSettings,
    sink: &'a mut SinkChannels,
    unconfirmed: KeyLanes<AmqpMessage>,
    exchanges: KnownExchanges,
    backoff: Backoff,
    /// Why events wait, as it was reported last.
    trouble: Option<String>,
    /// A message has been in flight for too long.
    overdue: bool,
    /// A large message was sent; the memory of its frames has not been given back.
    untrimmed: bool,
}

impl<'a> Publisher<'a> {
    pub(super) fn new(settings: &'a RabbitSettings, sink: &'a mut SinkChannels) -> Publisher<'a> {
        Publisher {
            settings,
            sink,
            unconfirmed: KeyLanes::default(),
            exchanges: KnownExchanges::default(),
            backoff: Backoff::new(RECONNECT_BASE, RECONNECT_CAP),
            trouble: None,
            overdue: false,
            untrimmed: false,
        }
    }

    /// Until the sink is gone.
    pub(super) async fn run(mut self, first: Option<AmqpConnection>) {
        let (mut first, mut host) = (first, 0);
        while !self.sink.orders.is_closed() {
            let opened = match first.take() {
                Some(connection) => Ok(connection),
                None => AmqpConnection::open(self.settings, host).await,
            };
            let trouble = match opened {
                Ok(mut connection) => {
                    // What was lost may stay away for a while: the next host is asked first.
                    host = connection.host + 1;
                    let Err(loss) = self.carry(&mut connection).await else {
                        return connection.close().await;
                    };
                    self.lost(&loss);
                    loss.interrupted(self.settings)
                }
                Err(loss) => {
                    self.report_inability(&loss);
                    let fault = loss.unreachable(self.settings);
                    format!("{} ({}); to mend it: {}", fault.what, fault.place, fault.mend)
                }
            };
            self.report_trouble(trouble);
            let delay = self.backoff.next_delay();
            let waiting = async {
                while let Some(orders) = self.sink.orders.recv().await {
                    self.take(orders);
                }
            };
            let _stopped = tokio::time::timeout(delay, waiting).await.is_ok();
        }
    }

    /// Carries messages over one connection, until the sink is gone.
    async fn carry(&mut self, connection: &mut AmqpConnection) -> AmqpResult<()> {
        let channel = connection.channel.clone();
        let mut in_flight = PublishesInFlight::default();
        let carried = self.pump(connection, &channel, &mut in_flight).await;
        // What was confirmed before the end counts.
        let collected = self.collect(&mut in_flight);
        let Err(loss) = carried else { return Ok(()) };
        // The publishing channel knows best, if it got a reason; a publish on a channel that is being
        // closed fails before the reason is known.
        let reason = match collected {
            Err(known) if known.code.is_some() => Some(known),
            _ if loss.code.is_none() => connection.reason(REASON_WITHIN).await,
            _ => None,
        };
        Err(reason.filter(|reason| reason.code.is_some()).unwrap_or(loss))
    }

    async fn pump<'c>(
        &mut self,
        connection: &mut AmqpConnection,
        channel: &'c Channel,
        in_flight: &mut PublishesInFlight<'c>,
    ) -> AmqpResult<()> {
        let (mut blocked, mut flows_since) = (false, Instant::now());
        let mut check = tokio::time::interval(CHECK_EVERY);
        check.reset();
        loop {
            if connection.is_blocked() != blocked {
                (blocked, flows_since) = (!blocked, Instant::now());
                self.sink.blocked.store(blocked, Ordering::Relaxed);
            }
            while let Ok(orders) = self.sink.orders.try_recv() {
                self.take(orders);
            }
            self.collect(in_flight)?;
            if self.sink.orders.is_closed() {
                return Ok(());
            }
            self.send(connection, channel, in_flight)?;
            tokio::select! {
                orders = self.sink.orders.recv() => match orders {
                    Some(orders) => self.take(orders),
                    None => return Ok(()),
                },
                () = in_flight.woken() => {}
                event = connection.event() => match event {
                    Some(Event::Error(error)) => return Err(error.into()),
                    Some(Event::ConnectionBlocked(reason)) => {
                        // First the flag, then the report; the connection may be unblocked again by
                        // now, which the next turn sees.
                        (blocked, flows_since) = (true, Instant::now());
                        self.sink.blocked.store(true, Ordering::Relaxed);
                        let trouble = format!("the broker takes no messages for now: {reason}");
                        self.report_trouble(trouble);
                    }
                    Some(_) => {}
                    None => return Err(ConnectionLoss::of("the connection ended")),
                },
                answer = self.exchanges.answer() => answer?,
                _ = check.tick() => {
                    // A connection that ends without an event.
                    if !connection.is_open() {
                        return Err(ConnectionLoss::of("the channel is closed"));
                    }
                    let oldest = in_flight.oldest().or(self.exchanges.asked_at);
                    self.check_overdue(blocked, oldest.map(|at| at.max(flows_since)));
                }
            }
        }
    }

    /// A broker that lets us in and then answers nothing that we sent is not to be called well.
    fn check_overdue(&mut self, blocked: bool, oldest_at: Option<Instant>) {
        let waiting = oldest_at.map(|at| at.elapsed()).unwrap_or_default();
        self.overdue = !blocked && waiting > ANSWER_WITHIN;
        if self.overdue {
            // Sent again it would only be there twice: a queue without a majority has it already.
            let limit_s = ANSWER_WITHIN.as_secs();
            self.report_trouble(format!(
                "the broker has left a message or a question unanswered for over {limit_s} s: see its log, and: rabbitmqctl list_queues name type state members online"
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

    /// Puts its dead letter in the place of an event that was refused.
    fn dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        let Some(message) = self.unconfirmed.item(sequence) else { return };
        let copy = |letter: &Outbound<'_>| AmqpMessage::dead_letter(letter, message.lane());
        let letter = message.with_outbound(|event| writer.compose(event, cause, copy));
        match letter {
            Ok(letter) => self.unconfirmed.replace_with_dead_letter(sequence, letter),
            Err(failure) => return self.report(vec![SinkReport::Failed(sequence, failure)]),
        }
        if cause.parks_key {
            let behind = self.unconfirmed.refuse_behind(sequence).into_iter();
            let parked = behind.filter_map(|behind| {
                Some(SinkReport::Failed(behind, self.unconfirmed.item(behind)?.parked()))
            });
            self.report(parked.collect());
        }
    }

    fn send<'c>(
        &mut self,
        connection: &AmqpConnection,
        channel: &'c Channel,
        in_flight: &mut PublishesInFlight<'c>,
    ) -> AmqpResult<()> {
        while !connection.is_blocked() && !self.sink.orders.is_closed() {
            let Some((sequence, message)) = self.unconfirmed.peek() else { break };
            match self.exchanges.exists(&connection.probe, message.exchange()) {
                Some(true) => {
                    self.unconfirmed.sent(sequence, &message);
                    self.untrimmed |= message.size_bytes() > LARGE_BYTES;
                    in_flight.send(channel, sequence, message)?;
                }
                Some(false) => {
                    self.unconfirmed.refused(sequence);
                    self.report(vec![SinkReport::Failed(sequence, message.no_exchange())]);
                }
                None => break,
            }
        }
        Ok(())
    }

    /// Settles what the broker has answered.
    fn collect(&mut self, in_flight: &mut PublishesInFlight<'_>) -> AmqpResult<()> {
        let (outcomes, end) = in_flight.collect();
        if outcomes.is_empty() {
            return Ok(end?);
        }
        self.backoff.succeeded();
        // While it is blocked the broker still answers for what it has read already.
        if !self.sink.blocked.load(Ordering::Relaxed) && !self.overdue {
            self.report_reachable();
        }
        let mut news = Vec::with_capacity(outcomes.len());
        for (sequence, outcome) in outcomes {
            let Some(message) = self.unconfirmed.item(sequence) else { continue };
            let failure = match outcome {
                PublishOutcome::Confirmed => {
                    self.unconfirmed.confirmed(sequence);
                    news.push(SinkReport::Confirmed(sequence));
                    continue;
                }
                PublishOutcome::Nacked => message.nacked(),
                PublishOutcome::Returned(returned) => message.unroutable(&returned),
            };
            self.unconfirmed.refused(sequence);
            news.push(SinkReport::Failed(sequence, failure));
        }
        self.report(news);
        if self.untrimmed && self.unconfirmed.in_flight_bytes() <= LARGE_BYTES {
            self.untrimmed = false;
            crate::base::os_ffi::trim_malloc();
        }
        Ok(end?)
    }

    fn lost(&mut self, loss: &ConnectionLoss) {
        self.report_inability(loss);
        if loss.is_over_a_message()
            && let Some(sequence) = self.unconfirmed.lone_suspect()
            && let Some(message) = self.unconfirmed.item(sequence)
        {
            let failure = message.poison(loss);
            let less = loss.is_over_size().then(|| message.with_less(loss.size_limit())).flatten();
            self.unconfirmed.refused(sequence);
            match less {
                // A dead letter may be larger than the broker takes: it is cut until it is not.
                Some(less) => self.unconfirmed.replace_with_dead_letter(sequence, less),
                None => self.report(vec![SinkReport::Failed(sequence, failure)]),
            }
        }
        self.unconfirmed.connection_lost(loss.sends_one_at_a_time());
        self.exchanges = KnownExchanges::default();
        self.sink.blocked.store(false, Ordering::Relaxed);
        self.overdue = false;
    }

    fn report(&self, news: Vec<SinkReport>) {
        let _sink_is_gone = self.sink.news.send(news).is_err();
    }

    fn report_reachable(&mut self) {
        if self.trouble.take().is_some() {
            self.report(vec![SinkReport::Reachable]);
        }
    }

    /// Something keeps events waiting; reported when it is new.
    fn report_trouble(&mut self, text: String) {
        if self.trouble.as_ref() != Some(&text) {
            self.report(vec![SinkReport::Unreachable(text.clone())]);
            self.trouble = Some(text);
        }
    }

    fn report_inability(&self, loss: &ConnectionLoss) {
        if let Some(failure) = loss.halts(self.settings) {
            self.report(vec![SinkReport::Unable(failure)]);
        }
    }
}
