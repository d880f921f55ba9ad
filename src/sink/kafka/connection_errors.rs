//! Why a connection to the cluster has failed. A request that gets no answer only fails with a timeout,
//! and the client reports the cause as an event.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use walrelay_core::sink::kafka::reachability::connection_error;

use super::code::code_of;

/// How long errors that a client has already queued are collected.
const EVENTS_WITHIN: Duration = Duration::from_millis(50);

/// A consumer that keeps the last error of its connections.
pub(super) type TopicConsumer = BaseConsumer<LastConnectionError>;

/// The last error of a connection of a consumer.
#[derive(Default)]
pub(super) struct LastConnectionError(Mutex<Option<String>>);

impl ClientContext for LastConnectionError {
    fn error(&self, error: KafkaError, text: &str) {
        let code = error.rdkafka_error_code();
        if let Some(text) = code.and_then(|code| connection_error(code_of(code), text)) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
        }
    }
}

impl ConsumerContext for LastConnectionError {}

/// Why no broker can be reached, if that is what `error` means. Records that the consumer has fetched
/// are dropped: it is given up afterwards.
pub(super) fn why_unreachable(consumer: &TopicConsumer, error: &KafkaError) -> Option<String> {
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
    let last = consumer.context().0.lock().unwrap_or_else(PoisonError::into_inner).take();
    Some(last.unwrap_or_else(|| code.to_string()))
}
