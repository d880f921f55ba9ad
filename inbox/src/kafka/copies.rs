//! The producer of copies: idempotent, and confirmed by all replicas that are in sync.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::oneshot;

use super::lost_brokers::LostBrokers;
use super::{Kafka, client_error, config, dead_letter_topic, retry_topic};
use crate::broker::{Copies, Destination, Outgoing, Unconfirmed};
use crate::message::retry_header;
use crate::panics::lock;
use crate::time::unix_now;
use crate::{InboxError, Settings};

/// How often an unanswered copy is looked after.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct KafkaCopies {
    kafka: Kafka,
    settings: Settings,
    producer: Mutex<Arc<CopyProducer>>,
}

type CopyProducer = ThreadedProducer<Confirms>;

/// Passes confirms to whom they belong, and the client's errors on.
struct Confirms(LostBrokers);

impl ClientContext for Confirms {
    fn error(&self, error: KafkaError, reason: &str) {
        self.0.reported(&error);
        tracing::debug!(%error, reason, "the producer of copies");
    }
}

impl ProducerContext for Confirms {
    type DeliveryOpaque = Box<oneshot::Sender<Result<(), KafkaError>>>;

    fn delivery(&self, answer: &DeliveryResult<'_>, waiting: Self::DeliveryOpaque) {
        let answer = answer.as_ref().map(drop).map_err(|(error, _)| error.clone());
        // Nobody waits for a copy of an inbox that has ended.
        let _gone = waiting.send(answer).is_err();
    }
}

impl KafkaCopies {
    pub(super) fn new(kafka: &Kafka, settings: &Settings) -> Result<KafkaCopies, InboxError> {
        let producer = Mutex::new(Arc::new(producer(kafka, settings)?));
        Ok(KafkaCopies { kafka: kafka.clone(), settings: settings.clone(), producer })
    }

    fn replace(&self, failed: &str) {
        tracing::warn!(code = "inbox.producer-replaced", reason = failed, "a new producer is made");
        match producer(&self.kafka, &self.settings) {
            Ok(new) => *lock(&self.producer) = Arc::new(new),
            Err(error) => tracing::warn!(code = "inbox.producer-replaced", %error, "not made"),
        }
    }

    /// Judges an error: one that a record alone can cause refuses the record; every other one is
    /// waited for. A producer that is of no more use is replaced.
    fn judge(&self, topic: &str, error: &KafkaError, producer: &CopyProducer) -> Unconfirmed {
        if let Some(
            Code::MessageSizeTooLarge
            | Code::MessageBatchTooLarge
            | Code::InvalidMessageSize
            | Code::InvalidRecord,
        ) = error.rdkafka_error_code()
        {
            return Unconfirmed::Refused(error.to_string());
        }
        if let Some((_, reason)) = producer.client().fatal_error() {
            self.replace(&reason);
        }
        Unconfirmed::Outage(outage(topic, error))
    }

    fn record_of(&self, copy: &Outgoing<'_>) -> (String, OwnedHeaders) {
        let service = &self.settings.service;
        let headers = copy.headers.iter().fold(
            OwnedHeaders::new_with_capacity(copy.headers.len() + 1),
            |headers, (key, value)| headers.insert(Header { key, value: Some(value.as_ref()) }),
        );
        match copy.destination {
            Destination::DeadLetters => (dead_letter_topic(service), headers),
            Destination::Level { level, wait } => {
                let due = (unix_now() + wait).as_millis().to_string();
                let due = Header { key: retry_header::DUE, value: Some(due.as_str()) };
                (retry_topic(service, level), headers.insert(due))
            }
        }
    }
}

impl Copies for KafkaCopies {
    async fn send(&self, copy: &Outgoing<'_>) -> Result<(), Unconfirmed> {
        let (topic, headers) = self.record_of(copy);
        let producer = Arc::clone(&lock(&self.producer));
        let lost_brokers = &producer.context().0;
        let (waiting, mut confirm) = oneshot::channel();
        let mut record = BaseRecord::with_opaque_to(&topic, Box::new(waiting));
        record.payload = copy.value.as_deref();
        record.key = copy.message.key();
        record.headers = Some(headers);
        let judge = |error: &KafkaError| self.judge(&topic, error, &producer);
        producer.send(record).map_err(|(error, _)| judge(&error))?;
        let answer = loop {
            match tokio::time::timeout(LOOK_INTERVAL, &mut confirm).await {
                Ok(answer) => break answer,
                Err(_) => lost_brokers.name_again_if_lost(producer.client()),
            }
        };
        answer.unwrap_or(Err(KafkaError::Canceled)).map_err(|error| judge(&error))?;
        lost_brokers.answered();
        Ok(())
    }
}

/// Why a copy waits. Offsets begin again in a topic that is made anew, and an instance that runs would
/// commit the one that it has read to.
fn outage(topic: &str, error: &KafkaError) -> String {
    let mend = match error.rdkafka_error_code() {
        Some(Code::UnknownTopic | Code::UnknownTopicOrPartition) => {
            ": stop all instances, then Inbox::init makes it (docs/consumers.md, Retry levels)"
        }
        _ => "",
    };
    format!("topic {topic}: {error}{mend}")
}

fn producer(kafka: &Kafka, settings: &Settings) -> Result<CopyProducer, InboxError> {
    config::producer(kafka, settings)
        .create_with_context(Confirms(LostBrokers::new(&kafka.brokers)))
        .map_err(|error| client_error("the producer of copies", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_topic_is_told_with_what_must_stop_before_it_is_made_again() {
        let told = |code| outage("billing.retry.30s", &KafkaError::MessageProduction(code));
        for code in [Code::UnknownTopic, Code::UnknownTopicOrPartition] {
            assert!(told(code).contains("stop all instances, then Inbox::init"), "{code:?}");
        }
        assert!(!told(Code::NotEnoughReplicas).contains("Inbox::init"));
    }
}
