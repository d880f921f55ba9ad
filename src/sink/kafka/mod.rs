//! Apache Kafka through librdkafka's idempotent producer.
//!
//! Order within a key and freedom from duplicates across librdkafka's own retries come from
//! `enable.idempotence`; what would break them is refused by [`properties`]. Batching is adaptive
//! without a knob: `linger.ms=0` lets a lone event leave at once, and with only two requests in
//! flight a backlog gathers behind them and leaves as full batches.

mod fault;
pub mod preflight;
pub mod properties;
pub mod settings;
mod topics;

use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode as Code;

use self::settings::KafkaSettings;
pub(super) use self::settings::configure;
use super::{News, Refused, Sink};
use crate::ffi::{Producer, ProducerEvent};
use crate::message::{Outbound, Sequence};

/// What we set; the user's own properties come after and win.
const DEFAULTS: &[(&str, &str)] = &[
    ("client.id", "walrelay"),
    ("acks", "all"),
    ("enable.idempotence", "true"),
    ("max.in.flight", "2"),
    ("linger.ms", "0"),
    ("batch.size", "1000000"),
    ("batch.num.messages", "10000"),
    // Retries never end: our own clock tells an outage, and a timeout would leave a gap.
    ("message.timeout.ms", "0"),
    // Above every window, so that the window and not the queue is the bound.
    ("queue.buffering.max.messages", "1000000"),
    ("queue.buffering.max.kbytes", "2097151"),
    // The partition that Java producers choose for the same key.
    ("partitioner", "murmur2_random"),
    ("allow.auto.create.topics", "false"),
    // A topic that is not there may only be late: a broker that has just started says so, too.
    ("topic.metadata.propagation.max.ms", "15000"),
    // What follows a refused event is not sent: it would overtake the event's next delivery.
    ("enable.gapless.guarantee", "true"),
    ("socket.keepalive.enable", "true"),
    ("socket.nagle.disable", "true"),
    ("reconnect.backoff.ms", "50"),
    ("reconnect.backoff.max.ms", "500"),
    ("retry.backoff.ms", "50"),
    ("log.connection.close", "false"),
];

/// As long as the timer that hurrying is meant to shorten.
const HURRY_FOR: Duration = Duration::from_millis(500);
/// How often an idle sink that was unreachable is asked whether it is back.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The Kafka sink.
pub struct KafkaSink {
    producer: Producer,
    in_flight: usize,
    /// Topic of the first event and when it was handed over; see [`KafkaSink::hurry`].
    hurried: Option<(String, Instant)>,
    confirmed_any: bool,
    /// While unreachable: when we last heard so or asked.
    asked_at: Option<Instant>,
}

/// The librdkafka properties in force: ours, then the user's.
#[must_use]
pub fn effective_properties(settings: &KafkaSettings) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        DEFAULTS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    all.push(("bootstrap.servers".to_owned(), settings.brokers.clone()));
    for (name, value) in &settings.properties {
        all.push((name.clone(), value.expose().to_owned()));
    }
    all
}

impl KafkaSink {
    /// A producer; it connects in the background.
    pub fn new(settings: &KafkaSettings) -> Result<KafkaSink, String> {
        Ok(KafkaSink {
            producer: Producer::new(&effective_properties(settings))?,
            in_flight: 0,
            hurried: None,
            confirmed_any: false,
            asked_at: None,
        })
    }

    /// The producer, for asking the cluster before the first event.
    pub(crate) fn producer(&mut self) -> &mut Producer {
        &mut self.producer
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

    /// An idle client hears nothing when its broker comes back, so it asks.
    fn probe(&mut self, news: &mut Vec<News>) {
        let Some(last) = self.asked_at else { return };
        if self.in_flight > 0 || last.elapsed() < PROBE_INTERVAL {
            return;
        }
        self.asked_at = Some(Instant::now());
        if self.producer.metadata(None, 20).is_ok() {
            self.reached(news);
        }
    }

    fn reached(&mut self, news: &mut Vec<News>) {
        if self.asked_at.take().is_some() {
            news.push(News::Reachable);
        }
    }
}

impl Sink for KafkaSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Refused> {
        match self.producer.produce(sequence, event) {
            Ok(()) => {
                self.in_flight += 1;
                if !self.confirmed_any && self.hurried.is_none() {
                    self.hurried = Some((event.topic.to_owned(), Instant::now()));
                }
                Ok(())
            }
            Err(Code::QueueFull) => Err(Refused::Full),
            Err(code) => Err(Refused::Failed(fault::failure(code, event.id, event.topic))),
        }
    }

    fn poll(&mut self, patience: Duration, news: &mut Vec<News>) {
        self.hurry();
        let patience_ms = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        let (mut confirmed, mut failed, mut down) = (0, 0, false);
        self.producer.poll(patience_ms, |event| match event {
            ProducerEvent::Confirmed(sequence) => {
                confirmed += 1;
                news.push(News::Confirmed(sequence));
            }
            ProducerEvent::Failed { sequence, code, topic, id } => {
                failed += 1;
                news.push(News::Failed(sequence, fault::failure(code, &id, &topic)));
            }
            ProducerEvent::Error { code: Code::Fatal | Code::GaplessGuarantee, text, .. } => {
                news.push(News::Broken(text));
            }
            // One broker of several may come and go; these concern the cluster.
            ProducerEvent::Error {
                code: Code::AllBrokersDown | Code::Authentication | Code::SSL | Code::Resolve,
                text,
                ..
            } => {
                down = true;
                news.push(News::Unreachable(text));
            }
            ProducerEvent::Error { text, .. } => tracing::debug!(error = text, "kafka client"),
        });
        self.in_flight -= confirmed + failed;
        if confirmed > 0 {
            self.confirmed_any = true;
            self.reached(news);
        } else if down {
            self.asked_at = Some(Instant::now());
        }
        self.probe(news);
    }
}
