//! A publisher on the thread of its sink.

use std::time::{Duration, Instant};

use super::port::LocalPort;
use super::publish::{PublisherLink, RabbitSink};
use super::publisher::{PublishOrder, Publisher, PublisherStatus};
use crate::base::readiness::Readiness;
use crate::mutants::{Mutant, on};
use crate::sink::{PublishLimits, SinkReport};

pub type LocalSink<P> = RabbitSink<LocalLink<P>>;

pub struct LocalLink<P: LocalPort> {
    publisher: Publisher,
    port: P,
}

impl<P: LocalPort> LocalLink<P> {
    pub fn new(publisher: Publisher, port: P) -> LocalLink<P> {
        LocalLink { publisher, port }
    }

    pub fn port(&mut self) -> &mut P {
        &mut self.port
    }

    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    fn hear(&mut self, now: Instant) {
        while let Some(event) = self.port.poll(now) {
            self.publisher.handle(event, now);
        }
    }

    /// Does what can be done without waiting.
    fn work(&mut self, now: Instant, reports: &mut Vec<SinkReport>) {
        self.hear(now);
        self.publisher.advance(now, &mut self.port);
        self.port.flush(now);
        reports.append(&mut self.publisher.reports());
    }
}

impl<P: LocalPort> Drop for LocalLink<P> {
    /// Ends the connection at once: an event that waits to be written must not be published any
    /// more.
    fn drop(&mut self) {
        if self.publisher.is_empty() {
            self.port.close();
        }
    }
}

impl<P: LocalPort> PublisherLink for LocalLink<P> {
    fn status<T>(&self, read: impl FnOnce(&PublisherStatus) -> T) -> T {
        read(self.publisher.status())
    }

    fn order(&mut self, order: PublishOrder) {
        self.publisher.take(order);
    }

    fn poll(&mut self, now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        let (known, deadline) = (reports.len(), now + patience);
        self.work(now, reports);
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

    fn collect(&mut self, now: Instant, reports: &mut Vec<SinkReport>) {
        self.hear(now);
        reports.append(&mut self.publisher.reports());
    }

    fn publish_until(&mut self, limits: PublishLimits) {
        if on(Mutant::RabbitSendsAfterLease) {
            return;
        }
        self.publisher.publish_until(limits);
        self.port.publish_until(limits);
    }

    fn readiness(&self) -> Option<Readiness<'_>> {
        self.port.readiness()
    }
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
