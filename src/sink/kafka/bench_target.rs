//! A topic of one's own for a while, read from all partitions as records come.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::doctor;
use super::publish::KafkaSink;
use super::settings::{KafkaSettings, effective_properties};
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::sink::bench_target::{Arrival, BenchTarget};
use crate::sink::broker::worst;
use crate::sink::kafka::dead_letters::consumer_config;

const PATIENCE: Duration = Duration::from_secs(15);
const QUESTION: Duration = Duration::from_secs(1);

/// A record is handed over as soon as the broker has it; no group is joined and nothing committed.
const PROPERTIES: &[(&str, &str)] = &[
    ("group.id", "walrelay-compare"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("auto.offset.reset", "earliest"),
    ("isolation.level", "read_uncommitted"),
    ("fetch.min.bytes", "1"),
    ("fetch.wait.max.ms", "50"),
    ("fetch.queue.backoff.ms", "1"),
    ("fetch.error.backoff.ms", "10"),
    ("allow.auto.create.topics", "false"),
];

pub(super) struct KafkaBenchTarget {
    consumer: BaseConsumer,
    settings: KafkaSettings,
}

/// Makes the topic and begins to read it.
pub(super) fn make(settings: &KafkaSettings, name: &str) -> Result<KafkaBenchTarget, Fault> {
    let mut config = consumer_config(settings);
    for (property, value) in PROPERTIES {
        config.set(*property, *value);
    }
    let consumer: BaseConsumer =
        config.create().map_err(|error| doctor::refused_property(&error.to_string()))?;
    look(settings)?;
    doctor::create_topics(settings, &[name.to_owned()], None)?;
    let told = |error: KafkaError| doctor::unreachable(settings, &error.to_string());
    let mut all = TopicPartitionList::new();
    for partition in partitions(&consumer, settings, name)? {
        all.add_partition_offset(name, partition, Offset::Beginning).map_err(told)?;
    }
    consumer.assign(&all).map_err(told)?;
    Ok(KafkaBenchTarget { consumer, settings: settings.clone() })
}

/// Does the cluster answer? Said by a producer, whose reasons are the better ones.
fn look(settings: &KafkaSettings) -> Result<(), Fault> {
    let settings = KafkaSettings { topics: Vec::new(), ..settings.clone() };
    let sink = KafkaSink::new(&settings).map_err(|reason| doctor::refused_property(&reason));
    let found = doctor::inspect(&mut sink?, &settings, &[], None, &AtomicBool::new(false));
    found.map_err(worst)
}

/// A topic that was made a moment ago is not known to every broker yet.
fn partitions(
    consumer: &BaseConsumer,
    settings: &KafkaSettings,
    name: &str,
) -> Result<Vec<i32>, Fault> {
    let deadline = Instant::now() + PATIENCE;
    let wanted = usize::try_from(settings.partitions).unwrap_or(1).max(1);
    loop {
        let found = consumer.fetch_metadata(Some(name), QUESTION);
        let reason = match &found {
            Ok(metadata) => {
                let topic = metadata.topics().iter().find(|topic| topic.name() == name);
                let partitions = topic.map(|topic| topic.partitions()).unwrap_or_default();
                if partitions.len() >= wanted && partitions.iter().all(|it| it.leader() >= 0) {
                    return Ok(partitions.iter().map(|partition| partition.id()).collect());
                }
                format!("topic {name} was made and has no leader")
            }
            Err(error) => error.to_string(),
        };
        if Instant::now() > deadline {
            return Err(doctor::unmade(name, &reason, settings, ""));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn by_hand(name: &str) -> String {
    format!("kafka-topics.sh --bootstrap-server … --delete --topic {name}")
}

/// Removes the topic; one that is not there is removed already.
pub(super) fn remove(settings: &KafkaSettings, name: &str) -> Result<(), Fault> {
    let kept = |reason: &str| {
        Fault::new(
            Exit::Sink,
            "sink.scratch-left",
            format!("cannot delete topic {name}: {reason}"),
            format!("sink.kafka.brokers = {:?}", settings.brokers),
            by_hand(name),
        )
    };
    let client: AdminClient<DefaultClientContext> = effective_properties(settings)
        .into_iter()
        .collect::<ClientConfig>()
        .create()
        .map_err(|error| kept(&error.to_string()))?;
    let options =
        AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE));
    let answers = runtime::block_on(client.delete_topics(&[name], &options))?
        .map_err(|error| kept(&error.to_string()))?;
    for answer in answers {
        match answer {
            Ok(_) | Err((_, Code::UnknownTopicOrPartition | Code::UnknownTopic)) => {}
            Err((_, code)) => return Err(kept(&code.to_string())),
        }
    }
    Ok(())
}

impl BenchTarget for KafkaBenchTarget {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    fn place(&self) -> String {
        self.settings.brokers.clone()
    }

    fn consume(&mut self, patience: Duration) -> Result<Option<Arrival>, Fault> {
        match self.consumer.poll(patience) {
            None => Ok(None),
            Some(Ok(message)) => {
                let at = Instant::now();
                let value = message.payload().unwrap_or_default().to_vec();
                Ok(Some(Arrival { at, value }))
            }
            Some(Err(error)) => match error.rdkafka_error_code() {
                Some(
                    Code::UnknownTopic
                    | Code::UnknownTopicOrPartition
                    | Code::TopicAuthorizationFailed
                    | Code::Fatal,
                )
                | None => Err(doctor::unreachable(&self.settings, &error.to_string())),
                // The client comes back by itself.
                Some(_) => Ok(None),
            },
        }
    }
}
