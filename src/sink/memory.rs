//! A broker in the process: what is left of the relay's cost is the source's.
//!
//! Without a [`MemoryBroker`] that somebody looks into, everything is confirmed and nothing kept.
//! Tests hold one, read back what arrived, and give it the faults that brokers have.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::settings::{Misfit, Section};
use super::{Broker, Failure, First, Inspection, News, Refused, Sink, Wanted};
use crate::error::Fault;
use crate::message::{Outbound, Sequence};

/// `kind = "memory"`.
#[derive(Clone, Debug, Default)]
pub struct MemorySettings {
    /// Where events are kept; nowhere when there is none.
    pub broker: Option<MemoryBroker>,
}

pub(super) fn configure(_section: &dyn Section) -> Result<Arc<dyn Broker>, Vec<Misfit>> {
    Ok(Arc::new(MemorySettings::default()))
}

impl Broker for MemorySettings {
    fn open(&self, _first: Option<&First<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        if self.broker.is_none() {
            tracing::warn!("sink.kind is memory: events are confirmed and dropped");
        }
        Ok(Box::new(MemorySink { broker: self.broker.clone(), ..MemorySink::default() }))
    }

    fn inspect(&self, _wanted: &Wanted) -> Inspection {
        let doubtful = vec!["sink.kind is memory: events are dropped".to_owned()];
        Inspection { doubtful, ..Inspection::default() }
    }

    fn prepare(&self, _wanted: &Wanted) -> Result<Vec<String>, Vec<Fault>> {
        Ok(Vec::new())
    }
}

/// What a [`MemorySink`] publishes to. Clones are the same broker.
#[derive(Clone, Debug, Default)]
pub struct MemoryBroker(Arc<Mutex<State>>);

/// An event as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Topic.
    pub topic: String,
    /// Key.
    pub key: Option<Vec<u8>>,
    /// Value.
    pub value: Option<Vec<u8>>,
    /// Event id.
    pub id: String,
    /// Headers in order.
    pub headers: Vec<(String, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct State {
    arrived: Vec<Arrived>,
    /// Answers nothing while it is down.
    down: bool,
    /// Takes events and does not answer: what is confirmed is kept back.
    silent: bool,
    /// Answers to events that bear one of these ids.
    refusals: Vec<(String, Failure)>,
}

impl MemoryBroker {
    /// Everything that arrived, in order.
    #[must_use]
    pub fn arrived(&self) -> Vec<Arrived> {
        self.state().arrived.clone()
    }

    /// Takes nothing until it is up again.
    pub fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// Takes events and confirms none until it speaks again.
    pub fn set_silent(&self, silent: bool) {
        self.state().silent = silent;
    }

    /// Refuses the event `id` with `failure` until [`MemoryBroker::accept`].
    pub fn refuse(&self, id: &str, failure: Failure) {
        self.state().refusals.push((id.to_owned(), failure));
    }

    /// Ends all refusals.
    pub fn accept(&self) {
        self.state().refusals.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes in order, one event after the other, and stops at the first that is refused.
#[derive(Debug, Default)]
struct MemorySink {
    broker: Option<MemoryBroker>,
    waiting: VecDeque<(Sequence, Arrived)>,
    /// The head of `waiting` was refused and waits for its retry.
    held: bool,
    unreachable: bool,
    news: Vec<News>,
}

impl Sink for MemorySink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Refused> {
        if self.broker.is_none() {
            std::hint::black_box(event);
            self.news.push(News::Confirmed(sequence));
            return Ok(());
        }
        let own = |(name, value): &(&str, &[u8])| ((*name).to_owned(), value.to_vec());
        let arrived = Arrived {
            topic: event.topic.to_owned(),
            key: event.key.map(<[u8]>::to_vec),
            value: event.value.map(<[u8]>::to_vec),
            id: event.id.to_owned(),
            headers: event.headers.iter().map(own).collect(),
        };
        self.waiting.push_back((sequence, arrived));
        Ok(())
    }

    fn poll(&mut self, patience: Duration, news: &mut Vec<News>) {
        if let Some(broker) = self.broker.clone() {
            self.deliver(&broker);
        }
        if self.news.is_empty() {
            std::thread::sleep(patience);
        }
        news.append(&mut self.news);
    }

    fn keeps_failed(&self) -> bool {
        true
    }

    fn retry(&mut self, sequence: Sequence) {
        self.held &= self.waiting.front().is_none_or(|(head, _)| *head != sequence);
    }
}

impl MemorySink {
    fn deliver(&mut self, broker: &MemoryBroker) {
        let mut state = broker.state();
        if state.down != self.unreachable {
            self.unreachable = state.down;
            self.news.push(match state.down {
                true => News::Unreachable("the memory broker is down".to_owned()),
                false => News::Reachable,
            });
        }
        while !state.down && !state.silent && !self.held {
            let Some((sequence, event)) = self.waiting.pop_front() else { return };
            let refusal = state.refusals.iter().find(|(id, _)| *id == event.id);
            if let Some((_, failure)) = refusal {
                self.news.push(News::Failed(sequence, failure.clone()));
                self.waiting.push_front((sequence, event));
                self.held = true;
                return;
            }
            state.arrived.push(event);
            self.news.push(News::Confirmed(sequence));
        }
    }
}
