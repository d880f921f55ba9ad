use super::*;

fn lsn(value: u64) -> Lsn {
    Lsn::from_wire(value)
}

#[test]
fn a_transaction_settles_at_its_end_lsn_and_only_whole() {
    let mut ledger = Ledger::default();
    ledger.begin(lsn(100), 0, 0);
    assert!(!ledger.is_clear(), "half received");
    assert_eq!(ledger.settle(2), Lsn::ZERO, "its commit has not been seen");
    ledger.commit(lsn(110), 2);
    assert_eq!(ledger.settle(1), Lsn::ZERO);
    assert_eq!(ledger.settle(2), lsn(110));
    assert!(ledger.is_clear());
}

#[test]
fn a_later_transaction_waits_for_the_earlier() {
    let mut ledger = Ledger::default();
    ledger.begin(lsn(100), 0, 0);
    ledger.commit(lsn(110), 1);
    ledger.begin(lsn(200), 1, 0);
    ledger.commit(lsn(210), 2);
    assert_eq!(ledger.settle(0), Lsn::ZERO);
    assert_eq!(ledger.settle(1), lsn(110));
    assert_eq!(ledger.settle(2), lsn(210));
}

#[test]
fn empty_transactions_fold_and_wait_for_what_is_before_them() {
    let mut ledger = Ledger::default();
    ledger.begin(lsn(100), 0, 0);
    ledger.commit(lsn(110), 1);
    for n in 0..1000 {
        ledger.begin(lsn(200 + n), 1, 0);
        ledger.commit(lsn(201 + n), 1);
    }
    assert_eq!(ledger.committed.len(), 1);
    assert_eq!(ledger.settle(0), Lsn::ZERO);
    assert_eq!(ledger.settle(1), lsn(1200));
}

#[test]
fn an_interrupted_transaction_goes_on_where_it_was_cut() {
    let mut ledger = Ledger::default();
    ledger.begin(lsn(100), 0, 0);
    assert_eq!(ledger.settle(3), Lsn::ZERO, "three of its events are confirmed, it is not");
    assert!(!ledger.is_clear());
    ledger.begin(lsn(100), 3, 3);
    assert_eq!(ledger.position_of(3), Some(Position { commit_lsn: lsn(100), ordinal: 3 }));
    ledger.commit(lsn(110), 5);
    assert_eq!(ledger.position_of(1), Some(Position { commit_lsn: lsn(100), ordinal: 1 }));
    assert_eq!(ledger.settle(5), lsn(110));
    assert_eq!(ledger.position_of(5), None);
}
