//! The workers of [`crate::polling`], as the loop reaches them: over channels, so that it never waits for
//! a database.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use walrelay_core::relay::feed::claims::{ClaimFeed, ClaimParts};
use walrelay_core::relay::ports::ClaimWorkers;

use super::faults;
use crate::base::error::Fault;
use crate::delivery::settings::DeliverySettings;
use crate::health::Phase;
use crate::outbox::Plan;
use crate::polling::batch::{Batch, Verdicts};
use crate::polling::worker::{PassedBatch, PollingShared};

pub(crate) struct Workers {
    shared: Arc<PollingShared>,
    batches: Receiver<PassedBatch>,
    /// The senders of verdicts to the workers that wait, by claim.
    answers: HashMap<String, oneshot::Sender<Verdicts>>,
    /// To maintenance.
    late: mpsc::Sender<Verdicts>,
}

impl Workers {
    pub(crate) fn new(
        shared: Arc<PollingShared>,
        batches: Receiver<PassedBatch>,
        late: mpsc::Sender<Verdicts>,
    ) -> Workers {
        Workers { shared, batches, answers: HashMap::new(), late }
    }

    /// The feed of the loop that these workers fill.
    pub(crate) fn feed(self, delivery: DeliverySettings) -> Result<ClaimFeed, Fault> {
        let PollingShared { source, polling, statements, lease, .. } = &*self.shared;
        let relation = &statements.event;
        let table = relation.qualified_name();
        let outbox = source.outboxes.first();
        let outbox = outbox.ok_or_else(|| faults::protocol("no table", &table))?;
        Ok(ClaimFeed::new(ClaimParts {
            lease: Arc::clone(lease),
            plan: Plan::compile(outbox, 0, relation, false)?.without_lsn(),
            table,
            delivery,
            claimed_at_once: polling.workers * polling.batch_max,
            workers: Box::new(self),
        }))
    }
}

impl ClaimWorkers for Workers {
    fn receive(&mut self, timeout: Duration) -> Option<Batch> {
        let PassedBatch { batch, answer } = self.batches.recv_timeout(timeout).ok()?;
        self.answers.insert(batch.claim.clone(), answer);
        Some(batch)
    }

    fn answer(&mut self, verdicts: Verdicts) -> Option<Verdicts> {
        match self.answers.remove(&verdicts.claim) {
            // A worker that has ended writes nothing.
            Some(answer) => answer.send(verdicts).err(),
            None => Some(verdicts),
        }
    }

    fn write(&mut self, verdicts: Verdicts) -> Option<Verdicts> {
        self.late.try_send(verdicts).err().map(mpsc::error::TrySendError::into_inner)
    }

    fn writes(&self) -> bool {
        !self.late.is_closed()
    }

    fn set_wanted(&mut self, wanted: bool) {
        self.shared.open.store(wanted, Ordering::Relaxed);
    }

    fn phase(&self) -> Phase {
        let PollingShared { connected, login_refused, .. } = &*self.shared;
        // Connections from before the refusal go on; a worker that has lost its own waits.
        match (login_refused.load(Ordering::Relaxed), connected.load(Ordering::Relaxed)) {
            (true, _) => Phase::LoginRefused,
            (false, true) => Phase::Polling,
            (false, false) => Phase::Connecting,
        }
    }
}
