//! Plays many seeds on all cores.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::checker::Violation;
use crate::options::Options;
use crate::run;
use crate::sometimes::{ENOUGH_SEEDS, Sometimes};

/// How often progress is told of.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Seeds to play, from that of the options on.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub options: Options,
    pub seeds: u64,
    pub threads: usize,
    pub stops_at_first: bool,
    pub keeps_digests: bool,
}

/// The counts of all seeds together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub seeds: u64,
    pub events: u64,
    pub faults: u64,
    pub rounds: u64,
    pub violations: BTreeMap<u64, Violation>,
    pub sometimes: Sometimes,
    /// The seeds have played one scenario, which does not reach every state.
    pub is_one_scenario: bool,
    /// The fingerprint of each seed, where they are kept.
    pub digests: BTreeMap<u64, u64>,
}

impl Totals {
    /// Whether no rule was violated, and every state was reached that must be in so many seeds.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.missing().is_empty()
    }

    /// States that so many seeds should have reached.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let is_enough = self.seeds >= ENOUGH_SEEDS && !self.is_one_scenario;
        if is_enough { self.sometimes.never() } else { Vec::new() }
    }

    fn merge(&mut self, other: Totals) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.faults += other.faults;
        self.rounds += other.rounds;
        self.violations.extend(other.violations);
        self.sometimes.merge(other.sometimes);
        self.digests.extend(other.digests);
    }
}

/// The progress of a run.
pub enum Progress<'a> {
    /// So many seeds were played.
    Played(u64),
    Violated(u64, &'a Violation),
}

impl Fleet {
    /// Plays all, and tells of it.
    pub fn play(&self, mut tell: impl FnMut(Progress<'_>)) -> Totals {
        let (next, played) = (AtomicU64::new(0), AtomicU64::new(0));
        let stops = AtomicBool::new(false);
        let (sender, violations) = channel();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|_| {
                    let sender = sender.clone();
                    scope.spawn(|| self.work((&next, &played), &stops, sender))
                })
                .collect();
            drop(sender);
            self.watch(&violations, &played, &mut tell);
            let is_one_scenario = self.options.scenario.is_some();
            let mut totals = Totals { is_one_scenario, ..Totals::default() };
            for worker in workers {
                // A panic of the core does not reach the worker.
                if let Ok(part) = worker.join() {
                    totals.merge(part);
                }
            }
            totals
        })
    }

    fn work(
        &self,
        (next, played): (&AtomicU64, &AtomicU64),
        stops: &AtomicBool,
        violations: Sender<(u64, Violation)>,
    ) -> Totals {
        let mut totals = Totals::default();
        while !stops.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= self.seeds {
                break;
            }
            let seed = self.options.seed.wrapping_add(index);
            let report = run(&Options { seed, ..self.options.clone() }, false);
            totals.seeds += 1;
            totals.events += report.events;
            totals.faults += report.happened.len() as u64;
            totals.rounds += report.rounds;
            totals.sometimes.add(&report);
            totals.digests.extend(self.keeps_digests.then_some((seed, report.digest)));
            if let Some(violation) = report.violation {
                if self.stops_at_first {
                    stops.store(true, Ordering::Relaxed);
                }
                // Nobody listens any more once all is over.
                let _is_heard = violations.send((seed, violation.clone()));
                totals.violations.insert(seed, violation);
            }
            played.fetch_add(1, Ordering::Relaxed);
        }
        totals
    }

    /// Until all workers have ended.
    fn watch(
        &self,
        violations: &Receiver<(u64, Violation)>,
        played: &AtomicU64,
        tell: &mut impl FnMut(Progress<'_>),
    ) {
        loop {
            match violations.recv_timeout(PROGRESS_EVERY) {
                Ok((seed, violation)) => tell(Progress::Violated(seed, &violation)),
                Err(RecvTimeoutError::Timeout) => {
                    tell(Progress::Played(played.load(Ordering::Relaxed)));
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
