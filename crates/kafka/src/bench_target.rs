//! A temporary topic, all partitions of which are read as records arrive.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::producer::KafkaBroker;
use super::reachability::unreachable;
use super::scan::{Scanned, TopicScan};
use super::settings::KafkaSettings;
use super::{cluster, doctor};
use walrelay_base::error::{Exit, Fault};
use walrelay_base::runtime;
use walrelay_sink::bench_target::{Arrival, BenchTarget};
use walrelay_sink::broker::{Requirements, worst};

/// A record is fetched as soon as the broker has it.
const PROPERTIES: &[(&str, &str)] = &[
    ("enable.partition.eof", "false"),
    ("fetch.min.bytes", "1"),
    ("fetch.wait.max.ms", "50"),
    ("fetch.queue.backoff.ms", "1"),
    ("fetch.error.backoff.ms", "10"),
];

pub(super) struct KafkaBenchTarget {
    scan: TopicScan,
    settings: KafkaSettings,
}

pub(super) fn create(broker: &KafkaBroker, name: &str) -> Result<KafkaBenchTarget, Fault> {
    let settings = &broker.settings;
    let mut scan = TopicScan::new(settings, "walrelay-compare", PROPERTIES)?;
    // A sink reports best why a cluster does not answer.
    let (required, stop) = (Requirements::default(), AtomicBool::new(false));
    doctor::open_checked(&broker.without_topics(), &required, &stop).map_err(worst)?;
    cluster::create_topics(settings, &[name], None, false)?;
    // Also where the topic was there already, or this client knows less than the one that made it.
    let partitions = cluster::wait_for_leaders(scan.consumer().client(), settings, name)
        .map_err(|error| cluster::without_leader(settings, name, &error))?;
    let starts = partitions.into_iter().map(|id| (id, Offset::Beginning));
    scan.assign(name, starts, BTreeMap::new()).map_err(|error| failed(settings, &error))?;
    Ok(KafkaBenchTarget { scan, settings: settings.clone() })
}

fn failed(settings: &KafkaSettings, error: &KafkaError) -> Fault {
    unreachable(settings, &error.to_string())
}

pub(super) fn removal_command(settings: &KafkaSettings, name: &str) -> String {
    format!("kafka-topics.sh --bootstrap-server {} --delete --topic {name}", settings.brokers)
}

pub(super) fn remove(settings: &KafkaSettings, name: &str) -> Result<(), Fault> {
    let not_deleted = |reason: &dyn std::fmt::Display| {
        let what = format!("cannot delete topic {name}: {reason}");
        let place = cluster::brokers_key(settings);
        Fault::new(Exit::Sink, "sink.scratch-left", what, place, removal_command(settings, name))
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
        let next = self.scan.next(Instant::now() + patience);
        let at = Instant::now();
        match next.map_err(|error| failed(&self.settings, &error))? {
            Scanned::Record(message) | Scanned::Later(message) => {
                Ok(Some(Arrival { at, value: message.payload().unwrap_or_default().to_vec() }))
            }
            Scanned::Nothing => Ok(None),
        }
    }
}
