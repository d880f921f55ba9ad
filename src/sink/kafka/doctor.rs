//! What must be true of the cluster before the first event, and making the topics that it lacks.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::fault;
use super::publish::KafkaSink;
use super::settings::{KafkaSettings, effective_properties};
use crate::base::error::{Exit, Fault};
use crate::base::finding::Finding;
use crate::base::runtime;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::broker::UNREACHABLE;
use crate::sink::publish::{Sink, SinkReport};

/// How long a broker may take to answer for the first time.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// As many topics of rows are looked at.
const TOPICS_OF_ROWS_MAX: usize = 100;
/// How long the cluster may take to create topics.
const CREATE_WITHIN: Duration = Duration::from_secs(15);
/// One question, so that what the client reports meanwhile is heard.
const QUESTION: Duration = Duration::from_millis(500);

/// Does the cluster answer, and does it have these topics and that of the dead letters? Every
/// missing topic is told.
pub(super) fn inspect(
    sink: &mut KafkaSink,
    settings: &KafkaSettings,
    topics: &[String],
    dead_letters: Option<&DeadLetterAddress>,
    stop: &AtomicBool,
) -> Result<(), Vec<Fault>> {
    let wanted: BTreeSet<&String> = topics.iter().chain(&settings.topics).collect();
    let first = wanted.first().map(|topic| topic.as_str());
    answer(sink, settings, first, stop).map_err(|fault| vec![fault])?;
    let mut faults: Vec<Fault> = wanted
        .into_iter()
        .take_while(|_| !stop.load(Relaxed))
        .filter_map(|topic| lacking(sink, topic).map(|code| topic_unusable(code, settings, topic)))
        .collect();
    if let Some(DeadLetterAddress { topic, .. }) = dead_letters.filter(|_| !stop.load(Relaxed)) {
        let code = lacking(sink, topic);
        faults.extend(code.map(|code| dead_letters_unusable(code, settings, topic)));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn answer(
    sink: &mut KafkaSink,
    settings: &KafkaSettings,
    topic: Option<&str>,
    stop: &AtomicBool,
) -> Result<(), Fault> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    let mut said = String::new();
    let question_ms = i32::try_from(QUESTION.as_millis()).unwrap_or(i32::MAX);
    loop {
        let Err(code) = sink.producer().metadata(topic, question_ms) else { return Ok(()) };
        let mut news = Vec::new();
        sink.poll(Duration::ZERO, &mut news);
        for item in news {
            // That all of them are down follows from what was said before, and mends nothing.
            if let SinkReport::Unreachable(reason) | SinkReport::Broken(reason) = item
                && (said.is_empty() || !reason.contains("brokers are down"))
            {
                said = reason;
            }
        }
        if Instant::now() > deadline || stop.load(Relaxed) {
            let reason = if said.is_empty() { code.to_string() } else { said };
            return Err(unreachable(settings, &reason));
        }
    }
}

pub(super) fn refused_property(reason: &str) -> Fault {
    Fault::new(
        Exit::Usage,
        "sink.refused-property",
        format!("librdkafka refuses the configuration: {reason}"),
        "sink.kafka.properties",
        "correct the property; its names and values are those of librdkafka's CONFIGURATION.md",
    )
}

pub(super) fn unreachable(settings: &KafkaSettings, reason: &str) -> Fault {
    let lower = reason.to_lowercase();
    let mend = if lower.contains("authentication") || lower.contains("sasl") {
        "correct sasl.mechanism, sasl.username and sasl.password in sink.kafka.properties"
    } else if lower.contains("ssl") {
        "correct security.protocol and ssl.ca.location in sink.kafka.properties"
    } else if lower.contains("resolve") {
        "correct the host name in sink.kafka.brokers"
    } else {
        "start the broker, or correct sink.kafka.brokers; try: kafka-broker-api-versions.sh --bootstrap-server …"
    };
    Fault::new(
        Exit::Sink,
        UNREACHABLE,
        format!("no Kafka broker answered within {} s: {reason}", ANSWER_WITHIN.as_secs()),
        format!("sink.kafka.brokers = {:?}", settings.brokers),
        mend,
    )
}

/// Why a topic cannot be used, if it cannot.
fn lacking(sink: &mut KafkaSink, topic: &str) -> Option<Code> {
    match sink.producer().metadata(Some(topic), 5000) {
        Ok(topics) => match topics.into_iter().find(|found| found.name == topic) {
            Some(found) if found.code == Code::NoError && found.partitions > 0 => None,
            Some(found) if found.code != Code::NoError => Some(found.code),
            _ => Some(Code::UnknownTopicOrPartition),
        },
        Err(code) => Some(code),
    }
}

/// The topics that rows lead to: one that is missing is told, and does not keep the relay from starting.
pub(super) fn look_at_topics_of_rows(
    sink: &mut KafkaSink,
    settings: &KafkaSettings,
    topics: &[&String],
    found: &mut Vec<Finding>,
) {
    let mut there = 0;
    for topic in topics.iter().take(TOPICS_OF_ROWS_MAX) {
        let Some(code) = lacking(sink, topic) else {
            there += 1;
            continue;
        };
        let Fault { what, mend, .. } = topic_unusable(code, settings, topic);
        let mend = mend.replace('\n', "; ");
        let text = format!("{what}, and rows of the outbox lead to it; {mend}");
        found.push(Finding::warn("sink", text));
    }
    if there > 0 {
        let text = format!("topics that rows of the outbox lead to are there ({there} looked at)");
        found.push(Finding::ok("sink", text));
    }
    let rest = topics.len().saturating_sub(TOPICS_OF_ROWS_MAX);
    if rest > 0 {
        let text = format!("{rest} more topics that rows lead to were not looked at");
        found.push(Finding::warn("sink", text));
    }
}

fn topic_unusable(code: Code, settings: &KafkaSettings, topic: &str) -> Fault {
    let failure = fault::failure(code, "", topic, None);
    let (name, what) = match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::LeaderNotAvailable => {
            ("sink.topic-missing", format!("topic {topic} does not exist"))
        }
        Code::TopicAuthorizationFailed => {
            ("sink.topic-forbidden", format!("this login may not see topic {topic}"))
        }
        _ => ("sink.topic-unusable", format!("topic {topic} cannot be used: {}", failure.reason)),
    };
    let place = format!("topic {topic} on {}", settings.brokers);
    Fault::new(Exit::Sink, name, what, place, failure.mend)
}

/// The same for the topic of the dead letters.
pub(super) fn dead_letters_unusable(code: Code, settings: &KafkaSettings, topic: &str) -> Fault {
    let (name, what, mend) = match code {
        Code::TopicAuthorizationFailed => (
            "sink.dead-letter-forbidden",
            format!("this login may not use the dead-letter topic {topic}"),
            format!(
                "kafka-acls.sh --add --allow-principal User:… --operation Write --operation Read --operation Describe --topic {topic}"
            ),
        ),
        Code::UnknownTopic
        | Code::UnknownTopicOrPartition
        | Code::UnknownPartition
        | Code::LeaderNotAvailable => (
            "sink.dead-letter-missing",
            format!("the dead-letter topic {topic} does not exist"),
            format!(
                "walrelay init, or: kafka-topics.sh --create --topic {topic} --partitions 8 --config retention.ms=-1"
            ),
        ),
        _ => (
            "sink.dead-letter-unusable",
            format!("the dead-letter topic {topic} cannot be used: {code}"),
            format!("see the broker's log, and kafka-topics.sh --describe --topic {topic}"),
        ),
    };
    Fault::new(Exit::Sink, name, what, format!("dead_letter.topic on {}", settings.brokers), mend)
}

/// Creates those of `wanted` that do not exist, and the topic of the dead letters; returns which it
/// made.
pub(super) fn create_topics(
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
    let options = AdminOptions::new()
        .operation_timeout(Some(CREATE_WITHIN))
        .request_timeout(Some(CREATE_WITHIN));
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
