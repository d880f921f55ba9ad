//! Publishing a few things and learning what became of each: a sink with what is in its hands.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::event::{Outbound, Sequence};
use crate::sink::{Failure, News, Refused, Sink};

/// How long something may be in the sink's hands while nothing is confirmed.
const SILENCE_MAX_US: i64 = 30_000_000;
/// The same when the broker is known not to answer.
const UNREACHABLE_MAX_US: i64 = 10_000_000;

type Publish = fn(&mut dyn Sink, Sequence, &Outbound<'_>) -> Result<(), Refused>;

/// A sink, and what was handed to it.
pub(super) struct Courier<T> {
    sink: Box<dyn Sink>,
    publish: Publish,
    next: Sequence,
    in_flight: BTreeMap<Sequence, T>,
    /// The sink has not taken what was offered last.
    full: bool,
    /// When it last confirmed something, or was given or offered something while it had nothing.
    heard_unix_us: i64,
    unreachable: Option<String>,
    news: Vec<News>,
}

/// Why something was not published, or nothing can be.
pub(super) enum Trouble<T> {
    /// The broker does not take this one.
    Refused(T, Box<Failure>),
    /// The broker refused this one together with others.
    Suspect(T),
    /// Nothing more will be heard of what is in flight.
    Lost(String),
}

impl<T> Courier<T> {
    /// Of events. Each alone, because what is refused must be known by name, and nothing else go
    /// down with it.
    pub(super) fn of_events(sink: Box<dyn Sink>) -> Courier<T> {
        Courier::new(sink, |sink, sequence, event| sink.publish_alone(sequence, event))
    }

    /// Of resolutions.
    pub(super) fn of_records(sink: Box<dyn Sink>) -> Courier<T> {
        Courier::new(sink, |sink, sequence, record| sink.publish_letter(sequence, record))
    }

    fn new(sink: Box<dyn Sink>, publish: Publish) -> Courier<T> {
        Courier {
            sink,
            publish,
            next: 0,
            in_flight: BTreeMap::new(),
            full: false,
            heard_unix_us: 0,
            unreachable: None,
            news: Vec::new(),
        }
    }

    /// How many are in the sink's hands.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// What is in the sink's hands, in order.
    pub(super) fn items(&self) -> impl Iterator<Item = &T> {
        self.in_flight.values()
    }

    /// How long something has been in the sink's hands, or before its door, while nothing was
    /// confirmed.
    pub(super) fn silent_us(&self, now_unix_us: i64) -> i64 {
        if self.waits() { now_unix_us - self.heard_unix_us } else { 0 }
    }

    fn waits(&self) -> bool {
        self.full || !self.in_flight.is_empty()
    }

    /// Hands it over; gives it back when the sink is full for now.
    pub(super) fn send(
        &mut self,
        item: T,
        event: &Outbound<'_>,
        now_unix_us: i64,
    ) -> Result<Option<T>, Trouble<T>> {
        if !self.waits() {
            self.heard_unix_us = now_unix_us;
        }
        match (self.publish)(&mut *self.sink, self.next, event) {
            Ok(()) => self.full = false,
            Err(Refused::Full) => {
                self.full = true;
                return Ok(Some(item));
            }
            Err(Refused::Failed(failure)) => {
                return Err(Trouble::Refused(item, Box::new(failure)));
            }
        }
        self.in_flight.insert(self.next, item);
        self.next += 1;
        Ok(None)
    }

    /// Collects what was confirmed into `confirmed`; the answer is what went wrong.
    pub(super) fn collect(
        &mut self,
        patience: Duration,
        now_unix_us: i64,
        confirmed: &mut Vec<T>,
    ) -> Vec<Trouble<T>> {
        let mut news = std::mem::take(&mut self.news);
        self.sink.poll(patience, &mut news);
        let mut troubles = Vec::new();
        for news in news.drain(..) {
            match news {
                News::Confirmed(sequence) => {
                    self.heard_unix_us = now_unix_us;
                    self.unreachable = None;
                    confirmed.extend(self.in_flight.remove(&sequence));
                }
                News::Failed(sequence, failure) => {
                    let item = self.in_flight.remove(&sequence);
                    troubles.extend(item.map(|item| Trouble::Refused(item, Box::new(failure))));
                }
                News::Suspect(sequence) => {
                    troubles.extend(self.in_flight.remove(&sequence).map(Trouble::Suspect));
                }
                News::Reachable => self.unreachable = None,
                News::Unreachable(reason) => self.unreachable = Some(reason),
                News::Broken(reason) => troubles.push(Trouble::Lost(reason)),
                News::Unable(failure) => troubles.push(Trouble::Lost(failure.reason)),
            }
        }
        self.news = news;
        let (silence_max_us, reason) = match &self.unreachable {
            Some(reason) => (UNREACHABLE_MAX_US, reason.as_str()),
            None => (SILENCE_MAX_US, "it confirms nothing"),
        };
        if self.silent_us(now_unix_us) > silence_max_us {
            troubles.push(Trouble::Lost(reason.to_owned()));
        }
        troubles
    }
}
