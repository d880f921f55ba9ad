//! librdkafka's producer as the sink wants it: it is woken when it would wait too long for metadata,
//! and gets the login that the files have when its own was refused. Where certificates were replaced, a new
//! client takes its place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use walrelay_core::sink::kafka::port::{
    ProducerAnswers, ProducerFactory, ProducerKind, ProducerPort, TopicId,
};
use walrelay_core::sink::kafka::{self, Code, Learned};

use super::certificate_files::CertificateFiles;
use super::cluster;
use super::producer_ffi::Producer;
use super::sasl_login::SaslLogin;
use super::settings::KafkaSettings;
use walrelay_base::error::Fault;
use walrelay_base::event::{Outbound, Sequence};
use walrelay_base::random;

/// The length of librdkafka's timer, which [`KafkaProducer::hurry`] cuts short.
const HURRY_FOR: Duration = Duration::from_millis(500);
/// How long after the first request is the second one.
const HURRY_AGAIN_AFTER: Duration = Duration::from_millis(1);
/// librdkafka's limit of a batch, before it is compressed; the first record may be larger.
const BATCH_SIZE: &str = "batch.size";
/// The properties of the isolated producer. They override the defaults and the user's
/// properties.
const ISOLATED: &[(&str, &str)] = &[
    ("batch.num.messages", "1"),
    ("max.in.flight", "1"),
    ("enable.gapless.guarantee", "false"),
    // A broker that has just started may report for a while that an existing topic is unknown.
    ("topic.metadata.propagation.max.ms", "3000"),
];

pub(super) type RdkafkaSink = kafka::KafkaSink<Producers>;

/// A configured cluster, and what the sinks of this process have learned of it.
#[derive(Debug)]
pub struct KafkaBroker {
    pub settings: KafkaSettings,
    pub(super) learned: Arc<Learned>,
}

impl KafkaBroker {
    /// The same cluster, of which no topic is required.
    pub(super) fn without_topics(&self) -> KafkaBroker {
        let settings = KafkaSettings { topics: Vec::new(), ..self.settings.clone() };
        KafkaBroker { settings, learned: Arc::clone(&self.learned) }
    }

    /// The producer connects in the background.
    pub(super) fn open_sink(&self) -> Result<RdkafkaSink, Fault> {
        let (producers, learned) = (Producers(self.settings.clone()), Arc::clone(&self.learned));
        RdkafkaSink::new(producers, learned, random::seed(), Instant::now())
    }
}

/// Opens the producers of a sink.
pub(super) struct Producers(KafkaSettings);

impl ProducerFactory for Producers {
    type Producer = KafkaProducer;

    fn open(&mut self, kind: ProducerKind, batch_bytes_max: usize) -> Result<KafkaProducer, Fault> {
        let own = match kind {
            ProducerKind::Normal => &[],
            ProducerKind::Isolated => ISOLATED,
        };
        KafkaProducer::open(&self.0, own, batch_bytes_max)
    }
}

/// When the topic of the first event is asked for. Each pause is twice as long as the one before: each
/// request counts as one in flight, and records wait behind those that a distant broker has not answered.
struct Hurry {
    topic: String,
    sent_at: Instant,
    next_at: Instant,
    pause: Duration,
}

impl Hurry {
    fn new(topic: &str, sent_at: Instant) -> Hurry {
        Hurry { topic: topic.to_owned(), sent_at, next_at: sent_at, pause: HURRY_AGAIN_AFTER }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        if now < self.next_at || now.duration_since(self.sent_at) >= HURRY_FOR {
            return false;
        }
        self.next_at = now + self.pause;
        self.pause *= 2;
        true
    }
}

pub(super) struct KafkaProducer {
    pub(super) client: Producer,
    /// If it comes from files.
    login: Option<SaslLogin>,
    certificates: CertificateFiles,
    batch_bytes_max: usize,
    /// Asks for the topic of the first event.
    hurry: Option<Hurry>,
    confirmed_any: bool,
    /// The configured ones.
    brokers: String,
}

impl KafkaProducer {
    /// `own` properties win over those of the settings.
    pub(super) fn open(
        settings: &KafkaSettings,
        own: &[(&str, &str)],
        batch_bytes_max: usize,
    ) -> Result<KafkaProducer, Fault> {
        let mut properties = settings.effective_properties()?;
        properties.extend(own.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let sizes = properties.iter().rev().filter(|(name, _)| name == BATCH_SIZE);
        let size = sizes.filter_map(|(_, value)| value.trim().parse().ok()).next();
        let batch_bytes_max = batch_bytes_max.min(size.unwrap_or(usize::MAX));
        properties.push((BATCH_SIZE.to_owned(), batch_bytes_max.to_string()));
        let certificates = CertificateFiles::of(settings, &properties);
        let client = Producer::new(&properties);
        Ok(KafkaProducer {
            client: client.map_err(|error| cluster::refused_client(settings, &error))?,
            login: SaslLogin::of(settings, &properties),
            certificates,
            batch_bytes_max,
            hurry: None,
            confirmed_any: false,
            brokers: settings.brokers.clone(),
        })
    }

    /// librdkafka closes the bootstrap connection after the first metadata response, and its
    /// request for a producer id then waits on a 500 ms timer; another metadata request wakes it.
    /// So the topic is asked for until the first confirm, or until the timer would have fired.
    fn hurry(&mut self) {
        if let Some(hurry) = self.hurry.as_mut().filter(|_| !self.confirmed_any)
            && hurry.is_due(Instant::now())
        {
            // The answer is not used.
            let _unanswered = self.client.metadata(Some(&hurry.topic), 0).is_err();
        }
    }

    /// The cluster has refused the login: gives the client the one that the files have now, or says
    /// why they cannot be read.
    fn renew_refused_login(&mut self, errors: &mut [(Code, String)]) {
        let mut refused = errors.iter_mut().filter(|(code, _)| *code == Code::Authentication);
        let (Some((_, text)), Some(login)) = (refused.next_back(), &mut self.login) else { return };
        match login.changed() {
            Ok(Some((user, password))) => self.client.set_login(user, password),
            Ok(None) => {}
            Err(unread) => *text = format!("{text}; {unread}"),
        }
    }
}

impl ProducerPort for KafkaProducer {
    fn topic(&mut self, name: &str) -> Result<TopicId, Code> {
        self.client.topic(name)
    }

    fn topic_name(&self, topic: TopicId) -> Option<&str> {
        self.client.topic_name(topic)
    }

    fn batch_bytes_max(&self) -> usize {
        self.batch_bytes_max
    }

    fn produce(
        &mut self,
        topic: TopicId,
        sequence: Sequence,
        event: &Outbound<'_>,
        partition: Option<i32>,
    ) -> Result<(), Code> {
        self.client.produce(topic, sequence, event, partition)?;
        if !self.confirmed_any && self.hurry.is_none() {
            self.hurry = Some(Hurry::new(event.topic, Instant::now()));
        }
        Ok(())
    }

    fn poll(&mut self, patience: Duration) -> ProducerAnswers {
        self.hurry();
        let mut answers = self.client.poll(whole_ms(patience));
        if !answers.confirmed.is_empty() {
            self.confirmed_any = true;
        }
        self.renew_refused_login(&mut answers.errors);
        let errors = answers.errors.iter().map(|(code, _)| *code);
        let renewal = self.certificates.renewal(errors);
        answers.errors.extend(renewal);
        answers
    }

    fn connect_until(&mut self, until: Instant, is_idle: bool) {
        self.client.sockets.open_until(until, is_idle, Instant::now());
    }

    fn purge(&mut self) {
        self.client.purge();
    }

    fn partition_of(&mut self, key: &[u8], count: i32) -> i32 {
        self.client.partition_of(key, count)
    }

    fn ask_partitions(&mut self, topics: &[TopicId]) {
        self.client.ask_partitions(topics);
    }

    fn ask_record_limit(&mut self, topic: &str) {
        self.client.ask_record_limit(topic);
    }

    /// Sends the request over a connection that is open, and has librdkafka open one if none is. The
    /// client reads the answer, also if nobody waits for it.
    fn renew_metadata(&mut self, topic: Option<&str>) -> bool {
        matches!(self.client.metadata(topic, 0), Ok(_) | Err(Code::OperationTimedOut))
    }

    fn name_brokers(&mut self) {
        self.client.add_brokers(&self.brokers);
    }

    fn fatal(&mut self) -> Option<(Code, String)> {
        self.client.fatal()
    }

    fn cluster_id(&self) -> Option<String> {
        self.client.cluster_id()
    }
}

fn whole_ms(patience: Duration) -> i32 {
    i32::try_from(patience.as_millis()).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[path = "producer_tests.rs"]
mod tests;
