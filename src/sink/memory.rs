//! A sink that confirms every event and keeps none:
//! what is left of the relay's cost is the source's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::broker::{Broker, Requirements, RouteRules, SinkKind, StartupCheck};
use super::log::{DeadLetterLog, LogRead, ReadFrom};
use super::publish::{PublishError, Sink, SinkReport};
use crate::base::error::Fault;
use crate::base::event::{CloudEventsBinding, MessagingNames, Outbound, Sequence};
use crate::base::finding::Finding;
use crate::dead_letter::writer::{DeadLetterAddress, DeadLetterCause, DeadLetterWriter};

const EVENTS_ARE_DROPPED: &str = "sink.kind is memory: events are confirmed and dropped";

pub(super) const SINK: SinkKind = SinkKind {
    name: "memory",
    serves_consumers: false,
    reads_dead_letters: true,
    title: "memory",
    read: |_at| Box::new(|_around| Ok(Arc::new(NullBroker))),
    example: None,
    client: None,
    routes: RouteRules::KAFKA,
    binding: CloudEventsBinding::Kafka,
    messaging: MessagingNames::NONE,
    errors: Vec::new,
};

#[derive(Debug)]
struct NullBroker;

impl Broker for NullBroker {
    fn kind(&self) -> &'static SinkKind {
        &SINK
    }

    fn open(&self, _check: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        tracing::warn!(code = "sink.memory", "{EVENTS_ARE_DROPPED}");
        Ok(Box::new(NullSink(Vec::new())))
    }

    fn inspect(&self, _required: &Requirements) -> Vec<Finding> {
        vec![Finding::warn("sink", EVENTS_ARE_DROPPED)]
    }

    fn prepare(&self, _required: &Requirements, _dry_run: bool) -> Result<Vec<String>, Vec<Fault>> {
        Ok(Vec::new())
    }

    fn log(
        &self,
        _dead_letters: &DeadLetterAddress,
        _from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        Ok(Box::new(EmptyLog { end_reported: false }))
    }
}

/// Holds the reports of the next poll.
struct NullSink(Vec<SinkReport>);

impl Sink for NullSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        // The event must be made, or there would be nothing to measure.
        std::hint::black_box(event);
        self.0.push(SinkReport::Confirmed(sequence));
        Ok(())
    }

    fn poll(&mut self, _now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        if self.0.is_empty() {
            std::thread::sleep(patience);
        }
        reports.append(&mut self.0);
    }

    /// Never called: nothing fails.
    fn retry(&mut self, _sequence: Sequence) {}

    /// Never called: nothing fails.
    fn replace_with_dead_letter(
        &mut self,
        _sequence: Sequence,
        _writer: &DeadLetterWriter,
        _cause: &DeadLetterCause,
    ) {
    }
}

struct EmptyLog {
    end_reported: bool,
}

impl DeadLetterLog for EmptyLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        if !std::mem::replace(&mut self.end_reported, true) {
            return Ok(LogRead::End);
        }
        std::thread::sleep(patience);
        Ok(LogRead::Nothing)
    }
}
