//! Publishes the events of dead letters and writes resolutions, each through a sink of its own:
//! behind a refused event a sink sends no later record of its key, which would also hold up
//! resolutions. The resolution of a replayed event is written once the event is confirmed.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::reader::DeadLetterTopic;
use super::record::{DeadLetter, Resolution};
use super::writer::KeyHash;
use crate::base::error::{Exit, Fault};
use crate::base::event::{Outbound, Sequence};
use crate::base::finding::{Finding, faults};
use crate::base::text::escaped;
use crate::sink::{Disposition, Failure, PublishError, Requirements, Sink, SinkReport};

/// How long records may be in flight while nothing is confirmed.
const SILENCE_MAX_US: i64 = 30_000_000;
/// The same while the broker is known to be unreachable.
const UNREACHABLE_MAX_US: i64 = 10_000_000;
/// How long what is in flight may take to settle once nothing more is published.
const SETTLE_US: i64 = 5_000_000;
/// How long one record may take.
const APPEND_US: i64 = 10_000_000;
/// After how much silence the topic is inspected: Kafka's
/// client takes 15 s to report that a topic is missing.
const INSPECT_AFTER_US: i64 = 3_000_000;
/// How often the sinks are polled while the broker is asked about a topic.
const POLL_EVERY: Duration = Duration::from_millis(100);
const CHECK: &str = "walrelay check";
const AGAIN: &str = "walrelay dlq replay: what was delivered is resolved, the rest is still open";

type Publish = fn(&mut dyn Sink, Sequence, &Outbound<'_>) -> Result<(), PublishError>;

/// A sink, and what it has not confirmed; `T` says what a record is.
struct ConfirmedPublisher<T> {
    sink: Box<dyn Sink>,
    publish: Publish,
    next: Sequence,
    in_flight: BTreeMap<Sequence, T>,
    /// The queue of the sink was full at the last attempt.
    is_full: bool,
    /// When the sink last confirmed something, or got a record while it had none.
    progress_unix_us: i64,
    unreachable: Option<String>,
    reports: Vec<SinkReport>,
}

/// Why a record was not published, or no more can be.
enum PublishFailure<T> {
    /// The broker refuses this record; without a failure, it has refused it together with others.
    Refused(T, Option<Box<Failure>>),
    /// The sink was lost: the outcome of the records in flight will never be known.
    SinkLost(String),
}

impl<T> ConfirmedPublisher<T> {
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

    /// How long records have been in flight, or could not be queued, while nothing was confirmed.
    fn silent_us(&self, now_unix_us: i64) -> i64 {
        if self.is_waiting() { now_unix_us - self.progress_unix_us } else { 0 }
    }

    fn is_waiting(&self) -> bool {
        self.is_full || !self.in_flight.is_empty()
    }

    /// Keeps the connection of the sink alive. What is reported is there for the next poll.
    fn keep_alive(&mut self) {
        self.sink.poll(Instant::now(), Duration::ZERO, &mut self.reports);
    }

    /// Publishes a record; false when the queue of the sink is full.
    fn publish(
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

    /// Moves what was confirmed to `confirmed`, waiting
    /// at most `patience`, and returns what failed.
    fn poll(
        &mut self,
        patience: Duration,
        now_unix_us: i64,
        confirmed: &mut Vec<T>,
    ) -> Vec<PublishFailure<T>> {
        let mut reports = std::mem::take(&mut self.reports);
        self.sink.poll(Instant::now(), patience, &mut reports);
        let mut failures = Vec::new();
        let mut refused = |item: Option<T>, failure| {
            failures.extend(item.map(|item| PublishFailure::Refused(item, failure)));
        };
        let mut lost = None;
        for report in reports.drain(..) {
            match report {
                SinkReport::Confirmed(sequence) => {
                    self.progress_unix_us = now_unix_us;
                    self.unreachable = None;
                    confirmed.extend(self.in_flight.remove(&sequence));
                }
                SinkReport::Failed(sequence, failure) => {
                    refused(self.in_flight.remove(&sequence), Some(Box::new(failure)));
                }
                SinkReport::Suspect(sequence) => refused(self.in_flight.remove(&sequence), None),
                SinkReport::Reachable => self.unreachable = None,
                SinkReport::Unreachable(reason) | SinkReport::LoginRefused(reason) => {
                    self.unreachable = Some(reason);
                }
                SinkReport::Broken(reason) => lost = Some(reason),
                SinkReport::Unable(failure) => lost = Some(failure.reason),
            }
        }
        self.reports = reports;
        let (silence_max_us, reason) = match &self.unreachable {
            Some(reason) => (UNREACHABLE_MAX_US, reason.as_str()),
            None => (SILENCE_MAX_US, "it confirms nothing"),
        };
        if self.silent_us(now_unix_us) > silence_max_us {
            lost.get_or_insert_with(|| reason.to_owned());
        }
        failures.extend(lost.map(PublishFailure::SinkLost));
        failures
    }
}

/// The outcome of an event that was given to the sink.
pub(super) enum EventPublish {
    Queued,
    /// The queue of the sink is full.
    Full,
    /// The broker cannot carry it, now or later; others are not concerned.
    Uncarried(Box<Failure>),
}

/// An event in flight.
struct InFlight {
    topic: String,
    key: Option<KeyHash>,
    /// Written once the event is confirmed.
    resolution: Resolution,
}

/// Events and resolutions in flight, and resolutions to be written.
pub(super) struct Pipeline<'a> {
    topic: &'a DeadLetterTopic<'a>,
    /// Opened for the first event.
    events: Option<ConfirmedPublisher<Box<InFlight>>>,
    resolutions: VecDeque<Resolution>,
    /// None once the log cannot be written any more.
    log: Option<ConfirmedPublisher<()>>,
    /// Keys of refused events: later events of them do not settle.
    stuck_keys: HashSet<KeyHash>,
    /// The topic of which the broker has said that it takes nothing.
    stuck_topic: Option<String>,
    has_inspected: bool,
    /// The sink of the events is lost.
    is_lost: bool,
    progress_unix_us: i64,
}

impl<'a> Pipeline<'a> {
    pub(super) fn open(topic: &'a DeadLetterTopic<'a>, now: i64) -> Result<Pipeline<'a>, Fault> {
        let publish: Publish = |sink, sequence, record| sink.publish_dead_letter(sequence, record);
        Ok(Pipeline {
            topic,
            events: None,
            resolutions: VecDeque::new(),
            log: Some(ConfirmedPublisher::open(topic, publish)?),
            stuck_keys: HashSet::new(),
            stuck_topic: None,
            has_inspected: false,
            is_lost: false,
            progress_unix_us: now,
        })
    }

    /// How many events and resolutions are not in the log yet.
    pub(super) fn unresolved(&self) -> usize {
        self.events_in_flight() + self.resolutions.len() + self.resolutions_in_flight()
    }

    fn events_in_flight(&self) -> usize {
        self.events.as_ref().map_or(0, |events| events.in_flight.len())
    }

    pub(super) fn resolutions_in_flight(&self) -> usize {
        self.log.as_ref().map_or(0, |log| log.in_flight.len())
    }

    /// Stops publishing: events in flight have their time to settle from now on.
    pub(super) fn settle_from(&mut self, now: i64) {
        self.progress_unix_us = now;
    }

    /// Is nothing left that may still be resolved?
    pub(super) fn is_settled(&self, now: i64) -> bool {
        let is_stuck = |event: &InFlight| {
            event.key.is_some_and(|key| self.stuck_keys.contains(&key))
                || self.stuck_topic.as_ref() == Some(&event.topic)
        };
        let mut events = self.events.iter().flat_map(|events| events.in_flight.values());
        let only_events = self.events_in_flight() == self.unresolved();
        self.log.is_none()
            || (only_events && (self.is_lost || events.all(|event| is_stuck(event))))
            || now - self.progress_unix_us > SETTLE_US
    }

    /// Publishes the event of a dead letter.
    pub(super) fn publish(
        &mut self,
        letter: &DeadLetter,
        resolution: Resolution,
        now: i64,
    ) -> Result<EventPublish, Fault> {
        let events = match &mut self.events {
            Some(events) => events,
            // Each event is published alone: a refusal must name its event, and no other event may
            // fail because of it.
            none => none.insert(ConfirmedPublisher::open(self.topic, |sink, sequence, event| {
                sink.publish_alone(sequence, event)
            })?),
        };
        let replays = resolution.replays;
        let consumer = self.topic.is_of_consumer().then_some(&self.topic.address.topic);
        let consumer = consumer.and_then(|written_to| letter.consumer(written_to));
        let (topic, key) = (letter.topic.clone(), letter.key_hash());
        let item = Box::new(InFlight { topic, key, resolution });
        let published = letter.event(replays, consumer, |event| events.publish(item, event, now));
        match published {
            Ok(true) => Ok(EventPublish::Queued),
            Ok(false) => Ok(EventPublish::Full),
            // Without the broker being asked.
            Err(PublishFailure::Refused(_, Some(failure)))
                if failure.disposition == Disposition::Terminal =>
            {
                Ok(EventPublish::Uncarried(failure))
            }
            Err(failure) => Err(self.refused(failure)),
        }
    }

    /// Queues a resolution that needs no event to be published.
    pub(super) fn resolve(&mut self, resolution: Resolution) {
        self.resolutions.push_back(resolution);
    }

    /// Writes resolutions and collects confirms, waiting at most `patience` for them. Returns how
    /// many resolutions have reached the log, and why nothing more must be published.
    pub(super) fn advance(&mut self, patience: Duration, now: i64) -> (usize, Option<Fault>) {
        let mut fault = self.write(now).err();
        let (mut arrived, mut written) = (Vec::new(), Vec::new());
        // Only a sink with records in flight is waited for.
        let is_busy = self.events_in_flight() > 0;
        let (first, second) =
            if is_busy { (patience, Duration::ZERO) } else { (Duration::ZERO, patience) };
        let events = self.events.as_mut();
        for failure in events.map_or_else(Vec::new, |it| it.poll(first, now, &mut arrived)) {
            let refused = self.refused(failure);
            fault.get_or_insert(refused);
        }
        self.has_inspected &= arrived.is_empty();
        let log = self.log.as_mut();
        let failures = log.map_or_else(Vec::new, |it| it.poll(second, now, &mut written));
        if let Some(failure) = failures.into_iter().next() {
            self.log = None;
            fault.get_or_insert(unwritable(failure));
        }
        if !(arrived.is_empty() && written.is_empty()) {
            self.progress_unix_us = now;
        }
        self.resolutions.extend(arrived.into_iter().map(|event| event.resolution));
        (written.len(), fault.or_else(|| self.inspect_when_silent(now)))
    }

    fn write(&mut self, now: i64) -> Result<(), Fault> {
        let Some(log) = &mut self.log else { return Ok(()) };
        while let Some(resolution) = self.resolutions.front_mut() {
            resolution.resolved_unix_us = now;
            match resolution.record(self.topic.address, |record| log.publish((), record, now)) {
                Ok(true) => drop(self.resolutions.pop_front()),
                Ok(false) => return Ok(()),
                Err(failure) => {
                    self.log = None;
                    return Err(unwritable(failure));
                }
            }
        }
        Ok(())
    }

    /// Asks the broker about the topic of an event that is not confirmed for long.
    fn inspect_when_silent(&mut self, now: i64) -> Option<Fault> {
        let events = self.events.as_ref().filter(|it| it.silent_us(now) > INSPECT_AFTER_US)?;
        let topic = events.in_flight.values().next()?.topic.clone();
        if std::mem::replace(&mut self.has_inspected, true) {
            return None;
        }
        let required = Requirements { topics: vec![topic.clone()], ..Requirements::default() };
        let found = self.inspect(&required);
        let fault = faults(&found).next()?.clone();
        self.stuck_topic = Some(topic);
        Some(Fault { mend: format!("{}\nthen: {AGAIN}", fault.mend), ..fault })
    }

    /// Asks the broker. It may take long to answer, so the sinks are polled meanwhile.
    fn inspect(&mut self, required: &Requirements) -> Vec<Finding> {
        let broker = self.topic.broker;
        std::thread::scope(|scope| {
            let (done, answer) = sync_channel(1);
            let inspect = move || done.send(broker.inspect(required));
            if Builder::new().name("inspect".to_owned()).spawn_scoped(scope, inspect).is_err() {
                return broker.inspect(required);
            }
            loop {
                match answer.recv_timeout(POLL_EVERY) {
                    Ok(found) => return found,
                    // The panic of the thread goes on where the scope ends.
                    Err(RecvTimeoutError::Disconnected) => return Vec::new(),
                    Err(RecvTimeoutError::Timeout) => {
                        self.events.iter_mut().for_each(ConfirmedPublisher::keep_alive);
                        self.log.iter_mut().for_each(ConfirmedPublisher::keep_alive);
                    }
                }
            }
        })
    }

    fn refused(&mut self, failure: PublishFailure<Box<InFlight>>) -> Fault {
        let (event, failure) = match failure {
            PublishFailure::Refused(event, failure) => (event, failure),
            PublishFailure::SinkLost(reason) => {
                // The resolutions of the events that have arrived are still written.
                self.is_lost = true;
                let left = self.events_in_flight();
                let what = format!(
                    "the broker is gone: {reason}; {left} events were in flight, are open, and may have arrived"
                );
                let mend = format!("{CHECK}\nthen: {AGAIN}");
                return Fault::new(Exit::Sink, "dead-letter.sink-gone", what, "sink", mend);
            }
        };
        self.stuck_keys.extend(event.key);
        let id = escaped(&event.resolution.event_id);
        let (what, place, mend) = match failure {
            Some(failure) => (
                format!("event {id} was refused again ({}): {}", failure.class, failure.reason),
                failure.subject,
                format!("{}\nthen: {AGAIN}", failure.mend),
            ),
            None => (
                format!("event {id} was refused again, perhaps because of others"),
                escaped(&event.topic),
                AGAIN.to_owned(),
            ),
        };
        Fault::new(Exit::Sink, "dead-letter.refused-again", what, place, mend)
    }
}

/// Appends one record to the topic, and waits until the broker has confirmed it.
pub(super) fn append_record(
    topic: &DeadLetterTopic<'_>,
    record: &Outbound<'_>,
    patience: Duration,
    clock: &dyn Fn() -> i64,
) -> Result<(), Fault> {
    let publish: Publish = |sink, sequence, record| sink.publish_dead_letter(sequence, record);
    let mut log = ConfirmedPublisher::open(topic, publish)?;
    let (until, mut written) = (clock() + APPEND_US, Vec::new());
    while written.is_empty() {
        let now = clock();
        if log.in_flight.is_empty() {
            log.publish((), record, now).map_err(unwritable)?;
        }
        let failures = log.poll(patience, now, &mut written);
        failures.into_iter().next().map_or(Ok(()), |failure| Err(unwritable(failure)))?;
        if written.is_empty() && now > until {
            let reason = log.unreachable.unwrap_or_else(|| "it confirms nothing".to_owned());
            return Err(unwritable(PublishFailure::SinkLost(reason)));
        }
    }
    Ok(())
}

/// The fault of a resolution that cannot be written.
fn unwritable(failure: PublishFailure<()>) -> Fault {
    let (reason, mend) = match failure {
        PublishFailure::Refused((), Some(failure)) => (failure.reason, failure.mend),
        PublishFailure::Refused((), None) => ("it was refused".to_owned(), CHECK.to_owned()),
        PublishFailure::SinkLost(reason) => (reason, CHECK.to_owned()),
    };
    let what = format!(
        "cannot write to the dead-letter topic: {reason}; what is not resolved there stays open"
    );
    Fault::new(Exit::Sink, "dead-letter.unwritable", what, "the dead-letter topic", mend)
}
