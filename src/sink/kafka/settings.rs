//! The `[sink.kafka]` section, typed, and what it opens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::letter_limit::{self, LetterLimit};
use super::{KafkaSink, bench_target, doctor, topics};
use crate::base::error::Fault;
use crate::base::secret::Secret;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::bench_target::Scratch;
use crate::sink::kafka::dead_letters::KafkaLog;
use crate::sink::log::{DeadLetterLog, ReadFrom};
use crate::sink::settings::{Misfit, Section};
use crate::sink::{Broker, First, Inspection, Sink, Wanted};

/// The `[sink.kafka]` section.
#[derive(Clone, Debug)]
pub struct KafkaSettings {
    /// `host:port,host:port`.
    pub brokers: String,
    /// librdkafka producer properties, as given. Values may be secrets.
    pub properties: BTreeMap<String, Secret>,
    /// Topics that `init` creates and that `check` and `run` insist on (`sink.kafka.topics`).
    pub topics: Vec<String>,
    /// Partitions of a topic that `init` creates (`sink.kafka.partitions`, 8).
    pub partitions: i32,
    /// Replication factor of a topic that `init` creates (`sink.kafka.replication`, -1: the broker's default).
    pub replication: i32,
    /// How large a dead letter may be, as far as it is known by now.
    pub letter_limit: LetterLimit,
}

pub(in crate::sink) fn configure(section: &dyn Section) -> Result<Arc<dyn Broker>, Vec<Misfit>> {
    Ok(Arc::new(KafkaSettings::read(section)))
}

impl KafkaSettings {
    /// Reads the section.
    #[must_use]
    pub fn read(section: &dyn Section) -> KafkaSettings {
        let small = |key| i32::try_from(section.integer(key)).unwrap_or(i32::MAX);
        let properties = section.secrets_below("properties");
        let client_limit = properties.get(letter_limit::PROPERTY).map(Secret::expose);
        KafkaSettings {
            letter_limit: LetterLimit::new(client_limit),
            brokers: section.text("brokers").split_whitespace().collect(),
            properties,
            topics: section.strings("topics"),
            partitions: small("partitions"),
            replication: small("replication"),
        }
    }

    fn sink(&self) -> Result<KafkaSink, Vec<Fault>> {
        KafkaSink::new(self).map_err(|reason| vec![doctor::refused_property(&reason)])
    }

    fn wanted(&self, wanted: &Wanted) -> Vec<String> {
        let mut known: Vec<String> = wanted.topics.iter().chain(&self.topics).cloned().collect();
        known.sort();
        known.dedup();
        known
    }
}

impl Broker for KafkaSettings {
    fn open(&self, first: Option<&First<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        let mut sink = self.sink()?;
        if let Some(First { wanted, stop }) = first {
            let known = self.wanted(wanted);
            doctor::inspect(&mut sink, self, &known, wanted.dead_letters.as_ref(), stop)?;
            if let Some(letters) = &wanted.dead_letters {
                sink.producer().ask_record_limit(&letters.topic);
            }
        }
        Ok(Box::new(sink))
    }

    fn inspect(&self, wanted: &Wanted) -> Inspection {
        let known = self.wanted(wanted);
        // To ask for a topic must not make it.
        let mut own = self.clone();
        own.properties.remove("allow.auto.create.topics");
        let found = own.sink().and_then(|mut sink| {
            let letters = wanted.dead_letters.as_ref();
            doctor::inspect(&mut sink, self, &known, letters, &AtomicBool::new(false))?;
            Ok(sink)
        });
        let mut sink = match found {
            Ok(sink) => sink,
            Err(faults) => return Inspection { faults, ..Inspection::default() },
        };
        let brokers = &self.brokers;
        let text = match known.as_slice() {
            [] => format!("kafka answers at {brokers}"),
            [topic] => format!("kafka answers at {brokers}; topic {topic} is there"),
            topics => format!("kafka answers at {brokers}; {} topics are there", topics.len()),
        };
        let letters = wanted.dead_letters.as_ref();
        let letters = letters.map(|it| format!("dead letters go to topic {}", it.topic));
        let well = [text].into_iter().chain(letters).collect();
        let mut found = Inspection { well, ..Inspection::default() };
        let from_rows: Vec<&String> =
            wanted.from_rows.iter().filter(|topic| !known.contains(topic)).collect();
        if known.is_empty() && from_rows.is_empty() {
            found.doubtful.push(
                "topics come from rows, and no row says which: none is checked; name them in sink.kafka.topics"
                    .to_owned(),
            );
        }
        doctor::look_at_topics_of_rows(&mut sink, self, &from_rows, &mut found);
        found
    }

    /// Makes the topics of routes without columns, those of `sink.kafka.topics`, and the
    /// dead-letter topic.
    fn prepare(&self, wanted: &Wanted) -> Result<Vec<String>, Vec<Fault>> {
        let letters = wanted.dead_letters.as_ref().map(|address| address.topic.as_str());
        let made = topics::create(self, &self.wanted(wanted), letters);
        let made = made.map_err(|fault| vec![fault])?;
        Ok(made.into_iter().map(|topic| format!("topic {topic}")).collect())
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        Ok(Box::new(KafkaLog::open(self, &dead_letters.topic, &from)?))
    }

    fn toward_scratch(&self, _name: &str) -> Result<Arc<dyn Broker>, Fault> {
        Ok(Arc::new(KafkaSettings { topics: Vec::new(), ..self.clone() }))
    }

    fn make_scratch(&self, name: &str) -> Result<Box<dyn Scratch>, Fault> {
        Ok(Box::new(bench_target::make(self, name)?))
    }

    fn scratch_by_hand(&self, name: &str) -> String {
        bench_target::by_hand(name)
    }

    fn remove_scratch(&self, name: &str) -> Result<(), Fault> {
        bench_target::remove(self, name)
    }
}
