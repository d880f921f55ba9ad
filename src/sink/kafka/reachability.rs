//! Whether the cluster answers. An idle client does not notice that its brokers are back, so they are
//! asked.

use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode as Code;

use super::connection_errors::connection_error;
use super::producer_ffi::Producer;
use crate::sink::publish::SinkReport;

/// How often an idle sink asks whether an unreachable cluster is back.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const PROBE_MS: i32 = 20;

#[derive(Default)]
pub(super) struct Reachability {
    /// While the cluster is unreachable: when that was reported, or the cluster probed, last.
    unreachable_at: Option<Instant>,
    /// Why the last connection failed, of those since the cluster answered last.
    cause: Option<(Code, String)>,
}

impl Reachability {
    /// The client has reported an error. Returns what is to be reported: the loss of a single broker
    /// is not, and "all brokers are down" only follows from the errors before it.
    pub(super) fn failed(&mut self, code: Code, text: &str) -> Option<SinkReport> {
        if let Some(cause) = connection_error(code, text) {
            self.cause = Some((code, cause.to_owned()));
        }
        if !matches!(code, Code::AllBrokersDown | Code::Authentication | Code::SSL | Code::Resolve)
        {
            tracing::debug!(error = text, "librdkafka reported an error that needs no action");
            return None;
        }
        self.unreachable_at = Some(Instant::now());
        Some(match &self.cause {
            Some((Code::Authentication, reason)) => SinkReport::LoginRefused(reason.clone()),
            Some((_, reason)) => SinkReport::Unreachable(reason.clone()),
            None => SinkReport::Unreachable(text.to_owned()),
        })
    }

    /// The cluster has answered. Returns what is to be reported.
    pub(super) fn answered(&mut self) -> Option<SinkReport> {
        self.cause = None;
        self.unreachable_at.take().map(|_| SinkReport::Reachable)
    }

    /// Asks an unreachable cluster now and then. Returns what is to be reported.
    pub(super) fn probe(&mut self, producer: &mut Producer) -> Option<SinkReport> {
        if self.unreachable_at?.elapsed() < PROBE_INTERVAL {
            return None;
        }
        self.unreachable_at = Some(Instant::now());
        producer.metadata(None, PROBE_MS).ok()?;
        self.answered()
    }
}

#[cfg(test)]
#[path = "reachability_tests.rs"]
mod tests;
