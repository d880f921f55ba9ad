//! A producer with a count of the events it has, which asks for the metadata of a topic when the
//! producer would wait too long for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::code::Code;
use super::fault;
use super::learned::Learned;
use super::port::{ProducerAnswers, ProducerFactory, ProducerKind, ProducerPort, TopicId};
use super::reachability::LostBrokers;
use crate::base::error::Fault;
use crate::base::event::{Outbound, Sequence};
use crate::mutants::{Mutant, on};
use crate::sink::publish::SinkReport;

/// How long the answer to a request for a missing topic is waited for.
const TOPIC_ANSWER_WITHIN: Duration = Duration::from_millis(20);
/// How often a missing topic is asked for.
const TOPIC_REQUEST_INTERVAL: Duration = Duration::from_millis(200);

pub(super) struct ProducerClient<P> {
    pub(super) producer: P,
    learned: Arc<Learned>,
    /// Events that were handed over and not answered.
    pub(super) in_flight: usize,
    /// When a topic was asked for last, and whether an answer can come.
    topic_asked: Option<(Instant, bool)>,
    /// A topic that was missing or forbidden, and whether the answers were collected since.
    missing: Option<(TopicId, bool)>,
    /// The topic of the last event that was handed over is missing, or was until it was asked for.
    pub(super) is_topic_missing: bool,
    lost_brokers: LostBrokers,
    /// The time of the last poll.
    now: Instant,
}

impl<P: ProducerPort> ProducerClient<P> {
    pub(super) fn open<F: ProducerFactory<Producer = P>>(
        producers: &mut F,
        kind: ProducerKind,
        learned: &Arc<Learned>,
        now: Instant,
    ) -> Result<ProducerClient<P>, Fault> {
        Ok(ProducerClient {
            producer: producers.open(kind, learned.record_limit.batch_bytes_max())?,
            learned: Arc::clone(learned),
            in_flight: 0,
            topic_asked: None,
            missing: None,
            is_topic_missing: false,
            lost_brokers: LostBrokers::default(),
            now,
        })
    }

    /// Hands an event over. For a topic that was missing or forbidden the cluster is asked again,
    /// because librdkafka would believe for minutes that it still is. [`Code::Fatal`] if the producer is
    /// unusable from now on, whatever the reason.
    pub(super) fn send(
        &mut self,
        topic: TopicId,
        sequence: Sequence,
        event: &Outbound<'_>,
        partition: Option<i32>,
    ) -> Result<(), Code> {
        self.is_topic_missing = false;
        if self.learned.record_limit.is_beyond_client(event) {
            return Err(Code::MessageSizeTooLarge);
        }
        let outcome = self.producer.produce(topic, sequence, event, partition);
        self.is_topic_missing = outcome == Err(Code::UnknownTopic);
        let may_have_changed =
            matches!(outcome, Err(Code::UnknownTopic | Code::TopicAuthorizationFailed));
        if may_have_changed && self.in_flight > 0 && self.missing != Some((topic, true)) {
            // Earlier events may have failed because of that. If the topic is there again, this one
            // would be stored before them.
            self.missing = Some((topic, false));
            return Err(Code::QueueFull);
        }
        // The topic may have been given more partitions since.
        let may_be_new = outcome == Err(Code::UnknownPartition) && event.partition.is_some();
        if (may_have_changed || may_be_new) && self.ask_for_topic(event.topic) {
            return Err(Code::QueueFull);
        }
        if outcome.is_err() && self.producer.fatal().is_some() {
            return Err(Code::Fatal);
        }
        outcome?;
        self.missing.take_if(|(missing, _)| *missing == topic);
        self.in_flight += 1;
        Ok(())
    }

    /// Asks for a topic now and then. Returns whether the answer may still come.
    fn ask_for_topic(&mut self, topic: &str) -> bool {
        let asked = self.topic_asked.map(|(at, can_come)| (self.now.duration_since(at), can_come));
        if let Some((age, can_come)) = asked.filter(|(age, _)| *age < TOPIC_REQUEST_INTERVAL) {
            return can_come && age < TOPIC_ANSWER_WITHIN;
        }
        let can_come = self.producer.renew_metadata(Some(topic));
        self.topic_asked = Some((self.now, can_come));
        can_come
    }

    /// Asks at once when the next event finds its topic missing or forbidden, unless an answer may still
    /// come.
    pub(super) fn ask_again(&mut self) {
        let now = self.now;
        self.topic_asked.take_if(|(at, _)| now.duration_since(*at) >= TOPIC_ANSWER_WITHIN);
    }

    /// Collects all answers, waiting at most `patience` for the first.
    pub(super) fn poll(&mut self, now: Instant, patience: Duration) -> ProducerAnswers {
        self.now = now;
        let answers = self.producer.poll(patience);
        if !answers.confirmed.is_empty() {
            self.lost_brokers.answered();
        }
        answers.errors.iter().for_each(|(code, _)| self.lost_brokers.reported(*code, now));
        if self.lost_brokers.must_be_named(now) {
            self.producer.name_brokers();
        }
        if let Some((_, is_polled)) = &mut self.missing {
            *is_polled = true;
        }
        self.in_flight -= answers.confirmed.len() + answers.failed.len();
        for (topic, bytes_max) in &answers.record_limits {
            self.learned.record_limit.learn(topic, *bytes_max);
        }
        answers
    }

    /// Drops what it has. Returns what is confirmed by now.
    pub(super) fn withdraw(&mut self) -> Vec<Sequence> {
        if !on(Mutant::KafkaPurgeForgotten) {
            self.producer.purge();
        }
        let confirmed = self.producer.poll(Duration::ZERO).confirmed;
        confirmed.into_iter().map(|(sequence, _)| sequence).collect()
    }

    /// Batches of the topic, with so many bytes in all, were refused because of their size.
    pub(super) fn refused_batches(&self, topic: &str, bytes: usize) {
        self.learned.record_limit.refused(topic, bytes.min(self.producer.batch_bytes_max()));
    }

    /// The report for a producer that is unusable from now on.
    pub(super) fn fatal(&mut self) -> Option<SinkReport> {
        let (code, text) = self.producer.fatal()?;
        let tools = &self.learned.tools;
        Some(match fault::halting(code, &text, tools) {
            Some(failure) => SinkReport::Unable(failure),
            // Without the right to write any topic no client gets a producer id.
            None if code == Code::ClusterAuthorizationFailed => {
                let mend = fault::mend(code, "", tools, false);
                SinkReport::Broken(format!(
                    "{text}; help: let this login write a topic, or: {mend}"
                ))
            }
            None => SinkReport::Broken(text),
        })
    }
}
