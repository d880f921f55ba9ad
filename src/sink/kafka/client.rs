//! A producer, how much it has under way, and what makes its first record leave at once.

use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode as Code;

use super::fault;
use crate::base::event::{Outbound, Sequence};
use crate::sink::kafka::producer_ffi::{Producer, ProducerEvent, TopicId};
use crate::sink::publish::SinkReport;

/// As long as the timer that hurrying is meant to shorten.
const HURRY_FOR: Duration = Duration::from_millis(500);
/// How long the answer about one topic is waited for.
pub(super) const LOOK_MS: i32 = 20;
/// How often an answer is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A producer and what is under way.
pub(super) struct ProducerClient {
    pub(super) producer: Producer,
    in_flight: usize,
    /// Topic of the first event and when it was handed over; see [`ProducerClient::hurry`].
    hurried: Option<(String, Instant)>,
    confirmed_any: bool,
    looked_at: Option<Instant>,
}

impl ProducerClient {
    /// It connects in the background.
    pub(super) fn new(properties: &[(String, String)]) -> Result<ProducerClient, String> {
        let producer = Producer::new(properties)?;
        let (in_flight, hurried, confirmed_any, looked_at) = (0, None, false, None);
        Ok(ProducerClient { producer, in_flight, hurried, confirmed_any, looked_at })
    }

    /// Events that were handed over and not answered for.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Hands an event over.
    pub(super) fn send(
        &mut self,
        topic: TopicId,
        sequence: Sequence,
        event: &Outbound<'_>,
        partition: Option<i32>,
    ) -> Result<(), Code> {
        self.producer.produce(topic, sequence, event, partition)?;
        self.in_flight += 1;
        if !self.confirmed_any && self.hurried.is_none() {
            self.hurried = Some((event.topic.to_owned(), Instant::now()));
        }
        Ok(())
    }

    /// Hands over what the producer has to tell, waiting at most `patience` for the first.
    pub(super) fn poll(&mut self, patience: Duration, mut tell: impl FnMut(ProducerEvent)) {
        self.hurry();
        let patience_ms = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        let (mut confirmed, mut failed) = (0, 0);
        self.producer.poll(patience_ms, |event| {
            match event {
                ProducerEvent::Confirmed { .. } => confirmed += 1,
                ProducerEvent::Failed { .. } => failed += 1,
                _ => {}
            }
            tell(event);
        });
        self.in_flight -= confirmed + failed;
        self.confirmed_any |= confirmed > 0;
    }

    /// Asks whether a topic that was missing is there by now: the client would believe for minutes
    /// that it is not. False when something was asked just now.
    pub(super) fn looks_again(&mut self, topic: &str) -> bool {
        if self.looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return false;
        }
        let answered = self.producer.metadata(Some(topic), LOOK_MS).is_ok();
        self.looked_at = Some(Instant::now());
        answered
    }

    /// There is reason to ask again.
    pub(super) fn forget_look(&mut self) {
        self.looked_at = None;
    }

    /// What it means that the producer is unusable from now on, if it is.
    pub(super) fn fatal(&mut self) -> Option<SinkReport> {
        let (code, text) = self.producer.fatal()?;
        Some(match fault::unable(code, &text) {
            Some(failure) => SinkReport::Unable(failure),
            None => SinkReport::Broken(text),
        })
    }

    /// librdkafka retires the bootstrap connection on the first metadata answer and its
    /// producer-id step then sleeps on a 500 ms timer; another metadata request wakes it. So the
    /// topic is asked for again and again until the first confirm. Never longer than the timer
    /// would have taken: each question counts as a request in flight, and from a far broker the
    /// answers would come too late to let a record through between two of them.
    fn hurry(&mut self) {
        if self.confirmed_any {
            return;
        }
        if let Some((topic, since)) = &self.hurried
            && since.elapsed() < HURRY_FOR
        {
            // Its answer is of no interest.
            let _unanswered = self.producer.metadata(Some(topic), 1).is_err();
        }
    }
}
