//! A wrapper around a sink that loses its reports and delays polls, for sinks without a connection
//! that could be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use walrelay::base::error::Fault;
use walrelay::base::event::{Outbound, Sequence};
use walrelay::base::finding::Finding;
use walrelay::dead_letter::writer::{DeadLetterAddress, DeadLetterCause, DeadLetterWriter};
use walrelay::sink::log::{DeadLetterLog, ReadFrom};
use walrelay::sink::{
    Broker, PublishError, Requirements, Sink, SinkKind, SinkReport, StartupCheck,
};

#[derive(Debug, Default)]
pub(super) struct AnswerFaults {
    loses_answers: AtomicBool,
    stalled: AtomicBool,
    cuts: AtomicUsize,
}

impl AnswerFaults {
    pub(super) fn lose_answers(&self) {
        self.loses_answers.store(true, Ordering::SeqCst);
    }

    pub(super) fn cut(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        self.loses_answers.store(false, Ordering::SeqCst);
    }

    pub(super) fn stall(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::SeqCst);
    }
}

/// A broker whose answers may be lost.
#[derive(Debug)]
pub(super) struct FaultyBroker {
    pub(super) inner: Arc<dyn Broker>,
    pub(super) faults: Arc<AnswerFaults>,
}

impl Broker for FaultyBroker {
    fn kind(&self) -> &'static SinkKind {
        self.inner.kind()
    }

    fn open(&self, first: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        let (inner, faults) = (self.inner.open(first)?, Arc::clone(&self.faults));
        let cuts = faults.cuts.load(Ordering::SeqCst);
        Ok(Box::new(FaultySink { inner, faults, cuts, lost: false }))
    }

    fn inspect(&self, wanted: &Requirements) -> Vec<Finding> {
        self.inner.inspect(wanted)
    }

    fn prepare(&self, wanted: &Requirements, dry_run: bool) -> Result<Vec<String>, Vec<Fault>> {
        self.inner.prepare(wanted, dry_run)
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        self.inner.log(dead_letters, from)
    }
}

struct FaultySink {
    inner: Box<dyn Sink>,
    faults: Arc<AnswerFaults>,
    cuts: usize,
    lost: bool,
}

impl Sink for FaultySink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        self.inner.publish(sequence, event)
    }

    fn publish_alone(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        self.inner.publish_alone(sequence, event)
    }

    fn publish_dead_letter(
        &mut self,
        sequence: Sequence,
        dead_letter: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        self.inner.publish_dead_letter(sequence, dead_letter)
    }

    fn holds_back(&self) -> bool {
        self.inner.holds_back()
    }

    fn poll(&mut self, now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        if self.faults.stalled.load(Ordering::SeqCst) {
            return std::thread::sleep(patience);
        }
        let before = reports.len();
        self.inner.poll(now, patience, reports);
        if self.faults.loses_answers.load(Ordering::SeqCst) {
            self.lost |= reports.len() > before;
            reports.truncate(before);
        }
        if self.cuts != self.faults.cuts.load(Ordering::SeqCst) && self.lost {
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
