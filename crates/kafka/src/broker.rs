//! Kafka as a kind of broker, and a configured cluster as a broker.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::util::get_rdkafka_version;
use walrelay_core::sink::kafka::port::ProducerPort as _;
use walrelay_core::sink::kafka::record_limit::PROPERTY;
use walrelay_core::sink::kafka::{Learned, fault};

use super::dead_letters::KafkaDeadLetterLog;
use super::producer::KafkaBroker;
use super::settings::KafkaSettings;
use super::{bench_target, cluster, doctor, search, topic_reader};
use walrelay_base::error::Fault;
use walrelay_base::event::{CloudEventsBinding, MessagingNames};
use walrelay_base::finding::Finding;
use walrelay_base::secret::Secret;
use walrelay_core::dead_letter::writer::DeadLetterAddress;
use walrelay_core::sink::publish::Sink;
use walrelay_sink::bench_target::BenchTarget;
use walrelay_sink::broker::{
    Broker, DeleteBefore, Requirements, RouteRules, SinkKind, SinkSettings, StartupCheck,
    read_section,
};
use walrelay_sink::log::{DeadLetterLog, ReadFrom};
use walrelay_sink::search::{SearchReport, SearchScope, TakeRecord};
use walrelay_sink::settings::{InvalidSetting, Surroundings};
use walrelay_sink::topic_reader::TopicReader;

pub const SINK: SinkKind = SinkKind {
    name: "kafka",
    serves_consumers: true,
    reads_dead_letters: true,
    title: "Kafka",
    read: read_section::<KafkaSettings>,
    example: Some(include_str!("../../../config/kafka.toml")),
    client: Some(|| format!("librdkafka {}, TLS by OpenSSL", get_rdkafka_version().1)),
    routes: RouteRules::KAFKA,
    binding: CloudEventsBinding::Kafka,
    messaging: MessagingNames {
        key: Some("messaging.kafka.message.key"),
        tombstone: Some("messaging.kafka.message.tombstone"),
        ..MessagingNames::NONE
    },
    errors: fault::rows,
};

impl SinkSettings for KafkaSettings {
    fn complete(&mut self, around: &Surroundings<'_>) -> Vec<InvalidSetting> {
        self.brokers.retain(|c| !c.is_whitespace());
        self.invalid(around)
    }

    fn into_broker(self) -> Arc<dyn Broker> {
        let learned = Learned::new(self.properties.get(PROPERTY).map(Secret::expose));
        let learned = learned.with_tools(self.tools());
        Arc::new(KafkaBroker { settings: self, learned: Arc::new(learned) })
    }
}

impl Broker for KafkaBroker {
    fn kind(&self) -> &'static SinkKind {
        &SINK
    }

    fn open(&self, check: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        let Some(StartupCheck { required, stop }) = check else {
            return Ok(Box::new(self.open_sink()?));
        };
        let mut sink = doctor::open_checked(self, required, stop)?;
        let dead_letters = required.dead_letters.iter().map(|address| address.topic.as_str());
        let of_events = doctor::required_topics(&self.settings, required).into_iter();
        for topic in dead_letters.chain(of_events.filter(|_| required.adds_context)) {
            sink.producer().ask_record_limit(topic);
        }
        Ok(Box::new(sink))
    }

    fn inspect(&self, required: &Requirements) -> Vec<Finding> {
        doctor::inspect(self, required)
    }

    fn prepare(&self, required: &Requirements, dry_run: bool) -> Result<Vec<String>, Vec<Fault>> {
        let topics: Vec<&str> =
            doctor::required_topics(&self.settings, required).into_iter().collect();
        let dead_letters = required.dead_letters.as_ref().map(|address| address.topic.as_str());
        let created = cluster::create_topics(&self.settings, &topics, dead_letters, dry_run)?;
        Ok(created.into_iter().map(|topic| format!("topic {topic}")).collect())
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        Ok(Box::new(KafkaDeadLetterLog::open(&self.settings, &dead_letters.topic, &from)?))
    }

    fn dead_letter_deletion<'a>(
        &'a self,
        dead_letters: &'a DeadLetterAddress,
        _age: Duration,
    ) -> Result<DeleteBefore<'a>, Fault> {
        Ok(Box::new(move |before| {
            cluster::delete_records(&self.settings, &dead_letters.topic, before)
        }))
    }

    fn topic_reader(&self) -> Result<Option<Box<dyn TopicReader>>, Fault> {
        Ok(Some(Box::new(topic_reader::open(&self.settings)?)))
    }

    fn search(&self, scope: &SearchScope<'_>, take: &mut TakeRecord<'_>) -> SearchReport {
        search::search(&self.settings, scope, take)
    }

    fn for_bench_target(&self, _name: &str) -> Result<Arc<dyn Broker>, Fault> {
        Ok(Arc::new(self.without_topics()))
    }

    fn create_bench_target(&self, name: &str) -> Result<Box<dyn BenchTarget>, Fault> {
        Ok(Box::new(bench_target::create(self, name)?))
    }

    fn bench_target_removal(&self, name: &str) -> String {
        bench_target::removal_command(&self.settings, name)
    }

    fn remove_bench_target(&self, name: &str) -> Result<(), Fault> {
        bench_target::remove(&self.settings, name)
    }
}
