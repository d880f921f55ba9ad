//! The publishes in flight on one channel, by delivery tag, and what the broker's answers mean for
//! them. Pure: no socket, time is an argument.
//!
//! RabbitMQ confirms a message that it cannot route, after it has returned it. A return names no
//! tag: it is matched by the message id, which is unique among what is in flight.

use std::collections::VecDeque;
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

/// Hash of exchange and routing key. Two that are equal only wait for each other.
pub(super) type DestinationHash = u64;

/// A publish that the broker has answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AnsweredPublish {
    pub sequence: Sequence,
    pub destination: DestinationHash,
    pub outcome: PublishOutcome,
}

#[derive(Debug)]
struct PublishInFlight {
    sequence: Sequence,
    destination: DestinationHash,
    message: Arc<AmqpMessage>,
    sent_at: Instant,
    /// When the connection had taken its last byte.
    written_at: Option<Instant>,
    returned: Option<ReturnedMessage>,
}

#[derive(Debug, Default)]
pub(super) struct PublishesInFlight {
    /// From the oldest publish in flight to the newest that was sent; `None` if it is answered.
    publishes: VecDeque<Option<PublishInFlight>>,
    /// How many were sent. It is the delivery tag of the newest.
    sent: u64,
    /// How many of these were written.
    written: u64,
}

impl PublishesInFlight {
    /// The message is sent behind all that were sent before it.
    pub(super) fn add(
        &mut self,
        sequence: Sequence,
        destination: DestinationHash,
        message: Arc<AmqpMessage>,
        sent_at: Instant,
    ) {
        let (written_at, returned) = (None, None);
        self.publishes.push_back(Some(PublishInFlight {
            sequence,
            destination,
            message,
            sent_at,
            written_at,
            returned,
        }));
        self.sent += 1;
    }

    /// The place of the publish with this delivery tag; `None` before the oldest in flight.
    fn index(&self, tag: u64) -> Option<usize> {
        let oldest = self.sent + 1 - self.span();
        tag.checked_sub(oldest).map(|index| index as usize)
    }

    fn in_flight(&self) -> impl Iterator<Item = &PublishInFlight> {
        self.publishes.iter().flatten()
    }

    /// Notes that the connection has taken the next of the messages that were sent.
    pub(super) fn note_written(&mut self, now: Instant) {
        self.written += 1;
        let index = self.index(self.written);
        if let Some(Some(publish)) = index.and_then(|index| self.publishes.get_mut(index)) {
            publish.written_at = Some(now);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.publishes.is_empty()
    }

    /// How many were sent from the oldest in flight on.
    pub(super) fn span(&self) -> u64 {
        self.publishes.len() as u64
    }

    /// The destination of the oldest publish in flight.
    pub(super) fn first(&self) -> Option<DestinationHash> {
        self.in_flight().next().map(|it| it.destination)
    }

    /// When the oldest publish in flight was sent.
    pub(super) fn sent_since(&self) -> Option<Instant> {
        self.in_flight().next().map(|it| it.sent_at)
    }

    /// The oldest publish in flight, and when it was written, if it is.
    pub(super) fn oldest(&self) -> Option<(Sequence, &AmqpMessage, Instant)> {
        let PublishInFlight { sequence, message, written_at, .. } = self.in_flight().next()?;
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
        self.in_flight().take_while(is_old).map(|it| it.sequence)
    }

    /// Adds the publishes that the answer decides, or returns the loss if no more will follow.
    pub(super) fn take_answer(
        &mut self,
        answer: Answer,
        answered: &mut Vec<AnsweredPublish>,
    ) -> AmqpResult<()> {
        match answer {
            Answer::Confirm { tag, multiple, acked } => {
                self.take_confirm(tag, multiple, acked, answered)
            }
            Answer::Returned(returned) => self.note_returned(returned),
        }
    }

    fn take_confirm(
        &mut self,
        tag: u64,
        multiple: bool,
        acked: bool,
        answered: &mut Vec<AnsweredPublish>,
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
        // One before the oldest was answered already.
        let Some(index) = self.index(tag) else { return Ok(()) };
        let first = if multiple { 0 } else { index };
        let mut end = index + 1;
        if multiple && on(Mutant::RabbitRangeOneMore) {
            end = self.publishes.len().min(end + 1);
        }
        for publish in self.publishes.range_mut(first..end).filter_map(Option::take) {
            let PublishInFlight { sequence, destination, returned, .. } = publish;
            let outcome = match returned {
                Some(_) if on(Mutant::RabbitReturnForgotten) => continue,
                Some(returned) if !on(Mutant::RabbitReturnIsAck) => {
                    PublishOutcome::Returned(returned)
                }
                None if !acked && on(Mutant::RabbitNackForgotten) => continue,
                None if !acked && !on(Mutant::RabbitNackIsAck) => PublishOutcome::Nacked,
                _ => PublishOutcome::Confirmed,
            };
            answered.push(AnsweredPublish { sequence, destination, outcome });
        }
        while self.publishes.front().is_some_and(Option::is_none) {
            self.publishes.pop_front();
        }
        Ok(())
    }

    fn note_returned(&mut self, returned: ReturnedMessage) -> AmqpResult<()> {
        let unwritten = (self.sent - self.written) as usize;
        let written = self.publishes.len().saturating_sub(unwritten);
        let mut publishes = self.publishes.iter_mut().take(written).flatten();
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
