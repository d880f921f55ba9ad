use super::*;
use crate::relay::testing::MemoryFile;

fn lsn(number: u64) -> Lsn {
    Lsn::from_wire(number)
}

/// A process that dies on an event.
fn die(place: &MemoryFile, commit: u64, ordinal: u64) {
    let mut process = place.process("1");
    process.crash.begin(lsn(commit));
    for passed in 0..ordinal {
        assert_eq!(process.crash.take_in_hand(passed), None);
        process.crash.release();
    }
    assert_eq!(
        process.crash.take_in_hand(ordinal),
        None,
        "it is handed over until the third death"
    );
}

#[test]
fn an_event_that_three_processes_in_a_row_died_on_is_not_handed_over() {
    let place = MemoryFile::default();
    for _ in 0..3 {
        die(&place, 100, 2);
    }
    let mut process = place.process("1");
    process.crash.begin(lsn(100));
    assert_eq!(process.crash.take_in_hand(1), None);
    assert_eq!(process.crash.take_in_hand(2), Some(3));
    process.crash.release();
    // The same ordinal of another transaction is another event.
    process.crash.begin(lsn(200));
    assert_eq!(process.crash.take_in_hand(2), None);
    process.crash.release();
    // A process that is killed while it waits blames nobody, and what was known stays known.
    drop(process);
    let mut process = place.process("1");
    process.crash.begin(lsn(100));
    assert_eq!(process.crash.take_in_hand(2), Some(3));
}

#[test]
fn an_event_whose_deaths_are_forgotten_is_handed_over_by_this_process_and_the_next() {
    let place = MemoryFile::default();
    for _ in 0..3 {
        die(&place, 100, 2);
    }
    let mut process = place.process("1");
    process.crash.begin(lsn(100));
    assert_eq!(process.crash.take_in_hand(2), Some(3));
    process.crash.release();
    process.crash.forget_deaths();
    assert_eq!(process.crash.take_in_hand(2), None);
    process.crash.release();
    drop(process);
    die(&place, 100, 2);
    die(&place, 100, 2);
    die(&place, 100, 2);
    let mut process = place.process("1");
    process.crash.begin(lsn(100));
    assert_eq!(process.crash.take_in_hand(2), Some(3));
}

#[test]
fn a_death_on_another_event_begins_the_count_anew() {
    let place = MemoryFile::default();
    die(&place, 100, 2);
    die(&place, 100, 2);
    die(&place, 100, 1);
    die(&place, 100, 2);
    die(&place, 100, 2);
    let mut process = place.process("1");
    process.crash.begin(lsn(100));
    assert_eq!(process.crash.take_in_hand(2), None);
}

#[test]
fn another_system_or_timeline_means_other_events() {
    let place = MemoryFile::default();
    for _ in 0..3 {
        die(&place, 100, 0);
    }
    let mut process = place.process("2");
    process.crash.begin(lsn(100));
    assert_eq!(process.crash.take_in_hand(0), None);
    process.crash.release();
    drop(process);
    for _ in 0..3 {
        die(&place, 100, 0);
    }
    let mut process = place.process("1");
    process.take_over(("1", 2), "slot", 0, None);
    process.crash.begin(lsn(100));
    assert_eq!(process.crash.take_in_hand(0), None);
}

#[test]
fn the_file_belongs_to_one_process_and_the_second_does_without() {
    let place = MemoryFile::default();
    for _ in 0..3 {
        die(&place, 100, 0);
    }
    let mut first = place.process("1");
    first.crash.begin(lsn(100));
    first.crash.take_in_hand(0);
    let mut second = place.process("1");
    second.crash.begin(lsn(100));
    assert_eq!(second.crash.take_in_hand(0), None);
    second.crash.release();
    // THEN it has not written either
    drop((first, second));
    let mut third = place.process("1");
    third.crash.begin(lsn(100));
    assert_eq!(third.crash.take_in_hand(0), Some(4));
}
