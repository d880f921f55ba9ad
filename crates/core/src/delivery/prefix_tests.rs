use super::*;

const LSN: Lsn = Lsn::from_wire(8);

/// The next events of the transaction, which differ from those of another `kind`.
fn receive(open: &mut Prefixes, kind: u64, events: u64) -> Result<(), PrefixRefuted> {
    let from = open.next;
    (from.ordinal..from.ordinal + events).try_for_each(|ordinal| {
        open.admitted(Position { ordinal, ..from }, kind << 32 | ordinal | 1, ordinal + 1)
    })
}

fn begin(open: &mut Prefixes, commit_lsn: Lsn) {
    open.next = Position { commit_lsn, ordinal: 0 };
}

fn prefix_of(kind: u64, steps: u64) -> ConfirmedPrefix {
    let mut open = Prefixes::default();
    begin(&mut open, LSN);
    receive(&mut open, kind, steps * STEP).unwrap();
    open.settled(steps * STEP).unwrap()
}

fn claimed(steps: u64) -> Prefixes {
    let mut open = Prefixes::default();
    open.claim(prefix_of(0, steps));
    begin(&mut open, LSN);
    open
}

#[test]
fn a_prefix_is_confirmed_once_all_of_its_events_are() {
    let mut open = Prefixes::default();
    begin(&mut open, LSN);
    receive(&mut open, 0, 3 * STEP + 5).unwrap();
    assert_eq!(open.settled(STEP - 1), None);
    let prefix = open.settled(2 * STEP + 7).unwrap();
    assert_eq!((prefix.commit_lsn, prefix.events), (LSN, 2 * STEP));
    assert_eq!(open.settled(2 * STEP + 7), None);
    let inside = |commit_lsn, ordinal| prefix.contains(Position { commit_lsn, ordinal });
    assert!(inside(LSN, 0) && inside(LSN, 2 * STEP - 1) && !inside(LSN, 2 * STEP));
    assert!(!inside(Lsn::from_wire(4), 0));
}

#[test]
fn events_that_are_admitted_again_take_nothing_from_a_prefix() {
    let mut open = Prefixes::default();
    begin(&mut open, LSN);
    receive(&mut open, 0, 3 * STEP).unwrap();
    begin(&mut open, LSN);
    receive(&mut open, 0, 2 * STEP).unwrap();
    assert_eq!(open.unconfirmed.len(), 3);
    assert_eq!(open.settled(3 * STEP), Some(prefix_of(0, 3)));
}

#[test]
fn a_claim_is_verified_when_as_many_events_were_received() {
    let mut open = claimed(2);
    receive(&mut open, 0, 2 * STEP - 1).unwrap();
    // Until then the process claims nothing itself.
    assert_eq!(open.settled(u64::MAX), None);
    let mut open = claimed(2);
    receive(&mut open, 0, 3 * STEP).unwrap();
    assert_eq!(open.settled(u64::MAX), Some(prefix_of(0, 3)));
    assert_eq!(open.end_transaction(LSN), Ok(()));
}

#[test]
fn other_events_in_their_places_or_fewer_refute_it() {
    assert_eq!(receive(&mut claimed(1), 7, STEP), Err(PrefixRefuted));
    let mut open = claimed(2);
    receive(&mut open, 0, STEP + 1).unwrap();
    assert_eq!(open.end_transaction(LSN), Err(PrefixRefuted));
    // One of them was not looked at.
    let mut open = claimed(1);
    receive(&mut open, 0, 1).unwrap();
    let at = |ordinal| Position { commit_lsn: LSN, ordinal };
    let mut rest = 2..STEP;
    let received = rest.try_for_each(|it| open.admitted(at(it), it | 1, it + 1));
    assert_eq!(received, Err(PrefixRefuted));
}

#[test]
fn another_transaction_neither_has_the_claim_nor_loses_it() {
    let mut open = claimed(1);
    begin(&mut open, Lsn::from_wire(4));
    receive(&mut open, 3, STEP).unwrap();
    assert_eq!(open.end_transaction(Lsn::from_wire(4)), Ok(()));
    begin(&mut open, LSN);
    assert_eq!(receive(&mut open, 3, STEP), Err(PrefixRefuted));
}

#[test]
fn what_two_brokers_have_confirmed_is_no_prefix() {
    let mut open = claimed(1);
    receive(&mut open, 0, STEP + 5).unwrap();
    open.forget_prefix();
    receive(&mut open, 0, STEP - 5).unwrap();
    assert_eq!(open.settled(u64::MAX), None);
    // WHEN another transaction comes, or all of this one again THEN that is of one broker
    begin(&mut open, LSN);
    receive(&mut open, 0, STEP).unwrap();
    assert_eq!(open.settled(u64::MAX), Some(prefix_of(0, 1)));
}

#[test]
fn events_that_are_missing_or_not_identified_make_no_prefix() {
    let mut gap = Prefixes::default();
    begin(&mut gap, LSN);
    receive(&mut gap, 0, 1).unwrap();
    gap.next.ordinal += 1;
    let skipped = Position { ordinal: 3, ..gap.next };
    gap.admitted(skipped, 7, 4).unwrap();
    receive(&mut gap, 0, STEP).unwrap();
    assert_eq!(gap.settled(u64::MAX), None);
    let mut unidentified = Prefixes::default();
    begin(&mut unidentified, LSN);
    receive(&mut unidentified, 0, 1).unwrap();
    unidentified.admitted(unidentified.next, 0, 2).unwrap();
    receive(&mut unidentified, 0, STEP).unwrap();
    assert_eq!(unidentified.settled(u64::MAX), None);
}

#[test]
fn on_another_timeline_a_claim_is_forgotten() {
    let mut open = claimed(2);
    open.forget();
    assert_eq!(open.end_transaction(LSN), Ok(()));
}
