//! The Kafka sink: through which producer an event goes, and what follows from each answer.
//!
//! A broker refuses a whole batch because of one record, and librdkafka then gives the producer up,
//! so that nothing overtakes the batch. The events of the batch are reported as suspect, and the
//! sink as broken. The relay builds a new sink, receives the same events again, and publishes each
//! suspect alone ([`super::isolated_producer`]): what is refused again is the cause. A batch that is
//! too large says nothing of its events: the next sink makes smaller ones
//! ([`super::record_limit`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::ProducerClient;
use super::code::Code;
use super::events::{Destination, Event, Events, SendState};
use super::isolated_producer::IsolatedProducer;
use super::key_order::KeyOrder;
use super::learned::Learned;
use super::partition_warmup::{PartitionState, PartitionWarmup};
use super::port::{ProducerFactory, ProducerKind, ProducerPort, TopicDescription, TopicId};
use super::reachability::Reachability;
use super::record::Record;
use super::{fault, record_limit};
use crate::base::error::Fault;
use crate::base::event::{Outbound, Sequence};
use crate::base::fingerprint::fingerprint;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::mutants::{Mutant, on};
use crate::sink::key_lanes::KeyHasher;
use crate::sink::publish::{Disposition, PublishError, Sink, SinkReport};

/// How often the partitions of topics are counted again.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);
/// How often partitions are closed. A broker forgets a producer after `producer.id.expiration.ms`, which is a
/// day unless somebody has changed it.
const CLOSE_INTERVAL: Duration = Duration::from_secs(3600);
/// How long a sink that has broken waits for the answers to what is in flight.
const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// While both producers have events in flight, a poll waits at most this long for either.
const SHORT_WAIT: Duration = Duration::from_millis(2);

pub struct KafkaSink<F: ProducerFactory> {
    key_hasher: KeyHasher,
    normal: ProducerClient<F::Producer>,
    learned: Arc<Learned>,
    /// The events of the normal producer.
    events: Events,
    key_order: KeyOrder,
    warmup: PartitionWarmup,
    /// Events that have waited and may be sent now. `publish` accepts no other event before they are
    /// sent.
    released: BTreeSet<Sequence>,
    isolated: IsolatedProducer<F>,
    reports: Vec<SinkReport>,
    /// Why the sink is unusable, and since when. Nothing more is sent: it could overtake what has
    /// failed. What is in flight is answered soon, and one answer says what the reason is.
    ending: Option<(SinkReport, Instant)>,
    reachability: Reachability,
    counted_at: Instant,
    /// When the partitions were closed.
    closed_at: Instant,
    /// Fingerprint of the cluster.
    broker: Option<u64>,
}

impl<F: ProducerFactory> KafkaSink<F> {
    /// The producer connects in the background. `seed` is for the hashes of keys.
    pub fn new(
        mut producers: F,
        learned: Arc<Learned>,
        seed: u64,
        now: Instant,
    ) -> Result<KafkaSink<F>, Fault> {
        let kind = ProducerKind::Normal;
        let mut normal = ProducerClient::open(&mut producers, kind, &learned, now)?;
        for topic in learned.record_limit.refusing() {
            normal.producer.ask_record_limit(&topic);
        }
        Ok(KafkaSink {
            key_hasher: KeyHasher::new(seed),
            normal,
            learned: Arc::clone(&learned),
            events: Events::default(),
            key_order: KeyOrder::default(),
            warmup: PartitionWarmup::default(),
            released: BTreeSet::new(),
            isolated: IsolatedProducer::new(producers, learned, now),
            reports: Vec::new(),
            ending: None,
            reachability: Reachability::default(),
            counted_at: now,
            closed_at: now,
            broker: None,
        })
    }

    /// For requests to the cluster before the first event.
    pub fn producer(&mut self) -> &mut F::Producer {
        &mut self.normal.producer
    }

    fn lane(&self, event: &Outbound<'_>) -> Option<u64> {
        event.key.map(|key| self.key_hasher.lane(key))
    }

    /// Sends an event, or keeps it until it may be sent.
    fn admit(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Code> {
        let lane = self.lane(event);
        if !self.isolated.events.is_empty()
            && !on(Mutant::KafkaOvertakesTroubled)
            && lane.is_some_and(|lane| self.isolated.events.contains_lane(lane))
        {
            self.isolated.events.add(sequence, Record::copy(event, lane));
            return Ok(());
        }
        let Learned { forbidden, record_limit, .. } = &*self.learned;
        if forbidden.contains(event.topic) || record_limit.is_exceeded(event) {
            self.isolated.events.add_troubled(sequence, Record::copy(event, lane));
            return Ok(());
        }
        let topic = self.normal.producer.topic(event.topic)?;
        let changes = self.warmup.changes(topic);
        let to = Destination { topic, partition: event.partition, changes };
        if self.key_order.must_wait(sequence, lane, to, &self.events)
            && let Some(lane) = lane
        {
            self.key_order.wait(sequence, lane, to);
            self.events.add(sequence, Event::awaits_turn(Record::copy(event, Some(lane))));
            return Ok(());
        }
        match self.send(to, sequence, event, lane) {
            Ok(state) => {
                let commit_unix_us = event.commit_unix_us;
                self.events.add(sequence, Event { commit_unix_us, lane, state });
                self.key_order.handed_over(lane, to);
            }
            Err(code) if is_missing_partition(code, event.partition) => {
                self.partition_missing(topic, sequence, Record::copy(event, lane));
            }
            Err(code) => {
                if self.normal.is_topic_missing {
                    self.forget_missing(topic);
                }
                return Err(code);
            }
        }
        Ok(())
    }

    /// A topic that is missing will be made anew, or was by the time the producer had asked for it. Its
    /// partitions know nothing of this producer.
    fn forget_missing(&mut self, topic: TopicId) {
        if !on(Mutant::KafkaTopicAnewTrusted) {
            self.forget(topic);
        }
    }

    /// The partitions of the topic are not those that were warmed up.
    fn forget(&mut self, topic: TopicId) {
        let under_way = self.events.under_way(topic);
        let under_way = under_way.filter(|_| !on(Mutant::KafkaUnderWayForgotten));
        self.released.extend(self.warmup.forget(topic, under_way));
    }

    /// The event may be sent as soon as there is room in the queue.
    fn hold_released(&mut self, sequence: Sequence, record: Record) {
        self.events.add(sequence, Event::awaits_turn(record));
        self.released.insert(sequence);
    }

    /// Sends an event by the normal producer, or keeps it until its partition has been warmed up.
    /// Its state has its partition, unless librdkafka chooses that.
    fn send(
        &mut self,
        to: Destination,
        sequence: Sequence,
        event: &Outbound<'_>,
        lane: Option<u64>,
    ) -> Result<SendState, Code> {
        let topic = to.topic;
        let wanted = event.partition.or_else(|| self.partition_of_key(topic, event));
        let partition = wanted.or_else(|| self.warmup.any_partition(topic, sequence));
        let to = Destination { partition, ..to };
        if self.warmup.is_open(topic, partition) {
            let partition = if on(Mutant::KafkaAnyPartition) { wanted } else { partition };
            self.normal.send(topic, sequence, event, partition)?;
            return Ok(SendState::Sent(to));
        }
        let state = self.warmup.state(topic, partition);
        if state == PartitionState::Busy {
            self.warmup.wait(topic, partition, sequence);
            return Ok(SendState::AwaitsPartition(to, Box::new(Record::copy(event, lane))));
        }
        self.normal.send(topic, sequence, event, partition)?;
        if state == PartitionState::Idle {
            self.warmup.sent_alone(topic, partition, event.key, sequence);
        }
        Ok(SendState::Sent(to))
    }

    /// The topic has fewer partitions than were counted. Other events of the key may fail for the
    /// same reason, and the isolated producer keeps them in order.
    fn partition_missing(&mut self, topic: TopicId, sequence: Sequence, record: Record) {
        self.forget(topic);
        self.isolated.events.add_troubled(sequence, record);
    }

    /// The partition of the event's key among those that were counted. librdkafka may already know
    /// newer partitions, which are not warmed up.
    #[inline]
    fn partition_of_key(&mut self, topic: TopicId, event: &Outbound<'_>) -> Option<i32> {
        let count = self.warmup.partitions(topic)?;
        Some(self.normal.producer.partition_of(event.key?, count))
    }

    /// Admits the released events, as far as there is room in the queue.
    fn admit_released(&mut self) {
        while let Some(sequence) = self.released.pop_first() {
            let Some((record, lane_sent)) = self.events.remove_held(sequence) else { continue };
            let lane = record.lane;
            self.key_order.taken_back(lane_sent);
            match record.with_outbound(|event| self.admit(sequence, event)) {
                Ok(()) => {}
                Err(Code::QueueFull | Code::Fatal) => return self.hold_released(sequence, record),
                Err(code) => {
                    let failure = record.failure(code, &self.learned.tools);
                    self.isolated.add_failed(sequence, record, fault::not_taken(code, failure));
                }
            }
            // Releases what waited for this event, unless this event itself is in flight now.
            self.released.extend(self.key_order.release(lane));
        }
    }

    /// Its dead letter parks the key of this event: what is held of the key joins it at the isolated
    /// producer, which refuses what waits there behind it.
    fn park(&mut self, sequence: Sequence) {
        let record = self.isolated.events.item(sequence);
        let Some(lane) = record.and_then(|record| record.lane) else { return };
        for behind in self.events.held_behind(sequence, lane) {
            let Some((record, lane_sent)) = self.events.remove_held(behind) else { continue };
            self.key_order.taken_back(lane_sent);
            self.released.remove(&behind);
            self.isolated.events.add(behind, record);
        }
        self.key_order.forget_behind(lane, sequence);
        self.released.extend(self.key_order.release(Some(lane)));
    }

    /// Collects the answers of the normal producer, waiting at most `patience` for the first.
    /// Returns whether anything was confirmed, and the errors of the client.
    fn poll_normal(&mut self, now: Instant, patience: Duration) -> (bool, Vec<(Code, String)>) {
        let answers = self.normal.poll(now, patience);
        for (sequence, partition) in &answers.confirmed {
            let Some(lane) = self.events.confirm(*sequence) else { continue };
            self.released.extend(self.key_order.answered(lane));
            if !self.warmup.is_idle() {
                self.released.extend(self.warmup.answered(*sequence, Some(*partition)));
            }
            self.reports.push(SinkReport::Confirmed(*sequence));
        }
        if answers.errors.iter().any(|(code, _)| *code == Code::BrokerTransportFailure) {
            self.warmup.broker_unreachable();
        }
        for TopicDescription { topic, partitions: count, id } in answers.topics {
            if self.warmup.is_another(topic, id) && !on(Mutant::KafkaTopicAnewTrusted) {
                let name = self.normal.producer.topic_name(topic).unwrap_or_default();
                let text = format!("topic {name} may have been deleted and created again");
                self.ending.get_or_insert((SinkReport::Broken(text), now));
            }
            if self.warmup.has_fewer(topic, count) {
                self.forget(topic);
            }
            let partition_of = |key: &[u8]| {
                let count = i32::try_from(count).unwrap_or(i32::MAX);
                self.normal.producer.partition_of(key, count)
            };
            self.released.extend(self.warmup.counted(topic, count, partition_of));
        }
        // The partition of a key follows from their number, which may change.
        let again = now.duration_since(self.counted_at) >= COUNT_INTERVAL;
        if again {
            self.counted_at = now;
        }
        if now.duration_since(self.closed_at) >= CLOSE_INTERVAL {
            self.closed_at = now;
            self.warmup.close();
        }
        let uncounted = self.warmup.topics_to_count(again);
        if !uncounted.is_empty() {
            self.normal.producer.ask_partitions(&uncounted);
        }
        if !answers.failed.is_empty() || !answers.errors.is_empty() {
            let fatal = self.normal.fatal();
            self.handle_failed(answers.failed, fatal.as_ref(), now);
            if let Some(report) = fatal
                && !on(Mutant::KafkaFatalUsedFurther)
            {
                self.ending.get_or_insert((report, now));
            }
        }
        (!answers.confirmed.is_empty(), answers.errors)
    }

    /// Reports the events that are stored although their answers are outstanding. Called before the client is
    /// dropped with them.
    fn report_stored(&mut self) {
        for sequence in self.events.stored_before() {
            self.events.remove(sequence);
            self.reports.push(SinkReport::Confirmed(sequence));
        }
    }

    /// A failure concerns its event, unless the producer is unusable: then the whole batch failed.
    fn handle_failed(
        &mut self,
        failed: Vec<(Sequence, Code, Record)>,
        fatal: Option<&SinkReport>,
        now: Instant,
    ) {
        let mut too_large: BTreeMap<String, usize> = BTreeMap::new();
        let stored = if failed.is_empty() { BTreeSet::new() } else { self.events.stored_before() };
        for (sequence, code, mut record) in failed {
            let event = self.events.remove(sequence);
            let lane = event.as_ref().and_then(Event::lane_sent);
            record.commit_unix_us = event.map_or(0, |event| event.commit_unix_us);
            record.lane = record.key.as_deref().map(|key| self.key_hasher.lane(key));
            self.released.extend(self.warmup.answered(sequence, None));
            if fatal.is_none()
                && is_missing_partition(code, record.partition)
                && let Ok(topic) = self.normal.producer.topic(&record.topic)
            {
                self.released.extend(self.key_order.answered(lane));
                self.partition_missing(topic, sequence, record);
                continue;
            }
            if shows_missing_topic(code)
                && let Ok(topic) = self.normal.producer.topic(&record.topic)
            {
                self.forget_missing(topic);
            }
            let failure = record.failure(code, &self.learned.tools);
            // The client does not know whether it is stored. A refusal by the broker is no such answer, and what
            // the client stored after it had dropped the partition, as its topic was missing, proves nothing.
            let is_unknown =
                failure.disposition == Disposition::Outage && code != Code::BrokerDestroy;
            if is_unknown && stored.contains(&sequence) {
                self.released.extend(self.key_order.answered(lane));
                self.reports.push(SinkReport::Confirmed(sequence));
                continue;
            }
            match (failure.disposition, fatal) {
                // The event is not the cause: the rebuilt sink receives it again.
                (Disposition::Outage, Some(_)) => {}
                (_, Some(_)) if record_limit::is_too_large(code) => {
                    let bytes = record.with_outbound(record_limit::framed_bytes);
                    *too_large.entry(record.topic).or_default() += bytes;
                }
                // The rebuilt sink publishes it alone, and this concerns no other topic.
                (_, Some(_))
                    if code == Code::TopicAuthorizationFailed
                        && !on(Mutant::KafkaForbiddenForgotten) =>
                {
                    self.learned.forbidden.refused(&record.topic);
                }
                (Disposition::Delayed, Some(_)) => {
                    self.learned.forbidden.time_refused(&record.topic, now);
                }
                (Disposition::Halt, _) | (Disposition::Outage, None) => {
                    self.reports.push(SinkReport::Failed(sequence, failure));
                }
                // It was refused in a batch, and it is not known which event of the batch is the cause.
                (_, Some(_)) => self.reports.push(SinkReport::Suspect(sequence)),
                // The producer goes on, and what waits for this event may be sent.
                (_, None) => {
                    self.isolated.add_failed(sequence, record, failure);
                    self.released.extend(self.key_order.answered(lane));
                }
            }
        }
        too_large.iter().for_each(|(topic, bytes)| self.normal.refused_batches(topic, *bytes));
    }

    /// Sends the events that wait in the sink, as far as they may be sent now.
    fn send_waiting(&mut self, now: Instant) {
        self.admit_released();
        self.isolated.report_failed();
        self.isolated.send(now, &self.events);
    }

    fn report_client_error(&mut self, code: Code, text: String, now: Instant) {
        match code {
            Code::Fatal | Code::GaplessGuarantee => {
                self.ending.get_or_insert((SinkReport::Broken(text), now));
            }
            _ => self.reports.extend(self.reachability.failed(code, &text, now)),
        }
    }
}

/// The partition does not exist, and it was the sink that chose it.
fn is_missing_partition(code: Code, wanted: Option<i32>) -> bool {
    code == Code::UnknownPartition && wanted.is_none()
}

/// Records that wait in the client for a partition of a topic that is gone fail as if the partition did not exist.
fn shows_missing_topic(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownTopic
            | Code::UnknownTopicOrPartition
            | Code::UnknownTopicId
            | Code::UnknownPartition
    )
}

impl<F: ProducerFactory> Sink for KafkaSink<F> {
    fn broker(&mut self) -> u64 {
        if self.broker.is_none() {
            let id = self.normal.producer.cluster_id();
            self.broker = id.map(|id| fingerprint(&format!("kafka/{id}")));
        }
        self.broker.unwrap_or_default()
    }

    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        if !self.released.is_empty() || self.ending.is_some() {
            return Err(PublishError::QueueFull);
        }
        let Err(code) = self.admit(sequence, event) else { return Ok(()) };
        // After a fatal error the next poll ends the sink.
        if matches!(code, Code::QueueFull | Code::Fatal) {
            return Err(PublishError::QueueFull);
        }
        let tools = &self.learned.tools;
        let failure = fault::failure(code, event.id, event.topic, event.key, tools);
        let failure = fault::not_taken(code, failure);
        if failure.disposition != Disposition::Transient {
            return Err(PublishError::Failed(failure));
        }
        self.isolated.add_failed(sequence, Record::copy(event, self.lane(event)), failure);
        Ok(())
    }

    fn publish_alone(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        let record = Record::copy(event, self.lane(event));
        self.isolated.events.add_troubled(sequence, record);
        Ok(())
    }

    fn publish_dead_letter(
        &mut self,
        sequence: Sequence,
        letter: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        let record = self.learned.record_limit.fit_dead_letter(letter, self.lane(letter));
        self.isolated.events.add_troubled(sequence, record);
        Ok(())
    }

    fn poll(&mut self, now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        if self.ending.is_none() {
            self.send_waiting(now);
        }
        self.reports.append(&mut self.isolated.reports);
        let isolated_any = self.isolated.in_flight() > 0;
        let is_idle = !isolated_any && self.reports.is_empty();
        let wait = if is_idle { patience } else { Duration::ZERO };
        let (mut confirmed_any, mut errors) = self.poll_normal(now, wait);
        let short = if self.normal.in_flight > 0 { patience.min(SHORT_WAIT) } else { patience };
        let wait = if isolated_any && self.reports.is_empty() { short } else { Duration::ZERO };
        let isolated = self.isolated.poll(now, wait);
        if isolated.confirmed_any {
            confirmed_any = true;
            // A topic that was missing may exist now.
            self.normal.ask_again();
        }
        errors.extend(isolated.errors);
        for (sequence, record) in isolated.recovered {
            self.hold_released(sequence, record);
        }
        // The machine may have been suspended during a wait, so that a peer publishes now: the relay looks for
        // that before the next poll.
        if self.ending.is_none() && patience.is_zero() {
            self.send_waiting(now);
        }
        self.reports.append(&mut self.isolated.reports);
        // Before the errors, which may be newer than these confirms.
        if confirmed_any {
            self.reports.extend(self.reachability.answered());
        }
        for (code, text) in errors {
            self.report_client_error(code, text, now);
        }
        // Also beside events in flight, which may all be to a partition that does not answer.
        self.reports.extend(self.reachability.probe(&mut self.normal.producer, now));
        let in_flight = self.normal.in_flight + self.isolated.in_flight();
        if let Some((report, since)) = &self.ending
            && (in_flight == 0 || now.duration_since(*since) > LAST_ANSWERS_WITHIN)
        {
            let report = report.clone();
            self.report_stored();
            self.reports.push(report);
        }
        reports.append(&mut self.reports);
    }

    fn has_room_for(&self, event: &Outbound<'_>) -> bool {
        self.learned.record_limit.has_room_for(event)
    }

    fn publish_until(&mut self, until: Instant) {
        let is_idle = self.normal.in_flight == 0;
        self.normal.producer.connect_until(until, is_idle);
        self.isolated.connect_until(until);
    }

    fn holds_back(&self) -> bool {
        !self.key_order.is_idle()
    }

    fn withdraw(&mut self, _now: Instant, reports: &mut Vec<SinkReport>) {
        // Failures that were not reported will happen again.
        self.reports.retain(|report| matches!(report, SinkReport::Confirmed(_)));
        for sequence in self.normal.withdraw() {
            if self.events.confirm(sequence).is_some() {
                self.reports.push(SinkReport::Confirmed(sequence));
            }
        }
        self.report_stored();
        reports.append(&mut self.reports);
        reports.extend(self.isolated.withdraw().into_iter().map(SinkReport::Confirmed));
    }

    fn destination(&self, sequence: Sequence) -> Option<String> {
        let Some(event) = self.events.get(sequence) else {
            return self.isolated.destination(sequence);
        };
        let Destination { topic, partition, .. } = event.sent_to()?;
        let topic = self.normal.producer.topic_name(topic)?;
        Some(match partition {
            Some(partition) => format!("partition {partition} of topic {topic}"),
            None => format!("topic {topic}"),
        })
    }

    fn retry(&mut self, sequence: Sequence) {
        self.isolated.retry(sequence);
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        if cause.parks_key && !on(Mutant::KafkaHeldNotParked) {
            self.park(sequence);
        }
        self.isolated.replace_with_dead_letter(sequence, writer, cause);
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
