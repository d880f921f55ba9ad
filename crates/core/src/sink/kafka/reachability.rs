//! Why no broker can be reached, and what leads a client back to the cluster.

use std::time::{Duration, Instant};

use super::code::Code;
use super::port::ProducerPort;
use crate::sink::publish::SinkReport;

/// How often an idle sink asks whether an unreachable cluster is back: an idle client does not notice
/// that.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Longer than a round of attempts to connect to brokers that refuse: librdkafka keeps each list of
/// brokers that it is told.
const SILENCE: Duration = Duration::from_secs(3);

/// Whether a client must be told the configured brokers again, because librdkafka has forgotten all.
///
/// A broker whose session with the controller has ended (the machine stood still, the JVM paused)
/// still answers requests for metadata, and its answer names no broker. librdkafka 2.12 then drops
/// all brokers that it knows, reports that all are down, and sets a timer after which it would start
/// again from `bootstrap.servers`. When it has handled the rest of that answer it may cancel the
/// timer without clearing the flag that says that one is set, and then never sets another. The
/// client has no broker to ask and stands still for ever (librdkafka issue 5301, open in 2.13).
///
/// In an ordinary outage librdkafka goes on trying, and reports each round. So some silence after
/// such a report is the sign, and the configured brokers are named to it again. Those that it still
/// knows are not added twice.
#[derive(Debug, Default)]
pub struct LostBrokers {
    /// When all brokers were reported as down last.
    lost_at: Option<Instant>,
}

impl LostBrokers {
    /// The client has reported an error.
    pub fn reported(&mut self, code: Code, now: Instant) {
        if code == Code::AllBrokersDown {
            self.lost_at = Some(now);
        }
    }

    /// A broker has answered.
    pub fn answered(&mut self) {
        self.lost_at = None;
    }

    /// Whether the brokers must be named to the client now.
    pub fn must_be_named(&mut self, now: Instant) -> bool {
        let lost = self.lost_at.take_if(|at| now.duration_since(*at) > SILENCE);
        if lost.is_some() {
            tracing::debug!("librdkafka may have forgotten all brokers: they are named again");
        }
        lost.is_some()
    }
}

/// Whether the cluster answers one or more clients.
#[derive(Debug, Default)]
pub struct Reachability {
    /// While the cluster is unreachable: when that was reported, or the cluster probed, last.
    unreachable_at: Option<Instant>,
    /// Why the last connection failed, of those since the cluster answered last.
    cause: Option<(Code, String)>,
}

impl Reachability {
    /// The client has reported an error. Returns what is to be reported: the loss of a single broker
    /// is not, and "all brokers are down" only follows from the errors before it.
    pub fn failed(&mut self, code: Code, text: &str, now: Instant) -> Option<SinkReport> {
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
    pub fn answered(&mut self) -> Option<SinkReport> {
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
        if producer.renew_metadata(None) { self.answered() } else { None }
    }

    /// Why the last connection has failed, of those since the cluster answered last.
    #[must_use]
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_ref().map(|(_, reason)| reason.as_str())
    }
}

/// Why a connection has failed, if the error is about one: without how long the attempt took, so that
/// the same error has the same text.
fn connection_error(code: Code, text: &str) -> Option<&str> {
    // The answer of a listener that speaks TLS is a bad message.
    let failed = [
        Code::Authentication,
        Code::SSL,
        Code::Resolve,
        Code::BrokerTransportFailure,
        Code::BadMessage,
    ];
    let error = text.rsplit_once(" (after ").map_or(text, |(error, _)| error);
    failed.contains(&code).then_some(error)
}

#[cfg(test)]
#[path = "reachability_tests.rs"]
mod tests;
