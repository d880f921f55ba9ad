//! The sink over a publisher: copies events, and hands them over as orders.

use std::time::{Duration, Instant};

use super::limits::Limits;
use super::message::{self, AmqpMessage};
use super::publisher::{PublishOrder, PublisherStatus};
use crate::base::event::{Outbound, Sequence};
use crate::base::readiness::Readiness;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::key_lanes::KeyHasher;
use crate::sink::{Failure, PublishError, PublishLimits, Sink, SinkReport};

/// The way to a publisher.
pub trait PublisherLink {
    fn status<T>(&self, read: impl FnOnce(&PublisherStatus) -> T) -> T;

    fn order(&mut self, order: PublishOrder);

    /// Lets the publisher work, and appends what it reports, waiting at most `patience` for the
    /// first.
    fn poll(&mut self, now: Instant, patience: Duration, reports: &mut Vec<SinkReport>);

    /// Appends what is reported by now. Nothing is sent.
    fn collect(&mut self, now: Instant, reports: &mut Vec<SinkReport>);

    fn publish_until(&mut self, limits: PublishLimits);

    /// See [`Sink::readiness`].
    fn readiness(&self) -> Option<Readiness<'_>>;
}

#[derive(Debug)]
pub struct RabbitSink<L> {
    link: L,
    key_hasher: KeyHasher,
}

impl<L: PublisherLink> RabbitSink<L> {
    /// `seed` is for the hashes of keys.
    pub fn new(link: L, seed: u64) -> RabbitSink<L> {
        RabbitSink { link, key_hasher: KeyHasher::new(seed) }
    }

    pub fn link(&mut self) -> &mut L {
        &mut self.link
    }

    fn hand_over(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
        copy: impl FnOnce(&Outbound<'_>, &Limits, Option<u64>) -> Result<AmqpMessage, Failure>,
    ) -> Result<(), PublishError> {
        let (is_blocked, limits) = self.link.status(|status| (status.is_blocked, status.limits));
        if is_blocked {
            return Err(PublishError::QueueFull);
        }
        let lane = event.key.map(|key| self.key_hasher.lane(key));
        let message = copy(event, &limits, lane).map_err(PublishError::Failed)?;
        self.link.order(PublishOrder::Publish(sequence, message));
        Ok(())
    }
}

impl<L: PublisherLink> Sink for RabbitSink<L> {
    fn broker(&mut self) -> u64 {
        self.link.status(|status| status.broker)
    }

    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        self.hand_over(sequence, event, AmqpMessage::event)
    }

    fn publish_dead_letter(
        &mut self,
        sequence: Sequence,
        dead_letter: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        self.hand_over(sequence, dead_letter, AmqpMessage::dead_letter)
    }

    fn has_room_for(&self, event: &Outbound<'_>) -> bool {
        message::has_room_for(event, &self.link.status(|status| status.limits))
    }

    fn poll(&mut self, now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        self.link.poll(now, patience, reports);
    }

    fn readiness(&self) -> Option<Readiness<'_>> {
        self.link.readiness()
    }

    fn publish_until(&mut self, limits: PublishLimits) {
        self.link.publish_until(limits);
    }

    fn destination(&self, sequence: Sequence) -> Option<String> {
        self.link.status(|status| {
            let unanswered = status.unanswered.as_ref();
            let oldest = unanswered.filter(|(oldest, _)| *oldest == sequence);
            oldest.map(|(_, destination)| destination.clone())
        })
    }

    fn withdraw(&mut self, now: Instant, reports: &mut Vec<SinkReport>) {
        self.link.publish_until(PublishLimits { begin_until: now, finish_until: now });
        let mut known = Vec::new();
        self.link.collect(now, &mut known);
        let is_confirmed = |report: &SinkReport| matches!(report, SinkReport::Confirmed(_));
        reports.extend(known.into_iter().filter(is_confirmed));
    }

    fn retry(&mut self, sequence: Sequence) {
        self.link.order(PublishOrder::Retry(sequence));
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        let letter = Box::new((writer.clone(), cause.clone()));
        self.link.order(PublishOrder::DeadLetter(sequence, letter));
    }
}
