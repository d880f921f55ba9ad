use crate::relay::state_file::marks::SlotSession;
use crate::relay::testing::MemoryFile;
use crate::testing::lsn;

/// The deaths for which a new process does not hand an event over, if it does not.
fn deaths(place: &MemoryFile, commit: u64, ordinal: u64) -> Option<u64> {
    let mut process = place.process("1");
    process.crash.begin(lsn(commit));
    process.crash.take_in_hand(ordinal)
}

/// So many processes die on an event, one after the other.
fn die(place: &MemoryFile, times: usize, commit: u64, ordinal: u64) {
    for _ in 0..times {
        let mut process = place.process("1");
        process.crash.begin(lsn(commit));
        for passed in 0..ordinal {
            assert_eq!(process.crash.take_in_hand(passed), None);
            process.crash.release();
        }
        let found = process.crash.take_in_hand(ordinal);
        assert_eq!(found, None, "it is handed over until the third death");
    }
}

#[test]
fn an_event_that_three_processes_in_a_row_died_on_is_not_handed_over() {
    let place = MemoryFile::default();
    die(&place, 3, 100, 2);
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
    assert_eq!(deaths(&place, 100, 2), Some(3));
}

#[test]
fn an_event_whose_deaths_are_forgotten_is_handed_over_by_this_process_and_the_next() {
    let place = MemoryFile::default();
    die(&place, 3, 100, 2);
    let mut process = place.process("1");
    process.crash.begin(lsn(100));
    assert_eq!(process.crash.take_in_hand(2), Some(3));
    process.crash.release();
    process.crash.forget_deaths();
    assert_eq!(process.crash.take_in_hand(2), None);
    process.crash.release();
    drop(process);
    die(&place, 3, 100, 2);
    assert_eq!(deaths(&place, 100, 2), Some(3));
}

#[test]
fn a_death_on_another_event_begins_the_count_anew() {
    let place = MemoryFile::default();
    die(&place, 2, 100, 2);
    die(&place, 1, 100, 1);
    die(&place, 2, 100, 2);
    assert_eq!(deaths(&place, 100, 2), None);
}

#[test]
fn another_system_or_timeline_means_other_events() {
    for (system, timeline) in [("2", 1), ("1", 2)] {
        let place = MemoryFile::default();
        die(&place, 3, 100, 0);
        let mut process = place.open();
        process.take_over((system, timeline), "slot", 0, None);
        process.crash.begin(lsn(100));
        assert_eq!(process.crash.take_in_hand(0), None, "{system} {timeline}");
    }
}

#[test]
fn deaths_on_an_event_that_the_slot_has_passed_are_forgotten() {
    let place = MemoryFile::default();
    die(&place, 3, 100, 0);
    for (confirmed, expected) in [(100, Some(3)), (101, None)] {
        let mut process = place.open();
        let session = SlotSession { confirmed: lsn(confirmed), ..SlotSession::default() };
        process.take_over(("1", 1), "slot", 0, Some(session));
        process.crash.begin(lsn(100));
        assert_eq!(process.crash.take_in_hand(0), expected, "{confirmed}");
        process.crash.release();
    }
    assert_eq!(deaths(&place, 100, 0), None);
}

#[test]
fn the_file_belongs_to_one_process_and_the_second_does_without() {
    let place = MemoryFile::default();
    die(&place, 3, 100, 0);
    let mut first = place.process("1");
    first.crash.begin(lsn(100));
    first.crash.take_in_hand(0);
    let mut second = place.process("1");
    second.crash.begin(lsn(100));
    assert_eq!(second.crash.take_in_hand(0), None);
    second.crash.release();
    // THEN it has not written either
    drop((first, second));
    assert_eq!(deaths(&place, 100, 0), Some(4));
}

#[test]
fn processes_that_end_without_an_event_in_hand_blame_none() {
    let place = MemoryFile::default();
    die(&place, 1, 100, 2);
    (0..3).for_each(|_| drop(place.process("1")));
    assert_eq!(deaths(&place, 100, 2), None);
}

#[test]
fn an_event_that_has_stopped_the_relay_is_tried_once_by_each_process_after_it() {
    let place = MemoryFile::default();
    die(&place, 3, 100, 2);
    for _ in 0..2 {
        // WHEN the relay stops because of it
        let mut process = place.process("1");
        process.crash.begin(lsn(100));
        assert_eq!(process.crash.take_in_hand(2), Some(3));
        process.crash.forget_one_death();
        process.crash.release();
        drop(process);
        // THEN the next process hands it over: somebody may have mended what kills it
        die(&place, 1, 100, 2);
    }
}
