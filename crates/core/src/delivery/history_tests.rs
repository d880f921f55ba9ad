//! A relay before a Postgres that crashes, forgets what was reported, and is put back on a copy.

use super::*;
use crate::delivery::transactions::Transactions;
use crate::testing::lsn;

fn commit(lsn: u64, xid: u32, commit_unix_us: i64) -> CommitId {
    CommitId { commit_lsn: Lsn::from_wire(lsn), xid, commit_unix_us }
}

/// A transaction with an event comes.
fn receive(history: &mut CommitHistory, sent: CommitId) -> Result<(), OtherHistory> {
    if history.recognise(sent) { Ok(()) } else { history.add_new(sent, false) }
}

/// One that has received three transactions since it began at 100.
fn history() -> CommitHistory {
    let mut history = CommitHistory::default();
    history.start_at(lsn(100), 1_000, Lsn::ZERO);
    history.begin_session(lsn(100));
    for (at, xid) in [(110, 1), (120, 2), (130, 3)] {
        assert_eq!(receive(&mut history, commit(at, xid, 1_000 + i64::from(xid))), Ok(()));
    }
    history
}

#[test]
fn the_same_transactions_may_come_again_from_wherever_the_slot_stands() {
    let mut history = history();
    for from in [90, 100, 115, 130, 131] {
        history.begin_session(lsn(from));
        // Before 100 they are of another process, and known by their time alone.
        if from < 100 {
            assert_eq!(receive(&mut history, commit(95, 9, 1_000)), Ok(()));
        }
        for (at, xid) in [(110, 1), (120, 2), (130, 3)] {
            if at >= from {
                assert_eq!(receive(&mut history, commit(at, xid, 1_000 + i64::from(xid))), Ok(()));
            }
        }
        assert_eq!(history.check_sent(lsn(140)), Ok(()));
    }
}

#[test]
fn what_differs_is_missing_or_was_not_known_is_another_history() {
    let found = |sent: &[CommitId]| {
        let mut history = history();
        history.begin_session(lsn(110));
        sent.iter().find_map(|it| receive(&mut history, *it).err())
    };
    let first = commit(110, 1, 1_001);
    let second = Some(commit(120, 2, 1_002));
    for other in [
        commit(120, 7, 1_002),
        commit(120, 2, 1_009),
        commit(115, 7, 1_002),
        commit(125, 7, 1_002),
        commit(140, 7, 1_002),
    ] {
        let expected = OtherHistory { same_until: lsn(110), known: second, sent: Some(other) };
        assert_eq!(found(&[first, other]), Some(expected));
    }
    let mut history = history();
    history.begin_session(lsn(110));
    assert_eq!(receive(&mut history, first), Ok(()));
    assert_eq!(history.check_sent(lsn(120)), Ok(()), "not sent yet");
    let expected = OtherHistory { same_until: lsn(110), known: second, sent: None };
    assert_eq!(history.check_sent(lsn(121)), Err(expected));
}

#[test]
fn a_known_transaction_may_come_again_without_events() {
    // GIVEN one whose rows were of a table that does not exist any more
    let mut transactions = Transactions::default();
    transactions.start_at(lsn(100), lsn(100), 1_000, Lsn::ZERO);
    transactions.begin_session(lsn(100));
    let sent = [commit(110, 1, 1_001), commit(120, 2, 1_002)];
    for it in sent {
        transactions.begin(it);
        assert_eq!(transactions.check(), Ok(()));
        transactions.commit(Lsn::ZERO, 0);
    }
    // WHEN it comes again, with nothing that is an event now
    transactions.begin_session(lsn(110));
    transactions.begin(sent[0]);
    transactions.commit(Lsn::ZERO, 0);
    // THEN it has come, and what follows it is compared as before
    assert_eq!(transactions.check_sent(lsn(120)), Ok(()));
    transactions.begin(commit(120, 7, 1_002));
    assert!(transactions.check_sent(lsn(121)).is_err());
    assert!(transactions.check().is_err());
}

#[test]
fn what_was_committed_later_than_all_before_the_floor_is_another_history() {
    let mut history = history();
    history.begin_session(lsn(80));
    assert_eq!(receive(&mut history, commit(90, 9, 1_000)), Ok(()));
    assert!(receive(&mut history, commit(95, 9, 1_001)).is_err());
}

#[test]
fn what_left_the_memory_is_known_by_its_time_and_the_floor_itself_by_its_identity() {
    let mut history = CommitHistory::default();
    history.start_at(lsn(100), 1_000, Lsn::ZERO);
    history.begin_session(lsn(100));
    // The first may be committed at the floor, and long after that was confirmed.
    let all = (0..=RECENT_MAX as u64).map(|at| commit(100 + 10 * at, 1, 5_000 + at as i64));
    for sent in all.clone() {
        assert_eq!(receive(&mut history, sent), Ok(()));
    }
    history.begin_session(lsn(100));
    for sent in all {
        assert_eq!(receive(&mut history, sent), Ok(()));
    }
    // WHEN a session begins behind the last one THEN another transaction in the place of that is another history
    let last = lsn(100 + 10 * RECENT_MAX as u64);
    history.begin_session(Lsn::from_wire(last.to_wire() + 1));
    assert!(
        receive(&mut history, CommitId { commit_lsn: last, xid: 9, commit_unix_us: 9_000 })
            .is_err()
    );
}

#[test]
fn a_floor_behind_all_that_was_received_leaves_what_has_begun_behind_it() {
    // GIVEN a transaction that was not received to its end, and a floor that was reported before it
    // or is where it commits
    for floor in [125, 130] {
        let mut history = history();
        history.start_at(lsn(floor), 1_000, lsn(122));
        // WHEN another comes in its place THEN it is another history
        history.begin_session(lsn(floor));
        let other = commit(130, 3, 9_000);
        assert!(receive(&mut history, other).is_err());
        // AND it may come again itself, and one before the floor is known by its time
        history.begin_session(lsn(105));
        assert_eq!(receive(&mut history, commit(110, 9, 1_002)), Ok(()));
        assert!(receive(&mut history, commit(110, 9, 1_003)).is_err());
        history.begin_session(lsn(floor));
        assert_eq!(receive(&mut history, commit(130, 3, 1_003)), Ok(()));
    }
}

#[test]
fn a_floor_up_to_which_all_was_received_leaves_what_is_known() {
    let mut history = history();
    history.start_at(lsn(140), 9_000, lsn(140));
    history.begin_session(lsn(110));
    assert!(receive(&mut history, commit(110, 9, 1_001)).is_err());
}

#[test]
fn a_session_that_received_nothing_leaves_the_time_of_the_one_before() {
    // GIVEN a relay that knows a position, and two sessions there of which the first ends at once
    let mut history = CommitHistory::default();
    history.start_at(lsn(100), 1_000, Lsn::ZERO);
    history.start_at(lsn(100), 5_000, lsn(50));
    history.begin_session(lsn(40));
    // WHEN a transaction before the position was committed after that was known
    // THEN it is of another history
    assert!(receive(&mut history, commit(90, 9, 2_000)).is_err());
}

#[test]
fn a_time_to_come_says_nothing_of_a_transaction() {
    // GIVEN a relay that was started after the server's clock was set back
    let mut history = CommitHistory::default();
    history.start_at(lsn(100), 1_000, Lsn::ZERO);
    history.looked_at(1_000);
    // WHEN Postgres crashes, and sends again what was committed before THEN it is the same
    history.looked_at(1_500);
    history.begin_session(lsn(40));
    assert_eq!(receive(&mut history, commit(80, 8, 9_000)), Ok(()));
    // AND what was committed since then is not
    assert!(receive(&mut history, commit(90, 9, 1_400)).is_err());
}

#[test]
fn a_peer_that_was_ahead_leaves_the_time_and_one_that_was_behind_everything() {
    let mut ahead = history();
    ahead.start_at(lsn(200), 2_000, lsn(140));
    ahead.begin_session(lsn(110));
    assert_eq!(receive(&mut ahead, commit(150, 8, 2_000)), Ok(()));
    assert!(receive(&mut ahead, commit(160, 9, 2_001)).is_err());
    let mut behind = history();
    behind.start_at(lsn(125), 2_000, lsn(140));
    behind.begin_session(lsn(125));
    assert!(receive(&mut behind, commit(130, 9, 1_003)).is_err());
}
