//! Leads a client back to the cluster when librdkafka has forgotten every broker.
//!
//! A broker whose session with the controller has ended (the machine stood still, the JVM paused)
//! still answers requests for metadata, and its answer names no broker. librdkafka 2.12 then drops
//! all brokers that it knows, reports that all are down, and sets a timer to begin anew with
//! `bootstrap.servers`. But the end of the same answer cancels that timer if it was set by then,
//! and the flag that it is set remains and forbids another: the client has nobody to ask, and
//! stands still for ever whatever it has queued (librdkafka issue 5301, open in 2.13).
//!
//! In an ordinary outage librdkafka goes on trying, and reports each round. So some silence after
//! such a report is the sign, and the configured brokers are named to it again. Those that it still
//! knows are not added twice.

use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode as Code;

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
