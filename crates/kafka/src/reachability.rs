//! Why no broker can be reached, as a fault with what mends it. A request that gets no answer only fails
//! with a timeout, and the client reports the cause as an event.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use walrelay_base::lock::locked;
use walrelay_core::sink::kafka::reachability::Reachability;

use super::cluster;
use super::code::code_of;
use super::settings::KafkaSettings;
use walrelay_base::error::{Exit, Fault};
use walrelay_sink::broker::UNREACHABLE;

/// How long a broker may take to answer.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long errors that a client has already queued are collected.
const EVENTS_WITHIN: Duration = Duration::from_millis(50);

/// The errors that a consumer reports of its connections.
#[derive(Default)]
pub(super) struct ConnectionErrors(Mutex<Reachability>);

impl ClientContext for ConnectionErrors {
    fn error(&self, error: KafkaError, text: &str) {
        if let Some(code) = error.rdkafka_error_code() {
            let mut reachability = locked(&self.0);
            // Only its cause is asked for.
            let _report = reachability.failed(code_of(code), text, Instant::now());
        }
    }
}

impl ConsumerContext for ConnectionErrors {}

/// Why no broker can be reached, if that is what `error` means. Records that the consumer has fetched
/// are dropped: it is given up afterwards.
pub(super) fn why_unreachable(
    consumer: &BaseConsumer<ConnectionErrors>,
    error: &KafkaError,
) -> Option<String> {
    let KafkaError::MetadataFetch(
        code @ (Code::BrokerTransportFailure | Code::OperationTimedOut | Code::AllBrokersDown),
    ) = error
    else {
        return None;
    };
    // Errors are handed over where the client is polled, and new ones may come without an end.
    let until = Instant::now() + EVENTS_WITHIN;
    while Instant::now() < until {
        drop(consumer.poll(until.saturating_duration_since(Instant::now())));
    }
    let reachability = locked(&consumer.context().0);
    Some(reachability.cause().map_or_else(|| code.to_string(), str::to_owned))
}

pub(super) fn unreachable(settings: &KafkaSettings, reason: &str) -> Fault {
    unanswered(settings, ANSWER_WITHIN, reason)
}

pub(super) fn unanswered(settings: &KafkaSettings, within: Duration, reason: &str) -> Fault {
    let mend = reaching(reason, &settings.brokers);
    let what = format!("no Kafka broker answered within {} s: {reason}", within.as_secs());
    Fault::new(Exit::Sink, UNREACHABLE, what, cluster::brokers_key(settings), mend).passing()
}

/// The remedy for an error of librdkafka's about a connection.
fn reaching(error: &str, brokers: &str) -> String {
    // In front of it is the name of the connection, such as sasl_ssl://kafka-ssl:9093/bootstrap.
    let named = error.split_once(": ").filter(|(name, _)| !name.contains(' '));
    // Another name than this is one that the cluster has given.
    let is_advertised = named.is_some_and(|(name, _)| !name.ends_with("/bootstrap"));
    let text = named.map_or(error, |(_, text)| text).to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    // This one names a host.
    let mend = if is_advertised && says(&["failed to resolve"]) {
        "the cluster itself names this host: let this host resolve the name, or correct advertised.listeners of that broker"
    } else if is_advertised && says(&["connect to", "timed out"]) {
        "start the broker, or correct its advertised.listeners: the cluster itself names this address"
    } else if says(&["failed to resolve"]) {
        "correct the host name in sink.kafka.brokers"
    } else if says(&["certificate verify failed", "certificate could not be verified"]) {
        "correct ssl.ca.location in sink.kafka.properties: the broker's certificate is not trusted, or is not for the host name in sink.kafka.brokers"
    } else if says(&["unsupported sasl mechanism"]) {
        "correct sasl.mechanism in sink.kafka.properties: the broker names the mechanisms that it has"
    } else if says(&["handshake failed"]) {
        "correct security.protocol, ssl.ca.location, ssl.certificate.location and ssl.key.location in sink.kafka.properties; see the broker's log"
    } else if says(&["authentication", "sasl"]) {
        "correct sasl.mechanism, sasl.username and sasl.password in sink.kafka.properties"
    } else if says(&["ssl", "invalid response size"]) {
        "correct security.protocol and ssl.ca.location in sink.kafka.properties"
    } else if says(&["resolve"]) {
        "correct the host name in sink.kafka.brokers"
    } else {
        return format!(
            "start the broker, or correct sink.kafka.brokers, or security.protocol in sink.kafka.properties where the broker closes the connection; try: kafka-broker-api-versions.sh --bootstrap-server {brokers}"
        );
    };
    mend.to_owned()
}

#[cfg(test)]
#[path = "reachability_tests.rs"]
mod tests;
