//! Which tables of the stream are looked up, and what becomes of their rows.

use super::fixture::Fixture;
use super::*;
use crate::pgoutput::encoder::{Encoder, Form, insert};
use crate::source::catalog::Catalog;
use crate::source::testing;

const NEEDED: [&str; 4] = ["id", "aggregatetype", "aggregateid", "payload"];

/// A core with an outbox table, in transaction 100, that has read a catalog at some time.
fn fixture(catalog: Catalog) -> Fixture {
    let mut fixture = Fixture::new(&[]);
    fixture.read_tables(vec![testing::outbox()]);
    fixture.replication().connected(false, catalog, Lsn::ZERO);
    fixture.give(&Encoder::tag(b'B').u64(100).u64(0).u32(100).0).unwrap();
    fixture
}

fn described(oid: u32, name: &str, columns: &[&str]) -> Vec<u8> {
    let table = Encoder::tag(b'R').u32(oid).cstr("public").cstr(name).u8(b'd');
    let table = table.u16(columns.len() as u16);
    columns.iter().fold(table, |table, name| table.u8(0).cstr(name).u32(25).u32(u32::MAX)).0
}

fn row(oid: u32) -> Vec<u8> {
    insert(oid, &["e1", "t", "k", "{}"].map(|text| Form::Text(text.into())))
}

#[test]
fn a_table_is_looked_up_only_when_it_may_be_a_partition_that_is_newer_than_the_catalog() {
    let before = |tables: &[u32]| Catalog::read_before(100, tables.to_vec());
    let after = |tables: &[u32]| Catalog::read_before(101, tables.to_vec());
    for (catalog, columns, taken) in [
        // Another table, by its columns, whatever its age.
        (before(&[]), &NEEDED[..3], PacketOutcome::Done),
        // It may have been attached since.
        (before(&[]), &NEEDED, PacketOutcome::Stopped(IntakeStop::CatalogNeeded)),
        (before(&[7]), &NEEDED, PacketOutcome::Stopped(IntakeStop::CatalogNeeded)),
        // The catalog has the last word on what was written before it was read.
        (after(&[]), &NEEDED, PacketOutcome::Done),
        (after(&[7]), &NEEDED, PacketOutcome::Done),
    ] {
        let mut fixture = fixture(catalog);
        assert_eq!(fixture.give(&described(7, "other", columns)).unwrap(), taken);
    }
}

#[test]
fn a_fresh_catalog_decides_for_the_table_that_was_looked_up_and_no_other() {
    let mut fixture = fixture(Catalog::read_before(50, Vec::new()));
    let part = described(7, "part", &NEEDED);
    assert_eq!(fixture.give(&part).unwrap(), PacketOutcome::Stopped(IntakeStop::CatalogNeeded));
    // WHEN the catalog knows it as a partition THEN its rows are events
    let mut catalog = Catalog::read_before(60, vec![7, 8]);
    catalog.outboxes.push((7, "public".to_owned(), "part".to_owned(), 0));
    fixture.replication().refresh(catalog);
    assert_eq!(fixture.give(&part).unwrap(), PacketOutcome::Done);
    assert_eq!(fixture.give(&row(7)).unwrap(), PacketOutcome::Done);
    fixture.settle().unwrap();
    assert_eq!(fixture.published(), ["e1"]);
    // WHEN another one comes THEN it is looked up in its turn, and is none
    let other = described(8, "other", &NEEDED);
    assert_eq!(fixture.give(&other).unwrap(), PacketOutcome::Stopped(IntakeStop::CatalogNeeded));
    fixture.replication().refresh(Catalog::read_before(60, vec![7, 8]));
    assert_eq!(fixture.give(&other).unwrap(), PacketOutcome::Done);
    assert_eq!(fixture.give(&row(8)).unwrap(), PacketOutcome::Done);
    fixture.settle().unwrap();
    assert_eq!(fixture.published(), ["e1"]);
}

#[test]
fn a_table_that_has_become_an_outbox_takes_no_place_of_an_event_that_is_known() {
    for was_published in [true, false] {
        // GIVEN a transaction with a row of a table that is no outbox, and two events
        let mut fixture = fixture(Catalog::read_before(101, Vec::new()));
        let part = described(7, "part", &NEEDED);
        if was_published {
            assert_eq!(fixture.give(&part).unwrap(), PacketOutcome::Done);
            assert_eq!(fixture.give(&row(7)).unwrap(), PacketOutcome::Done);
        }
        assert_eq!(fixture.give(&described(9, "outbox", &NEEDED)).unwrap(), PacketOutcome::Done);
        let first = fixture.replication().flights.next();
        for _ in 0..2 {
            assert_eq!(fixture.give(&row(9)).unwrap(), PacketOutcome::Done);
        }
        // WHEN only the second is confirmed, the sink is lost, and that table is a partition now
        fixture.confirmed(first + 1);
        fixture.rebuild();
        let mut catalog = Catalog::read_before(102, vec![7]);
        catalog.outboxes.push((7, "public".to_owned(), "part".to_owned(), 0));
        fixture.replication().connected(false, catalog, Lsn::ZERO);
        fixture.give(&Encoder::tag(b'B').u64(100).u64(0).u32(100).0).unwrap();
        let other = PacketOutcome::Stopped(IntakeStop::OtherEvent);
        let taken = if was_published { other } else { PacketOutcome::Done };
        // THEN its row takes the place of no event, if it was in the stream before
        assert_eq!(fixture.give(&part).unwrap(), taken);
        // WHEN all of it is received once more THEN each row is an event of its own
        if was_published {
            fixture.forget();
            fixture.give(&Encoder::tag(b'B').u64(100).u64(0).u32(100).0).unwrap();
            fixture.give(&part).unwrap();
            fixture.give(&described(9, "outbox", &NEEDED)).unwrap();
            for oid in [7, 9, 9] {
                assert_eq!(fixture.give(&row(oid)).unwrap(), PacketOutcome::Done);
            }
            fixture.settle().unwrap();
            assert_eq!(fixture.published().len(), 3);
        }
    }
}

#[test]
fn an_outbox_that_had_another_name_is_known_by_its_object_id() {
    let mut catalog = Catalog::read_before(101, vec![7]);
    catalog.outboxes.push((7, "public".to_owned(), "outbox".to_owned(), 0));
    let mut fixture = fixture(catalog);
    assert_eq!(fixture.give(&described(7, "away", &NEEDED)).unwrap(), PacketOutcome::Done);
    assert_eq!(fixture.give(&row(7)).unwrap(), PacketOutcome::Done);
    fixture.settle().unwrap();
    assert_eq!(fixture.published(), ["e1"]);
}
