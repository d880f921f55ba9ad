use super::*;
use crate::base::lsn::Lsn;

fn at(ordinal: u64) -> Position {
    Position { commit_lsn: Lsn::from_wire(100), ordinal }
}

#[test]
fn a_key_is_parked_from_its_letter_until_its_release() {
    let mut parked = ParkedKeys::default();
    parked.park(b"k", at(7));
    assert_eq!(parked.len(), 1);
    // What is older than the poison event has nothing to do with it.
    assert!(!parked.holds(b"k", at(6)));
    assert!(parked.holds(b"k", at(7)) && !parked.holds(b"other", at(8)));
    parked.seen(KeyHash::of(b"k"), at(7));
    assert_eq!(parked.len(), 1);
    parked.released(KeyHash::of(b"k"));
    assert!(parked.is_empty() && !parked.holds(b"k", at(9)));
}

#[test]
fn a_release_that_is_older_than_a_letter_of_ours_ends_nothing() {
    let mut parked = ParkedKeys::default();
    parked.park(b"k", at(7));
    parked.park(b"k", at(8));
    // GIVEN two letters on their way WHEN a release stands between them in the log
    parked.seen(KeyHash::of(b"k"), at(7));
    parked.released(KeyHash::of(b"k"));
    assert!(parked.holds(b"k", at(9)));
    // WHEN the second is read THEN only a later release ends it
    parked.seen(KeyHash::of(b"k"), at(8));
    assert!(parked.holds(b"k", at(9)));
    parked.released(KeyHash::of(b"k"));
    assert!(!parked.holds(b"k", at(9)));
}

#[test]
fn whoever_parked_it_first_says_from_where_on() {
    let mut parked = ParkedKeys::default();
    // GIVEN a key of an earlier process THEN what comes before its letter passes
    parked.seen(KeyHash::of(b"k"), at(5));
    assert!(!parked.holds(b"k", at(4)) && parked.holds(b"k", at(5)));
    // WHEN another letter parks it, later or earlier
    parked.park(b"k", at(9));
    assert!(parked.holds(b"k", at(5)));
    parked.park(b"k", at(3));
    assert!(parked.holds(b"k", at(3)) && !parked.holds(b"k", at(2)));
    // AND that one still does when it is read behind the other
    parked.seen(KeyHash::of(b"k"), at(3));
    assert!(parked.holds(b"k", at(3)) && !parked.holds(b"k", at(2)));
}

#[test]
fn a_key_stays_parked_by_the_letter_of_a_peer_when_ours_is_dropped() {
    let mut parked = ParkedKeys::default();
    // GIVEN the letter of a peer, and ours for the same event or an earlier one
    for own in [7, 3] {
        parked.seen(KeyHash::of(b"k"), at(7));
        parked.park(b"k", at(own));
        // WHEN ours is dropped THEN that of the peer parks the key until it is released
        parked.forget(at(own));
        assert!(!parked.holds(b"k", at(6)) && parked.holds(b"k", at(7)));
        parked.released(KeyHash::of(b"k"));
        assert!(parked.is_empty());
    }
}

#[test]
fn a_letter_without_a_position_is_read_back() {
    let mut parked = ParkedKeys::default();
    parked.park(b"k", at(7));
    parked.seen(KeyHash::of(b"k"), Position::default());
    assert_eq!(parked.len(), 1);
    parked.released(KeyHash::of(b"k"));
    assert!(parked.is_empty());
}

#[test]
fn a_key_is_not_parked_by_a_letter_that_was_dropped_and_never_read() {
    let mut parked = ParkedKeys::default();
    parked.park(b"k", at(7));
    parked.forget(at(8));
    assert!(parked.holds(b"k", at(7)), "it is the letter of another event");
    parked.forget(at(7));
    assert!(parked.is_empty());
    // WHEN it was read from the topic THEN it was written
    parked.park(b"k", at(7));
    parked.seen(KeyHash::of(b"k"), at(7));
    parked.forget(at(7));
    assert!(parked.holds(b"k", at(7)));
    // GIVEN a key that an earlier letter has parked THEN that one still does
    parked.park(b"k", at(9));
    parked.forget(at(9));
    assert!(parked.holds(b"k", at(7)));
}
