use super::*;

fn lsn(value: u64) -> Lsn {
    Lsn::from_wire(value)
}

/// Runs one transaction of `events` events and says which ordinals were new.
fn receive(admitted: &mut Admitted, commit: u64, events: u64, cut_after: Option<u64>) -> Vec<u64> {
    admitted.begin(CommitId { commit_lsn: lsn(commit), ..CommitId::default() });
    let mut new = Vec::new();
    for ordinal in 0..events {
        if cut_after == Some(ordinal) {
            admitted.interrupt();
            return new;
        }
        if !admitted.is_repeat() {
            new.push(ordinal);
        }
        admitted.advance();
    }
    admitted.commit();
    new
}

#[test]
fn a_resent_transaction_is_known_and_a_later_one_is_new() {
    let mut admitted = Admitted::default();
    assert_eq!(receive(&mut admitted, 100, 2, None), [0, 1]);
    assert_eq!(receive(&mut admitted, 100, 2, None), [] as [u64; 0]);
    assert_eq!(receive(&mut admitted, 200, 1, None), [0]);
}

#[test]
fn a_cut_transaction_goes_on_after_what_was_admitted_however_often_it_is_cut() {
    let mut admitted = Admitted::default();
    assert_eq!(receive(&mut admitted, 100, 9, Some(4)), [0, 1, 2, 3]);
    assert_eq!(receive(&mut admitted, 100, 9, Some(2)), [] as [u64; 0], "cut before the new");
    assert_eq!(receive(&mut admitted, 100, 9, Some(6)), [4, 5]);
    assert_eq!(receive(&mut admitted, 100, 9, None), [6, 7, 8]);
    assert_eq!(receive(&mut admitted, 100, 9, None), [] as [u64; 0]);
}

#[test]
fn a_rewind_admits_again_from_there() {
    let mut admitted = Admitted::default();
    receive(&mut admitted, 100, 3, None);
    receive(&mut admitted, 200, 3, None);
    admitted.rewind(Position { commit_lsn: lsn(100), ordinal: 2 });
    assert_eq!(receive(&mut admitted, 100, 3, None), [2]);
    assert_eq!(receive(&mut admitted, 200, 3, None), [0, 1, 2]);
}

#[test]
fn what_the_slot_had_confirmed_before_the_first_session_is_known() {
    let mut admitted = Admitted::default();
    admitted.starts_at(lsn(200), 0, Lsn::ZERO);
    assert_eq!(receive(&mut admitted, 100, 2, None), [] as [u64; 0]);
    assert_eq!(receive(&mut admitted, 200, 2, None), [0, 1], "its commit is not before 200");
}

#[test]
fn another_timeline_knows_nothing() {
    let mut admitted = Admitted::default();
    receive(&mut admitted, 100, 3, None);
    admitted.forget();
    assert_eq!(receive(&mut admitted, 100, 3, None), [0, 1, 2]);
}
