//! Faults of RabbitMQ, or between it and the relays.

use walrelay_core::sink::rabbitmq::connection_loss::ConnectionLoss;

use super::{RABBITMQ, World, below};
use crate::faults::FaultKind;
use crate::options::SinkKind;
use crate::postgres::TOPICS;
use crate::rabbitmq::{Mood, Round, Trouble};
use crate::story::About;
use walrelay_core::base::lock::locked;

/// When things are well again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mends {
    alarm_us: Option<u64>,
    queue_us: Option<u64>,
    full_us: Option<u64>,
    exchange_us: Option<u64>,
    logins_us: Option<u64>,
    sockets_us: Option<u64>,
    lingers_until_us: u64,
}

impl Mends {
    /// Confirms come as soon as they can.
    pub(super) fn is_prompt(&self, now_us: u64) -> bool {
        now_us >= self.lingers_until_us
    }
}

impl World {
    /// A round of the broker and of the connections to it.
    pub(super) fn rabbitmq_round(&mut self, late_us: u64) {
        if self.sink != SinkKind::Rabbitmq {
            return;
        }
        self.draw_for(RABBITMQ);
        let now_us = self.clock.us();
        let mood = Mood {
            refuses: now_us < self.refuses_until_us,
            lingers: now_us < self.rabbitmq.lingers_until_us,
        };
        let seed = self.random.number();
        let mut broker = locked(&self.broker);
        broker.rabbitmq.draw_from(seed);
        let (is_away, sent) = (broker.is_away, broker.sent);
        let newest = self.report.events;
        let until_us = |relay: usize| self.frozen_until_us.get(relay).copied();
        let stands_still =
            std::array::from_fn(|relay| until_us(relay).is_some_and(|it| now_us < it));
        broker.rabbitmq_round(Round { now_us, late_us, newest, stands_still, is_away, mood });
        let explained = broker.rabbitmq.take_explained();
        self.report.rabbitmq = broker.rabbitmq.counts();
        let complaint = broker.rabbitmq.take_complaint();
        let story = if self.tells { broker.rabbitmq.story.replace(Vec::new()) } else { None };
        drop(broker);
        self.checker.allowed_repeats += explained;
        complaint.into_iter().for_each(|what| self.violate(what));
        self.judge_sent(sent);
        story.into_iter().flatten().for_each(|line| self.tell_of(About::Detail, || line));
    }

    pub(super) fn rabbitmq_fault(&mut self, kind: FaultKind, soon_us: u64) {
        let topic = TOPICS[below(&mut self.random, TOPICS.len() as u64) as usize];
        let drawn = below(&mut self.random, 4);
        let mut broker = locked(&self.broker);
        let ends = &mut self.rabbitmq;
        match kind {
            FaultKind::AmqpConnectionLost => {
                let loss = if drawn.is_multiple_of(2) {
                    ConnectionLoss::of("Connection reset by peer")
                } else {
                    let text = "CONNECTION_FORCED - Closed via management plugin";
                    ConnectionLoss::refused(320, text)
                };
                broker.cut_rabbitmq(drawn < 2, &loss);
                if drawn == 3 {
                    broker.rabbitmq.refuse_logins(true);
                    ends.logins_us = Some(soon_us);
                }
            }
            FaultKind::AmqpHalfOpen => broker.rabbitmq.cut_directions(drawn != 0, drawn != 1),
            FaultKind::BrokerAlarm => {
                broker.rabbitmq.raise_alarm(["low on memory", "low on disk"][drawn as usize % 2]);
                ends.alarm_us = Some(soon_us);
            }
            FaultKind::QueueDeleted => {
                broker.rabbitmq.trouble(topic, Some(Trouble::Gone));
                ends.queue_us = Some(soon_us);
            }
            FaultKind::QueueFull => {
                let trouble = if drawn < 3 { Trouble::Full } else { Trouble::Failed };
                broker.rabbitmq.trouble(topic, Some(trouble));
                ends.full_us = Some(soon_us);
            }
            FaultKind::ExchangeDeleted => {
                broker.rabbitmq.delete_exchange(topic);
                ends.exchange_us = Some(soon_us);
            }
            FaultKind::ConfirmsLinger => ends.lingers_until_us = soon_us,
            FaultKind::AmqpSocketFull => {
                broker.rabbitmq.fill_sockets();
                ends.sockets_us = Some(soon_us);
            }
            _ => {}
        }
        drop(broker);
    }

    /// Ends what has lasted long enough.
    pub(super) fn mend_rabbitmq(&mut self, now_us: u64) {
        let Mends { alarm_us, queue_us, full_us, exchange_us, logins_us, sockets_us, .. } =
            &mut self.rabbitmq;
        let mut told = Vec::new();
        let mut broker = locked(&self.broker);
        if alarm_us.take_if(|at| *at <= now_us).is_some() {
            broker.end_rabbitmq_alarm();
            told.push("the broker takes messages again");
        }
        if queue_us.take_if(|at| *at <= now_us).is_some() {
            broker.rabbitmq.end_troubles(Trouble::Gone);
            told.push("the queue is declared again");
        }
        if full_us.take_if(|at| *at <= now_us).is_some() {
            broker.rabbitmq.end_troubles(Trouble::Full);
            broker.rabbitmq.end_troubles(Trouble::Failed);
            told.push("the queue has room again");
        }
        if exchange_us.take_if(|at| *at <= now_us).is_some() {
            broker.rabbitmq.declare_exchange();
            told.push("the exchange is declared again");
        }
        if logins_us.take_if(|at| *at <= now_us).is_some() {
            broker.rabbitmq.refuse_logins(false);
            told.push("the broker accepts logins again");
        }
        if sockets_us.take_if(|at| *at <= now_us).is_some() {
            broker.rabbitmq.empty_sockets();
            told.push("sockets take everything again");
        }
        if now_us == u64::MAX {
            self.rabbitmq.lingers_until_us = 0;
        }
        drop(broker);
        told.into_iter().for_each(|line| self.tell(|| line.to_owned()));
    }
}
