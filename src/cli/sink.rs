//! The broker's part of `walrelay check` and `walrelay init`.

use std::sync::atomic::AtomicBool;

use crate::app::constant_topics;
use crate::config::Config;
use crate::error::{Exit, Fault};
use crate::sink::kafka::{KafkaSink, preflight, topics};
use crate::sink::settings::{KafkaSettings, SinkSettings};
use crate::source::preflight::Finding;

/// What is wrong, and what is right, with the sink.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    match &config.sink {
        SinkSettings::Null => vec![Finding::warn("sink", "sink.kind is null: events are dropped")],
        SinkSettings::Kafka(kafka) => match ask(kafka, &constant_topics(config)) {
            Ok(text) => vec![Finding::ok("sink", text)],
            Err(faults) => faults.into_iter().map(Finding::fail).collect(),
        },
    }
}

fn ask(settings: &KafkaSettings, wanted: &[String]) -> Result<String, Vec<Fault>> {
    let mut sink = KafkaSink::new(settings).map_err(|reason| {
        let mend = "correct the property; see librdkafka's CONFIGURATION.md";
        let place = "sink.kafka.properties";
        vec![Fault::new(Exit::Usage, "sink.refused-property", reason, place, mend)]
    })?;
    preflight::inspect(&mut sink, settings, wanted, &AtomicBool::new(false))?;
    let mut known: Vec<&String> = wanted.iter().chain(&settings.topics).collect();
    known.sort();
    known.dedup();
    Ok(match known.len() {
        0 => format!(
            "kafka answers at {}; topics come from rows, none is named in sink.kafka.topics to look for",
            settings.brokers
        ),
        1 => format!("kafka answers at {}; topic {} is there", settings.brokers, known[0]),
        count => format!("kafka answers at {}; {count} topics are there", settings.brokers),
    })
}

/// Makes the topics that are missing: those of routes without columns, those of
/// `sink.kafka.topics`, and the dead-letter topic.
pub(super) async fn init(config: &Config) -> Result<(), Fault> {
    let SinkSettings::Kafka(kafka) = &config.sink else { return Ok(()) };
    let mut wanted = constant_topics(config);
    wanted.extend(kafka.topics.iter().cloned());
    wanted.push(config.dead_letter.topic.clone());
    wanted.sort();
    wanted.dedup();
    for made in topics::create(kafka, &wanted).await? {
        println!("+ make topic {made}");
    }
    Ok(())
}
