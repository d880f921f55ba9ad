//! How often the interesting states were reached: a simulator that never reaches one proves nothing
//! of it.

use std::collections::BTreeMap;
use std::fmt;

use crate::faults::{FAULTS, FaultKind};
use crate::options::SinkKind;
use crate::world::Report;

/// Codes with which a relay stops in some schedules.
const STOPS: [&str; 6] = [
    "dead-letter.breaker-open",
    "publication.recreated",
    "publication.table-missing",
    "slot.moved",
    "slot.went-back",
    "stop.unsettled",
];

/// In so many seeds every state must have been reached.
pub(crate) const ENOUGH_SEEDS: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Named(&'static str),
    Fault(FaultKind),
    Stop(&'static str),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Named(name) => f.pad(name),
            State::Fault(kind) => f.pad(&format!("fault {kind:?}")),
            State::Stop(code) => f.pad(&format!("stop {code}")),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sometimes(BTreeMap<State, u64>);

impl Sometimes {
    /// Adds what one run has reached.
    pub fn add(&mut self, report: &Report) {
        for fault in FAULTS.into_iter().filter(|it| it.happens_with(report.sink)) {
            self.count(State::Fault(fault), 0);
        }
        for stop in STOPS {
            self.count(State::Stop(stop), 0);
        }
        for (_, fault) in &report.happened {
            self.count(State::Fault(*fault), 1);
        }
        for stop in &report.stops {
            self.count(State::Stop(stop), 1);
        }
        let counts = &report.counts;
        let states = [
            ("takeovers", report.takeovers),
            ("stopped as asked", report.drained),
            ("stored twice", report.repeats),
            ("known from the state file", counts.known_from_file),
            ("tried again", counts.retries),
            ("attempts exhausted", counts.exhausted),
            ("dead letters", counts.dead_letters),
            ("dead letters of parked keys", report.parked),
        ];
        for (state, times) in states {
            self.count(State::Named(state), times);
        }
        if report.sink != SinkKind::Rabbitmq {
            self.count(State::Named("known from a topic"), counts.known_from_topic);
        }
        if report.sink == SinkKind::Rabbitmq {
            for (state, times) in report.rabbitmq.states() {
                self.count(State::Named(state), times);
            }
        }
    }

    fn count(&mut self, state: State, times: u64) {
        *self.0.entry(state).or_default() += times;
    }

    pub fn merge(&mut self, other: Sometimes) {
        for (state, times) in other.0 {
            self.count(state, times);
        }
    }

    /// States that were never reached.
    #[must_use]
    pub fn never(&self) -> Vec<String> {
        self.0
            .iter()
            .filter(|(_, times)| **times == 0)
            .map(|(state, _)| state.to_string())
            .collect()
    }
}

impl fmt::Display for Sometimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(state, times)| writeln!(f, "  {state:<32} {times:>12}"))
    }
}
