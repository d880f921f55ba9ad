//! The publishes in flight on one channel, by delivery tag, and what the broker's answers mean for
//! them. Pure: no socket, time is an argument.
//!
//! RabbitMQ confirms a message that it cannot route, after it has returned it. A return names no
//! tag: it is matched by the message id, which is unique among what is in flight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answer::{Answer, ReturnedMessage};
use super::connection_loss::{AmqpResult, ConnectionLoss};
use super::message::AmqpMessage;
use crate::base::event::Sequence;
use crate::mutants::{Mutant, on};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PublishOutcome {
    /// Routed, and in every queue it was routed to.
    Confirmed,
    /// A queue could not or would not keep it.
    Nacked,
    /// Not routed to any queue.
    Returned(ReturnedMessage),
}

#[derive(Debug)]
struct PublishInFlight {
    sequence: Sequence,
    message: Arc<AmqpMessage>,
    sent_at: Instant,
    /// When the connection had taken its last byte.
    written_at: Option<Instant>,
    returned: Option<ReturnedMessage>,
}

#[derive(Debug, Default)]
pub(super) struct PublishesInFlight {
    /// The publishes by delivery tag, which begins with 1.
    publishes: BTreeMap<u64, PublishInFlight>,
    /// How many were sent.
    sent: u64,
    /// How many of these were written.
    written: u64,
}

impl PublishesInFlight {
    /// The message is sent behind all that were sent before it.
    pub(super) fn add(&mut self, sequence: Sequence, message: Arc<AmqpMessage>, sent_at: Instant) {
        let (written_at, returned) = (None, None);
        self.sent += 1;
        let publish = PublishInFlight { sequence, message, sent_at, written_at, returned };
        self.publishes.insert(self.sent, publish);
    }

    /// Notes that the connection has taken the next of the messages that were sent.
    pub(super) fn note_written(&mut self, now: Instant) {
        self.written += 1;
        if let Some(publish) = self.publishes.get_mut(&self.written) {
            publish.written_at = Some(now);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.publishes.is_empty()
    }

    /// How many were sent from the oldest in flight on.
    pub(super) fn span(&self) -> u64 {
        self.publishes.first_key_value().map_or(0, |(oldest, _)| self.sent + 1 - oldest)
    }

    /// When the oldest publish in flight was sent.
    pub(super) fn sent_since(&self) -> Option<Instant> {
        self.publishes.values().next().map(|it| it.sent_at)
    }

    /// The oldest publish in flight, and when it was written, if it is.
    pub(super) fn oldest(&self) -> Option<(Sequence, &AmqpMessage, Instant)> {
        let PublishInFlight { sequence, message, written_at, .. } =
            self.publishes.values().next()?;
        written_at.map(|at| (*sequence, &**message, at))
    }

    /// The publishes that were written at least this long ago, the oldest first.
    pub(super) fn written_for(
        &self,
        length: Duration,
        now: Instant,
    ) -> impl Iterator<Item = Sequence> {
        let is_old = move |it: &&PublishInFlight| {
            it.written_at.is_some_and(|at| now.saturating_duration_since(at) >= length)
        };
        self.publishes.values().take_while(is_old).map(|it| it.sequence)
    }

    /// Adds the outcomes that the answer decides, or returns the loss if no more will follow.
    pub(super) fn take_answer(
        &mut self,
        answer: Answer,
        outcomes: &mut Vec<(Sequence, PublishOutcome)>,
    ) -> AmqpResult<()> {
        match answer {
            Answer::Confirm { tag, multiple, acked } => {
                self.take_confirm(tag, multiple, acked, outcomes)
            }
            Answer::Returned(returned) => self.note_returned(returned),
        }
    }

    fn take_confirm(
        &mut self,
        tag: u64,
        multiple: bool,
        acked: bool,
        outcomes: &mut Vec<(Sequence, PublishOutcome)>,
    ) -> AmqpResult<()> {
        let written = self.written;
        // With `multiple` tag 0 means all in flight.
        let tag = if tag == 0 && multiple { written } else { tag };
        if tag > written {
            return Err(ConnectionLoss::of(format!(
                "the broker confirmed delivery tag {tag}, and {written} messages were sent"
            )));
        }
        let multiple = match multiple {
            true => !on(Mutant::RabbitMultipleIsSingle),
            false => on(Mutant::RabbitSingleIsMultiple),
        };
        // A tag that is missing was answered already.
        let answered: Vec<PublishInFlight> = if multiple {
            let behind = tag + 1 + u64::from(on(Mutant::RabbitRangeOneMore));
            let later = self.publishes.split_off(&behind);
            std::mem::replace(&mut self.publishes, later).into_values().collect()
        } else {
            self.publishes.remove(&tag).into_iter().collect()
        };
        for publish in answered {
            let outcome = match publish.returned {
                Some(_) if on(Mutant::RabbitReturnForgotten) => continue,
                Some(returned) if !on(Mutant::RabbitReturnIsAck) => {
                    PublishOutcome::Returned(returned)
                }
                None if !acked && on(Mutant::RabbitNackForgotten) => continue,
                None if !acked && !on(Mutant::RabbitNackIsAck) => PublishOutcome::Nacked,
                _ => PublishOutcome::Confirmed,
            };
            outcomes.push((publish.sequence, outcome));
        }
        Ok(())
    }

    fn note_returned(&mut self, returned: ReturnedMessage) -> AmqpResult<()> {
        let mut publishes = self.publishes.range_mut(..=self.written).map(|(_, publish)| publish);
        let Some(publish) = publishes.find(|publish| {
            publish.message.id() == returned.id || on(Mutant::RabbitReturnOfOldest)
        }) else {
            let text = "the broker returned a message that is not in flight";
            return Err(ConnectionLoss::of(text));
        };
        publish.returned = Some(returned);
        Ok(())
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
