//! A second producer for events that must be sent one at a time: those that have failed or may have
//! failed, later events of their keys, and dead letters.
//!
//! A broker refuses a whole batch because of one record, and librdkafka sends nothing behind a
//! refused record. This producer puts one record into a request and sends the next after the
//! answer, so a failure concerns one event and harms no other. It is slow: an event that only
//! waited behind events of its key returns to the normal producer after those are confirmed. The
//! producer is created when it is needed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::ProducerClient;
use super::code::Code;
use super::events::Events;
use super::fault;
use super::learned::Learned;
use super::port::{ProducerFactory, ProducerKind, ProducerPort as _};
use super::record::Record;
use crate::base::error::Fault;
use crate::base::event::Sequence;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::key_lanes::KeyLanes;
use crate::sink::publish::{Disposition, Failure, SinkReport};

/// How long the producer is kept without events.
const KEEP_FOR: Duration = Duration::from_secs(30);

pub(super) struct IsolatedProducer<F: ProducerFactory> {
    producers: F,
    learned: Arc<Learned>,
    client: Option<ProducerClient<F::Producer>>,
    /// Until when it may connect.
    connect_until: Option<Instant>,
    used_at: Instant,
    pub(super) events: KeyLanes<Record>,
    /// Events that wait for an older one of their key at the normal producer.
    behind: BTreeMap<Sequence, Sequence>,
    /// Failed at the normal producer and not reported yet: an older event of the key may fail in
    /// the same poll, and must be reported first.
    unreported: BTreeMap<Sequence, Failure>,
    pub(super) reports: Vec<SinkReport>,
}

/// The outcome of a poll.
#[derive(Default)]
pub(super) struct Polled {
    pub(super) confirmed_any: bool,
    /// Events that the normal producer may send again.
    pub(super) recovered: Vec<(Sequence, Record)>,
    /// The errors of the client.
    pub(super) errors: Vec<(Code, String)>,
}

impl<F: ProducerFactory> IsolatedProducer<F> {
    pub(super) fn new(producers: F, learned: Arc<Learned>, now: Instant) -> IsolatedProducer<F> {
        IsolatedProducer {
            producers,
            learned,
            client: None,
            connect_until: None,
            used_at: now,
            events: KeyLanes::default(),
            behind: BTreeMap::new(),
            unreported: BTreeMap::new(),
            reports: Vec::new(),
        }
    }

    pub(super) fn connect_until(&mut self, until: Instant) {
        let is_idle = self.in_flight() == 0;
        self.connect_until = Some(until);
        if let Some(client) = &mut self.client {
            client.producer.connect_until(until, is_idle);
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.client.as_ref().map_or(0, |client| client.in_flight)
    }

    /// Adds an event that has failed at the normal producer. If it is behind another event of its
    /// key it is sent after that one, otherwise its failure is reported.
    pub(super) fn add_failed(&mut self, sequence: Sequence, record: Record, failure: Failure) {
        self.events.add_troubled(sequence, record);
        self.unreported.insert(sequence, failure);
    }

    /// Reports what has failed at the normal producer, once all failures of a poll were added.
    pub(super) fn report_failed(&mut self) {
        for (sequence, failure) in std::mem::take(&mut self.unreported) {
            if self.events.is_ready(sequence) {
                self.events.refused(sequence);
                self.reports.push(SinkReport::Failed(sequence, failure));
            }
        }
    }

    pub(super) fn retry(&mut self, sequence: Sequence) {
        self.events.retry(sequence);
        if let Some(client) = &mut self.client {
            client.ask_again();
        }
    }

    /// The topic of an event in flight.
    pub(super) fn destination(&self, sequence: Sequence) -> Option<String> {
        let record = self.events.item(sequence).filter(|_| self.events.is_in_flight(sequence))?;
        Some(format!("topic {}", record.topic))
    }

    /// Drops what it has. Returns what is confirmed by now.
    pub(super) fn withdraw(&mut self) -> Vec<Sequence> {
        self.client.as_mut().map(ProducerClient::withdraw).unwrap_or_default()
    }

    pub(super) fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        let Some(record) = self.events.item(sequence) else { return };
        let (limit, lane) = (&self.learned.record_limit, record.lane);
        let letter = record.with_outbound(|event| {
            writer.compose(event, cause, |letter| limit.fit_dead_letter(letter, lane))
        });
        self.events.replace_with_dead_letter(sequence, letter);
        let behind = if cause.parks_key { self.events.refuse_behind(sequence) } else { Vec::new() };
        self.reports.extend(behind.into_iter().filter_map(|sequence| {
            let Record { id, topic, key, .. } = self.events.item(sequence)?;
            Some(SinkReport::Failed(sequence, fault::parked(id, topic, key.as_deref())))
        }));
    }

    /// Sends what may be sent, except what has an older event of its key in flight at the normal
    /// producer.
    pub(super) fn send(&mut self, now: Instant, normal: &Events) {
        self.behind.retain(|_, older| normal.get(*older).is_some());
        loop {
            let behind = &mut self.behind;
            let next = self.events.peek_if(|sequence, record| {
                let Some(lane) = record.lane else { return true };
                if behind.contains_key(&sequence) {
                    return false;
                }
                let older = normal.before(sequence, lane);
                behind.extend(older.map(|older| (sequence, older)));
                older.is_none()
            });
            let Some((sequence, record)) = next else { return };
            let client = match self.client(now) {
                Ok(client) => client,
                Err(fault) => return self.reports.push(SinkReport::Broken(fault.what)),
            };
            let sent = client.producer.topic(&record.topic).and_then(|topic| {
                let partition = record.partition;
                record.with_outbound(|event| client.send(topic, sequence, event, partition))
            });
            match sent {
                Ok(()) => self.events.sent(sequence, &record),
                Err(Code::QueueFull) => return,
                Err(code) => self.refused(sequence, code, false, now),
            }
            self.used_at = now;
        }
    }

    fn client(&mut self, now: Instant) -> Result<&mut ProducerClient<F::Producer>, Fault> {
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let (producers, kind) = (&mut self.producers, ProducerKind::Isolated);
                let mut client = ProducerClient::open(producers, kind, &self.learned, now)?;
                if let Some(until) = self.connect_until {
                    client.producer.connect_until(until, false);
                }
                client
            }
        };
        Ok(self.client.insert(client))
    }

    /// Collects answers, waiting at most `patience` for the first.
    pub(super) fn poll(&mut self, now: Instant, patience: Duration) -> Polled {
        let Some(client) = &mut self.client else { return Polled::default() };
        let answers = client.poll(now, patience);
        let mut recovered = Vec::new();
        for (sequence, _) in &answers.confirmed {
            let record = self.events.item(*sequence);
            record.iter().for_each(|it| self.learned.forbidden.confirmed(&it.topic, now));
            let lane = record.and_then(|record| record.lane);
            self.events.confirmed(*sequence);
            recovered.extend(lane.into_iter().flat_map(|lane| self.events.take_recovered(lane)));
            self.reports.push(SinkReport::Confirmed(*sequence));
        }
        let failed_any = !answers.failed.is_empty();
        for (sequence, code, _) in answers.failed {
            self.refused(sequence, code, true, now);
        }
        if failed_any {
            self.reports.extend(self.client.as_mut().and_then(ProducerClient::fatal));
        }
        if self.events.is_empty() && now.duration_since(self.used_at) > KEEP_FOR {
            self.client = None;
        }
        let confirmed_any = !answers.confirmed.is_empty();
        Polled { confirmed_any, recovered, errors: answers.errors }
    }

    /// Reports the failure of an event, which the client has not taken unless it `was_taken`. A dead letter
    /// that is too large is cut and sent again instead.
    fn refused(&mut self, sequence: Sequence, code: Code, was_taken: bool, now: Instant) {
        let Some(record) = self.events.item(sequence) else { return };
        let smaller = self.learned.record_limit.cut_dead_letter(code, record);
        let mut failure = record.failure(code, &self.learned.tools);
        if !was_taken {
            failure = fault::not_taken(code, failure);
        }
        let topic = record.topic.clone();
        if failure.disposition == Disposition::Delayed {
            self.learned.forbidden.time_refused(&topic, now);
        }
        self.events.refused(sequence);
        let Some(smaller) = smaller else {
            return self.reports.push(SinkReport::Failed(sequence, failure));
        };
        self.events.replace_with_dead_letter(sequence, smaller);
        if let Some(client) = &mut self.client {
            client.producer.ask_record_limit(&topic);
        }
    }
}
