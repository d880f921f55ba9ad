//! A publisher on the thread of its sink.

use std::time::{Duration, Instant};

use super::port::LocalPort;
use super::publish::{PublisherLink, RabbitSink};
use super::publisher::{PublishOrder, Publisher, PublisherStatus};
use crate::mutants::{Mutant, on};
use crate::sink::{PublishLimits, SinkReport};

pub type LocalSink<P> = RabbitSink<LocalLink<P>>;

pub struct LocalLink<P> {
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
}

impl<P: LocalPort> PublisherLink for LocalLink<P> {
    fn status<T>(&self, read: impl FnOnce(&PublisherStatus) -> T) -> T {
        read(self.publisher.status())
    }

    fn order(&mut self, order: PublishOrder) {
        self.publisher.take(order);
    }

    fn poll(&mut self, now: Instant, _patience: Duration, reports: &mut Vec<SinkReport>) {
        self.hear(now);
        self.publisher.advance(now, &mut self.port);
        reports.append(&mut self.publisher.reports());
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
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
