//! The sink: copies events for its publisher, and lets it work through the port.

use std::time::{Duration, Instant};

use super::limits::Limits;
use super::message::{self, AmqpMessage};
use super::port::AmqpPort;
use super::publisher::Publisher;
use crate::base::event::{Outbound, Sequence};
use crate::base::readiness::Readiness;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::mutants::{Mutant, on};
use crate::sink::key_lanes::KeyHasher;
use crate::sink::{Failure, PublishError, Sink, SinkReport};

pub struct RabbitSink<P: AmqpPort> {
    publisher: Publisher,
    port: P,
    key_hasher: KeyHasher,
}

impl<P: AmqpPort> RabbitSink<P> {
    /// `seed` is for the hashes of keys.
    pub fn new(publisher: Publisher, port: P, seed: u64) -> RabbitSink<P> {
        RabbitSink { publisher, port, key_hasher: KeyHasher::new(seed) }
    }

    pub fn port(&mut self) -> &mut P {
        &mut self.port
    }

    fn hand_over(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
        copy: impl FnOnce(&Outbound<'_>, &Limits, Option<u64>) -> Result<AmqpMessage, Failure>,
    ) -> Result<(), PublishError> {
        let status = self.publisher.status();
        if status.is_blocked {
            return Err(PublishError::QueueFull);
        }
        let lane = event.key.map(|key| self.key_hasher.lane(key));
        let message = copy(event, &status.limits, lane).map_err(PublishError::Failed)?;
        self.publisher.publish(sequence, message);
        Ok(())
    }

    fn hear(&mut self, now: Instant) {
        while let Some(event) = self.port.poll(now) {
            self.publisher.handle(event, now);
        }
    }

    /// Appends what is reported by now. Nothing is sent.
    fn collect(&mut self, now: Instant, reports: &mut Vec<SinkReport>) {
        self.hear(now);
        reports.append(&mut self.publisher.reports());
    }
}

impl<P: AmqpPort> Drop for RabbitSink<P> {
    /// Closes the connection in good order if nothing is unconfirmed. Otherwise the port ends it at once: an
    /// event that waits to be written must not be published any more.
    fn drop(&mut self) {
        if self.publisher.is_empty() {
            self.port.close();
        }
    }
}

impl<P: AmqpPort> Sink for RabbitSink<P> {
    fn broker(&mut self) -> u64 {
        self.publisher.status().broker
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
        message::has_room_for(event, &self.publisher.status().limits)
    }

    fn poll(&mut self, now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        let (known, deadline) = (reports.len(), now + patience);
        self.hear(now);
        self.publisher.advance(now, &mut self.port);
        self.port.flush(now);
        reports.append(&mut self.publisher.reports());
        if reports.len() > known || now >= deadline {
            return;
        }
        let until = self.publisher.wake_at().map_or(deadline, |at| at.min(deadline));
        if let Some(later) = self.port.wait(until.saturating_duration_since(now)) {
            // Nothing is sent: the machine may have been suspended meanwhile, so that a peer publishes now. The
            // relay looks for that before the next poll.
            self.collect(later, reports);
        }
    }

    fn readiness(&self) -> Option<Readiness<'_>> {
        self.port.readiness()
    }

    fn publish_until(&mut self, until: Instant) {
        if on(Mutant::RabbitSendsAfterLease) {
            return;
        }
        self.publisher.publish_until(until);
        self.port.publish_until(until);
    }

    fn destination(&self, sequence: Sequence) -> Option<String> {
        let unanswered = self.publisher.status().unanswered.as_ref();
        let oldest = unanswered.filter(|(oldest, _)| *oldest == sequence);
        oldest.map(|(_, destination)| destination.clone())
    }

    fn withdraw(&mut self, now: Instant, reports: &mut Vec<SinkReport>) {
        self.publish_until(now);
        let mut known = Vec::new();
        self.collect(now, &mut known);
        let is_confirmed = |report: &SinkReport| matches!(report, SinkReport::Confirmed(_));
        reports.extend(known.into_iter().filter(is_confirmed));
    }

    fn retry(&mut self, sequence: Sequence) {
        self.publisher.retry(sequence);
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        self.publisher.replace_with_dead_letter(sequence, writer, cause);
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
