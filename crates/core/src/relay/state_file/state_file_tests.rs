use super::header::{PREFIX_COPY, PREFIXES};
use super::*;
use crate::base::event::Position;
use crate::delivery::known::Fingerprint;
use crate::delivery::prefix::ConfirmedPrefix;
use crate::relay::testing::{BROKER, MemoryFile};
use crate::source::progress::Signature;
use crate::testing::lsn;

const PLACE: u64 = 7;
const BOOT: Option<u64> = Some(1);
const DAY_US: i64 = 24 * 3600 * 1_000_000;

/// A session in which the slot stands there.
fn at(confirmed: u64) -> Option<SlotSession> {
    Some(SlotSession { confirmed: lsn(confirmed), run: Some(1), peer_seen: false, unix_us: DAY_US })
}

fn mark(commit: u64, ordinal: u64) -> Mark {
    let fingerprint = Fingerprint { event: commit << 8 | ordinal, key: 3 };
    let is_dead_letter = ordinal % 2 == 1;
    Mark { position: Position { commit_lsn: lsn(commit), ordinal }, fingerprint, is_dead_letter }
}

/// A process that has marked these events, reported `reported`, and died.
fn marked(file: &MemoryFile, marks: &[Mark], reported: u64) {
    file.set_boot(BOOT);
    let mut process = file.open();
    process.take_over_at(PLACE, at(40));
    marks.iter().for_each(|mark| process.marks.push(*mark));
    process.marks.write();
    process.marks.reported(lsn(reported));
}

/// The marks that the next process believes.
fn left(file: &MemoryFile, place: u64, boot: Option<u64>, confirmed: u64) -> Vec<Mark> {
    file.set_boot(boot);
    file.open().take_over_at(place, at(confirmed)).iter().collect()
}

#[test]
fn the_next_process_finds_the_marks_in_their_order_and_so_does_the_one_after_it() {
    let file = MemoryFile::default();
    let marks = [mark(100, 1), mark(100, 0), mark(u64::MAX - 1, 2_000_000_000)];
    marked(&file, &marks, 50);
    assert_eq!(left(&file, PLACE, BOOT, 50), marks);
    // Postgres was restarted and has an older position.
    assert_eq!(left(&file, PLACE, BOOT, 16), marks);
    // WHEN the next one adds to them
    let mut process = file.open();
    process.take_over_at(PLACE, at(16));
    process.marks.push(mark(300, 0));
    process.marks.write();
    drop(process);
    assert_eq!(left(&file, PLACE, BOOT, 16), [&marks[..], &[mark(300, 0)]].concat());
}

#[test]
fn what_was_pushed_and_not_written_is_no_mark() {
    let file = MemoryFile::default();
    let mut process = file.open();
    process.take_over_at(PLACE, at(0));
    process.marks.push(mark(100, 0));
    drop(process);
    assert!(left(&file, PLACE, BOOT, 0).is_empty());
}

#[test]
fn marks_of_another_place_start_or_relay_are_ignored_and_gone() {
    for (what, place, boot, confirmed) in [
        ("another system, timeline or slot", PLACE + 1, BOOT, 50),
        ("the machine was restarted", PLACE, Some(10), 50),
        ("nobody knows whether it was", PLACE, None, 50),
        ("another relay has confirmed events", PLACE, BOOT, 51),
    ] {
        let file = MemoryFile::default();
        marked(&file, &[mark(100, 0)], 50);
        assert!(left(&file, place, boot, confirmed).is_empty(), "{what}");
        assert!(left(&file, PLACE, BOOT, 50).is_empty(), "{what}: they have come back");
    }
}

#[test]
fn marks_from_before_an_acknowledged_restore_are_ignored_and_gone() {
    let file = MemoryFile::default();
    file.set_boot(BOOT);
    let taken = |restores| {
        let mut process = file.open();
        let left = process.take_over(("1", 1), "slot", restores, at(0));
        (process, left.iter().count())
    };
    let (mut process, _) = taken(0);
    process.marks.push(mark(100, 0));
    process.marks.write();
    drop(process);
    let found = [0, 1, 1, 0].map(|restores| taken(restores).1);
    assert_eq!(found, [1, 0, 0, 0]);
}

#[test]
fn a_process_that_has_waited_behind_another_relay_and_died_has_noted_it() {
    let session = |run| {
        Some(SlotSession { confirmed: lsn(50), run: Some(run), peer_seen: false, unix_us: DAY_US })
    };
    for (waits, run, is_left) in [(true, 1, true), (true, 2, false), (false, 2, true)] {
        let file = MemoryFile::default();
        marked(&file, &[mark(100, 0)], 50);
        if waits {
            file.open().peer_seen(DAY_US);
        }
        let left = file.open().take_over_at(PLACE, session(run)).iter().count();
        assert_eq!(left == 1, is_left, "{waits} {run}");
    }
}

#[test]
fn a_relay_that_was_seen_stays_noted_in_later_sessions_and_processes_for_a_day() {
    for (days, is_left) in [(1, false), (2, false), (3, true)] {
        let file = MemoryFile::default();
        let session = |run, peer_seen, days: i64| {
            let unix_us = days * DAY_US;
            Some(SlotSession { confirmed: lsn(40), run: Some(run), peer_seen, unix_us })
        };
        let mut process = file.open();
        process.take_over_at(PLACE, session(1, true, 1));
        process.take_over_at(PLACE, session(1, false, 1));
        drop(process);
        file.open().take_over_at(PLACE, session(1, false, 1));
        marked(&file, &[mark(100, 0)], 40);
        let left = file.open().take_over_at(PLACE, session(2, false, days));
        assert_eq!(left.iter().count() == 1, is_left, "{days}");
    }
}

/// A process whose sessions found the slot at the first of each two positions and reported the second one, and
/// that marked an event in the last of them and died.
fn marked_in_sessions(sessions: [(u64, u64); 2]) -> MemoryFile {
    let file = MemoryFile::default();
    file.set_boot(BOOT);
    let mut process = file.open();
    for (found, reported) in sessions {
        process.take_over_at(PLACE, at(found));
        process.marks.reported(lsn(reported));
    }
    process.marks.push(mark(0x4200, 0));
    process.marks.write();
    file
}

#[test]
fn what_was_reported_before_a_crash_may_be_another_relays_in_the_next_session() {
    for (confirmed, is_left) in [(0x414f, true), (0x4164, false)] {
        // GIVEN a session in which the slot stood at 4164, where another relay had left it, and a crash
        // that has taken that back
        let file = marked_in_sessions([(0x4164, 0x416d), (0x414d, 0x414f)]);
        // WHEN the other relay leaves the slot there again THEN the marks are not believed
        assert_eq!(left(&file, PLACE, BOOT, confirmed).len() == 1, is_left, "{confirmed:x}");
    }
}

#[test]
fn a_session_whose_slot_stands_before_what_was_reported_knows_another_relay_in_between() {
    for (confirmed, is_left) in [(0x4100, true), (0x4128, false), (0x4141, true), (0x4140, false)] {
        // GIVEN reports that were lost with the connection, so that the next session finds the slot at 4100
        let file = marked_in_sessions([(0x4100, 0x4141), (0x4100, 0x4141)]);
        // WHEN the next process finds the slot at a position without a signature in between THEN another relay
        // has confirmed what is before it
        assert_eq!(left(&file, PLACE, BOOT, confirmed).len() == 1, is_left, "{confirmed:x}");
    }
}

#[test]
fn marks_of_a_broker_that_was_not_known_are_never_believed() {
    for (at_confirm, at_end, at_start, believed) in [
        (BROKER, BROKER, BROKER, true),
        (0, 0, 0, false),
        (0, 0, BROKER, false),
        (BROKER, BROKER, 0, false),
        (BROKER, 0, BROKER, true),
        // It became known later, and may be another one.
        (0, BROKER, BROKER, false),
    ] {
        let file = MemoryFile::default();
        file.set_boot(BOOT);
        let mut process = file.open_at(0);
        process.take_over_at(PLACE, at(40));
        process.marks.push(mark(100, 0));
        process.marks.broker(at_confirm);
        process.marks.write();
        assert_eq!(process.marks.broker(at_end), at_confirm != at_end && at_end != 0);
        drop(process);
        let left = file.open_at(at_start).take_over_at(PLACE, at(40));
        let case = (at_confirm, at_end, at_start);
        assert_eq!(left.iter().count() == 1, believed, "{case:?}");
    }
}

#[test]
fn another_relay_is_remembered_for_a_day() {
    let file = MemoryFile::default();
    let mut process = file.open();
    assert!(!process.marks.remembers_peer(DAY_US), "there is no file");
    process.take_over_at(PLACE, at(40));
    assert!(!process.marks.remembers_peer(DAY_US));
    process.marks.peer_seen(5 * DAY_US);
    assert!(process.marks.remembers_peer(6 * DAY_US));
    assert!(!process.marks.remembers_peer(6 * DAY_US + 1_000_000));
}

#[test]
fn a_timeline_change_forgets_what_this_process_has_marked() {
    let file = MemoryFile::default();
    let mut process = file.open();
    process.take_over_at(PLACE, at(0));
    process.marks.push(mark(100, 0));
    process.marks.write();
    process.marks.push(mark(200, 0));
    process.marks.forget();
    process.marks.write();
    process.take_over_at(PLACE + 1, at(0));
    process.marks.push(mark(300, 0));
    process.marks.write();
    drop(process);
    assert_eq!(left(&file, PLACE + 1, BOOT, 0), [mark(300, 0)]);
}

#[test]
fn marks_that_a_full_disk_does_not_take_are_gone_with_all_before_them() {
    let file = MemoryFile::default();
    let mut process = file.open();
    process.take_over_at(PLACE, at(0));
    process.marks.push(mark(100, 0));
    process.marks.write();
    assert!(process.marks.is_on());
    file.set_full(true);
    process.marks.push(mark(200, 0));
    process.marks.write();
    file.set_full(false);
    assert!(!process.marks.is_on());
    drop(process);
    assert!(left(&file, PLACE, BOOT, 0).is_empty());
}

#[test]
fn positions_with_the_signature_of_the_process_are_known_after_many_reports() {
    let file = MemoryFile::default();
    file.set_boot(BOOT);
    let mut process = file.open();
    let signature = Signature::drawn(0);
    process.marks.signature(signature);
    process.take_over_at(PLACE, at(40));
    let signed = |number: u64| lsn(32 * number + signature.to_word());
    for number in 10..60 {
        process.marks.reported(signed(number));
    }
    process.marks.push(mark(3_000, 0));
    process.marks.write();
    drop(process);
    assert_eq!(left(&file, PLACE, BOOT, signed(10).to_wire()).len(), 1);
}

#[test]
fn what_is_confirmed_of_a_transaction_is_written_beside_what_was_confirmed_before() {
    let file = MemoryFile::default();
    let mut process = file.open();
    process.take_over_at(PLACE, at(40));
    let words = file.bytes();
    let copy = |of: usize| [0, 1, 2].map(|word| words.load(PREFIXES[of] + word));
    let used = || words.load(PREFIX_COPY) as usize - 1;
    for events in [3, 4, 5] {
        let prefix = ConfirmedPrefix { commit_lsn: lsn(80), events, digest: 7 };
        let before = (events > 3).then(|| (used(), copy(used())));
        process.marks.prefix(prefix);
        assert_eq!(copy(used()), [80, events, 7]);
        // The process may die before the other copy is whole.
        assert!(before.is_none_or(|(of, words)| of != used() && copy(of) == words));
    }
}

#[test]
fn what_was_pushed_is_unwritten_until_it_is_written() {
    let file = MemoryFile::default();
    let mut process = file.open();
    process.take_over_at(PLACE, at(40));
    assert!(!process.marks.has_unwritten());
    process.marks.push(mark(100, 0));
    assert!(process.marks.has_unwritten());
    process.marks.write();
    assert!(!process.marks.has_unwritten());
}

#[test]
fn another_broker_is_one_also_before_anything_is_marked() {
    let mut process = MemoryFile::default().open();
    process.take_over_at(PLACE, at(40));
    let is_another = [BROKER, 0, BROKER + 1, BROKER + 1].map(|it| process.marks.broker(it));
    assert_eq!(is_another, [false, false, true, false]);
}

#[test]
fn a_postgres_that_was_started_again_may_have_lost_the_trace_of_a_relay_that_was_seen() {
    let last = SlotSession { confirmed: lsn(40), run: Some(1), peer_seen: false, unix_us: DAY_US };
    let next = SlotSession { confirmed: lsn(40), ..last };
    let restarted = SlotSession { run: Some(2), ..next };
    for (seen_at_begin, seen_later, next, believed) in [
        (false, false, next, true),
        (true, true, next, true),
        (false, false, restarted, true),
        (true, false, restarted, false),
        (false, true, restarted, false),
        (false, false, SlotSession { peer_seen: true, ..restarted }, false),
        (false, false, SlotSession { run: None, ..next }, true),
        (true, false, SlotSession { run: None, ..next }, false),
    ] {
        let file = MemoryFile::default();
        marked(&file, &[mark(100, 0)], 40);
        let mut process = file.open();
        process.take_over_at(PLACE, Some(SlotSession { peer_seen: seen_at_begin, ..last }));
        if seen_later {
            process.marks.peer_seen(DAY_US);
        }
        drop(process);
        let left = file.open().take_over_at(PLACE, Some(next));
        let seen = (seen_at_begin, seen_later);
        assert_eq!(left.iter().count() == 1, believed, "{seen:?} {next:?}");
    }
}

#[test]
fn what_an_earlier_process_has_left_counts_unless_another_relay_was_seen_to_hold_the_slot() {
    let prefix = ConfirmedPrefix { commit_lsn: lsn(80), events: 1024, digest: 7 };
    for peer_held in [false, true] {
        let file = MemoryFile::default();
        let mut process = file.open();
        process.take_over_at(PLACE, at(40));
        process.marks.push(mark(100, 0));
        process.marks.write();
        process.marks.prefix(prefix);
        drop(process);
        let mut next = file.open();
        if peer_held {
            next.marks.peer_held();
        }
        // The slot stands where the process has found it: the trace of the other relay may be missing.
        let left = next.take_over_at(PLACE, at(40));
        assert_eq!(left.iter().count() == 1, !peer_held);
        assert_eq!(left.prefix, (!peer_held).then_some(prefix));
    }
}

#[test]
fn marks_of_a_process_do_not_outlast_a_crash_of_postgres_beside_another_relay() {
    let session = |run| at(40).map(|session| SlotSession { run: Some(run), ..session });
    for (peer_seen, run, is_left) in [(false, 2, true), (true, 1, true), (true, 2, false)] {
        let file = MemoryFile::default();
        let mut process = file.open();
        process.take_over_at(PLACE, session(1));
        if peer_seen {
            process.marks.peer_seen(DAY_US);
        }
        process.marks.push(mark(100, 0));
        process.marks.write();
        // WHEN this process holds the slot again, and dies
        process.take_over_at(PLACE, session(run));
        drop(process);
        let left = file.open().take_over_at(PLACE, session(run));
        assert_eq!(left.iter().count() == 1, is_left, "{peer_seen} {run}");
    }
}
