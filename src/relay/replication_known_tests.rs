//! Tests with events that a process has marked as confirmed, and that the next one receives again.

use walrelay_core::relay::feed::slot::replication::{IntakeStop, PacketOutcome};

use super::fixture::{Fixture, failure, held, pairs};
use crate::base::event::Position;
use crate::delivery::known::{Fingerprint, Mark};
use crate::delivery::prefix::STEP;
use crate::metrics::{IntakeHold, KnownFrom};
use crate::sink::Disposition;

fn passed_over(fixture: &mut Fixture) -> u64 {
    fixture.relay.publish_status();
    fixture.metrics.known_events.at(KnownFrom::StateFile).get()
}

#[test]
fn what_was_confirmed_is_not_published_again_and_what_was_not_is() {
    // GIVEN a process that dies with two of four events unconfirmed
    let mut first = Fixture::new(&[]);
    let sent: [&[_]; 2] =
        [&[("1a", "t", "a"), ("1b", "t", "b")], &[("2a", "t", "a"), ("2b", "t", "b")]];
    first.commit(sent[0]).unwrap();
    first.settle().unwrap();
    first.broker.set_silent(true);
    first.commit(sent[1]).unwrap();
    first.settle().unwrap();
    assert_eq!(first.published(), ["1a", "1b"]);
    // WHEN all of it is sent to the next one, and to the one after that
    let mut second = first.successor();
    second.broker.set_silent(false);
    for transaction in sent {
        second.commit(transaction).unwrap();
    }
    second.settle().unwrap();
    assert_eq!((passed_over(&mut second), second.forgotten()), (2, 2));
    let mut third = second.successor();
    for transaction in sent {
        third.commit(transaction).unwrap();
    }
    // THEN each was published once
    assert_eq!((passed_over(&mut third), third.forgotten()), (4, 2));
    third.commit(&[("3a", "t", "a")]).unwrap();
    third.settle().unwrap();
    assert_eq!(third.published(), ["1a", "1b", "2a", "2b", "3a"]);
}

#[test]
fn another_event_in_the_place_of_a_marked_one_is_published() {
    let mut first = Fixture::new(&[]);
    first.commit(&[("e1", "t", "a"), ("e1", "t", "b")]).unwrap();
    first.settle().unwrap();
    // WHEN the same positions mean other events, with the same ids
    let mut second = first.successor();
    second.commit(&[("e1", "t", "b"), ("e1", "u", "b")]).unwrap();
    second.settle().unwrap();
    assert_eq!(passed_over(&mut second), 0);
    assert_eq!(second.published().len(), 4);
}

#[test]
fn behind_an_unmarked_event_its_key_is_published_again_in_order() {
    // GIVEN marks of all but the first
    let mut first = Fixture::new(&[]);
    first.commit(&[("1a", "t", "a")]).unwrap();
    first.settle().unwrap();
    first.down().admitter.state_file.marks.forget();
    first.commit(&[("2b", "t", "b"), ("2a", "t", "a")]).unwrap();
    first.settle().unwrap();
    let mut second = first.successor();
    second.commit(&[("1a", "t", "a")]).unwrap();
    second.commit(&[("2b", "t", "b"), ("2a", "t", "a")]).unwrap();
    second.settle().unwrap();
    assert_eq!(second.published(), ["1a", "2b", "2a", "1a", "2a"]);
    // GIVEN one that dies when it has repeated the first of them
    let mut first = Fixture::new(&[]);
    first.commit(&[("1a", "t", "a")]).unwrap();
    first.settle().unwrap();
    first.down().admitter.state_file.marks.forget();
    first.commit(&[("2a", "t", "a")]).unwrap();
    first.settle().unwrap();
    let mut second = first.successor();
    second.commit(&[("1a", "t", "a")]).unwrap();
    second.settle().unwrap();
    let mut third = second.successor();
    third.commit(&[("1a", "t", "a")]).unwrap();
    third.commit(&[("2a", "t", "a")]).unwrap();
    third.settle().unwrap();
    assert_eq!(third.published(), ["1a", "2a", "1a", "2a"]);
}

#[test]
fn a_dead_letter_that_was_confirmed_is_not_written_again() {
    let mut first = Fixture::new(&[]);
    let sent = [("poison", "t", "a"), ("unroutable", "", "b"), ("good", "t", "c")];
    let refused = failure(Disposition::Terminal, "poison");
    first.broker.refuse("poison", refused.clone());
    first.broker.refuse_letters(failure(Disposition::Transient, "later"));
    first.commit(&sent).unwrap();
    first.settle().unwrap();
    // WHEN the process dies before its letters are confirmed THEN the next one writes them
    let mut second = first.successor();
    second.broker.accept();
    second.broker.refuse("poison", refused);
    second.commit(&sent).unwrap();
    second.wait_out().unwrap();
    assert_eq!(second.fates().len(), 2);
    // WHEN it dies after that THEN nobody writes them again
    let mut third = second.successor();
    third.commit(&sent).unwrap();
    third.wait_out().unwrap();
    assert_eq!((passed_over(&mut third), third.fates().len()), (3, 2));
    assert_eq!((third.published(), third.forgotten()), (vec!["good".to_owned()], 1));
    assert_eq!(third.fates()[1], pairs(&[("poison", "poison")])[0]);
}

#[test]
fn what_was_passed_over_stays_so_when_it_is_received_once_more() {
    let mut first = Fixture::new(&[]);
    let sent = [("e1", "t", "a"), ("e2", "t", "b"), ("e3", "t", "a")];
    first.commit(&sent[..2]).unwrap();
    first.settle().unwrap();
    let mut second = first.successor();
    // GIVEN no room for the second transaction, a new connection, and then a sink that breaks
    second.commit(&sent[..2]).unwrap();
    second.broker.set_full(true);
    assert_eq!(second.receive(2, &sent[2..]).unwrap(), held(IntakeHold::SinkFull));
    second.receive(1, &sent[..2]).unwrap();
    second.broker.set_full(false);
    second.broker.set_silent(true);
    second.receive(2, &sent[2..]).unwrap();
    second.rebuild();
    second.broker.set_silent(false);
    second.receive(1, &sent[..2]).unwrap();
    second.receive(2, &sent[2..]).unwrap();
    second.settle().unwrap();
    assert_eq!((passed_over(&mut second), second.forgotten()), (2, 2));
    assert_eq!(second.published(), ["e1", "e2", "e3"]);
}

#[test]
fn marks_do_not_outlive_a_timeline_or_what_another_relay_has_confirmed() {
    for other_timeline in [true, false] {
        let mut first = Fixture::new(&[]);
        first.commit(&[("e1", "t", "a")]).unwrap();
        first.settle().unwrap();
        first.broker.set_silent(true);
        first.commit(&[("e2", "t", "b")]).unwrap();
        match other_timeline {
            true => first.forget(),
            false => first.peers_confirmed(150),
        }
        // WHEN an event is confirmed only then THEN it is not marked either
        first.broker.set_silent(false);
        first.settle().unwrap();
        let mut second = first.successor();
        second.commit(&[("e1", "t", "a")]).unwrap();
        second.commit(&[("e2", "t", "b")]).unwrap();
        second.settle().unwrap();
        assert_eq!(passed_over(&mut second), 0);
        assert_eq!(second.published(), ["e1", "e2", "e1", "e2"]);
        // Nor does what a process has found outlive them.
        let mut third = second.successor();
        third.forget();
        third.commit(&[("e1", "t", "a")]).unwrap();
        assert_eq!(passed_over(&mut third), 0);
    }
}

#[test]
fn marks_are_not_believed_when_another_relay_was_seen_to_hold_the_slot() {
    for peer_held in [false, true] {
        let mut fixture = Fixture::new(&[]);
        fixture.commit(&[("e1", "t", "a")]).unwrap();
        fixture.settle().unwrap();
        // WHEN another process begins, and the slot shows no trace of that relay
        fixture.reopen_state_file();
        if peer_held {
            fixture.down().admitter.state_file.marks.peer_held();
        }
        fixture.take_over();
        assert_eq!(fixture.down().admitter.earlier.is_active(), !peer_held);
    }
}

/// A process that was killed within a transaction, of which no mark is left.
fn killed_within(names: &[String]) -> Fixture {
    let mut first = Fixture::new(&[]);
    let events: Vec<_> = names.iter().map(|name| (name.as_str(), "t", "a")).collect();
    assert_eq!(first.receive_part(1, &events), PacketOutcome::Done);
    let marks = &mut first.down().admitter.state_file.marks;
    for event in 1..=1 << 18 {
        let fingerprint = Fingerprint { event, key: 0 };
        marks.push(Mark { position: Position::default(), fingerprint, is_dead_letter: false });
    }
    marks.write();
    first
}

fn names(count: u64) -> Vec<String> {
    (0..count).map(|number| format!("e{number}")).collect()
}

#[test]
fn of_a_large_transaction_the_beginning_is_known_when_its_marks_are_gone() {
    let names = names(3 * STEP);
    let half = STEP as usize / 2;
    let first = killed_within(&names[..2 * STEP as usize + half]);
    // WHEN the next process receives all of it THEN only what follows the known part is repeated
    let mut second = first.successor();
    let events: Vec<_> = names.iter().map(|name| (name.as_str(), "t", "a")).collect();
    assert_eq!(second.receive_part(1, &events), PacketOutcome::Done);
    assert_eq!(second.receive_commit(1), PacketOutcome::Done);
    second.settle().unwrap();
    assert_eq!((passed_over(&mut second), second.forgotten()), (2 * STEP, 1));
    assert_eq!(second.published().len(), names.len() + half);
}

#[test]
fn a_new_sink_leaves_a_claim_when_nothing_is_in_flight() {
    let names = names(3 * STEP);
    let first = killed_within(&names[..2 * STEP as usize]);
    let mut second = first.successor();
    let events: Vec<_> = names.iter().map(|name| (name.as_str(), "t", "a")).collect();
    // GIVEN a sink that is built anew within what is passed over
    assert_eq!(second.receive_part(1, &events[..STEP as usize / 2]), PacketOutcome::Done);
    second.rebuild();
    second.begin_session(100);
    // WHEN all of the transaction comes THEN none of what is known is published again
    assert_eq!(second.receive_part(1, &events), PacketOutcome::Done);
    assert_eq!(second.receive_commit(1), PacketOutcome::Done);
    second.settle().unwrap();
    assert_eq!((passed_over(&mut second), second.forgotten()), (2 * STEP, 1));
    assert_eq!(second.published().len(), names.len());
}

#[test]
fn another_transaction_in_its_place_is_never_reported_as_published() {
    for count in [2 * STEP, STEP] {
        let first = killed_within(&names(2 * STEP));
        let mut second = first.successor();
        let others: Vec<String> = (0..count).map(|number| format!("other{number}")).collect();
        let events: Vec<_> = others.iter().map(|name| (name.as_str(), "t", "a")).collect();
        // WHEN other events come, or fewer THEN that is seen before its commit is taken in
        let taken = second.receive_part(1, &events);
        let refuted = PacketOutcome::Stopped(IntakeStop::ClaimRefuted);
        assert!(taken == refuted || second.receive_commit(1) == refuted, "{taken:?}");
        assert_eq!(second.forgotten(), 0);
        // AND when it is read again, all of it is published
        second.forget();
        assert_eq!(second.receive_part(1, &events), PacketOutcome::Done);
        assert_eq!(second.receive_commit(1), PacketOutcome::Done);
        second.settle().unwrap();
        let published = second.published();
        assert!(others.iter().all(|name| published.contains(name)));
        assert_eq!(second.forgotten(), 1);
    }
}
