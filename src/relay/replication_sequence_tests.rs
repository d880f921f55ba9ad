//! A stream in which changes and transactions do not come as Postgres sends them.

use walrelay_core::relay::feed::slot::replication::PacketOutcome;

use super::fixture::Fixture;
use crate::pgoutput::encoder::{Encoder, insert};

fn begin(lsn: u64) -> Vec<u8> {
    Encoder::tag(b'B').u64(lsn).u64(0).u32(1).0
}

fn commit(lsn: u64) -> Vec<u8> {
    Encoder::tag(b'C').u8(0).u64(lsn).u64(lsn + 1).u64(0).0
}

fn message(transactional: bool) -> Vec<u8> {
    let content = br#"{"id": "e", "topic": "t", "aggregateid": "k", "payload": 1}"#;
    let head = Encoder::tag(b'M').u8(u8::from(transactional)).u64(0).cstr("outbox");
    head.u32(content.len() as u32).bytes(content).0
}

/// A table without columns.
fn relation(oid: u32) -> Vec<u8> {
    Encoder::tag(b'R').u32(oid).cstr("public").cstr("other").u8(b'd').u16(0).0
}

#[track_caller]
fn is_refused(fixture: &mut Fixture, bytes: &[u8], because: &str) {
    let fault = fixture.give(bytes).unwrap_err();
    assert_eq!(fault.code, "source.protocol");
    assert!(fault.what.contains(because), "{fault}");
}

#[test]
fn a_change_outside_a_transaction_is_not_admitted() {
    let outside = "a change outside a transaction";
    let mut fixture = Fixture::new(&[]);
    fixture.give(&relation(7)).unwrap();
    // GIVEN no transaction yet, and one that has ended
    for lsn in [100, 200] {
        is_refused(&mut fixture, &insert(7, &[]), outside);
        is_refused(&mut fixture, &Encoder::tag(b'D').u32(7).u8(b'K').u16(0).0, outside);
        is_refused(&mut fixture, &message(true), outside);
        is_refused(&mut fixture, &commit(lsn), "a commit without a begin");
        is_refused(&mut fixture, &commit(lsn - 100), "a commit without a begin");
        // What belongs to no transaction is no event.
        assert_eq!(fixture.give(&message(false)).unwrap(), PacketOutcome::Done);
        // THEN within one they pass
        fixture.give(&begin(lsn)).unwrap();
        is_refused(&mut fixture, &begin(lsn), "a begin within a transaction");
        assert_eq!(fixture.give(&insert(7, &[])).unwrap(), PacketOutcome::Done);
        assert_eq!(fixture.give(&message(true)).unwrap(), PacketOutcome::Done);
        fixture.give(&commit(lsn)).unwrap();
    }
    fixture.settle().unwrap();
    assert_eq!((fixture.published().len(), fixture.forgotten()), (2, 2));
}

#[test]
fn another_transaction_without_events_in_the_place_of_a_known_one_stops_the_relay() {
    let mut fixture = Fixture::new(&[]);
    fixture.begin_session(50);
    fixture.commit(&[("e1", "t", "k")]).unwrap();
    fixture.rebuild();
    // WHEN Postgres has gone back, and what commits there now has no event
    fixture.begin_session(50);
    fixture.give(&Encoder::tag(b'B').u64(100).u64(0).u32(9).0).unwrap();
    let fault = fixture.give(&commit(100)).unwrap_err();
    // THEN nothing is read again as if only the publication were another one
    assert_eq!(fault.code, "slot.went-back");
    assert!(fault.what.contains("transaction 9 at 0/64"), "{fault}");
    assert_eq!(fixture.forgotten(), 0);
}

#[test]
fn other_transactions_at_known_positions_stop_the_relay_and_none_of_them_is_reported() {
    let mut fixture = Fixture::new(&[]);
    fixture.begin_session(50);
    let first = fixture.replication().flights.next();
    fixture.commit(&[("e1", "t", "k")]).unwrap();
    fixture.commit(&[("e2", "t", "k")]).unwrap();
    fixture.confirmed(first);
    assert_eq!(fixture.forgotten(), 1);
    fixture.replication().transactions.interrupt();
    // GIVEN a session in which Postgres has gone back, and an event in flight of before
    fixture.begin_session(50);
    fixture.confirmed(first + 1);
    fixture.receive(1, &[("e1", "t", "k")]).unwrap();
    assert_eq!(fixture.replication().reportable().to_wire(), 101, "what was sent again");
    // WHEN another transaction comes, or the known one is passed
    let begin = Encoder::tag(b'B').u64(150).u64(0).u32(9);
    fixture.give(&begin.0).unwrap();
    let fault = fixture.give(&message(true)).unwrap_err();
    assert_eq!((fault.code, fault.exit), ("slot.went-back", crate::base::error::Exit::Slot));
    assert!(fault.what.contains("transaction 9 at 0/96"), "{fault}");
    assert!(fault.what.contains("transaction 2 at 0/C8"), "{fault}");
    assert_eq!(fixture.replication().reportable().to_wire(), 101);
}

#[test]
fn when_the_first_relay_comes_back_it_publishes_again_behind_what_another_has_repeated() {
    let mut fixture = Fixture::new(&[]);
    fixture.begin_session(50);
    // GIVEN events that this relay's broker has confirmed, and Postgres does not know it
    let events = [("e1", "t", "k"), ("e2", "t", "k")];
    fixture.commit(&events).unwrap();
    fixture.receive_part(2, &[("e3", "t", "k")]);
    fixture.replication().transactions.interrupt();
    // WHEN another relay has left its trace, and may have repeated the first of them
    fixture.peers_confirmed(51);
    fixture.begin_session(51);
    fixture.broker.set_silent(true);
    fixture.receive(1, &events).unwrap();
    fixture.receive(2, &[("e3", "t", "k"), ("e4", "t", "k")]).unwrap();
    fixture.settle().unwrap();
    // THEN nothing counts as confirmed before it was published again, and its key ends with its latest
    assert_eq!(fixture.replication().reportable().to_wire(), 51);
    fixture.broker.set_silent(false);
    fixture.settle().unwrap();
    assert_eq!(fixture.forgotten(), 2);
    assert_eq!(fixture.published().join(" "), "e1 e2 e3 e1 e2 e3 e4");
}
