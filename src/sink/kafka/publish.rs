//! The Kafka sink: which producer an event goes to, and what becomes of it there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode as Code;

use super::client::ProducerClient;
use super::fault;
use super::key_order::{Destination, KeyOrder};
use super::record_limit::RecordLimit;
use super::settings::{KafkaSettings, effective_properties};
use crate::base::event::{Outbound, Sequence};
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::kafka::in_flight::InFlight;
use crate::sink::kafka::isolated_producer::{IsolatedProducer, KeptEvent};
use crate::sink::kafka::partition_warmup::{PartitionState, PartitionWarmup};
use crate::sink::kafka::producer_ffi::{Producer, ProducerEvent, TopicId};
use crate::sink::kafka::record_ffi::Record;
use crate::sink::key_lanes::{Item as _, Lanes};
use crate::sink::publish::{Disposition, PublishError, Sink, SinkReport};

/// How often an idle sink that was unreachable is asked whether it is back.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How often a topic is asked whether it has grown, while events are sent by what it had.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);
/// While both ways are in use, neither is waited for longer than this.
const TURN: Duration = Duration::from_millis(2);

/// The Kafka sink.
pub(super) struct KafkaSink {
    lanes: Lanes,
    normal: ProducerClient,
    in_flight: InFlight,
    key_order: KeyOrder<KeptEvent>,
    warmup: PartitionWarmup<KeptEvent>,
    /// Have waited for a partition or behind others of their key, and go before anything that is
    /// handed over now.
    released: BTreeMap<Sequence, KeptEvent>,
    isolated: IsolatedProducer,
    record_limit: RecordLimit,
    /// Told with the next news.
    pending_news: Vec<SinkReport>,
    /// While unreachable: when we last heard so or asked.
    asked_at: Option<Instant>,
    counted_at: Instant,
}

/// What the producer of the fast way has told.
#[derive(Default)]
struct Answers {
    confirmed: bool,
    failed: Vec<(Sequence, Code, Record)>,
    counted: Vec<(TopicId, i32)>,
    errors: Vec<(Code, String)>,
}

impl KafkaSink {
    /// A producer; it connects in the background.
    pub(super) fn new(settings: &KafkaSettings) -> Result<KafkaSink, String> {
        Ok(KafkaSink {
            lanes: Lanes::default(),
            normal: ProducerClient::new(&effective_properties(settings))?,
            in_flight: InFlight::default(),
            key_order: KeyOrder::default(),
            warmup: PartitionWarmup::default(),
            released: BTreeMap::new(),
            isolated: IsolatedProducer::new(settings.clone()),
            record_limit: settings.record_limit.clone(),
            pending_news: Vec::new(),
            asked_at: None,
            counted_at: Instant::now(),
        })
    }

    /// The producer, for asking the cluster before the first event.
    pub(super) fn producer(&mut self) -> &mut Producer {
        &mut self.normal.producer
    }

    /// Sends an event the way that it has to go.
    fn admit(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Code> {
        let lane = event.key.map(|key| self.lanes.of(key));
        if !self.isolated.is_empty() && lane.is_some_and(|lane| self.isolated.holds(lane)) {
            self.isolated.take(sequence, KeptEvent::copy(event, &self.lanes));
            return Ok(());
        }
        let topic = self.normal.producer.topic(event.topic)?;
        let to = Destination { topic, partition: event.partition };
        if self.key_order.must_wait(sequence, lane, to, &self.in_flight)
            && let Some(lane) = lane
        {
            self.in_flight.add(sequence, event.commit_unix_us, None);
            self.key_order.wait(sequence, lane, to, KeptEvent::copy(event, &self.lanes));
            return Ok(());
        }
        let mut outcome = self.send(topic, sequence, event);
        if outcome == Err(Code::UnknownTopic) && self.normal.looks_again(event.topic) {
            outcome = self.send(topic, sequence, event);
        }
        match outcome {
            Ok(()) => {
                self.in_flight.add(sequence, event.commit_unix_us, lane);
                self.key_order.handed_over(lane, to);
            }
            Err(code) if is_misplaced(code, event.partition) => {
                self.misplaced(topic, sequence, KeptEvent::copy(event, &self.lanes));
            }
            Err(code) => return Err(code),
        }
        Ok(())
    }

    /// Sends an event the fast way, or lets it wait until its partition is open.
    fn send(
        &mut self,
        topic: TopicId,
        sequence: Sequence,
        event: &Outbound<'_>,
    ) -> Result<(), Code> {
        let partition = event.partition.or_else(|| self.partition_of_key(topic, event));
        if self.warmup.is_open(topic) {
            // What has no key has no order: librdkafka fills its batches best by itself.
            return self.normal.send(topic, sequence, event, partition);
        }
        let anywhere = |count: i32| (sequence % Sequence::from(count.unsigned_abs())) as i32;
        let partition = partition.or_else(|| self.warmup.partitions(topic).map(anywhere));
        let pass = self.warmup.pass(topic, partition);
        if pass == PartitionState::Closed {
            let parcel = KeptEvent::copy(event, &self.lanes);
            self.warmup.wait(topic, partition, sequence, parcel);
            return Ok(());
        }
        self.normal.send(topic, sequence, event, partition)?;
        if pass == PartitionState::Alone {
            self.warmup.flies(topic, partition, sequence);
        }
        Ok(())
    }

    /// The topic has not the partitions that it had. Others of the key may come back for the same
    /// reason, so the event goes the careful way, which keeps them in order.
    fn misplaced(&mut self, topic: TopicId, sequence: Sequence, parcel: KeptEvent) {
        self.released.extend(self.warmup.forget(topic));
        self.isolated.take_alone(sequence, parcel);
    }

    /// The partition of the event's key among those that are known to us. librdkafka may know of
    /// more, which are not open.
    #[inline]
    fn partition_of_key(&mut self, topic: TopicId, event: &Outbound<'_>) -> Option<i32> {
        let count = self.warmup.partitions(topic)?;
        Some(self.normal.producer.partition_of(topic, event.key?, count))
    }

    /// What has waited for a partition goes on.
    fn go_on(&mut self) {
        while let Some((sequence, parcel)) = self.released.pop_first() {
            let lane = parcel.lane();
            self.key_order.taken_back(self.in_flight.remove(sequence).and_then(|slot| slot.lane));
            match parcel.record.with_outbound(|event| self.admit(sequence, event)) {
                Ok(()) => {}
                Err(Code::QueueFull) => {
                    self.in_flight.add(sequence, parcel.record.commit_unix_us, None);
                    self.released.insert(sequence, parcel);
                    return;
                }
                Err(code) => {
                    let failure = parcel.failure(code);
                    self.isolated.take_failed(sequence, parcel, failure);
                }
            }
            // Unless it is unconfirmed now, what waits for it follows.
            self.released.extend(lane.map_or_else(Vec::new, |lane| self.key_order.release(lane)));
        }
    }

    /// Hears what became of events on the fast way.
    fn hear(&mut self, patience: Duration, news: &mut Vec<SinkReport>) -> Answers {
        let mut answers = Answers::default();
        let (flight, opening, waited) = (&mut self.in_flight, &mut self.warmup, &mut self.released);
        let (record_limit, mut ask) = (&self.record_limit, Vec::new());
        let key_order = &mut self.key_order;
        self.normal.poll(patience, |event| match event {
            ProducerEvent::Confirmed { sequence, partition } => {
                answers.confirmed = true;
                let lane = flight.remove(sequence).and_then(|slot| slot.lane);
                waited.extend(key_order.answered(lane));
                if !opening.is_idle() {
                    let landed = opening.landed(sequence, Some(partition));
                    waited.extend(landed.waited);
                    ask.extend(landed.ask);
                }
                news.push(SinkReport::Confirmed(sequence));
            }
            ProducerEvent::Failed { sequence, code, record } => {
                answers.failed.push((sequence, code, record));
            }
            ProducerEvent::Partitions { topic, count } => answers.counted.push((topic, count)),
            ProducerEvent::RecordLimit(bytes_max) => record_limit.learn(bytes_max),
            ProducerEvent::Error { code, text } => answers.errors.push((code, text)),
        });
        self.count_again(ask);
        for (topic, count) in answers.counted.drain(..) {
            self.released.extend(self.warmup.counted(topic, count));
        }
        answers
    }

    /// The partition of a key follows from their number, and that may change.
    fn count_again(&mut self, mut ask: Vec<TopicId>) {
        if self.counted_at.elapsed() >= COUNT_INTERVAL {
            self.counted_at = Instant::now();
            ask.extend(self.warmup.divided());
        }
        if !ask.is_empty() {
            self.normal.producer.ask_partitions(&ask);
        }
    }

    /// A failure is about its event, unless the producer died of it: then the whole batch failed.
    fn failed(&mut self, failed: Vec<(Sequence, Code, Record)>, news: &mut Vec<SinkReport>) {
        if failed.is_empty() {
            return;
        }
        let fatal = self.normal.fatal();
        for (sequence, code, mut record) in failed {
            let slot = self.in_flight.remove(sequence);
            record.commit_unix_us = slot.map_or(0, |slot| slot.commit_unix_us);
            self.released.extend(self.warmup.landed(sequence, None).waited);
            let lane = slot.and_then(|slot| slot.lane);
            let misplaced = is_misplaced(code, record.partition) && fatal.is_none();
            let topic = self.normal.producer.topic(&record.topic).ok().filter(|_| misplaced);
            let parcel = KeptEvent::new(record, &self.lanes);
            if let Some(topic) = topic {
                self.released.extend(self.key_order.answered(lane));
                self.misplaced(topic, sequence, parcel);
                continue;
            }
            let failure = parcel.failure(code);
            match (failure.disposition, &fatal) {
                (Disposition::Outage, Some(_)) => {}
                (Disposition::Halt, _) | (Disposition::Outage, None) => {
                    news.push(SinkReport::Failed(sequence, failure));
                }
                (_, Some(_)) => news.push(SinkReport::Suspect(sequence)),
                (_, None) => {
                    // In every other case the sink ends, and what waits for this event with it.
                    self.isolated.take_failed(sequence, parcel, failure);
                    self.released.extend(self.key_order.answered(lane));
                }
            }
        }
        news.extend(fatal);
    }

    /// An idle client hears nothing when its broker comes back, so it asks.
    fn probe(&mut self, news: &mut Vec<SinkReport>) {
        let Some(last) = self.asked_at else { return };
        let in_flight = self.normal.in_flight() + self.isolated.in_flight();
        if in_flight > 0 || last.elapsed() < PROBE_INTERVAL {
            return;
        }
        self.asked_at = Some(Instant::now());
        if self.normal.producer.metadata(None, 20).is_ok() {
            self.reached(news);
        }
    }

    /// What an error of a client as a whole means.
    fn concerns_all(&mut self, code: Code, text: String, news: &mut Vec<SinkReport>) {
        match code {
            Code::Fatal | Code::GaplessGuarantee => {
                news.push(self.normal.fatal().unwrap_or(SinkReport::Broken(text)));
            }
            // One broker of several may come and go; these concern the cluster.
            Code::AllBrokersDown | Code::Authentication | Code::SSL | Code::Resolve => {
                self.asked_at = Some(Instant::now());
                news.push(SinkReport::Unreachable(text));
            }
            _ => tracing::debug!(error = text, "kafka client"),
        }
    }

    fn reached(&mut self, news: &mut Vec<SinkReport>) {
        if self.asked_at.take().is_some() {
            news.push(SinkReport::Reachable);
        }
    }
}

/// Did it go to a partition that is none, and that was our choice?
fn is_misplaced(code: Code, wanted: Option<i32>) -> bool {
    code == Code::UnknownPartition && wanted.is_none()
}

impl Sink for KafkaSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        if !self.released.is_empty() || self.warmup.is_crowded() {
            return Err(PublishError::QueueFull);
        }
        let Err(code) = self.admit(sequence, event) else { return Ok(()) };
        if code == Code::QueueFull {
            return Err(PublishError::QueueFull);
        }
        let failure = fault::failure(code, event.id, event.topic, event.key);
        if failure.disposition != Disposition::Transient {
            return Err(PublishError::Failed(failure));
        }
        self.isolated.take_failed(sequence, KeptEvent::copy(event, &self.lanes), failure);
        Ok(())
    }

    fn publish_alone(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        self.isolated.take_alone(sequence, KeptEvent::copy(event, &self.lanes));
        Ok(())
    }

    fn publish_dead_letter(
        &mut self,
        sequence: Sequence,
        letter: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        let letter = KeptEvent::copy_letter(letter, &self.lanes, &self.record_limit);
        self.isolated.take_alone(sequence, letter);
        Ok(())
    }

    fn poll(&mut self, patience: Duration, news: &mut Vec<SinkReport>) {
        let before = news.len();
        news.append(&mut self.pending_news);
        self.isolated.send(self.in_flight.oldest(), news);
        let careful = self.isolated.in_flight() > 0;
        let heard = |news: &Vec<SinkReport>| news.len() > before;
        let wait = if careful || heard(news) { Duration::ZERO } else { patience };
        let mut answers = self.hear(wait, news);
        let failed = std::mem::take(&mut answers.failed);
        self.failed(failed, news);
        let turn = if self.normal.in_flight() > 0 { patience.min(TURN) } else { patience };
        let wait = if careful && !heard(news) { turn } else { Duration::ZERO };
        let (errors, mut well) = (&mut answers.errors, Vec::new());
        let tell = |code, text| errors.push((code, text));
        if self.isolated.poll(wait, news, &mut well, tell) {
            answers.confirmed = true;
            // A topic that was missing may be there.
            self.normal.forget_look();
        }
        for (sequence, parcel) in well {
            self.in_flight.add(sequence, parcel.record.commit_unix_us, None);
            self.released.insert(sequence, parcel);
        }
        self.go_on();
        self.isolated.tell_failed(news);
        self.isolated.send(self.in_flight.oldest(), news);
        // What was confirmed may have been so before they fell.
        if answers.confirmed {
            self.reached(news);
        }
        for (code, text) in answers.errors {
            self.concerns_all(code, text, news);
        }
        self.probe(news);
    }

    fn holds_back(&self) -> bool {
        !self.key_order.is_idle()
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
        self.pending_news.extend(self.isolated.replace_with_dead_letter(sequence, writer, cause));
    }
}
