//! Checks that the cluster answers and has the required topics before the first event is read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use walrelay_core::sink::kafka::{Code, fault};

use super::link_security;
use super::producer::{KafkaBroker, RdkafkaSink};
use super::reachability::{ANSWER_WITHIN, unanswered, unreachable};
use super::settings::KafkaSettings;
use super::{cluster, topic_reader, topic_settings};
use walrelay_base::error::Fault;
use walrelay_base::finding::Finding;
use walrelay_core::sink::publish::{Sink as _, SinkReport};
use walrelay_sink::broker::Requirements;

/// Topics that rows lead to are checked up to this number.
const TOPICS_OF_ROWS_MAX: usize = 100;
/// A request waits no longer, so that errors of the client are read between two requests.
const REQUEST_MS: i32 = 500;
const TOPIC_REQUEST_MS: i32 = 5000;
const READ_WITHIN: Duration = Duration::from_secs(5);

/// The topics that must exist: those of routes without columns and those of `sink.kafka.topics`.
pub(super) fn required_topics<'a>(
    settings: &'a KafkaSettings,
    required: &'a Requirements,
) -> BTreeSet<&'a str> {
    required.topics.iter().chain(&settings.topics).map(String::as_str).collect()
}

/// Opens a sink, and fails unless the cluster answers and has the required topics. The faults name
/// every missing topic. `stop` ends the check early.
pub(super) fn open_checked(
    broker: &KafkaBroker,
    required: &Requirements,
    stop: &AtomicBool,
) -> Result<RdkafkaSink, Vec<Fault>> {
    let (sink, faults) = open_answered(broker, required, stop)?;
    if faults.is_empty() { Ok(sink) } else { Err(faults) }
}

/// Opens a sink, and fails unless the cluster answers. With the sink comes a fault for each required topic that
/// cannot be used.
fn open_answered(
    broker: &KafkaBroker,
    required: &Requirements,
    stop: &AtomicBool,
) -> Result<(RdkafkaSink, Vec<Fault>), Fault> {
    let (mut sink, settings) = (broker.open_sink()?, &broker.settings);
    let topics = required_topics(settings, required);
    wait_for_answer(&mut sink, settings, topics.first().copied(), stop)?;
    let faults = unusable_topics(&mut sink, settings, required, stop)?;
    Ok((sink, faults))
}

/// A fault for each required topic that cannot be used. Fails at the first one of which nothing is heard: the
/// data thread must not wait for each.
fn unusable_topics(
    sink: &mut RdkafkaSink,
    settings: &KafkaSettings,
    required: &Requirements,
    stop: &AtomicBool,
) -> Result<Vec<Fault>, Fault> {
    let answer = |sink: &mut RdkafkaSink, topic| match unusable(sink, topic) {
        Some(code) if is_silence(code) => Err(unanswered(
            settings,
            Duration::from_millis(TOPIC_REQUEST_MS.unsigned_abs().into()),
            &code.to_string(),
        )),
        code => Ok(code),
    };
    let mut faults = Vec::new();
    for topic in required_topics(settings, required) {
        if stop.load(Relaxed) {
            break;
        }
        let code = answer(sink, topic)?;
        let is_listed = is_listed(topic, settings, required);
        let fault = |code| cluster::topic_unusable(code, settings, topic, is_listed);
        faults.extend(code.map(fault));
    }
    if let Some(address) = required.dead_letters.as_ref().filter(|_| !stop.load(Relaxed)) {
        let topic = address.topic.as_str();
        let code = answer(sink, topic)?.or_else(|| {
            // The right to read it is enough to describe it, and no dead letter could be written.
            let unwritable = sink.producer().client.unwritable(&[topic], TOPIC_REQUEST_MS);
            (!unwritable.is_empty()).then_some(Code::TopicAuthorizationFailed)
        });
        let fault = |code| cluster::dead_letters_unusable(code, settings, &address.topic);
        faults.extend(code.map(fault));
    }
    Ok(faults)
}

/// Whether `walrelay init` creates this required topic. A replay requires the topic of an event, to which a
/// row has led.
fn is_listed(topic: &str, settings: &KafkaSettings, required: &Requirements) -> bool {
    !required.is_replay || settings.topics.iter().any(|name| name == topic)
}

/// Whether this code says that no broker has answered.
fn is_silence(code: Code) -> bool {
    matches!(code, Code::OperationTimedOut | Code::BrokerTransportFailure | Code::AllBrokersDown)
}

fn wait_for_answer(
    sink: &mut RdkafkaSink,
    settings: &KafkaSettings,
    topic: Option<&str>,
    stop: &AtomicBool,
) -> Result<(), Fault> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    let mut reported = None;
    loop {
        let Err(code) = sink.producer().client.metadata(topic, REQUEST_MS) else { return Ok(()) };
        let mut reports = Vec::new();
        sink.poll(Instant::now(), Duration::ZERO, &mut reports);
        for report in reports {
            if let SinkReport::Unreachable(reason)
            | SinkReport::LoginRefused(reason)
            | SinkReport::Broken(reason) = report
            {
                reported = Some(reason);
            }
        }
        if stop.load(Relaxed) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let reason = reported.unwrap_or_else(|| code.to_string());
            return Err(unreachable(settings, &reason));
        }
    }
}

/// Why a topic cannot be used, if it cannot.
fn unusable(sink: &mut RdkafkaSink, topic: &str) -> Option<Code> {
    sink.producer().client.metadata(Some(topic), TOPIC_REQUEST_MS).unwrap_or_else(Some)
}

/// Fails as [`open_checked`] does; a topic that only rows lead to may be missing, with a warning.
pub(super) fn inspect(broker: &KafkaBroker, required: &Requirements) -> Vec<Finding> {
    // A request for metadata must not create the topic.
    let mut settings = broker.settings.clone();
    settings.properties.remove("allow.auto.create.topics");
    let broker = KafkaBroker { settings, learned: Arc::clone(&broker.learned) };
    let settings = &broker.settings;
    let (mut sink, faults) = match open_answered(&broker, required, &AtomicBool::new(false)) {
        Ok(opened) => opened,
        Err(fault) => return vec![Finding::fail(fault)],
    };
    let (brokers, topics) = (&settings.brokers, required_topics(settings, required));
    let listed: Vec<&str> = topics.iter().copied().collect();
    let unwritable = unwritable_topics(&mut sink, settings, &listed);
    if !faults.is_empty() {
        return faults.into_iter().map(Finding::fail).chain(unwritable).collect();
    }
    let mut found = vec![Finding::ok(
        "sink",
        match topics.first() {
            None => format!("kafka answers at {brokers}"),
            Some(topic) if topics.len() == 1 => {
                format!("kafka answers at {brokers}; topic {topic} is there")
            }
            Some(_) => format!("kafka answers at {brokers}; {} topics are there", topics.len()),
        },
    )];
    found.extend(link_security::warnings(settings));
    if let Some(address) = &required.dead_letters {
        found.push(Finding::ok("sink", format!("dead letters go to topic {}", address.topic)));
    }
    let of_rows = required.from_rows.iter().filter(|topic| !topics.contains(topic.as_str()));
    let of_rows: Vec<&String> = of_rows.collect();
    // Rows that could not be read are told of already.
    if topics.is_empty() && of_rows.is_empty() && !required.rows_unread {
        let text = "topics come from rows, and no row says which: none is checked; name them in sink.kafka.topics";
        found.push(Finding::warn("sink", text));
    }
    found.extend(unwritable);
    let mut existing: Vec<&str> = listed;
    for topic in of_rows.iter().take(TOPICS_OF_ROWS_MAX) {
        let Some(code) = unusable(&mut sink, topic) else {
            existing.push(topic);
            continue;
        };
        let Fault { what, mend, .. } = cluster::topic_unusable(code, settings, topic, false);
        let mend = mend.replace('\n', "; ");
        let text = format!("{what}, and rows of the outbox lead to it; {mend}");
        found.push(Finding::warn("sink", text));
    }
    if existing.len() > topics.len() {
        let looked_at = existing.len() - topics.len();
        let text =
            format!("topics that rows of the outbox lead to are there ({looked_at} looked at)");
        found.push(Finding::ok("sink", text));
    }
    let dead_letters = required.dead_letters.as_ref().map(|address| address.topic.as_str());
    found.extend(topic_settings::findings(settings, &existing, dead_letters));
    if required.read_back {
        found.extend(read_back(settings, &existing));
    }
    if let Some(rest @ 1..) = of_rows.len().checked_sub(TOPICS_OF_ROWS_MAX) {
        let text = format!("{rest} more topics that rows lead to were not looked at");
        found.push(Finding::warn("sink", text));
    }
    found
}

/// A warning for each of these topics that this login may describe and not write.
fn unwritable_topics(
    sink: &mut RdkafkaSink,
    settings: &KafkaSettings,
    topics: &[&str],
) -> Vec<Finding> {
    let warning = |topic: String| {
        let mend = fault::mend(Code::TopicAuthorizationFailed, &topic, &settings.tools(), true);
        let text = format!(
            "this login may not write topic {topic}: its events would become dead letters; {mend}"
        );
        Finding::warn("sink", text)
    };
    let unwritable = sink.producer().client.unwritable(topics, TOPIC_REQUEST_MS);
    unwritable.into_iter().map(warning).collect()
}

/// Whether the topics can be read, so that a new process knows what they hold.
fn read_back(settings: &KafkaSettings, topics: &[&str]) -> Option<Finding> {
    let mut scan = topic_reader::scan(settings).ok()?;
    let mut refusal = |topic| topic_reader::refusal(&mut scan, topic, READ_WITHIN);
    let refused = topics.iter().find_map(|topic| Some((topic, refusal(topic)?)));
    Some(match refused {
        Some((topic, reason)) => Finding::warn(
            "sink",
            format!(
                "topic {topic} cannot be read: {reason}; until then a relay that was killed publishes again what it had not reported"
            ),
        ),
        None if topics.is_empty() => return None,
        None => Finding::ok(
            "sink",
            "topics can be read: what they hold is not published again after a kill",
        ),
    })
}

#[cfg(test)]
#[path = "doctor_tests.rs"]
mod tests;
