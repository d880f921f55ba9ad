//! Consequences of a lost connection for the messages: which of them the broker has closed over,
//! and which are sent again.

use std::collections::BTreeSet;
use std::time::Instant;

use super::patience::NOTHING_IS_PUBLISHED;
use super::{Connection, Publisher};
use crate::base::event::Sequence;
use crate::mutants::{Mutant, on};
use crate::sink::SinkReport;
use crate::sink::rabbitmq::channels::PublishChannels;
use crate::sink::rabbitmq::connection_loss::ConnectionLoss;
use crate::sink::rabbitmq::exchanges::KnownExchanges;
use crate::sink::rabbitmq::fault;
use crate::sink::rabbitmq::refusals::Refusal;

impl Publisher {
    /// Prepares what is unconfirmed for the next connection.
    pub(super) fn end_connection(&mut self, now: Instant) {
        let Connection::Open(open) = &mut self.connection else { return };
        let (losses, channels) = (std::mem::take(&mut open.losses), open.channels);
        // The only channel carries events; the question that comes before the first event needs another.
        let cannot_ask = channels == 1 && !open.is_opening && !self.unconfirmed.has_in_flight();
        if open.has_sent_doubtful {
            // The next connection sends others first, however long it takes to make one.
            self.doubtful_since = None;
        }
        let waiting = self.channels.release_all();
        waiting.into_iter().for_each(|sequence| self.unconfirmed.take_up(sequence));
        let (mut unexplained, mut one_at_a_time) = (None, false);
        for loss in losses {
            if loss.is_over_channels() && !on(Mutant::RabbitChannelsMaxForgotten) {
                // The limit is that of the user: a standby and commands log in with it, too.
                self.limit_channels((channels / 2).max(1), &loss, cannot_ask, now);
            }
            if let Some(code) = loss.code.filter(|code| !fault::close_class(*code).1) {
                tracing::warn!(
                    code = "sink.unknown-reply",
                    reply_code = code,
                    "RabbitMQ closed the channel with a reply code that this version does not know"
                );
            }
            self.report_unable(&loss);
            if !self.settle_loss(&loss, now) {
                one_at_a_time |= loss.sends_one_at_a_time();
                unexplained = Some(loss);
            }
        }
        if on(Mutant::RabbitLossIsConfirm) {
            let in_flight = self.unconfirmed.in_flight().into_iter();
            let all: Vec<_> = in_flight.map(|(sequence, _)| sequence).collect();
            all.iter().for_each(|sequence| self.unconfirmed.confirmed(*sequence));
            self.reports.extend(all.into_iter().map(SinkReport::Confirmed));
        }
        self.review_doubtful(now);
        let one_at_a_time = one_at_a_time && !on(Mutant::RabbitSuspectsTogether);
        self.unconfirmed.connection_lost(one_at_a_time);
        if !on(Mutant::RabbitTagsOfOldConnection) {
            self.channels = PublishChannels::new(self.salt);
        }
        self.exchanges = KnownExchanges::default();
        self.status.unanswered = None;
        self.status.is_blocked = false;
        self.overdue = false;
        if let Some(loss) = unexplained {
            let reason = loss.interrupted(&self.address);
            self.report_waiting(match cannot_ask && loss.is_over_channels() {
                true => format!("{NOTHING_IS_PUBLISHED}: {reason}"),
                false => reason,
            });
        }
        self.connection =
            Connection::Away { connect_at: Some(now + self.end_backoff.next_delay()) };
    }

    /// Fails the messages over which the connection was closed, as far as they are known. Returns
    /// whether they are.
    fn settle_loss(&mut self, loss: &ConnectionLoss, now: Instant) -> bool {
        self.status.limits = self.status.limits.after(loss);
        let limits = self.status.limits;
        let is_over_one = loss.is_refused_publish() && self.publish_refused(loss, now)
            || self.exchange_missing(loss, now);
        if self.unconfirmed.in_flight().iter().any(|(_, message)| message.excess(&limits).is_some())
        {
            // It is not sent again, and all others are.
            return true;
        }
        if loss.is_over_a_message()
            && let Some(sequence) = self.blamed()
            && let Some(message) = self.unconfirmed.item(sequence)
        {
            let failure = message.closed_channel(loss);
            // Of a dead letter that is larger than a limit which the broker does not name, less is sent.
            let less = loss.is_over_size().then(|| message.halved(&limits)).flatten();
            self.cut_or_fail(sequence, less, failure);
            return true;
        }
        if loss.is_over_a_queue()
            && let Some(sequence) = self.blamed()
            && let Some(message) = self.unconfirmed.item(sequence)
        {
            let refusal = Refusal::QueueFailed(loss.text.clone());
            self.refusals.add_alone(message, refusal.clone(), now);
            self.refuse(sequence, &refusal);
            return true;
        }
        is_over_one
    }

    /// The message over which the broker must have closed.
    fn blamed(&self) -> Option<Sequence> {
        if on(Mutant::RabbitCloseBlamesFirst) {
            return self.unconfirmed.in_flight().first().map(|(sequence, _)| *sequence);
        }
        self.unconfirmed.lone_suspect()
    }

    /// The login may not publish somewhere. Returns whether it is known which messages are meant:
    /// those for the place that the broker names, or else the only one in flight.
    fn publish_refused(&mut self, loss: &ConnectionLoss, now: Instant) -> bool {
        let in_flight = self.unconfirmed.in_flight().into_iter();
        let mut meant = self.refusals.add(loss, in_flight, now);
        if meant.is_empty() {
            meant.extend(self.unconfirmed.lone_suspect());
        }
        let refusal = Refusal::NotPermitted(loss.text.clone());
        meant.iter().for_each(|sequence| self.refuse(*sequence, &refusal));
        !meant.is_empty()
    }

    /// The broker closed over an exchange for which it could not be asked, or that has just gone. Returns
    /// whether it is known which messages are meant.
    fn exchange_missing(&mut self, loss: &ConnectionLoss, now: Instant) -> bool {
        let in_flight = self.unconfirmed.in_flight().into_iter();
        let meant = in_flight.filter(|(_, message)| {
            loss.misses_exchange(message.exchange()) && !on(Mutant::RabbitMissingExchangeForgotten)
        });
        let (meant, names): (Vec<_>, BTreeSet<_>) =
            meant.map(|(sequence, message)| (sequence, message.exchange())).unzip();
        // The next connection can ask about one that was seen.
        let unseen = names.into_iter().filter(|name| !self.exchanges.has_seen(name));
        unseen.for_each(|name| self.refusals.add_missing(name, now));
        meant.iter().for_each(|sequence| self.refuse(*sequence, &Refusal::NoExchange));
        !meant.is_empty()
    }
}
