use super::*;

fn lsn(value: u64) -> Lsn {
    Lsn::from_wire(value)
}

fn begin(transactions: &mut Transactions, commit: u64) {
    transactions.begin(CommitId { commit_lsn: lsn(commit), ..CommitId::default() });
}

/// Runs one transaction of `events` events and says which ordinals were new.
fn receive(
    transactions: &mut Transactions,
    commit: u64,
    events: u64,
    cut_after: Option<u64>,
) -> Vec<u64> {
    begin(transactions, commit);
    let mut new = Vec::new();
    for ordinal in 0..events {
        if cut_after == Some(ordinal) {
            transactions.interrupt();
            return new;
        }
        if !transactions.is_repeat() {
            new.push(ordinal);
        }
        transactions.advance();
    }
    transactions.commit(lsn(commit + 10), 0);
    new
}

#[test]
fn a_resent_transaction_is_known_and_a_later_one_is_new() {
    let mut transactions = Transactions::default();
    assert_eq!(receive(&mut transactions, 100, 2, None), [0, 1]);
    assert_eq!(receive(&mut transactions, 100, 2, None), [] as [u64; 0]);
    assert_eq!(receive(&mut transactions, 200, 1, None), [0]);
}

#[test]
fn a_cut_transaction_goes_on_after_what_was_admitted_however_often_it_is_cut() {
    let mut transactions = Transactions::default();
    assert_eq!(receive(&mut transactions, 100, 9, Some(4)), [0, 1, 2, 3]);
    assert_eq!(receive(&mut transactions, 100, 9, Some(2)), [] as [u64; 0], "cut before the new");
    assert_eq!(receive(&mut transactions, 100, 9, Some(6)), [4, 5]);
    assert_eq!(receive(&mut transactions, 100, 9, None), [6, 7, 8]);
    assert_eq!(receive(&mut transactions, 100, 9, None), [] as [u64; 0]);
}

#[test]
fn a_rewind_admits_again_from_there() {
    let mut transactions = Transactions::default();
    receive(&mut transactions, 100, 3, None);
    receive(&mut transactions, 200, 3, None);
    transactions.rewind(Some(Position { commit_lsn: lsn(100), ordinal: 2 }));
    assert_eq!(receive(&mut transactions, 100, 3, None), [2]);
    assert_eq!(receive(&mut transactions, 200, 3, None), [0, 1, 2]);
}

#[test]
fn what_the_slot_had_confirmed_before_the_first_session_is_known() {
    let mut transactions = Transactions::default();
    transactions.start_at(lsn(200), lsn(200), 0, Lsn::ZERO);
    assert_eq!(receive(&mut transactions, 100, 2, None), [] as [u64; 0]);
    assert_eq!(receive(&mut transactions, 200, 2, None), [0, 1], "its commit is not before 200");
}

#[test]
fn another_timeline_knows_nothing() {
    let mut transactions = Transactions::default();
    receive(&mut transactions, 100, 3, None);
    transactions.forget();
    assert_eq!(receive(&mut transactions, 100, 3, None), [0, 1, 2]);
}

#[test]
fn a_transaction_settles_at_its_end_lsn_and_only_whole() {
    let mut transactions = Transactions::default();
    begin(&mut transactions, 100);
    assert!(!transactions.is_clear(), "half received");
    assert_eq!(transactions.settle(2), Lsn::ZERO, "its commit has not been seen");
    transactions.commit(lsn(110), 2);
    assert_eq!(transactions.settle(1), Lsn::ZERO);
    assert_eq!(transactions.settle(2), lsn(110));
    assert!(transactions.is_clear());
}

#[test]
fn a_later_transaction_waits_for_the_earlier() {
    let mut transactions = Transactions::default();
    begin(&mut transactions, 100);
    transactions.commit(lsn(110), 1);
    begin(&mut transactions, 200);
    transactions.commit(lsn(210), 2);
    assert_eq!(transactions.settle(0), Lsn::ZERO);
    assert_eq!(transactions.settle(1), lsn(110));
    assert_eq!(transactions.settle(2), lsn(210));
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
fn an_interrupted_transaction_goes_on_where_it_was_cut() {
    let mut transactions = Transactions::default();
    begin(&mut transactions, 100);
    (0..3).for_each(|_| transactions.advance());
    transactions.interrupt();
    assert_eq!(transactions.settle(3), Lsn::ZERO, "three of its events are confirmed, it is not");
    assert!(!transactions.is_clear());
    begin(&mut transactions, 100);
    (0..3).for_each(|_| transactions.advance());
    assert_eq!(transactions.next(), Some(Position { commit_lsn: lsn(100), ordinal: 3 }));
    assert!(!transactions.is_repeat());
    (0..2).for_each(|_| transactions.advance());
    transactions.commit(lsn(110), 5);
    assert_eq!(transactions.settle(5), lsn(110));
    assert!(transactions.is_clear());
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
