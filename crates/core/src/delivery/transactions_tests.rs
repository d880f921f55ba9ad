use super::*;
use crate::testing::lsn;

fn begin(transactions: &mut Transactions, commit: u64) {
    transactions.begin(CommitId { commit_lsn: lsn(commit), ..CommitId::default() });
}

#[test]
fn what_the_slot_had_confirmed_before_the_first_session_is_known() {
    let mut transactions = Transactions::default();
    transactions.start_at(lsn(200), lsn(200), 0, Lsn::ZERO);
    begin(&mut transactions, 100);
    assert!(transactions.is_repeat());
    transactions.commit(lsn(110), 0);
    begin(&mut transactions, 200);
    assert!(!transactions.is_repeat(), "its commit is not before 200");
}

#[test]
fn empty_transactions_fold_and_wait_for_what_is_before_them() {
    let mut transactions = Transactions::default();
    begin(&mut transactions, 100);
    transactions.commit(lsn(110), 1);
    for n in 0..1000 {
        begin(&mut transactions, 200 + n);
        transactions.commit(lsn(201 + n), 1);
    }
    assert_eq!(transactions.committed.len(), 1);
    assert_eq!(transactions.settle(0), Lsn::ZERO);
    assert_eq!(transactions.settle(1), lsn(1200));
}

#[test]
fn no_transaction_commits_within_the_commit_record_of_another() {
    for settles_first in [true, false] {
        let mut transactions = Transactions::default();
        begin(&mut transactions, 100);
        transactions.check().unwrap();
        transactions.commit(lsn(110), 1);
        // GIVEN a transaction without events, up to whose end everything may be reported
        begin(&mut transactions, 200);
        transactions.commit(lsn(210), 1);
        if settles_first {
            assert_eq!(transactions.settle(1), lsn(210));
        }
        // WHEN Postgres is put back, and sends another one that begins before that
        transactions.begin_session(lsn(110));
        let other = CommitId { commit_lsn: lsn(205), xid: 1, commit_unix_us: 1 };
        transactions.begin(other);
        assert_eq!(transactions.check().unwrap_err().sent, Some(other), "{settles_first}");
        // but not one that begins there.
        begin(&mut transactions, 210);
        transactions.check().unwrap();
    }
}

#[test]
fn nothing_is_clear_within_a_transaction_that_counts_as_known() {
    let mut transactions = Transactions::default();
    transactions.start_at(lsn(1000), lsn(1000), 5, Lsn::ZERO);
    transactions.begin_session(lsn(100));
    let other = CommitId { commit_lsn: lsn(200), xid: 1, commit_unix_us: 9 };
    transactions.begin(other);
    assert!(transactions.is_known() && !transactions.is_clear());
    // It was committed too late to be the one that is known.
    assert_eq!(transactions.check().unwrap_err().sent, Some(other));
}

#[test]
fn a_transaction_is_unfinished_until_its_commit_comes_and_one_that_is_known_is_not() {
    let mut transactions = Transactions::default();
    begin(&mut transactions, 100);
    assert!(transactions.is_unfinished());
    transactions.commit(lsn(110), 0);
    transactions.settle(0);
    // WHEN Postgres has crashed, and sends the last one again
    begin(&mut transactions, 100);
    assert!(transactions.is_known());
    assert!(!transactions.commit(lsn(110), 0), "its commit is not new");
    // THEN the positions of keepalives may be reported behind it
    assert!(!transactions.is_unfinished() && transactions.is_clear());
    // WHEN the connection breaks within a new one THEN they may not
    begin(&mut transactions, 200);
    assert!(!transactions.is_known());
    transactions.interrupt();
    assert!(transactions.is_unfinished() && !transactions.is_clear());
}

#[test]
fn what_will_be_received_again_is_not_unfinished_before_it_begins() {
    for from in [None, Some(Position { commit_lsn: lsn(200), ordinal: 0 })] {
        let mut transactions = Transactions::default();
        begin(&mut transactions, 200);
        transactions.interrupt();
        assert_eq!(transactions.receiving(), None);
        // WHEN what is in flight is withdrawn THEN the next session may begin with anything
        transactions.rewind(from);
        assert!(!transactions.is_unfinished() && transactions.is_clear(), "{from:?}");
    }
}

#[test]
fn what_was_settled_before_a_peer_had_the_slot_is_not_reported_until_it_is_settled_again() {
    let mut transactions = Transactions::default();
    begin(&mut transactions, 100);
    transactions.commit(lsn(110), 1);
    assert_eq!(transactions.settle(1), lsn(110));
    // WHEN a peer has begun before it, and may have published older events of its keys behind it
    transactions.taken_over(lsn(50));
    begin(&mut transactions, 100);
    transactions.commit(lsn(110), 2);
    assert_eq!(transactions.settle(1), Lsn::ZERO);
    assert_eq!(transactions.settle(2), lsn(110));
}
