use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A path of its own, gone with the value.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("walrelay-test-{}-{serial}.crash", std::process::id());
        Place(std::env::temp_dir().join(name))
    }

    /// A process that has taken over the slot.
    fn process(&self, system_id: &str) -> CrashGuard {
        let mut guard = CrashGuard::open(Some(&self.0), "slot").unwrap();
        guard.takes_over(system_id, 1, "slot");
        guard
    }

    fn refusal(&self) -> String {
        CrashGuard::open(Some(&self.0), "slot").unwrap_err().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn lsn(number: u64) -> Lsn {
    Lsn::from_wire(number)
}

/// A process that dies on an event.
fn die(place: &Place, commit: u64, ordinal: u64) {
    let mut process = place.process("1");
    process.begins(lsn(commit));
    for passed in 0..ordinal {
        assert_eq!(process.takes(passed), None);
        process.lets_go();
    }
    assert_eq!(process.takes(ordinal), None, "it is handed over until the third death");
}

#[test]
fn an_event_that_three_processes_in_a_row_died_on_is_not_handed_over() {
    let place = Place::new();
    for _ in 0..3 {
        die(&place, 100, 2);
    }
    let mut process = place.process("1");
    process.begins(lsn(100));
    assert_eq!(process.takes(1), None);
    assert_eq!(process.takes(2), Some(3));
    process.lets_go();
    // The same ordinal of another transaction is another event.
    process.begins(lsn(200));
    assert_eq!(process.takes(2), None);
    process.lets_go();
    // A process that is killed while it waits blames nobody, and what was known stays known.
    drop(process);
    let mut process = place.process("1");
    process.begins(lsn(100));
    assert_eq!(process.takes(2), Some(3));
}

#[test]
fn a_death_on_another_event_begins_the_count_anew() {
    let place = Place::new();
    die(&place, 100, 2);
    die(&place, 100, 2);
    die(&place, 100, 1);
    die(&place, 100, 2);
    die(&place, 100, 2);
    let mut process = place.process("1");
    process.begins(lsn(100));
    assert_eq!(process.takes(2), None);
}

#[test]
fn another_system_or_timeline_means_other_events() {
    let place = Place::new();
    for _ in 0..3 {
        die(&place, 100, 0);
    }
    let mut process = place.process("2");
    process.begins(lsn(100));
    assert_eq!(process.takes(0), None);
    process.lets_go();
    drop(process);
    for _ in 0..3 {
        die(&place, 100, 0);
    }
    let mut process = place.process("1");
    process.takes_over("1", 2, "slot");
    process.begins(lsn(100));
    assert_eq!(process.takes(0), None);
}

#[test]
fn the_file_belongs_to_one_process_and_the_second_does_without() {
    let place = Place::new();
    for _ in 0..3 {
        die(&place, 100, 0);
    }
    let mut first = place.process("1");
    first.begins(lsn(100));
    first.takes(0);
    let mut second = place.process("1");
    second.begins(lsn(100));
    assert_eq!(second.takes(0), None);
    second.lets_go();
    // THEN it has not written either
    drop((first, second));
    let mut third = place.process("1");
    third.begins(lsn(100));
    assert_eq!(third.takes(0), Some(4));
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let place = Place::new();
    std::fs::write(&place.0, "precious").unwrap();
    let told = place.refusal();
    assert!(told.contains("crash-file.unusable") && told.contains("something else"), "{told}");
    assert!(told.contains("delivery.crash_file"), "{told}");
    assert_eq!(std::fs::read(&place.0).unwrap(), b"precious");
    // A link may point anywhere.
    let link = Place::new();
    std::os::unix::fs::symlink(&place.0, &link.0).unwrap();
    assert!(link.refusal().contains("crash-file.unusable"));
    // What others can write they can cut, under a mapping.
    std::fs::write(&place.0, [0; BYTES]).unwrap();
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&place.0, open_to_all).unwrap();
    assert!(place.refusal().contains("another user"), "{}", place.refusal());
}
