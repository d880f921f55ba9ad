//! Kafka as a broker: what the configuration leads to.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::dead_letters::KafkaDeadLetterLog;
use super::publish::KafkaSink;
use super::record_limit::{self, RecordLimit};
use super::settings::KafkaSettings;
use super::{bench_target, doctor, fault};
use crate::base::error::Fault;
use crate::base::event::CloudEventsBinding;
use crate::base::finding::Finding;
use crate::base::secret::Secret;
use crate::base::settings::{Settings, Values};
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::bench_target::BenchTarget;
use crate::sink::broker::{Broker, Requirements, RouteRules, SinkKind, StartupCheck};
use crate::sink::log::{DeadLetterLog, ReadFrom};
use crate::sink::publish::Sink;
use crate::sink::settings::{InvalidSetting, Surroundings};

/// What the rest of the relay knows of Kafka.
pub(in crate::sink) const SINK: SinkKind = SinkKind {
    name: "kafka",
    keys: <KafkaSettings as Settings>::fields,
    title: "Kafka",
    configure,
    routes: RouteRules::KAFKA,
    binding: CloudEventsBinding::Kafka,
    shares_malloc_arena: true,
    errors: fault::rows,
};

/// Reads the section `[sink.kafka]`.
fn configure(
    values: &Values,
    around: &Surroundings<'_>,
) -> Result<Arc<dyn Broker>, Vec<InvalidSetting>> {
    let mut settings = KafkaSettings::read(values);
    settings.brokers.retain(|c| !c.is_whitespace());
    let client_limit = settings.properties.get(record_limit::PROPERTY).map(Secret::expose);
    settings.record_limit = RecordLimit::new(client_limit);
    let invalid = settings.invalid(around);
    if invalid.is_empty() { Ok(Arc::new(settings)) } else { Err(invalid) }
}

fn new_sink(settings: &KafkaSettings) -> Result<KafkaSink, Vec<Fault>> {
    KafkaSink::new(settings).map_err(|reason| vec![doctor::refused_property(&reason)])
}

/// The topics that must be there, each once.
fn topics_wanted(settings: &KafkaSettings, wanted: &Requirements) -> Vec<String> {
    let mut known: Vec<String> = wanted.topics.iter().chain(&settings.topics).cloned().collect();
    known.sort();
    known.dedup();
    known
}

impl Broker for KafkaSettings {
    fn kind(&self) -> &'static SinkKind {
        &SINK
    }

    fn open(&self, first: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        let mut sink = new_sink(self)?;
        if let Some(StartupCheck { required: wanted, stop }) = first {
            let known = topics_wanted(self, wanted);
            doctor::inspect(&mut sink, self, &known, wanted.dead_letters.as_ref(), stop)?;
            if let Some(letters) = &wanted.dead_letters {
                sink.producer().ask_record_limit(&letters.topic);
            }
        }
        Ok(Box::new(sink))
    }

    fn inspect(&self, wanted: &Requirements) -> Vec<Finding> {
        let known = topics_wanted(self, wanted);
        // To ask for a topic must not make it.
        let mut own = self.clone();
        own.properties.remove("allow.auto.create.topics");
        let found = new_sink(&own).and_then(|mut sink| {
            let letters = wanted.dead_letters.as_ref();
            doctor::inspect(&mut sink, self, &known, letters, &AtomicBool::new(false))?;
            Ok(sink)
        });
        let mut sink = match found {
            Ok(sink) => sink,
            Err(faults) => return faults.into_iter().map(Finding::fail).collect(),
        };
        let brokers = &self.brokers;
        let text = match known.as_slice() {
            [] => format!("kafka answers at {brokers}"),
            [topic] => format!("kafka answers at {brokers}; topic {topic} is there"),
            topics => format!("kafka answers at {brokers}; {} topics are there", topics.len()),
        };
        let letters = wanted.dead_letters.as_ref();
        let letters = letters.map(|it| format!("dead letters go to topic {}", it.topic));
        let mut found: Vec<Finding> =
            [text].into_iter().chain(letters).map(|text| Finding::ok("sink", text)).collect();
        let from_rows: Vec<&String> =
            wanted.from_rows.iter().filter(|topic| !known.contains(topic)).collect();
        if known.is_empty() && from_rows.is_empty() {
            found.push(Finding::warn(
                "sink",
                "topics come from rows, and no row says which: none is checked; name them in sink.kafka.topics",
            ));
        }
        doctor::look_at_topics_of_rows(&mut sink, self, &from_rows, &mut found);
        found
    }

    /// Makes the topics of routes without columns, those of `sink.kafka.topics`, and the
    /// dead-letter topic.
    fn prepare(&self, wanted: &Requirements) -> Result<Vec<String>, Vec<Fault>> {
        let letters = wanted.dead_letters.as_ref().map(|address| address.topic.as_str());
        let made = doctor::create_topics(self, &topics_wanted(self, wanted), letters);
        let made = made.map_err(|fault| vec![fault])?;
        Ok(made.into_iter().map(|topic| format!("topic {topic}")).collect())
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        Ok(Box::new(KafkaDeadLetterLog::open(self, &dead_letters.topic, &from)?))
    }

    fn for_bench_target(&self, _name: &str) -> Result<Arc<dyn Broker>, Fault> {
        Ok(Arc::new(KafkaSettings { topics: Vec::new(), ..self.clone() }))
    }

    fn create_bench_target(&self, name: &str) -> Result<Box<dyn BenchTarget>, Fault> {
        Ok(Box::new(bench_target::make(self, name)?))
    }

    fn bench_target_removal(&self, name: &str) -> String {
        bench_target::by_hand(name)
    }

    fn remove_bench_target(&self, name: &str) -> Result<(), Fault> {
        bench_target::remove(self, name)
    }
}
