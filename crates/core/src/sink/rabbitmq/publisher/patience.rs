//! How long the publisher waits for an answer, for whose sake, and what it does then.

use std::time::{Duration, Instant};

use super::{
    CHANNELS_LIMITED_FOR, CHANNELS_LIMITED_FOR_MAX, CHECK_EVERY, Connection, Publisher, doubled,
};
use crate::sink::rabbitmq::channels::CHANNELS_MAX;
use crate::sink::rabbitmq::connection_loss::ConnectionLoss;
use crate::sink::rabbitmq::exchanges::Existence;
use crate::sink::rabbitmq::port::AmqpPort;

/// A queue that has answered nothing for this long does not keep others waiting.
pub(super) const UNANSWERED_AFTER: Duration = Duration::from_secs(2);
/// How long the broker may leave a question unanswered before that is reported.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The consequence of a limit that leaves only one channel, before anything was sent.
pub(super) const NOTHING_IS_PUBLISHED: &str =
    "nothing can be published, because no channel is left to ask whether an exchange exists";

impl Publisher {
    /// Looks for what has had no answer for long.
    pub(super) fn check(&mut self, now: Instant, port: &mut impl AmqpPort) {
        let Connection::Open(open) = &mut self.connection else { return };
        if now < open.check_at {
            return;
        }
        open.check_at = now + CHECK_EVERY;
        let flows_since = open.flows_since;
        self.raise_channels(now);
        let flows = self.flows(now);
        self.note_unanswered(flows, now);
        let is_old = |at: Instant| now.saturating_duration_since(at) >= UNANSWERED_AFTER;
        if flows && self.channels.sent_since().is_some_and(is_old) {
            self.ask("", now, port);
        }
        let asked_at = self.exchanges.asked_at();
        self.check_overdue(asked_at.map(|at| at.max(flows_since)), now);
    }

    /// Uses fewer channels for a while. Others may have used up the limit of the user.
    pub(super) fn limit_channels(
        &mut self,
        channels: usize,
        loss: &ConnectionLoss,
        cannot_ask: bool,
        now: Instant,
    ) {
        let consequence = match cannot_ask {
            true => NOTHING_IS_PUBLISHED,
            false => "events of more destinations than that wait for each other",
        };
        tracing::warn!(
            code = "sink.channels-limited",
            channels,
            help = self.address.limit_mend(&loss.text),
            "the user has no further channels: {consequence}"
        );
        let pauses = [CHANNELS_LIMITED_FOR, CHANNELS_LIMITED_FOR_MAX];
        self.channels_limited = Some(doubled(self.channels_limited, now, pauses));
        self.channels_max = channels;
    }

    fn raise_channels(&mut self, now: Instant) {
        if self.channels_max < CHANNELS_MAX
            && let Some((at, pause)) = &mut self.channels_limited
            && now.saturating_duration_since(*at) >= *pause
        {
            *at = now;
            self.channels_max = (2 * self.channels_max).min(CHANNELS_MAX);
        }
    }

    /// Whether messages have been sent without a pause for so long that an answer that is missing
    /// is missing because of its destination.
    pub(super) fn flows(&self, now: Instant) -> bool {
        let Connection::Open(open) = &self.connection else { return false };
        let flows_for = now.saturating_duration_since(open.flows_since);
        !self.status.is_blocked && flows_for > UNANSWERED_AFTER && !self.may_not_send(now)
    }

    /// Takes the broker's answer to a question. What was written before that was asked, and long ago,
    /// waits for its destination, and others do not wait for it. While the broker answers no
    /// question either, nothing more is sent than the bounds allow.
    pub(super) fn take_existence(&mut self, existence: Existence, now: Instant) {
        let Some(asked_at) = self.exchanges.take_answer(existence, now) else { return };
        if self.flows(now) {
            let length = UNANSWERED_AFTER.max(now.saturating_duration_since(asked_at));
            let long_ago = self.channels.written_for(length, now);
            long_ago.for_each(|sequence| self.unconfirmed.unanswered(sequence));
        }
    }

    /// Notes the oldest message that has been without an answer for long, while the broker takes
    /// others.
    pub(super) fn note_unanswered(&mut self, flows: bool, now: Instant) {
        let is_old = |at| now.saturating_duration_since(at) >= UNANSWERED_AFTER;
        let oldest = self.channels.oldest().filter(|(.., written_at)| flows && is_old(*written_at));
        self.status.unanswered = oldest.map(|(sequence, message, _)| {
            let (exchange, routing_key) = message.destination();
            (sequence, format!("routing key {routing_key} of exchange {exchange}"))
        });
    }

    /// Reports a broker that accepts connections and answers nothing. A queue that confirms nothing
    /// is not that: the broker answers other questions meanwhile.
    fn check_overdue(&mut self, asked_at: Option<Instant>, now: Instant) {
        let waiting = asked_at.map(|at| now.saturating_duration_since(at)).unwrap_or_default();
        let is_blocked = self.status.is_blocked;
        self.overdue = !is_blocked && waiting > ANSWER_WITHIN;
        if self.overdue {
            // Sending again would only duplicate: the broker may have the messages already.
            let limit_s = ANSWER_WITHIN.as_secs();
            self.report_waiting(format!(
                "the broker has answered neither publishes nor questions for over {limit_s} s: see its log, and: rabbitmq-diagnostics status"
            ));
        } else if !is_blocked {
            self.report_reachable();
        }
    }
}
