//! Publishes the events of dead letters and writes resolutions, each through a sink of its own:
//! behind a refused event a sink sends no later record of its key, which would also hold up
//! resolutions. The resolution of a replayed event is written once the event is confirmed.
//!
//! The driver of the loop drives both sinks. Unlike the loop, a replay waits for no broker and
//! repeats no attempt: it ends, and what is not resolved stays open.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use walrelay_core::base::clock::Moment;
use walrelay_core::sink::driver::SinkDriver;

use super::reader::DeadLetterTopic;
use super::record::{DeadLetter, Resolution};
use super::writer::KeyHash;
use crate::base::error::{Exit, Fault};
use crate::base::event::{Outbound, Sequence};
use crate::base::finding::{Finding, faults};
use crate::base::text::escaped;
use crate::sink::{Disposition, Failure, PublishError, Requirements, Sink, SinkReport};

/// Values of events in flight, together. One event may be larger.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long records may be in flight while nothing is confirmed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The same while the broker is known to be unreachable, and for a single record.
const UNREACHABLE_MAX: Duration = Duration::from_secs(10);
/// How long what is in flight may take to settle once nothing more is published.
const SETTLE_WITHIN: Duration = Duration::from_secs(5);
/// After how much silence the topic is inspected: Kafka's
/// client takes 15 s to report that a topic is missing.
const INSPECT_AFTER: Duration = Duration::from_secs(3);
/// How often the sinks are polled while the broker is asked about a topic.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// The code of a fault: a record cannot be written.
pub(super) const UNWRITABLE: &str = "dead-letter.unwritable";
const CHECK: &str = "walrelay check";
const AGAIN: &str =
    "run the same command again: what was delivered is resolved, the rest is still open";

type Publish = fn(&mut dyn Sink, Sequence, &Outbound<'_>) -> Result<(), PublishError>;

/// Each event is published alone: a refusal must name its event, and no other event may fail because
/// of it.
const EVENT: Publish = |sink, sequence, event| sink.publish_alone(sequence, event);
const RECORD: Publish = |sink, sequence, record| sink.publish_dead_letter(sequence, record);

/// A sink, and what it has not confirmed; `T` says what a record is.
struct Publisher<T> {
    driver: SinkDriver,
    publish: Publish,
    silence_max: Duration,
    next: Sequence,
    in_flight: BTreeMap<Sequence, T>,
    /// The queue of the sink was full at the last attempt.
    is_full: bool,
    /// When the sink got a record, or had no room for it, while it had none.
    waiting_since: Instant,
}

/// Why a record was not published, or no more can be.
enum PublishFailure<T> {
    /// The broker refuses this record; without a failure, it has refused it together with others.
    Refused(T, Option<Failure>),
    /// The sink was lost: the outcome of the records in flight will never be known.
    SinkLost(String),
}

impl<T> Publisher<T> {
    fn open(
        topic: &DeadLetterTopic<'_>,
        publish: Publish,
        silence_max: Duration,
        now: Instant,
    ) -> Result<Publisher<T>, Fault> {
        let sink = topic.broker.open(None).map_err(|faults| {
            let reasons: Vec<String> = faults.into_iter().map(|fault| fault.what).collect();
            let what = format!("cannot publish: {}", reasons.join("; "));
            Fault::new(Exit::Sink, "dead-letter.sink-gone", what, "sink", CHECK)
        })?;
        Ok(Publisher {
            driver: SinkDriver::of(sink, now),
            publish,
            silence_max,
            next: 0,
            in_flight: BTreeMap::new(),
            is_full: false,
            waiting_since: now,
        })
    }

    fn is_waiting(&self) -> bool {
        self.is_full || !self.in_flight.is_empty()
    }

    /// How long records have been in flight, or could not be queued, while nothing was confirmed.
    fn silence(&self, now: Instant) -> Duration {
        if self.is_waiting() {
            self.driver.silence(self.waiting_since, now)
        } else {
            Duration::ZERO
        }
    }

    fn publish(
        &mut self,
        item: T,
        record: &Outbound<'_>,
        now: Instant,
    ) -> Result<(), PublishError> {
        if !self.is_waiting() {
            self.waiting_since = now;
        }
        let sink = self.driver.sink.as_mut();
        let published = sink.map(|sink| (self.publish)(&mut **sink, self.next, record));
        let published = published.unwrap_or(Err(PublishError::QueueFull));
        self.is_full = published == Err(PublishError::QueueFull);
        if published.is_ok() {
            self.in_flight.insert(self.next, item);
            self.next += 1;
        }
        published
    }

    /// Moves what was confirmed to `confirmed`, waiting
    /// at most `patience`, and returns what failed.
    fn poll(
        &mut self,
        patience: Duration,
        now: Instant,
        confirmed: &mut Vec<T>,
    ) -> Vec<PublishFailure<T>> {
        // Much may have been read since `now`.
        let reports = self.driver.poll(patience, Instant::now());
        self.take(reports, now, confirmed)
    }

    /// Takes what the sink reports.
    fn take(
        &mut self,
        mut reports: Vec<SinkReport>,
        now: Instant,
        confirmed: &mut Vec<T>,
    ) -> Vec<PublishFailure<T>> {
        let (mut failures, mut lost, before) = (Vec::new(), None, confirmed.len());
        for report in reports.drain(..) {
            let (sequence, failure) = match report {
                SinkReport::Failed(sequence, failure) => (sequence, Some(failure)),
                SinkReport::Suspect(sequence) => (sequence, None),
                SinkReport::Confirmed(sequence) => {
                    self.driver.settled(now);
                    confirmed.extend(self.in_flight.remove(&sequence));
                    continue;
                }
                SinkReport::Reachable => {
                    self.driver.reachable();
                    continue;
                }
                SinkReport::Unreachable(reason) | SinkReport::LoginRefused(reason) => {
                    self.driver.unreachable(reason);
                    continue;
                }
                SinkReport::Broken(reason) | SinkReport::Unable(Failure { reason, .. }) => {
                    lost = Some(reason);
                    continue;
                }
            };
            let item = self.in_flight.remove(&sequence);
            failures.extend(item.map(|item| PublishFailure::Refused(item, failure)));
        }
        self.driver.done(reports, confirmed.len() > before, now);
        if let Some(reason) = &lost {
            self.driver.break_sink(reason, self.in_flight.len(), now);
        }
        let (silence_max, reason) = match self.driver.outage() {
            "" => (self.silence_max, "it confirms nothing"),
            reason => (UNREACHABLE_MAX, reason),
        };
        if self.silence(now) > silence_max {
            lost.get_or_insert_with(|| reason.to_owned());
        }
        failures.extend(lost.map(PublishFailure::SinkLost));
        failures
    }
}

/// An event in flight.
struct InFlight {
    topic: String,
    bytes: usize,
    key: Option<KeyHash>,
    /// Written once the event is confirmed.
    resolution: Resolution,
}

/// Events and resolutions in flight, and resolutions to be written.
pub(super) struct Pipeline<'a> {
    topic: &'a DeadLetterTopic<'a>,
    /// Opened for the first event.
    events: Option<Publisher<InFlight>>,
    resolutions: VecDeque<Resolution>,
    /// None once the log cannot be written any more.
    log: Option<Publisher<()>>,
    /// Keys of refused events: later events of them do not settle.
    stuck_keys: HashSet<KeyHash>,
    /// The topic of which the broker has said that it takes nothing.
    stuck_topic: Option<String>,
    has_inspected: bool,
    /// The sink of the events is lost.
    is_lost: bool,
}

impl<'a> Pipeline<'a> {
    pub(super) fn open(
        topic: &'a DeadLetterTopic<'a>,
        now: Instant,
    ) -> Result<Pipeline<'a>, Fault> {
        Ok(Pipeline {
            topic,
            events: None,
            resolutions: VecDeque::new(),
            log: Some(Publisher::open(topic, RECORD, SILENCE_MAX, now)?),
            stuck_keys: HashSet::new(),
            stuck_topic: None,
            has_inspected: false,
            is_lost: false,
        })
    }

    /// How many events and resolutions are not in the log yet.
    pub(super) fn unresolved(&self) -> usize {
        let written = self.log.as_ref().map_or(0, |log| log.in_flight.len());
        self.events_in_flight() + self.resolutions.len() + written
    }

    /// Whether another event may be published, where so many may be unresolved.
    pub(super) fn has_room(&self, window: usize) -> bool {
        let events = self.events.iter().flat_map(|events| events.in_flight.values());
        let bytes: usize = events.map(|event| event.bytes).sum();
        self.unresolved() < window && bytes < BYTES_MAX
    }

    fn events_in_flight(&self) -> usize {
        self.events.as_ref().map_or(0, |events| events.in_flight.len())
    }

    /// Is nothing left that may still be resolved, since nothing more was published from
    /// `ended_at` on?
    pub(super) fn is_settled(&self, ended_at: Instant, now: Instant) -> bool {
        let Some(log) = &self.log else { return true };
        let is_stuck = |event: &InFlight| {
            event.key.is_some_and(|key| self.stuck_keys.contains(&key))
                || self.stuck_topic.as_ref() == Some(&event.topic)
        };
        let mut events = self.events.iter().flat_map(|events| events.in_flight.values());
        let only_events = self.events_in_flight() == self.unresolved();
        let drivers = self.events.iter().map(|events| &events.driver).chain([&log.driver]);
        only_events && (self.is_lost || events.all(is_stuck))
            || drivers.into_iter().all(|it| it.silence(ended_at, now) > SETTLE_WITHIN)
    }

    /// Publishes the event of a dead letter. What the broker cannot carry, now or later, has failed;
    /// others are not concerned. The outer fault is that of a refusal that ends the job.
    pub(super) fn publish(
        &mut self,
        letter: &DeadLetter,
        resolution: Resolution,
        now: Instant,
    ) -> Result<Result<(), PublishError>, Fault> {
        let events = match &mut self.events {
            Some(events) => events,
            none => none.insert(Publisher::open(self.topic, EVENT, SILENCE_MAX, now)?),
        };
        let replays = resolution.replays;
        let consumer = letter.consumer(&self.topic.address.topic);
        let (topic, key) = (letter.topic.clone(), letter.key_hash());
        let bytes = letter.value.as_ref().map_or(0, Vec::len);
        let item = InFlight { topic, bytes, key, resolution };
        match letter.event(replays, consumer, |event| events.publish(item, event, now)) {
            Err(PublishError::Failed(failure)) if failure.disposition != Disposition::Terminal => {
                Err(self.refused(key, &letter.event_id, &letter.topic, Some(failure)))
            }
            published => Ok(published),
        }
    }

    /// Drops the events that can still be stopped: another replay publishes them, and may have published
    /// later ones of their keys.
    pub(super) fn withdraw(&mut self, now: Instant) {
        let Some(events) = &mut self.events else { return };
        let in_flight = events.in_flight.len();
        let reports = events.driver.withdraw("another replay is running", in_flight, now);
        let mut arrived = Vec::new();
        events.take(reports, now, &mut arrived);
        self.resolutions.extend(arrived.into_iter().map(|event| event.resolution));
        self.is_lost = true;
    }

    /// Queues a resolution that needs no event to be published.
    pub(super) fn resolve(&mut self, resolution: Resolution) {
        self.resolutions.push_back(resolution);
    }

    /// Writes resolutions and collects confirms, waiting at most `patience` for them. Returns how
    /// many resolutions have reached the log, and why nothing more must be published.
    pub(super) fn advance(&mut self, patience: Duration, now: Moment) -> (usize, Option<Fault>) {
        let mut fault = self.write(now).err();
        let (mut arrived, mut written, now) = (Vec::new(), Vec::new(), now.instant);
        // Only a sink with records in flight is waited for; one that has broken has none to come.
        let has_sink = self.events.as_ref().is_some_and(|events| events.driver.sink.is_some());
        let is_busy = has_sink && self.events_in_flight() > 0;
        let (first, second) =
            if is_busy { (patience, Duration::ZERO) } else { (Duration::ZERO, patience) };
        let events = self.events.as_mut();
        for failure in events.map_or_else(Vec::new, |it| it.poll(first, now, &mut arrived)) {
            let ended = match failure {
                PublishFailure::Refused(InFlight { topic, key, resolution, .. }, failure) => {
                    self.refused(key, &resolution.event_id, &topic, failure)
                }
                PublishFailure::SinkLost(reason) => self.lost(&reason),
            };
            fault.get_or_insert(ended);
        }
        self.has_inspected &= arrived.is_empty();
        let log = self.log.as_mut();
        let failures = log.map_or_else(Vec::new, |it| it.poll(second, now, &mut written));
        if let Some(failure) = failures.into_iter().next() {
            self.log = None;
            fault.get_or_insert(unwritable(failure));
        }
        self.resolutions.extend(arrived.into_iter().map(|event| event.resolution));
        (written.len(), fault.or_else(|| self.inspect_when_silent(now)))
    }

    fn write(&mut self, now: Moment) -> Result<(), Fault> {
        let Some(log) = &mut self.log else { return Ok(()) };
        while let Some(resolution) = self.resolutions.front_mut() {
            resolution.resolved_unix_us = now.unix_us;
            let publish = |record: &Outbound<'_>| log.publish((), record, now.instant);
            match resolution.record(self.topic.address, publish) {
                Ok(()) => drop(self.resolutions.pop_front()),
                Err(PublishError::QueueFull) => return Ok(()),
                Err(PublishError::Failed(failure)) => {
                    self.log = None;
                    return Err(unwritable(PublishFailure::Refused((), Some(failure))));
                }
            }
        }
        Ok(())
    }

    /// Asks the broker about the topic of an event that is not confirmed for long.
    fn inspect_when_silent(&mut self, now: Instant) -> Option<Fault> {
        let events = self.events.as_ref().filter(|it| it.silence(now) > INSPECT_AFTER)?;
        let topic = events.in_flight.values().next()?.topic.clone();
        if std::mem::replace(&mut self.has_inspected, true) {
            return None;
        }
        let topics = vec![topic.clone()];
        let required = Requirements { topics, is_replay: true, ..Requirements::default() };
        let found = self.inspect(&required);
        // It also names what is wrong with the topics of the configuration.
        let own = format!("topic {topic} ");
        let is_about_it =
            |it: &&Fault| !it.place.starts_with("topic ") || it.place.starts_with(&own);
        let fault = faults(&found).find(is_about_it)?.clone();
        self.stuck_topic = Some(topic);
        Some(Fault { mend: format!("{}\nthen {AGAIN}", fault.mend), ..fault })
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
                        let now = Instant::now();
                        self.events.iter_mut().for_each(|it| it.driver.keep_alive(now));
                        self.log.iter_mut().for_each(|it| it.driver.keep_alive(now));
                    }
                }
            }
        })
    }

    /// The sink of the events is lost. The resolutions of those that have arrived are still written.
    fn lost(&mut self, reason: &str) -> Fault {
        self.is_lost = true;
        let left = self.events_in_flight();
        let what = format!(
            "the broker is gone: {reason}; {left} events were in flight, are open, and may have arrived"
        );
        let mend = format!("{CHECK}\nthen {AGAIN}");
        Fault::new(Exit::Sink, "dead-letter.sink-gone", what, "sink", mend)
    }

    fn refused(
        &mut self,
        key: Option<KeyHash>,
        event_id: &str,
        topic: &str,
        failure: Option<Failure>,
    ) -> Fault {
        self.stuck_keys.extend(key);
        let id = escaped(event_id);
        let (what, place, mend) = match failure {
            Some(failure) => (
                format!("event {id} was refused again ({}): {}", failure.class, failure.reason),
                failure.subject,
                format!("{}\nthen {AGAIN}", failure.mend),
            ),
            None => (
                format!("event {id} was refused again, perhaps because of others"),
                escaped(topic),
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
    clock: &dyn Fn() -> Moment,
) -> Result<(), Fault> {
    let mut log = Publisher::open(topic, RECORD, UNREACHABLE_MAX, clock().instant)?;
    let mut written = Vec::new();
    while written.is_empty() {
        let now = clock().instant;
        if log.in_flight.is_empty() {
            let published = log.publish((), record, now);
            if let Err(PublishError::Failed(failure)) = published {
                return Err(unwritable(PublishFailure::Refused((), Some(failure))));
            }
        }
        let failures = log.poll(patience, now, &mut written);
        failures.into_iter().next().map_or(Ok(()), |failure| Err(unwritable(failure)))?;
    }
    Ok(())
}

/// The fault of a record that cannot be written. What follows from that depends on who writes it.
fn unwritable(failure: PublishFailure<()>) -> Fault {
    let (reason, mend) = match failure {
        PublishFailure::Refused((), Some(failure)) => (failure.reason, failure.mend),
        PublishFailure::Refused((), None) => ("it was refused".to_owned(), CHECK.to_owned()),
        PublishFailure::SinkLost(reason) => (reason, CHECK.to_owned()),
    };
    let what = format!("cannot write to the dead-letter topic: {reason}");
    Fault::new(Exit::Sink, UNWRITABLE, what, "the dead-letter topic", mend)
}
