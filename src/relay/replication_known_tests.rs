//! Tests with events that a process has marked as confirmed, and that the next one receives again.

use walrelay_core::relay::feed::slot::replication::{IntakeStop, PacketOutcome};

use super::fixture::{Fixture, failure, pairs};
use crate::base::event::Position;
use crate::delivery::known::{Fingerprint, Mark};
use crate::delivery::prefix::STEP;
use crate::metrics::KnownFrom;
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
    let first = killed_within(&names(2 * STEP));
    let mut second = first.successor();
    let others: Vec<String> = (0..2 * STEP).map(|number| format!("other{number}")).collect();
    let events: Vec<_> = others.iter().map(|name| (name.as_str(), "t", "a")).collect();
    // WHEN other events come THEN that is seen before their commit is taken in
    let refuted = PacketOutcome::Stopped(IntakeStop::ClaimRefuted);
    assert_eq!(second.receive_part(1, &events), refuted);
    assert_eq!(second.forgotten(), 0);
}
