//! Which of librdkafka's codes is an outage, which may pass, which never will, and which end all.
//!
//! librdkafka retries by itself, without end and in order, what a broker asks to be retried
//! (`message.timeout.ms=0`). What reaches us as a failed delivery is therefore final in its eyes.

use rdkafka::types::{RDKafkaErrorCode as Code, RDKafkaRespErr};

use crate::base::event::brief;
use crate::dead_letter::writer::CLASS_PARKED;
use crate::sink::publish::{Disposition, ErrorRow, Failure};

/// What can be done where the settings are to blame.
const MEND_SETTINGS: &str = "compare sink.kafka.properties (acks, compression.type, enable.idempotence, security.protocol) with the version and the configuration of the brokers";

/// What follows from an answer that this release does not know: a retry would be in silence.
const UNKNOWN: Disposition = Disposition::Terminal;

/// The failure behind a code, for the event `id` on its way to `topic`.
#[must_use]
pub(super) fn failure(code: Code, id: &str, topic: &str, key: Option<&[u8]>) -> Failure {
    let disposition = disposition(code);
    Failure {
        disposition: disposition.unwrap_or(UNKNOWN),
        known: disposition.is_some(),
        key: key.map(Box::from),
        class: class(code),
        subject: format!("event {}, topic {}", brief(id), brief(topic)),
        reason: code.to_string(),
        mend: mend(code, topic),
    }
}

/// The failure of what waits behind an event of its key that was dead-lettered for good.
#[must_use]
pub(super) fn parked(id: &str, topic: &str, key: Option<&[u8]>) -> Failure {
    Failure {
        disposition: Disposition::Terminal,
        known: true,
        key: key.map(Box::from),
        class: CLASS_PARKED.to_owned(),
        subject: format!("event {}, topic {}", brief(id), brief(topic)),
        reason: "an earlier event of its key was dead-lettered, and the key is parked".to_owned(),
        mend: "see what became of that event (walrelay dlq list), then: walrelay dlq release"
            .to_owned(),
    }
}

/// The failure of every event, where the client can do nothing for such a reason.
#[must_use]
pub(super) fn unable(code: Code, text: &str) -> Option<Failure> {
    let halts = disposition(code) == Some(Disposition::Halt);
    halts.then(|| Failure {
        disposition: Disposition::Halt,
        known: true,
        key: None,
        class: class(code),
        subject: "sink.kafka".to_owned(),
        reason: text.to_owned(),
        mend: MEND_SETTINGS.to_owned(),
    })
}

/// Every code that is an answer to a publish, and what follows from it.
#[must_use]
pub(in crate::sink) fn rows() -> Vec<ErrorRow> {
    let codes = codes().filter_map(|code| Some((code, disposition(code)?)));
    let row = |(code, disposition): (Code, Disposition)| ErrorRow {
        code: (code as i32).to_string(),
        description: code.to_string(),
        class: class(code),
        disposition,
    };
    codes.map(row).collect()
}

/// The codes that the client library has names for.
fn codes() -> impl Iterator<Item = Code> {
    (-200..=150).filter_map(|number| RDKafkaRespErr::try_from(number).ok()).map(Code::from)
}

/// A stable name made from the code: `kafka.message-size-too-large`.
fn class(code: Code) -> String {
    let mut name = String::from("kafka.");
    for (index, letter) in format!("{code:?}").chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// What follows from a code; nothing where it is no answer to a publish that this release knows.
// By hand: with a line for each code nobody would see the decisions.
#[rustfmt::skip]
fn disposition(code: Code) -> Option<Disposition> {
    match code {
        // The event itself.
        Code::BadMessage | Code::UnknownPartition | Code::InvalidArgument | Code::KeySerialization
        | Code::ValueSerialization | Code::InvalidMessage | Code::InvalidMessageSize
        | Code::MessageSizeTooLarge | Code::InvalidTopic | Code::MessageBatchTooLarge
        | Code::InvalidTimestamp | Code::PolicyViolation | Code::InvalidRecord
            => Some(Disposition::Terminal),
        // Its destination, which somebody may create; a neighbour in its batch.
        Code::UnknownTopic | Code::InvalidDifferentRecord | Code::UnknownTopicOrPartition
        | Code::UnknownTopicId
            => Some(Disposition::Transient),
        // What we ask of the cluster, which it or the client cannot do: for every event.
        Code::BadCompression | Code::UnknownProtocol | Code::NotImplemented
        | Code::UnsupportedFeature | Code::NotConfigured | Code::InvalidRequiredAcks
        | Code::UnsupportedVersion | Code::InvalidConfig | Code::UnsupportedForMessageFormat
        | Code::UnsupportedCompressionType
            => Some(Disposition::Halt),
        _ if is_outage(code) => Some(Disposition::Outage),
        // An answer to another request, or newer than these lists; a test names the former.
        _ => None,
    }
}

/// The connection, the cluster, the login, or a producer that lost its place: not the event.
#[rustfmt::skip]
fn is_outage(code: Code) -> bool {
    matches!(
        code,
        // The connection.
        Code::BrokerDestroy | Code::Fail | Code::BrokerTransportFailure | Code::Resolve
        | Code::AllBrokersDown | Code::NodeUpdate | Code::SSL | Code::UnknownBroker
        | Code::DestroyBroker | Code::NetworkException | Code::RebootstrapRequired
        | Code::InvalidRequest
        // Time, which the client does not give up by itself.
        | Code::MessageTimedOut | Code::OperationTimedOut | Code::WaitingForCoordinator
        | Code::InProgress | Code::PreviousInProgress | Code::TimedOutQueue | Code::WaitCache
        | Code::Interrupted | Code::Retry | Code::RequestTimedOut | Code::CoordinatorLoadInProgress
        | Code::CoordinatorNotAvailable | Code::NotCoordinator
        // The cluster.
        | Code::ISRInsufficient | Code::LeaderNotAvailable | Code::NotLeaderForPartition
        | Code::BrokerNotAvailable | Code::ReplicaNotAvailable | Code::StaleControllerEpoch
        | Code::NotEnoughReplicas | Code::NotEnoughReplicasAfterAppend | Code::NotController
        | Code::KafkaStorageError | Code::LogDirNotFound | Code::ReassignmentInProgress
        | Code::ListenerNotFound | Code::FencedLeaderEpoch | Code::UnknownLeaderEpoch
        | Code::StaleBrokerEpoch | Code::OffsetNotAvailable | Code::PreferredLeaderNotAvailable
        | Code::EligibleLeadersNotAvailable | Code::ThrottlingQuotaExceeded
        // The login, and what it may do.
        | Code::Authentication | Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed
        | Code::UnsupportedSASLMechanism | Code::IllegalSASLState
        | Code::TransactionalIdAuthorizationFailed | Code::SecurityDisabled
        | Code::SaslAuthenticationFailed | Code::DelegationTokenAuthDisabled
        | Code::DelegationTokenNotFound | Code::DelegationTokenAuthorizationFailed
        | Code::DelegationTokenExpired | Code::PrincipalDeserializationFailure
        // A producer that has lost its place.
        | Code::State | Code::Outdated | Code::PurgeQueue | Code::PurgeInflight | Code::Fatal
        | Code::Inconsistent | Code::GaplessGuarantee | Code::Fenced | Code::Application
        | Code::OutOfOrderSequenceNumber | Code::DuplicateSequenceNumber
        | Code::InvalidProducerEpoch | Code::InvalidProducerIdMapping | Code::UnknownProducerId
        | Code::ProducerFenced
        // This process.
        | Code::CriticalSystemResource | Code::FileSystem | Code::QueueFull
    )
}

fn mend(code: Code, topic: &str) -> String {
    match code {
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize => {
            format!(
                "raise the limit of both sides: sink.kafka.properties \"message.max.bytes\" here, and \
             kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config max.message.bytes=…"
            )
        }
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId => format!(
            "kafka-topics.sh --create --topic {topic} --partitions 8, or list it in sink.kafka.topics and run: walrelay init"
        ),
        Code::TopicAuthorizationFailed => format!(
            "kafka-acls.sh --add --allow-principal User:… --operation Write --operation Describe --topic {topic}"
        ),
        Code::ClusterAuthorizationFailed => {
            "kafka-acls.sh --add --allow-principal User:… --operation IdempotentWrite --cluster"
                .to_owned()
        }
        Code::Authentication | Code::SaslAuthenticationFailed => {
            "correct sasl.mechanism, sasl.username and sasl.password in sink.kafka.properties"
                .to_owned()
        }
        Code::UnknownPartition => {
            format!("the partition column names a partition that {topic} does not have")
        }
        Code::InvalidTopic => {
            "a topic name has at most 249 of the characters A-Z a-z 0-9 . _ -".to_owned()
        }
        _ if disposition(code) == Some(Disposition::Halt) => MEND_SETTINGS.to_owned(),
        _ => format!("see the broker's log, and kafka-topics.sh --describe --topic {topic}"),
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
