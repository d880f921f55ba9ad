//! The broker in the process. It has no network: what would be lost on it is lost in its sink's ears.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use walrelay::base::error::Fault;
use walrelay::base::event::{Outbound, Sequence};
use walrelay::base::finding::Finding;
use walrelay::dead_letter::writer::{DeadLetterAddress, DeadLetterCause, DeadLetterWriter};
use walrelay::sink::log::{DeadLetterLog, ReadFrom};
use walrelay::sink::memory::{MemoryBroker, MemorySettings};
use walrelay::sink::{
    Broker, Disposition, Failure, PublishError, Requirements, Sink, SinkKind, SinkReport,
    StartupCheck,
};

use super::fixture::{Arrived, SinkFixture};
use crate::hand::Event;
use crate::section::Values;

#[derive(Default)]
pub(crate) struct MemoryBed {
    broker: MemoryBroker,
    ears: Arc<Ears>,
}

impl MemoryBed {
    fn refuse(&self, event: &Event, disposition: Disposition) {
        let text = String::new;
        let class = "memory.refused".to_owned();
        let (known, key) = (true, None);
        let failure = Failure {
            disposition,
            known,
            key,
            class,
            subject: text(),
            reason: text(),
            mend: text(),
        };
        self.broker.refuse(&event.id, failure);
    }

    fn at(&self, place: &Event) -> Vec<Arrived> {
        let here = self.broker.arrived().into_iter().filter(|event| event.topic == place.topic);
        here.map(|event| Arrived { key: event.key, value: event.value, headers: event.headers })
            .collect()
    }
}

impl SinkFixture for MemoryBed {
    fn broker(&self) -> Arc<dyn Broker> {
        // The section alone gives a broker that keeps nothing.
        drop(Values::default().configure("memory"));
        let inner = MemorySettings { broker: Some(self.broker.clone()) };
        Arc::new(Heard { inner, ears: Arc::clone(&self.ears) })
    }

    fn place(&mut self, name: &str) -> Event {
        Event::new(name, "")
    }

    fn count(&mut self, place: &Event) -> usize {
        self.at(place).len()
    }

    fn take(&mut self, place: &Event) -> Vec<Arrived> {
        self.at(place)
    }

    fn poison(&mut self, event: Event) -> Event {
        self.refuse(&event, Disposition::Terminal);
        event
    }

    fn refuse_for_now(&mut self, event: Event) -> Event {
        self.refuse(&event, Disposition::Transient);
        event
    }

    fn provide(&mut self, _place: &Event) {
        self.broker.accept();
    }

    fn lose_answers(&mut self) {
        self.ears.deaf.store(true, Ordering::SeqCst);
    }

    fn cut(&mut self) {
        self.ears.cuts.fetch_add(1, Ordering::SeqCst);
        self.ears.deaf.store(false, Ordering::SeqCst);
    }

    fn stall(&mut self) {
        self.broker.set_silent(true);
    }

    fn go_on(&mut self) {
        self.broker.set_silent(false);
    }

    fn kill(&mut self) {
        self.broker.set_down(true);
    }

    fn revive(&mut self) {
        self.broker.set_down(false);
    }

    fn connections(&self) -> usize {
        0
    }
}

#[derive(Debug, Default)]
struct Ears {
    deaf: AtomicBool,
    cuts: AtomicUsize,
}

/// A memory broker whose answers may be lost.
#[derive(Debug)]
struct Heard {
    inner: MemorySettings,
    ears: Arc<Ears>,
}

impl Broker for Heard {
    fn kind(&self) -> &'static SinkKind {
        self.inner.kind()
    }

    fn open(&self, first: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        let (inner, ears) = (self.inner.open(first)?, Arc::clone(&self.ears));
        let cuts = ears.cuts.load(Ordering::SeqCst);
        Ok(Box::new(HeardSink { inner, ears, cuts, lost: false }))
    }

    fn inspect(&self, wanted: &Requirements) -> Vec<Finding> {
        self.inner.inspect(wanted)
    }

    fn prepare(&self, wanted: &Requirements) -> Result<Vec<String>, Vec<Fault>> {
        self.inner.prepare(wanted)
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        self.inner.log(dead_letters, from)
    }
}

struct HeardSink {
    inner: Box<dyn Sink>,
    ears: Arc<Ears>,
    cuts: usize,
    lost: bool,
}

impl Sink for HeardSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        self.inner.publish(sequence, event)
    }

    fn poll(&mut self, patience: Duration, reports: &mut Vec<SinkReport>) {
        let before = reports.len();
        self.inner.poll(patience, reports);
        if self.ears.deaf.load(Ordering::SeqCst) {
            self.lost |= reports.len() > before;
            reports.truncate(before);
        }
        if self.cuts != self.ears.cuts.load(Ordering::SeqCst) && self.lost {
            self.lost = false;
            reports.push(SinkReport::Broken("answers were lost".to_owned()));
        }
    }

    fn retry(&mut self, sequence: Sequence) {
        self.inner.retry(sequence);
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        self.inner.replace_with_dead_letter(sequence, writer, cause);
    }
}
