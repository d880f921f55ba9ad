//! Making topics, for `walrelay init`.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::fault;
use super::properties::effective_properties;
use super::settings::KafkaSettings;
use crate::base::error::{Exit, Fault};
use crate::base::runtime;

const PATIENCE: Duration = Duration::from_secs(15);

/// Creates those of `wanted` that do not exist, and the topic of the dead letters; returns which it
/// made.
pub(super) fn create(
    settings: &KafkaSettings,
    wanted: &[String],
    dead_letters: Option<&str>,
) -> Result<Vec<String>, Fault> {
    let client: AdminClient<DefaultClientContext> = effective_properties(settings)
        .into_iter()
        .collect::<ClientConfig>()
        .create()
        .map_err(|error| unmade("any topic", &error.to_string(), settings, ""))?;
    let new = |name| {
        let replication = TopicReplication::Fixed(settings.replication);
        NewTopic::new(name, settings.partitions, replication)
    };
    let others = wanted.iter().map(String::as_str).filter(|name| dead_letters != Some(*name));
    // A dead letter is kept until somebody has dealt with it.
    let letters = dead_letters.map(|name| new(name).set("retention.ms", "-1"));
    let topics: Vec<NewTopic<'_>> = others.map(new).chain(letters).collect();
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let options =
        AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE));
    let answers = runtime::block_on(client.create_topics(&topics, &options))?
        .map_err(|error| unmade("any topic", &error.to_string(), settings, ""))?;
    let mut made = Vec::new();
    for answer in answers {
        match answer {
            Ok(name) => made.push(name),
            Err((_, Code::TopicAlreadyExists)) => {}
            Err((name, code)) => {
                let failure = fault::failure(code, "", &name, None);
                return Err(unmade(&name, &failure.reason, settings, &failure.mend));
            }
        }
    }
    Ok(made)
}

pub(super) fn unmade(topic: &str, reason: &str, settings: &KafkaSettings, mend: &str) -> Fault {
    let mend =
        if mend.is_empty() { "start the broker, or correct sink.kafka.brokers" } else { mend };
    Fault::new(
        Exit::Sink,
        "sink.topic-not-made",
        format!("cannot create {topic}: {reason}"),
        format!("sink.kafka.brokers = {:?}", settings.brokers),
        mend,
    )
}
