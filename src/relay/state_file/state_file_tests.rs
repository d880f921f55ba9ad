use std::os::unix::fs::PermissionsExt;

use super::testing::OwnPath;
use super::*;
use crate::base::event::Position;
use crate::base::finding::Level;
use crate::delivery::known::Fingerprint;

const PLACE: u64 = 7;
const BOOT: Option<u64> = Some(9);

fn lsn(number: u64) -> Lsn {
    Lsn::from_wire(number)
}

fn mark(commit: u64, ordinal: u64) -> Mark {
    let fingerprint = Fingerprint { event: commit << 8 | ordinal, key: 3 };
    let is_dead_letter = ordinal % 2 == 1;
    Mark { position: Position { commit_lsn: lsn(commit), ordinal }, fingerprint, is_dead_letter }
}

/// A process that has marked these events, reported `reported`, and died.
fn marked(path: &OwnPath, marks: &[Mark], reported: u64) {
    let mut process = path.open();
    process.takes_over_at(PLACE, BOOT, Some(lsn(40)));
    marks.iter().for_each(|mark| process.marks.push(*mark));
    process.marks.write();
    process.marks.reported(lsn(reported));
}

/// What the next process believes.
fn left(path: &OwnPath, place: u64, boot: Option<u64>, confirmed: u64) -> Vec<Mark> {
    path.open().takes_over_at(place, boot, Some(lsn(confirmed))).iter().collect()
}

#[test]
fn the_next_process_finds_the_marks_in_their_order_and_so_does_the_one_after_it() {
    let path = OwnPath::new();
    let marks = [mark(100, 1), mark(100, 0), mark(u64::MAX - 1, 2_000_000_000)];
    marked(&path, &marks, 50);
    assert_eq!(left(&path, PLACE, BOOT, 50), marks);
    // Postgres has crashed and has an older position.
    assert_eq!(left(&path, PLACE, BOOT, 16), marks);
    // WHEN the next one adds to them
    let mut process = path.open();
    process.takes_over_at(PLACE, BOOT, Some(lsn(16)));
    process.marks.push(mark(300, 0));
    process.marks.write();
    drop(process);
    assert_eq!(left(&path, PLACE, BOOT, 16), [&marks[..], &[mark(300, 0)]].concat());
}

#[test]
fn what_was_pushed_and_not_written_is_no_mark() {
    let path = OwnPath::new();
    let mut process = path.open();
    process.takes_over_at(PLACE, BOOT, Some(lsn(0)));
    process.marks.push(mark(100, 0));
    drop(process);
    assert!(left(&path, PLACE, BOOT, 0).is_empty());
}

#[test]
fn marks_of_another_place_start_or_relay_are_ignored_and_gone() {
    for (what, place, boot, confirmed) in [
        ("another system, timeline or slot", PLACE + 1, BOOT, 50),
        ("the machine was restarted", PLACE, Some(10), 50),
        ("nobody knows whether it was", PLACE, None, 50),
        ("another relay has confirmed events", PLACE, BOOT, 51),
    ] {
        let path = OwnPath::new();
        marked(&path, &[mark(100, 0)], 50);
        assert!(left(&path, place, boot, confirmed).is_empty(), "{what}");
        assert!(left(&path, PLACE, BOOT, 50).is_empty(), "{what}: they have come back");
    }
}

#[test]
fn a_timeline_change_forgets_what_this_process_has_marked() {
    let path = OwnPath::new();
    let mut process = path.open();
    process.takes_over_at(PLACE, BOOT, Some(lsn(0)));
    process.marks.push(mark(100, 0));
    process.marks.write();
    process.marks.push(mark(200, 0));
    process.marks.forget();
    process.marks.write();
    process.takes_over_at(PLACE + 1, BOOT, Some(lsn(0)));
    process.marks.push(mark(300, 0));
    process.marks.write();
    drop(process);
    assert_eq!(left(&path, PLACE + 1, BOOT, 0), [mark(300, 0)]);
}

#[test]
fn a_file_that_is_cut_off_or_of_another_version_is_begun_anew() {
    let path = OwnPath::new();
    marked(&path, &[mark(100, 0), mark(200, 0)], 50);
    let length = std::fs::metadata(&path.0).unwrap().len();
    let file = File::options().write(true).open(&path.0).unwrap();
    file.set_len(length - 1).unwrap();
    assert!(left(&path, PLACE, BOOT, 50).is_empty());
    marked(&path, &[mark(100, 0)], 50);
    assert_eq!(left(&path, PLACE, BOOT, 50), [mark(100, 0)]);
    // A crash file of an earlier release was as short as this.
    file.set_len(64).unwrap();
    file.write_all_at(&(MAGIC_WORD - 1).to_ne_bytes(), 0).unwrap();
    assert!(left(&path, PLACE, BOOT, 50).is_empty());
    marked(&path, &[mark(100, 0)], 50);
    assert_eq!(left(&path, PLACE, BOOT, 50), [mark(100, 0)]);
}

#[test]
fn a_second_process_at_once_does_without() {
    let path = OwnPath::new();
    let mut first = path.open();
    first.takes_over_at(PLACE, BOOT, Some(lsn(0)));
    let mut second = path.open();
    assert!(second.takes_over_at(PLACE, BOOT, Some(lsn(0))).iter().next().is_none());
    assert!(!second.marks.is_on());
    first.marks.push(mark(100, 0));
    first.marks.write();
    drop((first, second));
    assert_eq!(left(&path, PLACE, BOOT, 0), [mark(100, 0)]);
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let place = OwnPath::new();
    std::fs::write(&place.0, "precious").unwrap();
    let told = place.refusal();
    assert!(told.contains("state-file.unusable") && told.contains("something else"), "{told}");
    assert!(told.contains("delivery.state_file"), "{told}");
    assert_eq!(std::fs::read(&place.0).unwrap(), b"precious");
    // A link may point anywhere.
    let link = OwnPath::new();
    std::os::unix::fs::symlink(&place.0, &link.0).unwrap();
    assert!(link.refusal().contains("state-file.unusable"));
}

/// With `fsGroup` kubelet makes the files of a volume writable by the group at each start of a pod.
#[test]
fn the_mode_of_a_file_of_ones_own_is_set_right() {
    let mode_of = |path: &OwnPath| std::fs::metadata(&path.0).unwrap().mode() & 0o777;
    for given in [0o660, 0o664, 0o606, 0o777] {
        let path = OwnPath::new();
        marked(&path, &[mark(100, 0)], 50);
        std::fs::set_permissions(&path.0, PermissionsExt::from_mode(given)).unwrap();
        // `check` accepts it and changes nothing.
        let found = inspect(Some(&path.0), "slot");
        assert_eq!(found.level, Level::Ok, "{given:o}: {}", found.text);
        assert_eq!(mode_of(&path), given);
        assert_eq!(left(&path, PLACE, BOOT, 50), [mark(100, 0)], "{given:o}");
        assert_eq!(mode_of(&path), 0o600, "{given:o}");
    }
}
