//! Whether the cluster answers. An idle client does not notice that its brokers are back, so they are
//! asked.

use std::time::{Duration, Instant};

use super::code::Code;
use super::port::ProducerPort;
use crate::sink::publish::SinkReport;

/// How often an idle sink asks whether an unreachable cluster is back.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const PROBE_WITHIN: Duration = Duration::from_millis(20);

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
    pub(super) fn failed(&mut self, code: Code, text: &str, now: Instant) -> Option<SinkReport> {
        if let Some(cause) = connection_error(code, text) {
            self.cause = Some((code, cause.to_owned()));
        }
        if !matches!(code, Code::AllBrokersDown | Code::Authentication | Code::SSL | Code::Resolve)
        {
            tracing::debug!(error = text, "librdkafka reported an error that needs no action");
            return None;
        }
        self.unreachable_at = Some(now);
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
    pub(super) fn probe(
        &mut self,
        producer: &mut impl ProducerPort,
        now: Instant,
    ) -> Option<SinkReport> {
        if now.duration_since(self.unreachable_at?) < PROBE_INTERVAL {
            return None;
        }
        self.unreachable_at = Some(now);
        if producer.renew_metadata(None, PROBE_WITHIN) { self.answered() } else { None }
    }
}

/// Why a connection has failed, if the error is about one: without how long the attempt took, so that
/// the same error has the same text.
#[must_use]
pub fn connection_error(code: Code, text: &str) -> Option<&str> {
    let failed = [Code::Authentication, Code::SSL, Code::Resolve, Code::BrokerTransportFailure];
    let error = text.rsplit_once(" (after ").map_or(text, |(error, _)| error);
    failed.contains(&code).then_some(error)
}

#[cfg(test)]
#[path = "reachability_tests.rs"]
mod tests;
