//! Verdicts of claims of which another session has locked rows. They wait in the queue of the lock, over a
//! connection of their own, so that nobody else has the rows first and nothing else waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::batch::Verdicts;
use super::session::{LockWait, Settled};
use super::worker::{PollingShared, Reconnect, broke, warn_of_lost_rows};
use crate::base::error::Fault;

/// Most verdicts that wait. Beyond that their writers wait as well.
const WAITING_MAX: usize = 1024;

/// The claims with verdicts that wait for a lock.
pub(crate) struct LockedVerdicts {
    /// How many each claim has.
    claims: Mutex<BTreeMap<String, usize>>,
    sender: Sender<Verdicts>,
}

impl LockedVerdicts {
    pub(crate) fn new() -> (LockedVerdicts, Receiver<Verdicts>) {
        let (sender, receiver) = channel(WAITING_MAX);
        (LockedVerdicts { claims: Mutex::default(), sender }, receiver)
    }

    fn claims(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether verdicts of the claim wait: later ones must wait behind them.
    pub(crate) fn contain(&self, claim: &str) -> bool {
        self.claims().contains_key(claim)
    }

    /// Returns the verdicts if too many wait, or nobody writes them any more.
    pub(crate) fn put_aside(&self, verdicts: Verdicts) -> Option<Verdicts> {
        let mut claims = self.claims();
        let claim = verdicts.claim.clone();
        match self.sender.try_send(verdicts) {
            Ok(()) => {
                *claims.entry(claim).or_default() += 1;
                None
            }
            Err(TrySendError::Full(verdicts) | TrySendError::Closed(verdicts)) => Some(verdicts),
        }
    }

    fn written(&self, claim: &str) {
        let mut claims = self.claims();
        let Some(count) = claims.get_mut(claim) else { return };
        *count -= 1;
        if *count == 0 {
            claims.remove(claim);
        }
    }
}

/// Writes what waits, each claim in its order, until a stop is requested and nothing waits.
pub(crate) async fn write(
    shared: Arc<PollingShared>,
    mut receiver: Receiver<Verdicts>,
) -> Result<(), Fault> {
    let mut reconnect = Reconnect::new(&shared);
    let mut stop = shared.stop.clone();
    let mut waiting = VecDeque::new();
    let mut session = None;
    loop {
        while let Ok(verdicts) = receiver.try_recv() {
            waiting.push_back(verdicts);
        }
        let Some(verdicts) = waiting.front() else {
            // The connection is open only while something waits.
            session = None;
            tokio::select! {
                verdicts = receiver.recv() => match verdicts {
                    Some(verdicts) => waiting.push_back(verdicts),
                    None => return Ok(()),
                },
                // Whoever has verdicts after this writes them himself.
                _ = stop.wait_for(|stop| *stop) => receiver.close(),
            }
            continue;
        };
        let open = match session.take() {
            Some(open) => open,
            None => reconnect.session().await?,
        };
        match open.settle(verdicts, LockWait::Long).await {
            Ok(Settled::Written { lost }) => {
                warn_of_lost_rows(lost);
                reconnect.succeeded();
                shared.locked.written(&verdicts.claim);
                if verdicts.last {
                    shared.live.last_is_written(&verdicts.claim);
                }
                shared.settled.notify_one();
                waiting.pop_front();
                session = Some(open);
            }
            Ok(Settled::RowsLocked) => {
                let claim = verdicts.claim.clone();
                let (same, others): (Vec<_>, Vec<_>) =
                    waiting.drain(..).partition(|it: &Verdicts| it.claim == claim);
                waiting.extend(others.into_iter().chain(same));
                session = Some(open);
            }
            Err(error) => broke(&shared, &error)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_contained_until_all_its_verdicts_are_written() {
        let (locked, mut receiver) = LockedVerdicts::new();
        let verdicts = |claim: &str| Verdicts::of(claim.to_owned());
        assert_eq!(locked.put_aside(verdicts("a")), None);
        assert_eq!(locked.put_aside(verdicts("a")), None);
        locked.written("a");
        assert!(locked.contain("a") && !locked.contain("b"));
        locked.written("a");
        assert!(!locked.contain("a"));
        // WHEN nobody writes any more, or too many wait THEN the verdicts come back, and do not count
        for _ in 2..WAITING_MAX {
            assert_eq!(locked.put_aside(verdicts("b")), None);
        }
        assert_eq!(locked.put_aside(verdicts("c")), Some(verdicts("c")));
        receiver.close();
        while receiver.try_recv().is_ok() {}
        assert_eq!(locked.put_aside(verdicts("c")), Some(verdicts("c")));
        assert!(!locked.contain("c"));
    }
}
