//! A producer with a count of the events it has, which also asks for metadata when librdkafka would
//! wait too long for it.

use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode as Code;

use super::lost_brokers::LostBrokers;
use super::producer_ffi::{Producer, ProducerAnswers, TopicId};
use super::record_limit::RecordLimit;
use super::sasl_login::SaslLogin;
use super::settings::KafkaSettings;
use super::{cluster, fault};
use crate::base::error::Fault;
use crate::base::event::{Outbound, Sequence};
use crate::sink::publish::SinkReport;

/// The length of librdkafka's timer, which [`ProducerClient::hurry`] cuts short.
const HURRY_FOR: Duration = Duration::from_millis(500);
/// librdkafka's limit of a batch, before it is compressed; the first record may be larger.
const BATCH_SIZE: &str = "batch.size";
/// How long a request for a missing topic may block.
const TOPIC_REQUEST_MS: i32 = 20;
/// How often a missing topic is asked for.
const TOPIC_REQUEST_INTERVAL: Duration = Duration::from_millis(200);

pub(super) struct ProducerClient {
    pub(super) producer: Producer,
    /// If it comes from files.
    login: Option<SaslLogin>,
    pub(super) record_limit: RecordLimit,
    /// Bytes of its batches of more than one record.
    batch_bytes_max: usize,
    /// Events that were handed over and not answered.
    pub(super) in_flight: usize,
    /// The topic of the first event, and when that was handed over.
    first_sent: Option<(String, Instant)>,
    confirmed_any: bool,
    topic_asked_at: Option<Instant>,
    lost_brokers: LostBrokers,
}

impl ProducerClient {
    /// The producer connects in the background. `own` properties win over those of the settings.
    pub(super) fn new(
        settings: &KafkaSettings,
        own: &[(&str, &str)],
    ) -> Result<ProducerClient, Fault> {
        let mut properties = settings.effective_properties()?;
        properties.extend(own.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let sizes = properties.iter().rev().filter(|(name, _)| name == BATCH_SIZE);
        let size = sizes.filter_map(|(_, value)| value.trim().parse().ok()).next();
        let record_limit = settings.record_limit.clone();
        let batch_bytes_max = record_limit.batch_bytes_max().min(size.unwrap_or(usize::MAX));
        properties.push((BATCH_SIZE.to_owned(), batch_bytes_max.to_string()));
        let producer = Producer::new(&properties);
        Ok(ProducerClient {
            producer: producer.map_err(|reason| cluster::refused_property(settings, &reason))?,
            login: SaslLogin::of(settings, &properties),
            record_limit,
            batch_bytes_max,
            in_flight: 0,
            first_sent: None,
            confirmed_any: false,
            topic_asked_at: None,
            lost_brokers: LostBrokers::new(settings),
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
        if self.record_limit.is_beyond_client(event) {
            return Err(Code::MessageSizeTooLarge);
        }
        let mut outcome = self.producer.produce(topic, sequence, event, partition);
        let may_have_changed =
            matches!(outcome, Err(Code::UnknownTopic | Code::TopicAuthorizationFailed));
        if may_have_changed && self.ask_for_topic(event.topic) {
            outcome = self.producer.produce(topic, sequence, event, partition);
        }
        if outcome.is_err() && self.producer.fatal().is_some() {
            return Err(Code::Fatal);
        }
        outcome?;
        self.in_flight += 1;
        if !self.confirmed_any && self.first_sent.is_none() {
            self.first_sent = Some((event.topic.to_owned(), Instant::now()));
        }
        Ok(())
    }

    fn ask_for_topic(&mut self, topic: &str) -> bool {
        if self.topic_asked_at.is_some_and(|at| at.elapsed() < TOPIC_REQUEST_INTERVAL) {
            return false;
        }
        let answered = self.producer.metadata(Some(topic), TOPIC_REQUEST_MS).is_ok();
        self.topic_asked_at = Some(Instant::now());
        answered
    }

    /// Asks at once when the next event finds its topic missing or forbidden.
    pub(super) fn ask_again(&mut self) {
        self.topic_asked_at = None;
    }

    /// Collects all answers, waiting at most `patience` for the first.
    pub(super) fn poll(&mut self, patience: Duration) -> ProducerAnswers {
        self.hurry();
        let patience_ms = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        let mut answers = self.producer.poll(patience_ms);
        self.in_flight -= answers.confirmed.len() + answers.failed.len();
        self.confirmed_any |= !answers.confirmed.is_empty();
        if !answers.confirmed.is_empty() {
            self.lost_brokers.answered();
        }
        answers.errors.iter().for_each(|(code, _)| self.lost_brokers.reported(*code));
        self.renew_refused_login(&mut answers.errors);
        if let Some(brokers) = self.lost_brokers.due() {
            self.producer.add_brokers(brokers);
        }
        for (topic, bytes_max) in &answers.record_limits {
            self.record_limit.learn(topic, *bytes_max);
        }
        answers
    }

    /// Drops what it has. Returns what is confirmed by now.
    pub(super) fn withdraw(&mut self) -> Vec<Sequence> {
        self.producer.purge();
        let confirmed = self.producer.poll(0).confirmed;
        confirmed.into_iter().map(|(sequence, _)| sequence).collect()
    }

    /// The cluster has refused the login: gives the client the one that the files have now, or says
    /// why they cannot be read.
    fn renew_refused_login(&mut self, errors: &mut [(Code, String)]) {
        let mut refused = errors.iter_mut().filter(|(code, _)| *code == Code::Authentication);
        let (Some((_, text)), Some(login)) = (refused.next_back(), &mut self.login) else { return };
        match login.changed() {
            Ok(Some((user, password))) => self.producer.set_login(user, password),
            Ok(None) => {}
            Err(unread) => *text = format!("{text}; {unread}"),
        }
    }

    /// Batches of the topic, with so many bytes in all, were refused because of their size.
    pub(super) fn refused_batches(&self, topic: &str, bytes: usize) {
        self.record_limit.refused(topic, bytes.min(self.batch_bytes_max));
    }

    /// What to report when the producer is unusable from now on.
    pub(super) fn fatal(&mut self) -> Option<SinkReport> {
        let (code, text) = self.producer.fatal()?;
        Some(match fault::halting(code, &text) {
            Some(failure) => SinkReport::Unable(failure),
            None => SinkReport::Broken(text),
        })
    }

    /// librdkafka closes the bootstrap connection after the first metadata response, and its
    /// request for a producer id then waits on a 500 ms timer; another metadata request wakes it.
    /// So the topic is asked for at each poll until the first confirm. This ends when the timer
    /// would have fired: each request counts as one in flight, and with a distant broker no record
    /// would get through between them.
    fn hurry(&mut self) {
        if let Some((topic, sent_at)) = self.first_sent.as_ref().filter(|_| !self.confirmed_any)
            && sent_at.elapsed() < HURRY_FOR
        {
            // The answer is not used.
            let _unanswered = self.producer.metadata(Some(topic), 1).is_err();
        }
    }
}
