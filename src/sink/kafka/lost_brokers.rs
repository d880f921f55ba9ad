//! Leads a client back to the cluster when librdkafka has forgotten every broker.
//!
//! A broker whose session with the controller has ended (the machine stood still, the JVM paused)
//! still answers requests for metadata, and its answer names no broker. librdkafka 2.12 then drops
//! all brokers that it knows, reports that all are down, and sets a timer after which it would start
//! again from `bootstrap.servers`. When it has handled the rest of that answer it may cancel the
//! timer without clearing the flag that says that one is set, and then never sets another. The
//! client has no broker to ask and stands still for ever (librdkafka issue 5301, open in 2.13).
//!
//! In an ordinary outage librdkafka goes on trying, and reports each round. So some silence after
//! such a report is the sign, and the configured brokers are named to it again. Those that it still
//! knows are not added twice.

use std::time::{Duration, Instant};

use rdkafka::error::KafkaResult;
use rdkafka::message::BorrowedMessage;
use walrelay_core::sink::kafka::Code;

use super::brokers_ffi::add_brokers_to;
use super::code::code_of;
use super::connection_errors::TopicConsumer;
use super::settings::KafkaSettings;

/// Longer than a round of attempts to connect to brokers that refuse: librdkafka keeps each list of
/// brokers that it is told.
const SILENCE: Duration = Duration::from_secs(3);

pub(super) struct LostBrokers {
    brokers: String,
    /// When all brokers were reported as down last.
    lost_at: Option<Instant>,
}

impl LostBrokers {
    pub(super) fn new(settings: &KafkaSettings) -> LostBrokers {
        LostBrokers { brokers: settings.brokers.clone(), lost_at: None }
    }

    /// Polls a consumer to whose brokers this belongs.
    pub(super) fn poll<'c>(
        &mut self,
        consumer: &'c TopicConsumer,
        patience: Duration,
    ) -> Option<KafkaResult<BorrowedMessage<'c>>> {
        if let Some(brokers) = self.due() {
            add_brokers_to(consumer, brokers);
        }
        // In the part of a millisecond that is left the client would ask without a pause.
        let whole_ms = u64::try_from(patience.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let polled = consumer.poll(Duration::from_millis(whole_ms))?;
        match &polled {
            Ok(_) => self.answered(),
            Err(error) => {
                error.rdkafka_error_code().into_iter().for_each(|c| self.reported(code_of(c)))
            }
        }
        Some(polled)
    }

    /// The client has reported an error.
    pub(super) fn reported(&mut self, code: Code) {
        if code == Code::AllBrokersDown {
            self.lost_at = Some(Instant::now());
        }
    }

    /// A broker has answered.
    pub(super) fn answered(&mut self) {
        self.lost_at = None;
    }

    /// The brokers, if they must be named to the client now.
    pub(super) fn due(&mut self) -> Option<&str> {
        self.lost_at.take_if(|at| at.elapsed() > SILENCE)?;
        tracing::debug!("librdkafka may have forgotten all brokers: they are named again");
        Some(&self.brokers)
    }
}

#[cfg(test)]
#[path = "lost_brokers_tests.rs"]
mod tests;
