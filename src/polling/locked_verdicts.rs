//! Verdicts of claims of which another session has locked rows.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::batch::Verdicts;
use crate::base::lock::locked;

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
        locked(&self.claims)
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

    pub(crate) fn written(&self, claim: &str) {
        let mut claims = self.claims();
        let Some(count) = claims.get_mut(claim) else { return };
        *count -= 1;
        if *count == 0 {
            claims.remove(claim);
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
