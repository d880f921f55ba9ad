//! The broker in the process. It has no network: what
//! would be lost on it is lost in the faults of its sink.

use std::sync::Arc;

use walrelay::sink::{Broker, Disposition, Failure};

use super::faulty_broker::{AnswerFaults, FaultyBroker};
use super::fixture::{Arrived, SinkFixture};
use crate::sinks::section::Values;
use crate::sinks::test_relay::Event;
use crate::sinks::testing::MemoryBroker;

#[derive(Default)]
pub(crate) struct MemoryFixture {
    broker: MemoryBroker,
    faults: Arc<AnswerFaults>,
}

impl MemoryFixture {
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

impl SinkFixture for MemoryFixture {
    fn broker(&self) -> Arc<dyn Broker> {
        // The section alone gives a broker that keeps nothing.
        drop(Values::default().configure("memory"));
        let inner = Arc::new(self.broker.clone());
        Arc::new(FaultyBroker { inner, faults: Arc::clone(&self.faults) })
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

    fn refuse_for_now(&mut self, event: Event) -> Option<Event> {
        self.refuse(&event, Disposition::Transient);
        Some(event)
    }

    fn provide(&mut self, _place: &Event) {
        self.broker.accept();
    }

    fn lose_answers(&mut self) {
        self.faults.lose_answers();
    }

    fn cut(&mut self) {
        self.faults.cut();
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
