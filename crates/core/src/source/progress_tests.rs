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
        // Also where all is settled up to that position.
        assert_eq!(signature.sign_keepalive(signed, lsn(896)), signed);
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

#[test]
fn what_is_settled_is_reported_as_far_as_this_session_has_sent_it() {
    let mut progress = Progress::default();
    progress.on_keepalive(lsn(100));
    progress.on_settled(lsn(100));
    assert_eq!(progress.seen(), lsn(100));
    assert!(!progress.is_settled_unsent());
    // WHEN a Postgres that has crashed sends it again THEN it waits for that
    progress.on_connected(lsn(40));
    assert!(progress.is_settled_unsent());
    assert_eq!(progress.reportable(false), lsn(40));
    progress.on_committed(lsn(90));
    assert_eq!(progress.reportable(false), lsn(90));
    progress.on_traced(lsn(97));
    assert_eq!((progress.reportable(false), progress.traced()), (lsn(97), lsn(97)));
    // WHEN a peer has had the slot THEN nothing of it counts
    progress.taken_over(lsn(120));
    let known = [progress.seen(), progress.reported(), progress.settled(), progress.traced()];
    assert_eq!(known, [lsn(120), lsn(120), Lsn::ZERO, Lsn::ZERO]);
}

#[test]
fn positions_of_a_process_are_its_last_report_its_last_trace_and_those_with_its_signature() {
    let (signature, found) = (Signature::drawn(0), lsn(96 + 2));
    let own = OwnPositions { signature, found, reported: lsn(208), traced: lsn(192 + 2) };
    for position in [208, 192 + 2, 160 + 1].map(lsn) {
        assert!(own.include(position) && !own.exclude(position), "{position}");
    }
    assert!(own.exclude(lsn(160 + 3)), "the trace of another relay");
    // An earlier process has left the slot there, or a record ends there.
    for position in [96 + 2, 88 + 2, 168].map(lsn) {
        assert!(!own.include(position) && !own.exclude(position), "{position}");
    }
}
