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
    returned: Option<ReturnedMessage>,
}

#[derive(Debug, Default)]
pub(super) struct PublishesInFlight {
    /// By delivery tag, which begins with 1.
    publishes: BTreeMap<u64, PublishInFlight>,
    /// How many were sent.
    sent: u64,
}

impl PublishesInFlight {
    /// The message is sent behind all that were sent before it.
    pub(super) fn add(&mut self, sequence: Sequence, message: Arc<AmqpMessage>, sent_at: Instant) {
        let returned = None;
        self.sent += 1;
        self.publishes.insert(self.sent, PublishInFlight { sequence, message, sent_at, returned });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.publishes.is_empty()
    }

    /// How many were sent from the oldest in flight on.
    pub(super) fn span(&self) -> u64 {
        self.publishes.first_key_value().map_or(0, |(oldest, _)| self.sent + 1 - oldest)
    }

    /// The oldest publish in flight, and when it was sent.
    pub(super) fn oldest(&self) -> Option<(Sequence, &AmqpMessage, Instant)> {
        let PublishInFlight { sequence, message, sent_at, .. } = self.publishes.values().next()?;
        Some((*sequence, message, *sent_at))
    }

    /// The publishes that were sent at least this long ago, the oldest first.
    pub(super) fn sent_for(
        &self,
        length: Duration,
        now: Instant,
    ) -> impl Iterator<Item = Sequence> {
        let is_old = move |it: &&PublishInFlight| now.duration_since(it.sent_at) >= length;
        self.publishes.values().take_while(is_old).map(|it| it.sequence)
    }

    /// Adds the outcomes that the answer decides, or returns the loss if no more will follow.
    pub(super) fn settle(
        &mut self,
        answer: Answer,
        outcomes: &mut Vec<(Sequence, PublishOutcome)>,
    ) -> AmqpResult<()> {
        match answer {
            Answer::Confirm { tag, multiple, acked } => {
                self.confirm(tag, multiple, acked, outcomes)
            }
            Answer::Returned(returned) => self.message_returned(returned),
            Answer::Closed(loss) => Err(loss),
        }
    }

    fn confirm(
        &mut self,
        tag: u64,
        multiple: bool,
        acked: bool,
        outcomes: &mut Vec<(Sequence, PublishOutcome)>,
    ) -> AmqpResult<()> {
        let sent = self.sent;
        // With `multiple` tag 0 means all in flight.
        let tag = if tag == 0 && multiple { sent } else { tag };
        if tag > sent {
            return Err(ConnectionLoss::of(format!(
                "the broker confirmed delivery tag {tag}, and {sent} messages were sent"
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

    fn message_returned(&mut self, returned: ReturnedMessage) -> AmqpResult<()> {
        let mut publishes = self.publishes.values_mut();
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
