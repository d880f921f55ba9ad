//! Publishing records one by one and learning what became of each: a sink, and what it has not
//! confirmed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::reader::DeadLetterTopic;
use crate::base::error::{Exit, Fault};
use crate::base::event::{Outbound, Sequence};
use crate::sink::{Failure, PublishError, Sink, SinkReport};

/// How long records may be in flight while nothing is confirmed.
const SILENCE_MAX_US: i64 = 30_000_000;
/// The same when the broker is known not to answer.
const UNREACHABLE_MAX_US: i64 = 10_000_000;

type Publish = fn(&mut dyn Sink, Sequence, &Outbound<'_>) -> Result<(), PublishError>;

/// A sink with its records in flight; `T` says what each of them is.
pub(super) struct ConfirmedPublisher<T> {
    sink: Box<dyn Sink>,
    publish: Publish,
    next: Sequence,
    in_flight: BTreeMap<Sequence, T>,
    /// The queue of the sink was full at the last attempt.
    is_full: bool,
    /// When the sink last confirmed something, or got something to confirm.
    progress_unix_us: i64,
    unreachable: Option<String>,
    reports: Vec<SinkReport>,
}

/// Why a record was not published, or no more can be.
pub(super) enum PublishFailure<T> {
    /// The broker refuses this record; without a failure, it has refused it together with others.
    Refused(T, Option<Box<Failure>>),
    /// It will never be known what became of the records in flight.
    SinkLost(String),
}

impl<T> PublishFailure<T> {
    /// A resolution could not be written because of this.
    pub(super) fn unwritable(self) -> Fault {
        let (reason, mend) = match self {
            PublishFailure::Refused(_, Some(failure)) => (failure.reason, failure.mend),
            PublishFailure::Refused(_, None) => ("it was refused".to_owned(), CHECK.to_owned()),
            PublishFailure::SinkLost(reason) => (reason, CHECK.to_owned()),
        };
        let what = format!(
            "cannot write to the dead-letter topic: {reason}; what is not resolved there stays open"
        );
        Fault::new(Exit::Sink, "dead-letter.unwritable", what, "the dead-letter topic", mend)
    }
}

const CHECK: &str = "walrelay check";

impl<T> ConfirmedPublisher<T> {
    /// For events. Each is published alone, because a refusal must name its event, and no other
    /// event may fail because of it.
    pub(super) fn of_events(topic: &DeadLetterTopic<'_>) -> Result<ConfirmedPublisher<T>, Fault> {
        Self::open(topic, |sink, sequence, event| sink.publish_alone(sequence, event))
    }

    /// For resolutions.
    pub(super) fn of_records(topic: &DeadLetterTopic<'_>) -> Result<ConfirmedPublisher<T>, Fault> {
        Self::open(topic, |sink, sequence, record| sink.publish_dead_letter(sequence, record))
    }

    fn open(topic: &DeadLetterTopic<'_>, publish: Publish) -> Result<ConfirmedPublisher<T>, Fault> {
        let sink = topic.broker.open(None).map_err(|faults| {
            let reasons: Vec<String> = faults.into_iter().map(|fault| fault.what).collect();
            let what = format!("cannot publish: {}", reasons.join("; "));
            Fault::new(Exit::Sink, "dead-letter.sink-gone", what, "sink", CHECK)
        })?;
        Ok(ConfirmedPublisher {
            sink,
            publish,
            next: 0,
            in_flight: BTreeMap::new(),
            is_full: false,
            progress_unix_us: 0,
            unreachable: None,
            reports: Vec::new(),
        })
    }

    pub(super) fn in_flight(&self) -> impl ExactSizeIterator<Item = &T> {
        self.in_flight.values()
    }

    /// How long records have been in flight, or could not be queued, while nothing was confirmed.
    pub(super) fn silent_us(&self, now_unix_us: i64) -> i64 {
        if self.is_waiting() { now_unix_us - self.progress_unix_us } else { 0 }
    }

    fn is_waiting(&self) -> bool {
        self.is_full || !self.in_flight.is_empty()
    }

    /// Publishes a record; false when the queue of the sink is full.
    pub(super) fn publish(
        &mut self,
        item: T,
        record: &Outbound<'_>,
        now_unix_us: i64,
    ) -> Result<bool, PublishFailure<T>> {
        if !self.is_waiting() {
            self.progress_unix_us = now_unix_us;
        }
        self.is_full = match (self.publish)(&mut *self.sink, self.next, record) {
            Ok(()) => false,
            Err(PublishError::QueueFull) => true,
            Err(PublishError::Failed(failure)) => {
                return Err(PublishFailure::Refused(item, Some(Box::new(failure))));
            }
        };
        if !self.is_full {
            self.in_flight.insert(self.next, item);
            self.next += 1;
        }
        Ok(!self.is_full)
    }

    /// Moves what was confirmed to `confirmed`, waiting at most `patience`, and returns what failed.
    pub(super) fn poll(
        &mut self,
        patience: Duration,
        now_unix_us: i64,
        confirmed: &mut Vec<T>,
    ) -> Vec<PublishFailure<T>> {
        let mut reports = std::mem::take(&mut self.reports);
        self.sink.poll(patience, &mut reports);
        let mut failures = Vec::new();
        let refused = |item, failure| PublishFailure::Refused(item, failure);
        for reports in reports.drain(..) {
            match reports {
                SinkReport::Confirmed(sequence) => {
                    self.progress_unix_us = now_unix_us;
                    self.unreachable = None;
                    confirmed.extend(self.in_flight.remove(&sequence));
                }
                SinkReport::Failed(sequence, failure) => {
                    let item = self.in_flight.remove(&sequence);
                    failures.extend(item.map(|item| refused(item, Some(Box::new(failure)))));
                }
                SinkReport::Suspect(sequence) => {
                    let item = self.in_flight.remove(&sequence);
                    failures.extend(item.map(|item| refused(item, None)));
                }
                SinkReport::Reachable => self.unreachable = None,
                SinkReport::Unreachable(reason) => self.unreachable = Some(reason),
                SinkReport::Broken(reason) => failures.push(PublishFailure::SinkLost(reason)),
                SinkReport::Unable(failure) => {
                    failures.push(PublishFailure::SinkLost(failure.reason))
                }
            }
        }
        self.reports = reports;
        let (silence_max_us, reason) = match &self.unreachable {
            Some(reason) => (UNREACHABLE_MAX_US, reason.as_str()),
            None => (SILENCE_MAX_US, "it confirms nothing"),
        };
        if self.silent_us(now_unix_us) > silence_max_us {
            failures.push(PublishFailure::SinkLost(reason.to_owned()));
        }
        failures
    }
}
