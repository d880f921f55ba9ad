//! Which of librdkafka's codes is an outage, which may pass, and which never will.
//!
//! librdkafka retries by itself, without end and in order, what a broker asks to be retried
//! (`message.timeout.ms=0`). What reaches us as a failed delivery is therefore final in its eyes.

use rdkafka::types::RDKafkaErrorCode as Code;

use crate::sink::{Disposition, Failure};

/// The failure behind a code, for the event `id` on its way to `topic`.
#[must_use]
pub(super) fn failure(code: Code, id: &str, topic: &str) -> Failure {
    Failure {
        disposition: disposition(code),
        class: class(code),
        subject: format!("event {id}, topic {topic}"),
        reason: code.to_string(),
        mend: mend(code, topic),
    }
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

fn disposition(code: Code) -> Disposition {
    match code {
        // The event itself.
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidMessage
        | Code::BadMessage
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::InvalidTopic
        | Code::InvalidArgument
        | Code::PolicyViolation
        | Code::UnknownPartition => Disposition::Terminal,
        // Its destination, which somebody may create.
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId => {
            Disposition::Transient
        }
        // The cluster, the connection, the login, or a producer that lost its place.
        Code::BrokerTransportFailure
        | Code::AllBrokersDown
        | Code::BrokerDestroy
        | Code::DestroyBroker
        | Code::Resolve
        | Code::SSL
        | Code::MessageTimedOut
        | Code::TimedOutQueue
        | Code::OperationTimedOut
        | Code::RequestTimedOut
        | Code::NetworkException
        | Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::BrokerNotAvailable
        | Code::ReplicaNotAvailable
        | Code::NotEnoughReplicas
        | Code::NotEnoughReplicasAfterAppend
        | Code::ISRInsufficient
        | Code::KafkaStorageError
        | Code::ThrottlingQuotaExceeded
        | Code::FencedLeaderEpoch
        | Code::UnknownLeaderEpoch
        | Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::OutOfOrderSequenceNumber
        | Code::DuplicateSequenceNumber
        | Code::InvalidProducerEpoch
        | Code::InvalidProducerIdMapping
        | Code::UnknownProducerId
        | Code::ProducerFenced
        | Code::Fenced
        | Code::Fatal
        | Code::GaplessGuarantee
        | Code::PurgeQueue
        | Code::PurgeInflight
        | Code::Retry
        | Code::State
        | Code::CriticalSystemResource => Disposition::Outage,
        // Unknown to us: never retried in silence.
        _ => Disposition::Terminal,
    }
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
        _ => format!("see the broker's log, and kafka-topics.sh --describe --topic {topic}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_stable_names_and_one_disposition() {
        let too_large = failure(Code::MessageSizeTooLarge, "7", "orders");
        assert_eq!(too_large.class, "kafka.message-size-too-large");
        assert_eq!(too_large.disposition, Disposition::Terminal);
        assert!(too_large.mend.contains("--entity-name orders"));
        assert_eq!(failure(Code::NotEnoughReplicas, "7", "t").disposition, Disposition::Outage);
        assert_eq!(failure(Code::UnknownTopic, "7", "t").disposition, Disposition::Transient);
        assert_eq!(failure(Code::Unknown, "7", "t").disposition, Disposition::Terminal);
    }
}
