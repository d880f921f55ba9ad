//! A temporary topic, all partitions of which are read as records arrive.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};
use walrelay_core::sink::kafka::Learned;

use super::connection_errors::TopicConsumer;
use super::lost_brokers::LostBrokers;
use super::settings::KafkaSettings;
use super::{cluster, doctor};
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::sink::bench_target::{Arrival, BenchTarget};
use crate::sink::broker::{Requirements, worst};

/// A record is fetched as soon as the broker has it.
const PROPERTIES: &[(&str, &str)] = &[
    ("fetch.min.bytes", "1"),
    ("fetch.wait.max.ms", "50"),
    ("fetch.queue.backoff.ms", "1"),
    ("fetch.error.backoff.ms", "10"),
];

pub(super) struct KafkaBenchTarget {
    consumer: TopicConsumer,
    settings: KafkaSettings,
    lost_brokers: LostBrokers,
}

pub(super) fn create(
    settings: &KafkaSettings,
    learned: &Arc<Learned>,
    name: &str,
) -> Result<KafkaBenchTarget, Fault> {
    let consumer = cluster::consumer(settings, "walrelay-compare", PROPERTIES)?;
    // A sink reports best why a cluster does not answer.
    let without_topics = KafkaSettings { topics: Vec::new(), ..settings.clone() };
    let (required, stop) = (Requirements::default(), AtomicBool::new(false));
    doctor::open_checked(&without_topics, learned, &required, &stop).map_err(worst)?;
    cluster::create_topics(settings, &[name], None, false)?;
    let failed = |error: KafkaError| cluster::unreachable(settings, &error.to_string());
    let mut all = TopicPartitionList::new();
    // Also where the topic was there already, or this client knows less than the one that made it.
    let partitions = cluster::wait_for_leaders(consumer.client(), settings, name);
    for partition in partitions.map_err(|error| cluster::without_leader(settings, name, &error))? {
        all.add_partition_offset(name, partition, Offset::Beginning).map_err(failed)?;
    }
    consumer.assign(&all).map_err(failed)?;
    let lost_brokers = LostBrokers::new(settings);
    Ok(KafkaBenchTarget { consumer, settings: settings.clone(), lost_brokers })
}

pub(super) fn removal_command(name: &str) -> String {
    format!("kafka-topics.sh --bootstrap-server … --delete --topic {name}")
}

pub(super) fn remove(settings: &KafkaSettings, name: &str) -> Result<(), Fault> {
    let not_deleted = |reason: &dyn std::fmt::Display| {
        let what = format!("cannot delete topic {name}: {reason}");
        let place = cluster::brokers_key(settings);
        Fault::new(Exit::Sink, "sink.scratch-left", what, place, removal_command(name))
    };
    let (client, options) = cluster::admin(settings).map_err(|error| not_deleted(&error))?;
    let deleted = runtime::block_on(client.delete_topics(&[name], &options))?;
    for topic in deleted.map_err(|error| not_deleted(&error))? {
        match topic {
            Ok(_) | Err((_, Code::UnknownTopicOrPartition | Code::UnknownTopic)) => {}
            Err((_, code)) => return Err(not_deleted(&code)),
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
        match self.lost_brokers.poll(&self.consumer, patience) {
            Some(Ok(message)) => {
                let at = Instant::now();
                let value = message.payload().unwrap_or_default().to_vec();
                Ok(Some(Arrival { at, value }))
            }
            Some(Err(error)) if cluster::ends_reading(&error) => {
                Err(cluster::unreachable(&self.settings, &error.to_string()))
            }
            Some(Err(_)) | None => Ok(None),
        }
    }
}
