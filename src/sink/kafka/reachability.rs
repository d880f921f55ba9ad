//! Whether the cluster answers. An idle client does not notice that its brokers are back, so they are
//! asked.

use std::time::{Duration, Instant};

use super::producer_ffi::Producer;
use crate::sink::publish::SinkReport;

/// How often an idle sink asks whether an unreachable cluster is back.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const PROBE_MS: i32 = 20;

#[derive(Default)]
pub(super) struct Reachability {
    /// While the cluster is unreachable: when that was reported, or the cluster probed, last.
    unreachable_at: Option<Instant>,
}

impl Reachability {
    pub(super) fn lost(&mut self) {
        self.unreachable_at = Some(Instant::now());
    }

    /// The cluster has answered. Returns what is to be reported.
    pub(super) fn answered(&mut self) -> Option<SinkReport> {
        self.unreachable_at.take().map(|_| SinkReport::Reachable)
    }

    /// Asks an unreachable cluster now and then. Returns what is to be reported.
    pub(super) fn probe(&mut self, producer: &mut Producer) -> Option<SinkReport> {
        if self.unreachable_at?.elapsed() < PROBE_INTERVAL {
            return None;
        }
        self.lost();
        producer.metadata(None, PROBE_MS).ok()?;
        self.answered()
    }
}
