//! The thread that owns the connection: sends what the desk allows, settles what the broker
//! confirms, and comes back after every loss with the unconfirmed in hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lapin::{Channel, Event};

use super::confirms::Confirms;
use super::connection::{self, Connection};
use super::exchanges::{Exchanges, Presence};
use super::fault::{self, Loss};
use super::message::Message;
use super::returns::{Returns, Verdict};
use super::settings::RabbitSettings;
use super::shared::{Order, Shared};
use crate::base::backoff::Backoff;
use crate::base::event::Sequence;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::News;
use crate::sink::key_lanes::{Desk, Item as _};

const RECONNECT_BASE: Duration = Duration::from_millis(50);
const RECONNECT_CAP: Duration = Duration::from_secs(5);

/// How often an idle connection is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long the broker's reason for a close may take.
const REASON_WITHIN: Duration = Duration::from_millis(200);

/// How long a message may be under way before that is told.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The client library copies a message into one piece for each frame. Those of a larger message leave
/// malloc's arenas full of holes.
const LARGE_BYTES: usize = 8 << 20;

/// Why the pump ended.
enum End {
    Stopped,
    Lost(Loss),
}

pub(super) struct Worker {
    settings: RabbitSettings,
    shared: Arc<Shared>,
    desk: Desk<Message>,
    backoff: Backoff,
    /// Why events wait, as it was told last.
    trouble: Option<String>,
    /// A message has been under way for too long.
    overdue: bool,
    /// A large message was sent; the memory of its frames has not been given back.
    untrimmed: bool,
}

/// What belongs to one connection.
struct UnderWay<'c> {
    confirms: Confirms<'c>,
    returns: Returns,
    exchanges: Exchanges,
}

impl Worker {
    pub(super) fn new(settings: RabbitSettings, shared: Arc<Shared>) -> Worker {
        Worker {
            settings,
            shared,
            desk: Desk::default(),
            backoff: Backoff::new(RECONNECT_BASE, RECONNECT_CAP),
            trouble: None,
            overdue: false,
            untrimmed: false,
        }
    }

    /// Until stopped. `connection` is the one that the first look was made over.
    pub(super) async fn run(mut self, connection: Option<Connection>) {
        let mut given = connection;
        let mut host = 0;
        while !self.shared.is_stopping() {
            let opened = match given.take() {
                Some(connection) => Ok(connection),
                None => connection::open(&self.settings, host).await,
            };
            let text = match opened {
                Ok(mut connection) => {
                    // What was lost may stay away for a while: the next host is asked first.
                    host = connection.host + 1;
                    match self.carry(&mut connection).await {
                        End::Stopped => return connection.close().await,
                        End::Lost(loss) => {
                            self.lost(&loss);
                            fault::interrupted(&self.settings, &loss)
                        }
                    }
                }
                Err(loss) => {
                    self.note_inability(&loss);
                    fault::unreachable_text(&self.settings, &loss)
                }
            };
            self.trouble(text);
            let delay = self.backoff.next_delay();
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.until_stopped() => {}
            }
        }
    }

    async fn until_stopped(&self) {
        while !self.shared.is_stopping() {
            self.shared.bell.notified().await;
        }
    }

    /// Carries messages over one connection.
    async fn carry(&mut self, connection: &mut Connection) -> End {
        let channel = connection.channel.clone();
        let mut under_way = UnderWay {
            confirms: Confirms::new(&self.shared.bell),
            returns: Returns::default(),
            exchanges: Exchanges::default(),
        };
        let mut end = self.pump(connection, &channel, &mut under_way).await;
        // What was confirmed before the end counts.
        let told = self.harvest(&mut under_way);
        if let End::Lost(loss) = &mut end {
            // Our own channel knows best, when it was told; a publish on a channel that is being
            // closed fails before the reason is known.
            let told = match told {
                Err(told) if told.code.is_some() => Some(told),
                _ if loss.code.is_none() => connection.reason(REASON_WITHIN).await,
                _ => None,
            };
            if let Some(told) = told.filter(|told| told.code.is_some()) {
                *loss = told;
            }
        }
        end
    }

    async fn pump<'c>(
        &mut self,
        connection: &mut Connection,
        channel: &'c Channel,
        under_way: &mut UnderWay<'c>,
    ) -> End {
        let (mut blocked, mut flows_since) = (false, Instant::now());
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.reset();
        loop {
            if connection.is_blocked() != blocked {
                (blocked, flows_since) = (!blocked, Instant::now());
                self.shared.set_blocked(blocked);
            }
            self.take_orders(&mut under_way.exchanges);
            if let Err(loss) = self.harvest(under_way) {
                return End::Lost(loss);
            }
            if self.shared.is_stopping() {
                return End::Stopped;
            }
            if let Err(loss) = self.send(connection, channel, under_way) {
                return End::Lost(loss);
            }
            tokio::select! {
                () = self.shared.bell.notified() => {}
                event = connection.event() => match event {
                    Some(Event::Error(error)) => return End::Lost(error.into()),
                    Some(Event::ConnectionBlocked(reason)) => {
                        // First the gate, then the word; it may be open again by now, which the
                        // next turn sees.
                        (blocked, flows_since) = (true, Instant::now());
                        self.shared.set_blocked(true);
                        self.trouble(format!("the broker takes no messages for now: {reason}"));
                    }
                    Some(_) => {}
                    None => return End::Lost(Loss::of("the connection ended")),
                },
                answer = under_way.exchanges.answered() => if let Err(loss) = answer {
                    return End::Lost(loss);
                },
                _ = look.tick() => {
                    // A connection that ends without a word.
                    if !connection.is_open() {
                        return End::Lost(Loss::of("the channel is closed"));
                    }
                    let oldest = under_way.confirms.oldest().or(under_way.exchanges.asked_at());
                    self.look_after(blocked, oldest.map(|at| at.max(flows_since)));
                }
            }
        }
    }

    /// Settles what the broker has answered.
    fn harvest(&mut self, under_way: &mut UnderWay<'_>) -> Result<(), Loss> {
        let (batch, outcome) = under_way.confirms.collect();
        self.settle(under_way.returns.settle(batch));
        Ok(outcome?)
    }

    /// A broker that lets us in and then says nothing of what we sent is not to be called well.
    fn look_after(&mut self, blocked: bool, oldest_at: Option<Instant>) {
        let waiting = oldest_at.map(|at| at.elapsed()).unwrap_or_default();
        self.overdue = !blocked && waiting > ANSWER_WITHIN;
        if self.overdue {
            // Sent again it would only be there twice: a queue without a majority has it already.
            let limit_s = ANSWER_WITHIN.as_secs();
            let text = format!(
                "the broker has left a message or a question unanswered for over {limit_s} s: see its log, and: rabbitmqctl list_queues name type state members online"
            );
            self.trouble(text);
        } else if !blocked {
            self.reached();
        }
    }

    fn take_orders(&mut self, exchanges: &mut Exchanges) {
        for order in self.shared.take_orders() {
            match order {
                Order::Publish(sequence, message) => self.desk.take(sequence, message),
                Order::Retry(sequence) => {
                    if let Some(message) = self.desk.item(sequence) {
                        exchanges.ask_again(message.exchange());
                    }
                    self.desk.retry(sequence);
                }
                Order::Bury(sequence, burial) => {
                    exchanges.ask_again(&burial.0.settings.address.exchange);
                    self.bury(sequence, &burial.0, &burial.1);
                }
            }
        }
    }

    /// Puts its letter in the place of an event that was refused.
    fn bury(&mut self, sequence: Sequence, mailbox: &DeadLetterWriter, cause: &DeadLetterCause) {
        let Some(message) = self.desk.item(sequence) else { return };
        let letter = message.with_outbound(|event| {
            mailbox.compose(event, cause, |letter| Message::letter(letter, message.lane()))
        });
        match letter {
            Ok(letter) => self.desk.bury(sequence, letter),
            Err(failure) => return self.shared.post([News::Failed(sequence, failure)]),
        }
        if cause.parks_key {
            let behind = self.desk.refuse_behind(sequence);
            let parked = behind.into_iter().filter_map(|behind| {
                Some(News::Failed(behind, fault::parked(self.desk.item(behind)?)))
            });
            self.shared.post(parked);
        }
    }

    fn send<'c>(
        &mut self,
        connection: &Connection,
        channel: &'c Channel,
        under_way: &mut UnderWay<'c>,
    ) -> Result<(), Loss> {
        while !connection.is_blocked() && !self.shared.is_stopping() {
            let Some((sequence, message)) = self.desk.peek() else { break };
            match under_way.exchanges.presence(&connection.link, message.exchange()) {
                Presence::There => {
                    self.desk.sent(sequence, &message);
                    self.untrimmed |= message.size_bytes() > LARGE_BYTES;
                    under_way.confirms.send(channel, sequence, message)?;
                }
                Presence::Absent => {
                    self.desk.refused(sequence);
                    self.shared.post([News::Failed(sequence, fault::no_exchange(&message))]);
                }
                Presence::Asked => break,
            }
        }
        Ok(())
    }

    fn settle(&mut self, verdicts: Vec<(Sequence, Verdict)>) {
        if verdicts.is_empty() {
            return;
        }
        self.backoff.succeeded();
        // While it is blocked the broker still answers for what it has read already.
        if !self.shared.is_blocked() && !self.overdue {
            self.reached();
        }
        let mut news = Vec::with_capacity(verdicts.len());
        for (sequence, verdict) in verdicts {
            let Some(message) = self.desk.item(sequence) else { continue };
            let failure = match verdict {
                Verdict::Confirmed => {
                    self.desk.confirmed(sequence);
                    news.push(News::Confirmed(sequence));
                    continue;
                }
                Verdict::Nacked => fault::nacked(message),
                Verdict::Returned(returned) => fault::unroutable(message, &returned),
            };
            self.desk.refused(sequence);
            news.push(News::Failed(sequence, failure));
        }
        self.shared.post(news);
        if self.untrimmed && self.desk.in_flight_bytes() <= LARGE_BYTES {
            self.untrimmed = false;
            crate::base::os_ffi::trim_malloc();
        }
    }

    fn reached(&mut self) {
        if self.trouble.take().is_some() {
            self.shared.post([News::Reachable]);
        }
    }

    /// Something keeps events waiting; told when it is news.
    fn trouble(&mut self, text: String) {
        if self.trouble.as_ref() != Some(&text) {
            self.shared.post([News::Unreachable(text.clone())]);
            self.trouble = Some(text);
        }
    }

    fn note_inability(&self, loss: &Loss) {
        if loss.is_inability() {
            self.shared.post([News::Unable(fault::unable(&self.settings, loss))]);
        }
    }

    fn lost(&mut self, loss: &Loss) {
        self.note_inability(loss);
        if loss.is_over_a_message()
            && let Some(sequence) = self.desk.convicted()
            && let Some(message) = self.desk.item(sequence)
        {
            let failure = fault::poison(message, loss);
            let less = loss.is_over_size().then(|| message.with_less(loss.size_limit())).flatten();
            self.desk.refused(sequence);
            match less {
                // A letter may be larger than the broker takes: it is cut until it is not.
                Some(less) => self.desk.bury(sequence, less),
                None => self.shared.post([News::Failed(sequence, failure)]),
            }
        }
        self.desk.lost(loss.narrows());
        self.shared.set_blocked(false);
        self.overdue = false;
    }
}
