//! Claims of this process, which must be renewed until all their verdicts are written.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::batch::Verdicts;
use crate::base::lock::locked;

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
    /// How many rows have no verdict yet, and may be published. None until the rows of the claim are
    /// known.
    undecided: Option<usize>,
    /// Rows were not the claim's any more when they were settled.
    has_lost_rows: bool,
}

impl LiveClaims {
    /// Just before the claim is made, so that it is renewed from its first moment.
    pub(crate) fn begin(&self, claim: &str) {
        let live = LiveClaim {
            awaits_worker: true,
            awaits_last: true,
            undecided: None,
            has_lost_rows: false,
        };
        self.claims().insert(claim.to_owned(), live);
    }

    /// The claim has so many rows.
    pub(crate) fn fetched(&self, claim: &str, rows: usize) {
        self.change(claim, |live| live.undecided = Some(rows));
    }

    /// These rows of the claim will not be published by this process any more. Before the verdicts are
    /// written, so that the table never has fewer rows of the claim than are undecided here.
    pub(crate) fn decide(&self, verdicts: &Verdicts) {
        let Verdicts { claim, published, failed, noted: _, given_back, last } = verdicts;
        let decided = published.len() + failed.len() + given_back.len();
        self.change(claim, |live| {
            let left = live.undecided.map(|rows| rows.saturating_sub(decided));
            live.undecided = if *last { Some(0) } else { left };
        });
    }

    /// Rows of the claim are gone, which is noticed once: all of them are withdrawn.
    pub(crate) fn lose(&self, claim: &str) {
        self.change(claim, |live| live.undecided = Some(0));
    }

    /// Rows of the claim were not its own any more when they were settled.
    pub(crate) fn lose_some(&self, claim: &str) {
        self.change(claim, |live| live.has_lost_rows = true);
    }

    /// Whether another claim may publish rows of this one again.
    pub(crate) fn has_lost_rows(&self, claim: &str) -> bool {
        self.claims().get(claim).is_some_and(|live| live.has_lost_rows)
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
        let undecided = claims.iter().filter(|(_, it)| it.undecided != Some(0));
        undecided.map(|(claim, _)| claim.clone()).collect()
    }

    /// How many rows of each claim are undecided, of claims whose rows are known.
    pub(crate) fn undecided_rows(&self) -> BTreeMap<String, usize> {
        let claims = self.claims();
        let rows = claims.iter().filter_map(|(claim, it)| Some((claim.clone(), it.undecided?)));
        rows.filter(|(_, rows)| *rows > 0).collect()
    }

    fn claims(&self) -> MutexGuard<'_, BTreeMap<String, LiveClaim>> {
        locked(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::batch::FailedRow;
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
        claims.decide(&Verdicts { last: true, ..Verdicts::of("c".to_owned()) });
        assert_eq!((claims.undecided(), claims.all()), (Vec::new(), vec!["c".to_owned()]));
        claims.worker_has_written("c", true);
        assert_eq!(claims.all(), Vec::<String>::new());
        // GIVEN a claim that has lost rows THEN that is known until its last verdict is written
        claims.begin("e");
        claims.worker_has_written("e", false);
        assert!(!claims.has_lost_rows("e"));
        claims.lose_some("e");
        assert!(claims.has_lost_rows("e"));
        claims.last_is_written("e");
        assert!(!claims.has_lost_rows("e"));
        // GIVEN a claim without rows
        claims.begin("d");
        claims.end("d");
        assert_eq!(claims.all(), Vec::<String>::new());
    }

    #[test]
    fn each_verdict_but_a_noted_one_decides_a_row() {
        let claims = LiveClaims::default();
        claims.begin("a");
        // GIVEN a claim that is being made THEN no number of rows is expected of it
        assert_eq!(claims.undecided_rows(), BTreeMap::new());
        claims.fetched("a", 5);
        let ids = |count: usize| vec![String::new(); count];
        let row = FailedRow {
            id: String::new(),
            attempts: 1,
            reason: String::new(),
            wait: Duration::ZERO,
        };
        let noted = Verdicts { noted: vec![row.clone()], ..Verdicts::of("a".to_owned()) };
        claims.decide(&noted);
        assert_eq!(claims.undecided_rows(), BTreeMap::from([("a".to_owned(), 5)]));
        claims.decide(&Verdicts {
            published: ids(2),
            failed: vec![row],
            given_back: ids(1),
            ..noted
        });
        assert_eq!(claims.undecided_rows(), BTreeMap::from([("a".to_owned(), 1)]));
        claims.decide(&Verdicts { last: true, ..Verdicts::of("a".to_owned()) });
        assert_eq!(claims.undecided_rows(), BTreeMap::new());
    }
}
