//! The thread that owns the connection: sends what the desk allows, settles what the broker
//! confirms, and comes back after every loss with the unconfirmed in hand.

use std::sync::Arc;
use std::time::Duration;

use lapin::Event;

use super::confirms::Confirms;
use super::connection::{self, Connection};
use super::desk::Desk;
use super::fault::{self, Loss};
use super::returns::{Returns, Verdict};
use super::settings::RabbitSettings;
use super::shared::{Order, Shared};
use crate::backoff::Backoff;
use crate::message::Sequence;
use crate::sink::News;

const RECONNECT_BASE: Duration = Duration::from_millis(50);
const RECONNECT_CAP: Duration = Duration::from_secs(5);

/// How often an idle connection is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long the broker's reason for a close may take.
const REASON_WITHIN: Duration = Duration::from_millis(200);

/// Why the pump ended.
enum End {
    Stopped,
    Lost(Loss),
}

pub(super) struct Worker {
    settings: RabbitSettings,
    shared: Arc<Shared>,
    desk: Desk,
    backoff: Backoff,
    reachable: bool,
}

impl Worker {
    pub(super) fn new(settings: RabbitSettings, shared: Arc<Shared>) -> Worker {
        Worker {
            settings,
            shared,
            desk: Desk::default(),
            backoff: Backoff::new(RECONNECT_BASE, RECONNECT_CAP),
            reachable: true,
        }
    }

    /// Until stopped. `connection` is the one that the first look was made over.
    pub(super) async fn run(mut self, connection: Option<Connection>) {
        let mut given = connection;
        while !self.shared.is_stopping() {
            let opened = match given.take() {
                Some(connection) => Ok(connection),
                None => connection::open(&self.settings).await,
            };
            let loss = match opened {
                Ok(mut connection) => match self.carry(&mut connection).await {
                    End::Stopped => return connection.close().await,
                    End::Lost(loss) => loss,
                },
                Err(loss) => loss,
            };
            self.lost(&loss);
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
        let mut confirms = Confirms::new(&channel, &self.shared.bell);
        let mut returns = Returns::default();
        let mut end = self.pump(connection, &mut confirms, &mut returns).await;
        // What was confirmed before the end counts.
        let told = self.harvest(&mut confirms, &mut returns);
        // A publish on a channel that is being closed fails before the reason is known.
        if let End::Lost(loss) = &mut end
            && loss.code.is_none()
        {
            let told = match told {
                Err(told) if told.code.is_some() => Some(told),
                _ => connection.reason(REASON_WITHIN).await,
            };
            *loss = told.filter(|told| told.code.is_some()).unwrap_or_else(|| loss.clone());
        }
        end
    }

    async fn pump(
        &mut self,
        connection: &mut Connection,
        confirms: &mut Confirms<'_>,
        returns: &mut Returns,
    ) -> End {
        let mut blocked = false;
        loop {
            self.take_orders();
            if let Err(loss) = self.harvest(confirms, returns) {
                return End::Lost(loss);
            }
            if self.shared.is_stopping() {
                return End::Stopped;
            }
            if connection.is_blocked() != blocked {
                blocked = !blocked;
                self.blocked(blocked);
            }
            if !blocked && let Err(loss) = self.send(connection, confirms).await {
                return End::Lost(loss);
            }
            tokio::select! {
                () = self.shared.bell.notified() => {}
                // A channel that asked in vain for an exchange ends with an error of its own.
                event = connection.event() => if let Some(Event::Error(error)) = event
                    && !connection.is_open()
                {
                    return End::Lost(error.into());
                },
                // A connection that ends without a word.
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if !connection.is_open() {
                        let text = "the channel is closed".to_owned();
                        return End::Lost(Loss { code: None, text });
                    }
                    // A broker that lets us in and refuses what we send has ended it by now.
                    if !blocked {
                        self.reached();
                    }
                }
            }
        }
    }

    /// Settles what the broker has answered.
    fn harvest(&mut self, confirms: &mut Confirms<'_>, returns: &mut Returns) -> Result<(), Loss> {
        let (batch, outcome) = confirms.collect();
        self.settle(returns.settle(batch));
        Ok(outcome?)
    }

    fn take_orders(&mut self) {
        for order in self.shared.take_orders() {
            match order {
                Order::Publish(sequence, message) => self.desk.take(sequence, message),
                Order::Retry(sequence) => self.desk.retry(sequence),
            }
        }
    }

    async fn send(
        &mut self,
        connection: &mut Connection,
        confirms: &mut Confirms<'_>,
    ) -> Result<(), Loss> {
        while let Some((sequence, message)) = self.desk.peek() {
            if !connection.knows_exchange(message.exchange())
                && let Err(loss) = connection.has_exchange(message.exchange()).await
            {
                if loss.code != Some(404) {
                    return Err(loss);
                }
                self.desk.refused(sequence);
                self.shared.post([News::Failed(sequence, fault::no_exchange(&message, &loss))]);
                continue;
            }
            if let Some((sequence, message)) = self.desk.next() {
                confirms.send(sequence, message)?;
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
        if !self.shared.is_blocked() {
            self.reached();
        }
        let mut news = Vec::with_capacity(verdicts.len());
        for (sequence, verdict) in verdicts {
            let Some(message) = self.desk.message(sequence) else { continue };
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
    }

    fn blocked(&mut self, blocked: bool) {
        self.shared.set_blocked(blocked);
        if blocked {
            let text = "the broker blocks publishers: a memory or disk alarm is raised";
            self.reachable = false;
            self.shared.post([News::Unreachable(text.to_owned())]);
        }
    }

    fn reached(&mut self) {
        if !std::mem::replace(&mut self.reachable, true) {
            self.shared.post([News::Reachable]);
        }
    }

    fn lost(&mut self, loss: &Loss) {
        let over_a_message = loss.is_over_a_message();
        let alone = self.desk.only_in_flight().filter(|_| over_a_message);
        if let Some(sequence) = alone
            && let Some(message) = self.desk.message(sequence)
        {
            let failure = fault::poison(message, loss);
            self.desk.refused(sequence);
            self.shared.post([News::Failed(sequence, failure)]);
        }
        self.desk.lost(over_a_message);
        self.shared.set_blocked(false);
        if std::mem::replace(&mut self.reachable, false) {
            self.shared.post([News::Unreachable(loss.text.clone())]);
        }
    }
}
