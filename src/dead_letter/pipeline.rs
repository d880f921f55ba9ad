//! Two sinks in a row: events go out through the first, and once they have arrived, what resolves
//! them goes to the log through the second. There no refused event of their key is in the way.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::record::{DeadLetter, Resolution};
use crate::base::error::{Exit, Fault};
use crate::base::text::escaped;
use crate::dead_letter::confirmed_publish::{Courier, Trouble};
use crate::dead_letter::reader::DeadLetterTopic;
use crate::sink::{Sink, Wanted};

/// How long what is in flight may take once nothing more comes.
const SETTLE_US: i64 = 5_000_000;
/// How long nothing is confirmed before the broker is asked why: Kafka's client takes 15 s to tell
/// that a topic is missing.
const ASK_AFTER_US: i64 = 3_000_000;
const AGAIN: &str = "walrelay dlq replay: what was delivered is resolved, the rest is still open";

/// An event on its way.
struct Sent {
    topic: String,
    /// What is written once it has arrived.
    resolution: Resolution,
}

/// Events on their way, and resolutions on theirs.
pub(super) struct Pipeline<'a> {
    archive: &'a DeadLetterTopic<'a>,
    /// Nothing until there is an event.
    events: Option<Courier<Box<Sent>>>,
    /// To be written.
    arrived: VecDeque<Resolution>,
    /// Nothing once the log cannot be written any more.
    book: Option<Courier<Box<Resolution>>>,
    /// Keys of refused events: what is behind them does not settle.
    stuck: HashSet<Vec<u8>>,
    /// The broker was asked about this topic, and takes nothing for it.
    stuck_topic: Option<String>,
    asked: bool,
    /// Of the events that are in flight nothing more will be heard.
    lost: bool,
    settled_unix_us: i64,
}

/// What one round has brought.
#[derive(Default)]
pub(super) struct Round {
    /// Resolutions that are in the log now.
    pub(super) resolved: usize,
    /// Why no more must be handed over.
    pub(super) faults: Vec<Fault>,
}

impl<'a> Pipeline<'a> {
    pub(super) fn open(archive: &'a DeadLetterTopic<'a>, now: i64) -> Result<Pipeline<'a>, Fault> {
        Ok(Pipeline {
            archive,
            events: None,
            arrived: VecDeque::new(),
            book: Some(Courier::of_records(open_sink(archive)?)),
            stuck: HashSet::new(),
            stuck_topic: None,
            asked: false,
            lost: false,
            settled_unix_us: now,
        })
    }

    /// What is handed over and not yet resolved.
    pub(super) fn in_hand(&self) -> usize {
        let written = self.book.as_ref().map_or(0, Courier::in_flight);
        self.events_in_flight() + self.arrived.len() + written
    }

    fn events_in_flight(&self) -> usize {
        self.events.as_ref().map_or(0, Courier::in_flight)
    }

    /// Nothing more is handed over: from now on what is in hand has its time to settle.
    pub(super) fn settle_from(&mut self, now: i64) {
        self.settled_unix_us = now;
    }

    /// Nothing of what is in hand will settle any more.
    pub(super) fn is_stuck(&self, now: i64) -> bool {
        let stuck = |sent: &Sent| {
            let key = sent.resolution.key.as_ref();
            key.is_some_and(|key| self.stuck.contains(key))
                || self.stuck_topic.as_ref() == Some(&sent.topic)
        };
        let only_events = self.events_in_flight() == self.in_hand();
        let mut events = self.events.iter().flat_map(Courier::items);
        self.book.is_none()
            || (only_events && (self.lost || events.all(|sent| stuck(sent))))
            || now - self.settled_unix_us > SETTLE_US
    }

    /// Publishes the event of a letter; false when the sink is full for now.
    pub(super) fn publish(
        &mut self,
        letter: &DeadLetter,
        resolution: Resolution,
        now: i64,
    ) -> Result<bool, Fault> {
        let replays = resolution.replays;
        let sent = Box::new(Sent { topic: letter.topic.clone(), resolution });
        let events = match &mut self.events {
            Some(events) => events,
            None => self.events.insert(Courier::of_events(open_sink(self.archive)?)),
        };
        match letter.event(replays, |event| events.send(sent, event, now)) {
            Ok(full) => Ok(full.is_none()),
            Err(trouble) => Err(self.refused(trouble)),
        }
    }

    /// Writes a resolution of something that need not be published.
    pub(super) fn resolve(&mut self, resolution: Resolution) {
        self.arrived.push_back(resolution);
    }

    /// Writes down what has arrived, and collects receipts, waiting at most `patience` for them.
    pub(super) fn round(&mut self, patience: Duration, now: i64) -> Round {
        let mut round = Round::default();
        self.write(now, &mut round);
        self.collect(patience, now, &mut round);
        if round.faults.is_empty() {
            round.faults.extend(self.ask(now));
        }
        round
    }

    fn write(&mut self, now: i64, round: &mut Round) {
        let Some(book) = &mut self.book else { return };
        while let Some(mut resolution) = self.arrived.pop_front() {
            resolution.resolved_unix_us = now;
            let copy = Box::new(resolution.clone());
            let to = self.archive.address;
            match resolution.record(to, |record| book.send(copy, record, now)) {
                Ok(None) => {}
                Ok(Some(_)) => {
                    self.arrived.push_front(resolution);
                    return;
                }
                Err(trouble) => {
                    self.book = None;
                    return round.faults.push(unwritable(trouble));
                }
            }
        }
    }

    fn collect(&mut self, patience: Duration, now: i64, round: &mut Round) {
        let (mut arrived, mut written) = (Vec::new(), Vec::new());
        // A sink that has nothing to do is not waited for.
        let busy = self.events_in_flight() > 0;
        let first = if busy { patience } else { Duration::ZERO };
        let events = self.events.as_mut();
        for trouble in events.map_or_else(Vec::new, |it| it.collect(first, now, &mut arrived)) {
            round.faults.push(self.refused(trouble));
        }
        self.asked &= arrived.is_empty();
        if let Some(book) = &mut self.book {
            let second = if busy { Duration::ZERO } else { patience };
            let trouble = book.collect(second, now, &mut written).into_iter().next();
            if let Some(trouble) = trouble {
                self.book = None;
                round.faults.push(unwritable(trouble));
            }
        }
        if !(arrived.is_empty() && written.is_empty()) {
            self.settled_unix_us = now;
        }
        round.resolved = written.len();
        self.arrived.extend(arrived.into_iter().map(|sent| sent.resolution));
    }

    /// Asks the broker about the topic of an event that has not been answered for long.
    fn ask(&mut self, now: i64) -> Option<Fault> {
        let events = self.events.as_ref().filter(|it| it.silent_us(now) > ASK_AFTER_US)?;
        let topic = events.items().next()?.topic.clone();
        if std::mem::replace(&mut self.asked, true) {
            return None;
        }
        let wanted = Wanted { topics: vec![topic.clone()], ..Wanted::default() };
        let fault = self.archive.broker.inspect(&wanted).faults.into_iter().next()?;
        self.stuck_topic = Some(topic);
        Some(Fault { mend: format!("{}\nthen: {AGAIN}", fault.mend), ..fault })
    }

    /// An event did not get through.
    fn refused(&mut self, trouble: Trouble<Box<Sent>>) -> Fault {
        let (sent, failure) = match trouble {
            Trouble::Refused(sent, failure) => (sent, Some(failure)),
            Trouble::Suspect(sent) => (sent, None),
            Trouble::Lost(reason) => return self.lost(&reason),
        };
        let Resolution { event_id, key, .. } = sent.resolution;
        self.stuck.extend(key);
        let id = escaped(&event_id);
        let (what, place, mend) = match failure {
            Some(failure) => (
                format!("event {id} was refused again ({}): {}", failure.class, failure.reason),
                failure.subject,
                format!("{}\nthen: {AGAIN}", failure.mend),
            ),
            None => (
                format!("event {id} was refused again, perhaps because of others"),
                escaped(&sent.topic),
                AGAIN.to_owned(),
            ),
        };
        Fault::new(Exit::Sink, "dead-letter.refused-again", what, place, mend)
    }

    fn lost(&mut self, reason: &str) -> Fault {
        // What has arrived is still to be written down.
        self.lost = true;
        let left = self.events_in_flight();
        let what = format!(
            "the broker is gone: {reason}; {left} events were in flight, are open, and may have arrived"
        );
        let mend = format!("walrelay check\nthen: {AGAIN}");
        Fault::new(Exit::Sink, "dead-letter.sink-gone", what, "sink", mend)
    }
}

/// A sink of one's own.
pub(super) fn open_sink(archive: &DeadLetterTopic<'_>) -> Result<Box<dyn Sink>, Fault> {
    archive.broker.open(None).map_err(|faults| {
        let reasons: Vec<String> = faults.into_iter().map(|fault| fault.what).collect();
        let what = format!("cannot publish: {}", reasons.join("; "));
        Fault::new(Exit::Sink, "dead-letter.sink-gone", what, "sink", "walrelay check")
    })
}

/// A resolution did not get through.
pub(super) fn unwritable<T>(trouble: Trouble<T>) -> Fault {
    let (reason, mend) = match trouble {
        Trouble::Refused(_, failure) => (failure.reason, failure.mend),
        Trouble::Suspect(_) => ("it was refused".to_owned(), "walrelay check".to_owned()),
        Trouble::Lost(reason) => (reason, "walrelay check".to_owned()),
    };
    let what = format!(
        "cannot write to the dead-letter topic: {reason}; what is not resolved there stays open"
    );
    Fault::new(Exit::Sink, "dead-letter.unwritable", what, "the dead-letter topic", mend)
}
