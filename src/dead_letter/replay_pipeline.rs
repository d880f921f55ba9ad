//! Two sinks in a row: events are published through the first, and once they are confirmed, their
//! resolutions are written to the log through the second, where no refused event of their key holds
//! them up.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::publish::{ConfirmedPublisher, PublishFailure};
use super::reader::DeadLetterTopic;
use super::record::{DeadLetter, Resolution};
use super::writer::KeyHash;
use crate::base::error::{Exit, Fault};
use crate::base::finding::faults;
use crate::base::text::escaped;
use crate::sink::Requirements;

/// How long what is in flight may take to settle once nothing more is published.
const SETTLE_US: i64 = 5_000_000;
/// How long nothing is confirmed before the broker is asked why: Kafka's client takes 15 s to report
/// that a topic is missing.
const ASK_AFTER_US: i64 = 3_000_000;
const AGAIN: &str = "walrelay dlq replay: what was delivered is resolved, the rest is still open";

/// An event in flight.
struct InFlight {
    topic: String,
    key: Option<KeyHash>,
    /// What is written once it has arrived.
    resolution: Resolution,
}

/// Events in flight, and resolutions.
pub(super) struct Pipeline<'a> {
    topic: &'a DeadLetterTopic<'a>,
    /// Opened for the first event.
    events: Option<ConfirmedPublisher<Box<InFlight>>>,
    /// To be written.
    resolutions: VecDeque<Resolution>,
    /// None once the log cannot be written any more.
    log: Option<ConfirmedPublisher<()>>,
    /// Keys of refused events: events behind them do not settle.
    stuck_keys: HashSet<KeyHash>,
    /// The broker takes nothing for this topic, as it has answered.
    stuck_topic: Option<String>,
    has_asked: bool,
    /// The sink of the events is lost.
    is_lost: bool,
    progress_unix_us: i64,
}

impl<'a> Pipeline<'a> {
    pub(super) fn open(topic: &'a DeadLetterTopic<'a>, now: i64) -> Result<Pipeline<'a>, Fault> {
        Ok(Pipeline {
            topic,
            events: None,
            resolutions: VecDeque::new(),
            log: Some(ConfirmedPublisher::of_records(topic)?),
            stuck_keys: HashSet::new(),
            stuck_topic: None,
            has_asked: false,
            is_lost: false,
            progress_unix_us: now,
        })
    }

    /// Letters that are handed over and not yet resolved.
    pub(super) fn unresolved(&self) -> usize {
        let log = self.log.as_ref().map_or(0, |log| log.in_flight().len());
        self.events_in_flight() + self.resolutions.len() + log
    }

    fn events_in_flight(&self) -> usize {
        self.events.as_ref().map_or(0, |events| events.in_flight().len())
    }

    /// Nothing more is handed over: from now on the rest has its time to settle.
    pub(super) fn settle_from(&mut self, now: i64) {
        self.progress_unix_us = now;
    }

    /// Is nothing left that may still be resolved?
    pub(super) fn is_settled(&self, now: i64) -> bool {
        let is_stuck = |event: &InFlight| {
            event.key.is_some_and(|key| self.stuck_keys.contains(&key))
                || self.stuck_topic.as_ref() == Some(&event.topic)
        };
        let mut events = self.events.iter().flat_map(ConfirmedPublisher::in_flight);
        let only_events = self.events_in_flight() == self.unresolved();
        self.log.is_none()
            || (only_events && (self.is_lost || events.all(|event| is_stuck(event))))
            || now - self.progress_unix_us > SETTLE_US
    }

    /// Publishes the event of a letter; false when the queue of the sink is full.
    pub(super) fn publish(
        &mut self,
        letter: &DeadLetter,
        resolution: Resolution,
        now: i64,
    ) -> Result<bool, Fault> {
        let replays = resolution.replays;
        let (topic, key) = (letter.topic.clone(), letter.key_hash());
        let item = Box::new(InFlight { topic, key, resolution });
        if self.events.is_none() {
            self.events = Some(ConfirmedPublisher::of_events(self.topic)?);
        }
        let Some(events) = &mut self.events else { return Ok(false) };
        let published = letter.event(replays, |event| events.publish(item, event, now));
        published.map_err(|failure| self.refused(failure))
    }

    /// Writes the resolution of a letter whose event is not published.
    pub(super) fn resolve(&mut self, resolution: Resolution) {
        self.resolutions.push_back(resolution);
    }

    /// Writes resolutions and collects confirms, waiting at most `patience` for them. Returns how
    /// many resolutions are in the log now, and why nothing more must be handed over.
    pub(super) fn advance(&mut self, patience: Duration, now: i64) -> (usize, Option<Fault>) {
        let mut fault = self.write(now).err();
        let (mut arrived, mut written) = (Vec::new(), Vec::new());
        // A sink without records in flight is not waited for.
        let is_busy = self.events_in_flight() > 0;
        let (first, second) =
            if is_busy { (patience, Duration::ZERO) } else { (Duration::ZERO, patience) };
        let events = self.events.as_mut();
        for failure in events.map_or_else(Vec::new, |it| it.poll(first, now, &mut arrived)) {
            let refused = self.refused(failure);
            fault.get_or_insert(refused);
        }
        self.has_asked &= arrived.is_empty();
        let log = self.log.as_mut();
        let failures = log.map_or_else(Vec::new, |it| it.poll(second, now, &mut written));
        if let Some(failure) = failures.into_iter().next() {
            self.log = None;
            fault.get_or_insert(failure.unwritable());
        }
        if !(arrived.is_empty() && written.is_empty()) {
            self.progress_unix_us = now;
        }
        self.resolutions.extend(arrived.into_iter().map(|event| event.resolution));
        (written.len(), fault.or_else(|| self.ask(now)))
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
                    return Err(failure.unwritable());
                }
            }
        }
        Ok(())
    }

    /// Asks the broker about the topic of an event that has not been confirmed for long.
    fn ask(&mut self, now: i64) -> Option<Fault> {
        let events = self.events.as_ref().filter(|it| it.silent_us(now) > ASK_AFTER_US)?;
        let topic = events.in_flight().next()?.topic.clone();
        if std::mem::replace(&mut self.has_asked, true) {
            return None;
        }
        let wanted = Requirements { topics: vec![topic.clone()], ..Requirements::default() };
        let found = self.topic.broker.inspect(&wanted);
        let fault = faults(&found).next()?.clone();
        self.stuck_topic = Some(topic);
        Some(Fault { mend: format!("{}\nthen: {AGAIN}", fault.mend), ..fault })
    }

    fn refused(&mut self, failure: PublishFailure<Box<InFlight>>) -> Fault {
        let (event, failure) = match failure {
            PublishFailure::Refused(event, failure) => (event, failure),
            PublishFailure::SinkLost(reason) => return self.lost(&reason),
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

    fn lost(&mut self, reason: &str) -> Fault {
        // The resolutions of what has arrived are still written.
        self.is_lost = true;
        let left = self.events_in_flight();
        let what = format!(
            "the broker is gone: {reason}; {left} events were in flight, are open, and may have arrived"
        );
        let mend = format!("walrelay check\nthen: {AGAIN}");
        Fault::new(Exit::Sink, "dead-letter.sink-gone", what, "sink", mend)
    }
}
