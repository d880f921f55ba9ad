//! Names of failures of an event by librdkafka's codes, and how they are mended.

use super::code::Code;
use crate::base::event::{brief, subject};
use crate::base::settings::kind::TOPIC;
use crate::base::text::quoted;
use crate::dead_letter::writer::CLASS_PARKED;
use crate::sink::publish::{Disposition, ErrorRow, Failure};

const MEND_SETTINGS: &str = "compare sink.kafka.properties (acks, compression.type, enable.idempotence, security.protocol) with the version and the configuration of the brokers";

const CLIENT_LIMIT: &str = "the record is larger than \"message.max.bytes\" of the client (sink.kafka.properties; 1,000,000 bytes by default), and no broker has seen it";

/// The brokers in a command, where the configured ones are not at hand.
const ANY_BROKER: &str = "HOST:PORT";

/// A topic that takes records of this size takes every dead letter, cut to fit if need be.
pub const LETTER_BYTES_MIN: usize = 4_300;

/// The configured values in the commands that a text names.
#[derive(Clone, Debug)]
pub struct ToolArguments {
    pub brokers: String,
    /// The number of partitions of a new topic.
    pub partitions: i32,
}

impl Default for ToolArguments {
    fn default() -> ToolArguments {
        ToolArguments { brokers: ANY_BROKER.to_owned(), partitions: 8 }
    }
}

/// An answer that this version does not know makes a dead letter, which somebody notices. A retry
/// would hide it.
const UNKNOWN: Disposition = Disposition::Terminal;

/// The failure of the event `id` on its way to `topic`.
#[must_use]
pub fn failure(
    code: Code,
    id: &str,
    topic: &str,
    key: Option<&[u8]>,
    tools: &ToolArguments,
) -> Failure {
    let disposition = code.disposition();
    Failure {
        disposition: disposition.unwrap_or(UNKNOWN),
        known: disposition.is_some(),
        key: key.map(Box::from),
        class: class(code),
        subject: subject(id, topic),
        reason: reason(code, topic),
        mend: mend(code, topic, tools, false),
    }
}

/// The failure of an event that the client has not taken. It has the code of the broker for a record that is too large.
#[must_use]
pub(super) fn not_taken(code: Code, failure: Failure) -> Failure {
    match code {
        Code::MessageSizeTooLarge => Failure { reason: CLIENT_LIMIT.to_owned(), ..failure },
        _ => failure,
    }
}

/// Says why the broker or its client refuses an event for this topic.
#[must_use]
pub fn reason(code: Code, topic: &str) -> String {
    let topic = brief(topic);
    match code {
        Code::InvalidTimestamp => format!(
            "the broker answers, and topic {topic} refuses the time of records, which is that of their publish: the clocks of this host and of the broker differ by more than message.timestamp.after.max.ms (1 h by default) or message.timestamp.before.max.ms of the topic"
        ),
        Code::MessageSizeTooLarge => format!(
            "the broker answers that the record is larger than max.message.bytes of topic {topic} (1,048,588 bytes unless it is set)"
        ),
        _ => code.to_string(),
    }
}

/// The failure of an event behind a dead letter that has parked its key.
#[must_use]
pub(super) fn parked(id: &str, topic: &str, key: Option<&[u8]>) -> Failure {
    Failure {
        disposition: Disposition::Terminal,
        known: true,
        key: key.map(Box::from),
        class: CLASS_PARKED.to_owned(),
        subject: subject(id, topic),
        reason: "an earlier event of its key was dead-lettered, and the key is parked".to_owned(),
        mend: "see what became of that event (walrelay dlq list), then: walrelay dlq release"
            .to_owned(),
    }
}

/// The failure of every event, if the client can publish none with these settings.
#[must_use]
pub(super) fn halting(code: Code, reason: &str, tools: &ToolArguments) -> Option<Failure> {
    (code.disposition() == Some(Disposition::Halt)).then(|| Failure {
        subject: "sink.kafka".to_owned(),
        reason: reason.to_owned(),
        ..failure(code, "", "", None, tools)
    })
}

/// The rows of `docs/errors.md`: every code that is an answer to a publish.
#[must_use]
pub fn rows() -> Vec<ErrorRow> {
    let row = |code: Code| {
        let (description, class) = (code.to_string(), class(code));
        let disposition = code.disposition()?;
        Some(ErrorRow { code: (code as i32).to_string(), description, class, disposition })
    };
    let mut codes = Code::ALL.to_vec();
    codes.sort();
    codes.into_iter().filter_map(row).collect()
}

/// A stable name made from the code: `kafka.message-size-too-large`. A missing topic has one name, whether the
/// client or a broker says so.
fn class(code: Code) -> String {
    let code = match code {
        Code::UnknownTopicOrPartition | Code::UnknownTopicId => Code::UnknownTopic,
        code => code,
    };
    let mut name = String::from("kafka.");
    for (index, letter) in format!("{code:?}").chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// The command that lets a topic take records of the size of Kafka's default.
#[must_use]
pub fn limit_command(topic: &str, brokers: &str) -> String {
    format!(
        "kafka-configs.sh --bootstrap-server {brokers} --alter --entity-type topics --entity-name {topic} --add-config max.message.bytes=1048588"
    )
}

/// Says how to mend that the smallest form of a dead letter is too large.
pub(super) fn mend_letter_limit(topic: &str, tools: &ToolArguments) -> String {
    format!(
        "let the topic take records of at least {LETTER_BYTES_MIN} bytes: {}; the client must take them as well: sink.kafka.properties \"message.max.bytes\", if it is set",
        limit_command(topic, &tools.brokers)
    )
}

/// Says how to mend it, with a command for these brokers where there is one. `is_listed` says that `walrelay init`
/// creates the topic with the present configuration.
#[must_use]
pub fn mend(code: Code, topic: &str, tools: &ToolArguments, is_listed: bool) -> String {
    let ToolArguments { brokers, partitions } = tools;
    // It may come from a row, and a record may be refused before anybody has judged the name of its topic.
    let topic = &match (TOPIC.holds)(topic) {
        true => topic.to_owned(),
        false => quoted(topic),
    };
    let tool = |name: &str| format!("{name} --bootstrap-server {brokers}");
    match code {
        Code::MessageBatchTooLarge => format!(
            "the record is larger than a segment of the topic: {} --alter --entity-type topics --entity-name {topic} --add-config segment.bytes=…",
            tool("kafka-configs.sh")
        ),
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => {
            let configs = tool("kafka-configs.sh");
            format!(
                "raise each limit that is too small: that of the client is \"message.max.bytes\" in sink.kafka.properties; that of the topic is shown by {configs} --describe --all --entity-type topics --entity-name {topic}, and raised by {configs} --alter --entity-type topics --entity-name {topic} --add-config max.message.bytes=…"
            )
        }
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId => {
            let topics = tool("kafka-topics.sh");
            let create = format!("{topics} --create --topic {topic} --partitions {partitions}");
            match is_listed {
                true => format!("walrelay init, or: {create}"),
                false => {
                    format!("{create}, or list it in sink.kafka.topics and run: walrelay init")
                }
            }
        }
        Code::TopicAuthorizationFailed => format!(
            "{} --add --allow-principal User:… --operation Write --operation Describe --topic {topic}",
            tool("kafka-acls.sh")
        ),
        Code::ClusterAuthorizationFailed => format!(
            "{} --add --allow-principal User:… --operation IdempotentWrite --cluster",
            tool("kafka-acls.sh")
        ),
        Code::Authentication | Code::SaslAuthenticationFailed => {
            "correct sasl.mechanism, sasl.username and sasl.password in sink.kafka.properties"
                .to_owned()
        }
        Code::InvalidTimestamp => format!(
            "compare the clocks: date -u on this host and on the broker; {} --describe --all --entity-type topics --entity-name {topic} shows message.timestamp.after.max.ms and message.timestamp.before.max.ms",
            tool("kafka-configs.sh")
        ),
        Code::UnknownPartition => format!(
            "{topic} was deleted, or the partition column names a partition that it does not have: {} --describe --topic {topic}",
            tool("kafka-topics.sh")
        ),
        Code::InvalidTopic => {
            "a topic name has at most 249 of the characters A-Z a-z 0-9 . _ -".to_owned()
        }
        _ if code.disposition() == Some(Disposition::Halt) => MEND_SETTINGS.to_owned(),
        _ => format!(
            "see the broker's log, and {} --describe --topic {topic}",
            tool("kafka-topics.sh")
        ),
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
