use super::*;
use crate::testing::lsn;

#[test]
fn what_is_reported_never_goes_back() {
    let mut progress = Progress::default();
    progress.on_keepalive(lsn(100));
    progress.on_reported(progress.reportable(true));
    progress.on_keepalive(lsn(40));
    assert_eq!(progress.reportable(true), lsn(100));
    assert_eq!(progress.reportable(false), lsn(100));
}

fn signatures() -> impl Iterator<Item = Signature> {
    (0..50).map(Signature::drawn)
}

#[test]
fn the_position_of_a_keepalive_is_signed_where_that_confirms_all_that_is_settled() {
    for signature in signatures() {
        let signed = signature.sign_keepalive(lsn(800), lsn(896));
        assert!(signature.is_on(signed) && signed > lsn(864) && signed < lsn(896));
        // It is signed already, or no such position is behind what is settled.
        assert_eq!(signature.sign_keepalive(lsn(800), lsn(897)), lsn(897));
        assert_eq!(signature.sign_keepalive(lsn(896), lsn(896)), lsn(896));
    }
    assert_eq!(Signature::default().sign_keepalive(lsn(800), lsn(896)), lsn(896));
}

#[test]
fn a_trace_confirms_nothing_and_is_no_end_of_a_record() {
    for (confirmed, commit) in [(800, 900), (803, 900), (807, 900), (800, 801), (800, 803)] {
        for signature in signatures() {
            let found = signature.trace(lsn(confirmed), lsn(commit)).unwrap();
            assert!(found > lsn(confirmed) && found <= lsn(commit) && is_trace(found));
            assert!(signature.is_on(found) || commit < confirmed + 32, "{confirmed} {found}");
        }
    }
    // The commit record follows at once, or was confirmed.
    for (confirmed, commit) in [(800, 800), (800, 792), (807, 808)] {
        let mut traces = signatures().map(|signature| signature.trace(lsn(confirmed), lsn(commit)));
        assert!(traces.all(|trace| trace.is_none()));
    }
}

#[test]
fn what_a_process_reports_of_a_transaction_is_within_its_commit_record() {
    let (commit, end) = (lsn(800), lsn(840));
    let reported: std::collections::BTreeSet<Lsn> =
        signatures().map(|signature| signature.sign(commit, end)).collect();
    let expected = (809..840).filter(|position| (1..=6).contains(&(position % 8))).map(lsn);
    assert_eq!(reported, expected.collect());
    for signature in signatures() {
        assert!(signature.is_on(signature.sign(commit, end)));
        // AND a peer finds a position for its trace also where the next commit record follows at once
        assert!(signature.unlike([lsn(800); 2]).trace(signature.sign(commit, end), end).is_some());
        // WHEN another process reports the same transaction THEN its position is another one
        let other = signature.unlike([signature.sign(commit, end), lsn(801)]);
        assert_ne!(other.sign(commit, end), signature.sign(commit, end));
        assert_eq!(other.unlike([signature.sign(commit, end), lsn(801)]), other);
        assert!(signature.sign(commit, lsn(803)) > commit);
    }
    assert_eq!(Signature::default().sign(commit, end), end);
}
