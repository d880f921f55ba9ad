//! What must be true of the cluster before the first event.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode as Code;

use super::settings::KafkaSettings;
use super::{KafkaSink, fault};
use crate::error::{Exit, Fault};
use crate::sink::{News, Sink};

/// How long a broker may take to answer for the first time.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// One question, so that what the client reports meanwhile is heard.
const QUESTION: Duration = Duration::from_millis(500);

/// Does the cluster answer, and does it have these topics? Every missing topic is told.
pub fn inspect(
    sink: &mut KafkaSink,
    settings: &KafkaSettings,
    topics: &[String],
    stop: &AtomicBool,
) -> Result<(), Vec<Fault>> {
    let wanted: BTreeSet<&String> = topics.iter().chain(&settings.topics).collect();
    let first = wanted.first().map(|topic| topic.as_str());
    answer(sink, settings, first, stop).map_err(|fault| vec![fault])?;
    let faults: Vec<Fault> = wanted
        .into_iter()
        .take_while(|_| !stop.load(Relaxed))
        .filter_map(|topic| missing(sink, settings, topic))
        .collect();
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
            if let News::Unreachable(reason) | News::Broken(reason) = item {
                said = reason;
            }
        }
        if Instant::now() > deadline || stop.load(Relaxed) {
            let reason = if said.is_empty() { code.to_string() } else { said };
            return Err(unreachable(settings, &reason));
        }
    }
}

fn unreachable(settings: &KafkaSettings, reason: &str) -> Fault {
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
        "sink.unreachable",
        format!("no Kafka broker answered within {} s: {reason}", ANSWER_WITHIN.as_secs()),
        format!("sink.kafka.brokers = {:?}", settings.brokers),
        mend,
    )
}

fn missing(sink: &mut KafkaSink, settings: &KafkaSettings, topic: &str) -> Option<Fault> {
    let answer = sink.producer().metadata(Some(topic), 5000);
    let code = match answer {
        Ok(topics) => match topics.into_iter().find(|found| found.name == topic) {
            Some(found) if found.code == Code::NoError && found.partitions > 0 => return None,
            Some(found) if found.code != Code::NoError => found.code,
            _ => Code::UnknownTopicOrPartition,
        },
        Err(code) => code,
    };
    let failure = fault::failure(code, "", topic);
    let (name, what) = match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::LeaderNotAvailable => {
            ("sink.topic-missing", format!("topic {topic} does not exist"))
        }
        Code::TopicAuthorizationFailed => {
            ("sink.topic-forbidden", format!("this login may not see topic {topic}"))
        }
        _ => ("sink.topic-unusable", format!("topic {topic} cannot be used: {}", failure.reason)),
    };
    Some(Fault::new(
        Exit::Sink,
        name,
        what,
        format!("topic {topic} on {}", settings.brokers),
        failure.mend,
    ))
}
