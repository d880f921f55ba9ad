//! Apache Kafka through librdkafka's idempotent producer.
//!
//! Order within a key and freedom from duplicates across librdkafka's own retries come from
//! `enable.idempotence`; what would break them is refused by [`properties`]. Batching is adaptive
//! without a knob: `linger.ms=0` lets a lone event leave at once, and with only two requests in
//! flight a backlog gathers behind them and leaves as full batches.
//!
//! An event goes the fast way, straight to the producer, and nothing of it is kept; unless its
//! partition has yet to open ([`opening`]), an event of its key has failed ([`careful`]) or is
//! unconfirmed at another destination ([`key_order`]).

mod answer_ffi;
mod bench_target;
mod client;
mod dead_letters;
pub mod doctor;
mod fault;
mod in_flight;
mod isolated_producer;
mod key_order;
mod letter_limit;
mod parcel;
mod partition_warmup;
pub mod producer_ffi;
pub mod properties;
mod record_ffi;
mod record_limit_ffi;
pub mod settings;
mod topics;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode as Code;

use self::client::Client;
use self::key_order::{Destination, KeyOrder};
use self::letter_limit::LetterLimit;
use self::parcel::Parcel;
use self::properties::effective_properties;
use self::settings::KafkaSettings;
use super::{Disposition, News, Refused, RouteRules, Sink, SinkKind};
use crate::base::event::{CloudEventsBinding, Outbound, Sequence};
use crate::base::settings::Settings;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::kafka::in_flight::Flight;
use crate::sink::kafka::isolated_producer::Careful;
use crate::sink::kafka::partition_warmup::{Opening, Pass};
use crate::sink::kafka::producer_ffi::{Producer, ProducerEvent, Record, TopicId};
use crate::sink::key_lanes::{Item as _, Lanes};

/// What the rest of the relay knows of it.
pub(super) const SINK: SinkKind = SinkKind {
    name: "kafka",
    title: "Kafka",
    keys: <KafkaSettings as Settings>::fields,
    configure: settings::configure,
    routes: RouteRules::KAFKA,
    binding: CloudEventsBinding::Kafka,
    shares_malloc_arena: true,
    errors: fault::rows,
};

/// How often an idle sink that was unreachable is asked whether it is back.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How often a topic is asked whether it has grown, while events are sent by what it had.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);
/// While both ways are in use, neither is waited for longer than this.
const TURN: Duration = Duration::from_millis(2);

/// The Kafka sink.
pub struct KafkaSink {
    lanes: Lanes,
    fast: Client,
    flight: Flight,
    key_order: KeyOrder<Parcel>,
    opening: Opening<Parcel>,
    /// Have waited for a partition or behind others of their key, and go before anything that is
    /// handed over now.
    waited: BTreeMap<Sequence, Parcel>,
    careful: Careful,
    letter_limit: LetterLimit,
    /// Told with the next news.
    told: Vec<News>,
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
    pub fn new(settings: &KafkaSettings) -> Result<KafkaSink, String> {
        Ok(KafkaSink {
            lanes: Lanes::default(),
            fast: Client::new(&effective_properties(settings))?,
            flight: Flight::default(),
            key_order: KeyOrder::default(),
            opening: Opening::default(),
            waited: BTreeMap::new(),
            careful: Careful::new(settings.clone()),
            letter_limit: settings.letter_limit.clone(),
            told: Vec::new(),
            asked_at: None,
            counted_at: Instant::now(),
        })
    }

    /// The producer, for asking the cluster before the first event.
    pub(crate) fn producer(&mut self) -> &mut Producer {
        &mut self.fast.producer
    }

    /// Sends an event the way that it has to go.
    fn admit(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Code> {
        let lane = event.key.map(|key| self.lanes.of(key));
        if !self.careful.is_empty() && lane.is_some_and(|lane| self.careful.holds(lane)) {
            self.careful.take(sequence, Parcel::copy(event, &self.lanes));
            return Ok(());
        }
        let topic = self.fast.producer.topic(event.topic)?;
        let to = Destination { topic, partition: event.partition };
        if self.key_order.must_wait(sequence, lane, to, &self.flight)
            && let Some(lane) = lane
        {
            self.flight.add(sequence, event.commit_unix_us, None);
            self.key_order.wait(sequence, lane, to, Parcel::copy(event, &self.lanes));
            return Ok(());
        }
        let mut outcome = self.send(topic, sequence, event);
        if outcome == Err(Code::UnknownTopic) && self.fast.looks_again(event.topic) {
            outcome = self.send(topic, sequence, event);
        }
        match outcome {
            Ok(()) => {
                self.flight.add(sequence, event.commit_unix_us, lane);
                self.key_order.handed_over(lane, to);
            }
            Err(code) if is_misplaced(code, event.partition) => {
                self.misplaced(topic, sequence, Parcel::copy(event, &self.lanes));
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
        if self.opening.is_open(topic) {
            // What has no key has no order: librdkafka fills its batches best by itself.
            return self.fast.send(topic, sequence, event, partition);
        }
        let anywhere = |count: i32| (sequence % Sequence::from(count.unsigned_abs())) as i32;
        let partition = partition.or_else(|| self.opening.partitions(topic).map(anywhere));
        let pass = self.opening.pass(topic, partition);
        if pass == Pass::Closed {
            let parcel = Parcel::copy(event, &self.lanes);
            self.opening.wait(topic, partition, sequence, parcel);
            return Ok(());
        }
        self.fast.send(topic, sequence, event, partition)?;
        if pass == Pass::Alone {
            self.opening.flies(topic, partition, sequence);
        }
        Ok(())
    }

    /// The topic has not the partitions that it had. Others of the key may come back for the same
    /// reason, so the event goes the careful way, which keeps them in order.
    fn misplaced(&mut self, topic: TopicId, sequence: Sequence, parcel: Parcel) {
        self.waited.extend(self.opening.forget(topic));
        self.careful.take_alone(sequence, parcel);
    }

    /// The partition of the event's key among those that are known to us. librdkafka may know of
    /// more, which are not open.
    #[inline]
    fn partition_of_key(&mut self, topic: TopicId, event: &Outbound<'_>) -> Option<i32> {
        let count = self.opening.partitions(topic)?;
        Some(self.fast.producer.partition_of(topic, event.key?, count))
    }

    /// What has waited for a partition goes on.
    fn go_on(&mut self) {
        while let Some((sequence, parcel)) = self.waited.pop_first() {
            let lane = parcel.lane();
            self.key_order.taken_back(self.flight.remove(sequence).and_then(|slot| slot.lane));
            match parcel.record.with_outbound(|event| self.admit(sequence, event)) {
                Ok(()) => {}
                Err(Code::QueueFull) => {
                    self.flight.add(sequence, parcel.record.commit_unix_us, None);
                    self.waited.insert(sequence, parcel);
                    return;
                }
                Err(code) => {
                    let failure = parcel.failure(code);
                    self.careful.take_failed(sequence, parcel, failure);
                }
            }
            // Unless it is unconfirmed now, what waits for it follows.
            self.waited.extend(lane.map_or_else(Vec::new, |lane| self.key_order.release(lane)));
        }
    }

    /// Hears what became of events on the fast way.
    fn hear(&mut self, patience: Duration, news: &mut Vec<News>) -> Answers {
        let mut answers = Answers::default();
        let (flight, opening, waited) = (&mut self.flight, &mut self.opening, &mut self.waited);
        let (letter_limit, mut ask) = (&self.letter_limit, Vec::new());
        let key_order = &mut self.key_order;
        self.fast.poll(patience, |event| match event {
            ProducerEvent::Confirmed { sequence, partition } => {
                answers.confirmed = true;
                let lane = flight.remove(sequence).and_then(|slot| slot.lane);
                waited.extend(key_order.answered(lane));
                if !opening.is_idle() {
                    let landed = opening.landed(sequence, Some(partition));
                    waited.extend(landed.waited);
                    ask.extend(landed.ask);
                }
                news.push(News::Confirmed(sequence));
            }
            ProducerEvent::Failed { sequence, code, record } => {
                answers.failed.push((sequence, code, record));
            }
            ProducerEvent::Partitions { topic, count } => answers.counted.push((topic, count)),
            ProducerEvent::RecordLimit(bytes_max) => letter_limit.learn(bytes_max),
            ProducerEvent::Error { code, text } => answers.errors.push((code, text)),
        });
        self.count_again(ask);
        for (topic, count) in answers.counted.drain(..) {
            self.waited.extend(self.opening.counted(topic, count));
        }
        answers
    }

    /// The partition of a key follows from their number, and that may change.
    fn count_again(&mut self, mut ask: Vec<TopicId>) {
        if self.counted_at.elapsed() >= COUNT_INTERVAL {
            self.counted_at = Instant::now();
            ask.extend(self.opening.divided());
        }
        if !ask.is_empty() {
            self.fast.producer.ask_partitions(&ask);
        }
    }

    /// A failure is about its event, unless the producer died of it: then the whole batch failed.
    fn failed(&mut self, failed: Vec<(Sequence, Code, Record)>, news: &mut Vec<News>) {
        if failed.is_empty() {
            return;
        }
        let fatal = self.fast.fatal();
        for (sequence, code, mut record) in failed {
            let slot = self.flight.remove(sequence);
            record.commit_unix_us = slot.map_or(0, |slot| slot.commit_unix_us);
            self.waited.extend(self.opening.landed(sequence, None).waited);
            let lane = slot.and_then(|slot| slot.lane);
            let misplaced = is_misplaced(code, record.partition) && fatal.is_none();
            let topic = self.fast.producer.topic(&record.topic).ok().filter(|_| misplaced);
            let parcel = Parcel::new(record, &self.lanes);
            if let Some(topic) = topic {
                self.waited.extend(self.key_order.answered(lane));
                self.misplaced(topic, sequence, parcel);
                continue;
            }
            let failure = parcel.failure(code);
            match (failure.disposition, &fatal) {
                (Disposition::Outage, Some(_)) => {}
                (Disposition::Halt, _) | (Disposition::Outage, None) => {
                    news.push(News::Failed(sequence, failure));
                }
                (_, Some(_)) => news.push(News::Suspect(sequence)),
                (_, None) => {
                    // In every other case the sink ends, and what waits for this event with it.
                    self.careful.take_failed(sequence, parcel, failure);
                    self.waited.extend(self.key_order.answered(lane));
                }
            }
        }
        news.extend(fatal);
    }

    /// An idle client hears nothing when its broker comes back, so it asks.
    fn probe(&mut self, news: &mut Vec<News>) {
        let Some(last) = self.asked_at else { return };
        let in_flight = self.fast.in_flight() + self.careful.in_flight();
        if in_flight > 0 || last.elapsed() < PROBE_INTERVAL {
            return;
        }
        self.asked_at = Some(Instant::now());
        if self.fast.producer.metadata(None, 20).is_ok() {
            self.reached(news);
        }
    }

    /// What an error of a client as a whole means.
    fn concerns_all(&mut self, code: Code, text: String, news: &mut Vec<News>) {
        match code {
            Code::Fatal | Code::GaplessGuarantee => {
                news.push(self.fast.fatal().unwrap_or(News::Broken(text)));
            }
            // One broker of several may come and go; these concern the cluster.
            Code::AllBrokersDown | Code::Authentication | Code::SSL | Code::Resolve => {
                self.asked_at = Some(Instant::now());
                news.push(News::Unreachable(text));
            }
            _ => tracing::debug!(error = text, "kafka client"),
        }
    }

    fn reached(&mut self, news: &mut Vec<News>) {
        if self.asked_at.take().is_some() {
            news.push(News::Reachable);
        }
    }
}

/// Did it go to a partition that is none, and that was our choice?
fn is_misplaced(code: Code, wanted: Option<i32>) -> bool {
    code == Code::UnknownPartition && wanted.is_none()
}

impl Sink for KafkaSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Refused> {
        if !self.waited.is_empty() || self.opening.is_crowded() {
            return Err(Refused::Full);
        }
        let Err(code) = self.admit(sequence, event) else { return Ok(()) };
        if code == Code::QueueFull {
            return Err(Refused::Full);
        }
        let failure = fault::failure(code, event.id, event.topic, event.key);
        if failure.disposition != Disposition::Transient {
            return Err(Refused::Failed(failure));
        }
        self.careful.take_failed(sequence, Parcel::copy(event, &self.lanes), failure);
        Ok(())
    }

    fn publish_alone(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Refused> {
        self.careful.take_alone(sequence, Parcel::copy(event, &self.lanes));
        Ok(())
    }

    fn publish_letter(&mut self, sequence: Sequence, letter: &Outbound<'_>) -> Result<(), Refused> {
        let letter = Parcel::copy_letter(letter, &self.lanes, &self.letter_limit);
        self.careful.take_alone(sequence, letter);
        Ok(())
    }

    fn poll(&mut self, patience: Duration, news: &mut Vec<News>) {
        let before = news.len();
        news.append(&mut self.told);
        self.careful.send(self.flight.oldest(), news);
        let careful = self.careful.in_flight() > 0;
        let heard = |news: &Vec<News>| news.len() > before;
        let wait = if careful || heard(news) { Duration::ZERO } else { patience };
        let mut answers = self.hear(wait, news);
        let failed = std::mem::take(&mut answers.failed);
        self.failed(failed, news);
        let turn = if self.fast.in_flight() > 0 { patience.min(TURN) } else { patience };
        let wait = if careful && !heard(news) { turn } else { Duration::ZERO };
        let (errors, mut well) = (&mut answers.errors, Vec::new());
        let tell = |code, text| errors.push((code, text));
        if self.careful.poll(wait, news, &mut well, tell) {
            answers.confirmed = true;
            // A topic that was missing may be there.
            self.fast.forget_look();
        }
        for (sequence, parcel) in well {
            self.flight.add(sequence, parcel.record.commit_unix_us, None);
            self.waited.insert(sequence, parcel);
        }
        self.go_on();
        self.careful.tell_failed(news);
        self.careful.send(self.flight.oldest(), news);
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
        self.careful.retry(sequence);
    }

    fn bury(&mut self, sequence: Sequence, mailbox: &DeadLetterWriter, cause: &DeadLetterCause) {
        self.told.extend(self.careful.bury(sequence, mailbox, cause));
    }
}
