//! Leads a client back to the cluster when librdkafka has forgotten every broker.
//!
//! A broker whose session with the controller has ended still answers requests for metadata, and
//! its answer names no broker. librdkafka then drops all that it knows, and may stand still for
//! ever (librdkafka issue 5301). In an ordinary outage it goes on trying, and reports each round.
//! So some silence after such a report is the sign, and the configured brokers are named to it
//! again. Those that it still knows are not added twice.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::client_ffi::add_brokers;
use crate::panics::lock;

/// Longer than a round of attempts to connect to brokers that refuse: librdkafka keeps each list
/// of brokers that it is told.
const SILENCE: Duration = Duration::from_secs(3);

pub(super) struct LostBrokers {
    brokers: String,
    /// When all brokers were reported as down last.
    lost_at: Mutex<Option<Instant>>,
}

impl LostBrokers {
    pub(super) fn new(brokers: &str) -> LostBrokers {
        LostBrokers { brokers: brokers.to_owned(), lost_at: Mutex::new(None) }
    }

    /// The client has reported an error.
    pub(super) fn reported(&self, error: &KafkaError) {
        if error.rdkafka_error_code() == Some(Code::AllBrokersDown) {
            *lock(&self.lost_at) = Some(Instant::now());
        }
    }

    /// A broker has answered.
    pub(super) fn answered(&self) {
        *lock(&self.lost_at) = None;
    }

    /// Names the brokers again if all are lost. The caller does this now and then.
    pub(super) fn name_again_if_lost<C: ClientContext>(&self, client: &Client<C>) {
        if lock(&self.lost_at).take_if(|at| at.elapsed() > SILENCE).is_some() {
            tracing::debug!("librdkafka may have forgotten all brokers: they are named again");
            add_brokers(client, &self.brokers);
        }
    }
}
