//! Claims of this process, which must be renewed until all their verdicts are written.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The claims by name. The worker that has made a claim writes its first verdicts, and may be slower than
/// whoever writes the last one: both are waited for.
#[derive(Debug, Default)]
pub(crate) struct LiveClaims(Mutex<BTreeMap<String, LiveClaim>>);

#[derive(Debug)]
struct LiveClaim {
    /// The worker has not written its verdicts.
    awaits_worker: bool,
    /// The last verdict is not written.
    awaits_last: bool,
    /// Some rows have no verdict yet, and may be published.
    is_undecided: bool,
}

impl LiveClaims {
    /// Just before the claim is made, so that it is renewed from its first moment.
    pub(crate) fn begin(&self, claim: &str) {
        let live = LiveClaim { awaits_worker: true, awaits_last: true, is_undecided: true };
        self.claims().insert(claim.to_owned(), live);
    }

    /// Every row of the claim has its verdict: none of them will be published by this process.
    pub(crate) fn mark_decided(&self, claim: &str) {
        self.change(claim, |live| live.is_undecided = false);
    }

    /// No row of the claim is in progress.
    pub(crate) fn end(&self, claim: &str) {
        self.claims().remove(claim);
    }

    /// The worker has written its verdicts.
    pub(crate) fn worker_has_written(&self, claim: &str, is_last: bool) {
        self.change(claim, |live| {
            live.awaits_worker = false;
            live.awaits_last &= !is_last;
        });
    }

    /// The last verdict is written.
    pub(crate) fn last_is_written(&self, claim: &str) {
        self.change(claim, |live| live.awaits_last = false);
    }

    fn change(&self, claim: &str, change: impl FnOnce(&mut LiveClaim)) {
        let mut claims = self.claims();
        let Some(live) = claims.get_mut(claim) else { return };
        change(live);
        if !live.awaits_worker && !live.awaits_last {
            claims.remove(claim);
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.claims().keys().cloned().collect()
    }

    /// The claims of which this process may still publish rows.
    pub(crate) fn undecided(&self) -> Vec<String> {
        let claims = self.claims();
        claims.iter().filter(|(_, it)| it.is_undecided).map(|(claim, _)| claim.clone()).collect()
    }

    fn claims(&self) -> MutexGuard<'_, BTreeMap<String, LiveClaim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_live_until_its_worker_and_its_last_verdict_are_done() {
        let claims = LiveClaims::default();
        for claim in ["a", "b", "c"] {
            claims.begin(claim);
        }
        // GIVEN a last verdict that is written while the worker still writes THEN both are waited for
        claims.last_is_written("a");
        claims.worker_has_written("b", false);
        assert_eq!(claims.all(), ["a", "b", "c"]);
        claims.worker_has_written("a", false);
        claims.last_is_written("b");
        assert_eq!(claims.all(), ["c"]);
        // GIVEN verdicts of all rows that are yet to be written
        assert_eq!(claims.undecided(), ["c"]);
        claims.mark_decided("c");
        assert_eq!((claims.undecided(), claims.all()), (Vec::new(), vec!["c".to_owned()]));
        claims.worker_has_written("c", true);
        assert_eq!(claims.all(), Vec::<String>::new());
        // GIVEN a claim without rows
        claims.begin("d");
        claims.end("d");
        assert_eq!(claims.all(), Vec::<String>::new());
    }
}
