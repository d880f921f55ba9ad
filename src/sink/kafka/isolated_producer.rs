//! The careful way: events that have failed, and what is behind them, each on its own.
//!
//! A broker refuses a whole batch for one record of it, and a gap ends the fast producer. So what
//! has failed once, what may have, and dead letters go through a second producer that puts one
//! record into a request and sends the next when it is answered: its failures are about one event,
//! and harm nothing else. It is slow: what is only behind them goes back to the fast way when they
//! are through. The producer is made when it is needed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode as Code;

use super::client::{LOOK_MS, ProducerClient};
use super::fault;
use super::record_limit::RecordLimit;
use super::settings::{KafkaSettings, effective_properties};
use crate::base::event::{Outbound, Sequence};
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::kafka::producer_ffi::ProducerEvent;
use crate::sink::kafka::record_ffi::Record;
use crate::sink::key_lanes::{Desk, Item, Lanes};
use crate::sink::publish::{Failure, SinkReport};

/// Come after all others, and win.
const PROPERTIES: &[(&str, &str)] = &[
    ("batch.num.messages", "1"),
    ("max.in.flight", "1"),
    ("enable.gapless.guarantee", "false"),
    // The fast way has waited for a topic that is missing; here there are further attempts.
    ("topic.metadata.propagation.max.ms", "3000"),
];
/// The producer is kept for as long as this after its last event.
const KEEP: Duration = Duration::from_secs(30);

/// The careful way.
pub(super) struct IsolatedProducer {
    settings: KafkaSettings,
    client: Option<ProducerClient>,
    used_at: Instant,
    desk: Desk<KeptEvent>,
    /// Failed on the fast way, not told yet: an older one of its key may still come.
    failed: BTreeMap<Sequence, Failure>,
}

impl IsolatedProducer {
    pub(super) fn new(settings: KafkaSettings) -> IsolatedProducer {
        let (desk, failed) = (Desk::default(), BTreeMap::new());
        IsolatedProducer { settings, client: None, used_at: Instant::now(), desk, failed }
    }

    /// Is there nothing here?
    pub(super) fn is_empty(&self) -> bool {
        self.desk.is_empty()
    }

    /// Is there an event of that lane?
    pub(super) fn holds(&self, lane: u64) -> bool {
        self.desk.holds(lane)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.client.as_ref().map_or(0, ProducerClient::in_flight)
    }

    /// Takes an event in because others of its key are here: it goes back when those are through.
    pub(super) fn take(&mut self, sequence: Sequence, parcel: KeptEvent) {
        self.desk.take(sequence, parcel);
    }

    /// Takes an event in that must be sent on its own.
    pub(super) fn take_alone(&mut self, sequence: Sequence, parcel: KeptEvent) {
        self.desk.take_troubled(sequence, parcel);
    }

    /// Takes in what has failed on the fast way. Behind another event of its key it will have its
    /// turn; else its failure is told.
    pub(super) fn take_failed(&mut self, sequence: Sequence, parcel: KeptEvent, failure: Failure) {
        self.desk.take_troubled(sequence, parcel);
        self.failed.insert(sequence, failure);
    }

    /// Tells what has failed on the fast way, once all of that is here.
    pub(super) fn tell_failed(&mut self, news: &mut Vec<SinkReport>) {
        for (sequence, failure) in std::mem::take(&mut self.failed) {
            if self.desk.is_ready(sequence) {
                self.desk.refused(sequence);
                news.push(SinkReport::Failed(sequence, failure));
            }
        }
    }

    pub(super) fn retry(&mut self, sequence: Sequence) {
        self.desk.retry(sequence);
    }

    /// As [`crate::sink::Sink::replace_with_dead_letter`]; what is refused by that is told with the next news.
    pub(super) fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) -> Vec<SinkReport> {
        let Some(parcel) = self.desk.item(sequence) else { return Vec::new() };
        let letter = parcel.letter(writer, cause, &self.settings.record_limit);
        self.desk.replace_with_dead_letter(sequence, letter);
        let behind = if cause.parks_key { self.desk.refuse_behind(sequence) } else { Vec::new() };
        let told = behind.into_iter().filter_map(|sequence| {
            let record = &self.desk.item(sequence)?.record;
            let failure = fault::parked(&record.id, &record.topic, record.key.as_deref());
            Some(SinkReport::Failed(sequence, failure))
        });
        told.collect()
    }

    /// Sends what may be sent and is older than everything on the fast way.
    pub(super) fn send(&mut self, fast_from: Option<Sequence>, news: &mut Vec<SinkReport>) {
        if !self.failed.is_empty() {
            return;
        }
        let mut asked = false;
        while let Some((sequence, parcel)) = self.desk.peek() {
            if fast_from.is_some_and(|oldest| oldest < sequence) {
                return;
            }
            let client = match self.client() {
                Ok(client) => client,
                Err(reason) => return news.push(SinkReport::Broken(reason)),
            };
            let mut outcome = hand_over(client, sequence, &parcel);
            if outcome == Err(Code::UnknownTopic) && !asked {
                // What was missing may be there by now.
                asked = true;
                let _answered = client.producer.metadata(Some(&parcel.record.topic), LOOK_MS);
                outcome = hand_over(client, sequence, &parcel);
            }
            match outcome {
                Ok(()) => self.desk.sent(sequence, &parcel),
                Err(Code::QueueFull) => return,
                Err(code) => {
                    news.extend(refused(
                        &mut self.desk,
                        sequence,
                        code,
                        &self.settings.record_limit,
                    ));
                }
            }
            self.used_at = Instant::now();
        }
    }

    /// Collects answers, waiting at most `patience` for the first. What concerns the cluster is
    /// handed to `tell`; events whose key is out of trouble go to `well`. Was anything confirmed?
    pub(super) fn poll(
        &mut self,
        patience: Duration,
        news: &mut Vec<SinkReport>,
        well: &mut Vec<(Sequence, KeptEvent)>,
        mut tell: impl FnMut(Code, String),
    ) -> bool {
        let Some(client) = &mut self.client else { return false };
        let (desk, mut confirmed_any, mut failed_any) = (&mut self.desk, false, false);
        let limit = &self.settings.record_limit;
        let mut ask = None;
        client.poll(patience, |event| match event {
            ProducerEvent::Confirmed { sequence, .. } => {
                confirmed_any = true;
                let lane = desk.item(sequence).and_then(|parcel| parcel.lane());
                desk.confirmed(sequence);
                well.extend(lane.map_or_else(Vec::new, |lane| desk.recovered(lane)));
                news.push(SinkReport::Confirmed(sequence));
            }
            ProducerEvent::Failed { sequence, code, .. } => {
                failed_any = true;
                let failed = refused(desk, sequence, code, limit);
                if failed.is_none() {
                    ask = desk.item(sequence).map(|letter| letter.record.topic.clone());
                }
                news.extend(failed);
            }
            ProducerEvent::RecordLimit(bytes_max) => limit.learn(bytes_max),
            ProducerEvent::Error { code, text } => tell(code, text),
            ProducerEvent::Partitions { .. } => {}
        });
        if let Some(topic) = ask {
            client.producer.ask_record_limit(&topic);
        }
        if failed_any {
            news.extend(client.fatal());
        }
        if self.desk.is_empty() && self.used_at.elapsed() > KEEP {
            self.client = None;
        }
        confirmed_any
    }

    fn client(&mut self) -> Result<&mut ProducerClient, String> {
        if self.client.is_none() {
            let mut properties = effective_properties(&self.settings);
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            properties.extend(PROPERTIES.iter().map(own));
            self.client = Some(ProducerClient::new(&properties)?);
        }
        self.client.as_mut().ok_or_else(String::new)
    }
}

/// An event failed: that is told. A letter that is too large is sent again, with less in it.
fn refused(
    desk: &mut Desk<KeptEvent>,
    sequence: Sequence,
    code: Code,
    limit: &RecordLimit,
) -> Option<SinkReport> {
    let parcel = desk.item(sequence);
    let failure = parcel.map(|parcel| parcel.failure(code));
    let less = parcel.and_then(|parcel| parcel.with_less(code, limit));
    desk.refused(sequence);
    match less {
        Some(letter) => {
            desk.replace_with_dead_letter(sequence, letter);
            None
        }
        None => failure.map(|failure| SinkReport::Failed(sequence, failure)),
    }
}

fn hand_over(
    client: &mut ProducerClient,
    sequence: Sequence,
    parcel: &KeptEvent,
) -> Result<(), Code> {
    let topic = client.producer.topic(&parcel.record.topic)?;
    let partition = parcel.record.partition;
    parcel.record.with_outbound(|event| client.send(topic, sequence, event, partition))
}

/// An event that is kept.
#[derive(Debug)]
pub(super) struct KeptEvent {
    pub(super) record: Record,
    lane: Option<u64>,
    /// Is it a dead letter, or what resolves one? Then it may be cut.
    is_letter: bool,
}

impl KeptEvent {
    pub(super) fn new(record: Record, lanes: &Lanes) -> KeptEvent {
        let lane = record.key.as_deref().map(|key| lanes.of(key));
        KeptEvent { record, lane, is_letter: false }
    }

    pub(super) fn copy(event: &Outbound<'_>, lanes: &Lanes) -> KeptEvent {
        KeptEvent::new(Record::copy(event), lanes)
    }

    /// A copy of a dead letter, or of what resolves one, cut to fit. It has the lane of its whole key.
    pub(super) fn copy_letter(
        letter: &Outbound<'_>,
        lanes: &Lanes,
        limit: &RecordLimit,
    ) -> KeptEvent {
        let lane = letter.key.map(|key| lanes.of(key));
        KeptEvent { record: limit.fit(letter, Record::copy), lane, is_letter: true }
    }

    /// Its dead letter.
    pub(super) fn letter(
        &self,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
        limit: &RecordLimit,
    ) -> KeptEvent {
        let record = self.record.with_outbound(|event| {
            writer.compose(event, cause, |letter| limit.fit(letter, Record::copy))
        });
        KeptEvent { record, lane: self.lane, is_letter: true }
    }

    /// The same letter with less in it, when it was refused with such a code because it is too large.
    pub(super) fn with_less(&self, code: Code, limit: &RecordLimit) -> Option<KeptEvent> {
        if !self.is_letter {
            return None;
        }
        let less = |letter: &Outbound<'_>| limit.fit_less(code, letter, Record::copy);
        let record = self.record.with_outbound(less)?;
        Some(KeptEvent { record, lane: self.lane, is_letter: true })
    }

    pub(super) fn failure(&self, code: Code) -> Failure {
        fault::failure(code, &self.record.id, &self.record.topic, self.record.key.as_deref())
    }
}

impl Item for KeptEvent {
    fn lane(&self) -> Option<u64> {
        self.lane
    }

    /// A delivery report names the event by its number.
    fn unique(&self) -> Option<&str> {
        None
    }

    fn size_bytes(&self) -> usize {
        self.record.size_bytes()
    }
}
