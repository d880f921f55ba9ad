use std::sync::atomic::{AtomicU32, Ordering};

use walrelay_core::delivery::known::Mark;
use walrelay_core::relay::state_file::marks::SlotSession;
use walrelay_core::relay::state_file::memory::Remembered;
use walrelay_core::relay::testing::BROKER;

use super::*;
use crate::base::event::Position;
use crate::base::finding::Level;
use crate::base::lsn::Lsn;
use crate::base::stop::Stop;
use crate::delivery::known::Fingerprint;

const SYSTEM: &str = "7";

/// A path of its own, gone with the value.
struct OwnPath(PathBuf);

impl OwnPath {
    fn new() -> OwnPath {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("walrelay-test-{}-{serial}.state", std::process::id());
        OwnPath(std::env::temp_dir().join(name))
    }

    fn open(&self) -> StateFile {
        let mut process = open(Some(&self.0), "slot").unwrap();
        process.marks.broker(BROKER);
        process
    }

    fn refusal(&self) -> String {
        open(Some(&self.0), "slot").unwrap_err().to_string()
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn lsn(number: u64) -> Lsn {
    Lsn::from_wire(number)
}

/// A session in which the slot stands there.
fn at(confirmed: u64) -> Option<SlotSession> {
    Some(SlotSession { confirmed: lsn(confirmed), ..SlotSession::default() })
}

fn mark(commit: u64, ordinal: u64) -> Mark {
    let fingerprint = Fingerprint { event: commit << 8 | ordinal, key: 3 };
    let is_dead_letter = ordinal % 2 == 1;
    Mark { position: Position { commit_lsn: lsn(commit), ordinal }, fingerprint, is_dead_letter }
}

/// A process that has marked these events, reported `reported`, and died.
fn marked(path: &OwnPath, marks: &[Mark], reported: u64) {
    let mut process = path.open();
    process.take_over((SYSTEM, 1), "slot", 0, at(40));
    marks.iter().for_each(|mark| process.marks.push(*mark));
    process.marks.write();
    process.marks.reported(lsn(reported));
}

/// The marks that the next process believes.
fn left(path: &OwnPath, confirmed: u64) -> Vec<Mark> {
    path.open().take_over((SYSTEM, 1), "slot", 0, at(confirmed)).iter().collect()
}

fn stopped(code: &str) -> Remembered {
    let stop = Stop { code: code.to_owned(), ..Stop::default() };
    Remembered { slot: "slot".to_owned(), stop: Some(stop), ..Remembered::default() }
}

#[test]
fn the_next_process_finds_the_marks_in_their_order() {
    let path = OwnPath::new();
    let marks = [mark(100, 1), mark(100, 0), mark(u64::MAX - 1, 2_000_000_000)];
    marked(&path, &marks, 50);
    assert_eq!(left(&path, 50), marks);
}

#[test]
fn a_file_that_is_cut_off_or_of_another_version_is_begun_anew() {
    let path = OwnPath::new();
    marked(&path, &[mark(100, 0), mark(200, 0)], 50);
    let length = std::fs::metadata(&path.0).unwrap().len();
    let file = File::options().write(true).open(&path.0).unwrap();
    file.set_len(length - 1).unwrap();
    assert!(left(&path, 50).is_empty());
    marked(&path, &[mark(100, 0)], 50);
    assert_eq!(left(&path, 50), [mark(100, 0)]);
    // A crash file of an earlier release was as short as this.
    file.set_len(64).unwrap();
    file.write_all_at(&(MAGIC_WORD - 1).to_ne_bytes(), 0).unwrap();
    assert!(left(&path, 50).is_empty());
    marked(&path, &[mark(100, 0)], 50);
    assert_eq!(left(&path, 50), [mark(100, 0)]);
}

#[test]
fn a_second_process_at_once_does_without() {
    let path = OwnPath::new();
    let mut first = path.open();
    first.take_over((SYSTEM, 1), "slot", 0, at(0));
    let mut second = path.open();
    assert!(second.take_over((SYSTEM, 1), "slot", 0, at(0)).iter().next().is_none());
    assert!(!second.marks.is_on());
    first.marks.push(mark(100, 0));
    first.marks.write();
    drop((first, second));
    assert_eq!(left(&path, 0), [mark(100, 0)]);
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

#[test]
fn a_folder_that_does_not_exist_is_told_with_the_command_that_makes_it() {
    let folder = std::env::temp_dir().join("walrelay-test-no-such-folder");
    let path = OwnPath(folder.join("a.state"));
    let found = inspect(Some(&path.0), "slot").fault.unwrap().to_string();
    for told in [path.refusal(), found] {
        assert!(told.contains(&format!("folder {} does not exist", folder.display())), "{told}");
        assert!(told.contains(&format!("install -d -m 700 {folder:?}")), "{told}");
    }
}

#[test]
fn a_full_file_system_is_a_fault_that_may_pass() {
    // GIVEN a folder without room for a file
    let folder = std::env::temp_dir();
    check_room(&folder, 1).unwrap();
    let full = check_room(&folder, u64::MAX).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    // THEN a supervisor may start the relay again, and what is no lack of room needs a person
    let fault = unusable(&folder.join("a.state"), &full);
    assert_eq!((fault.code, fault.exit), ("state-file.unusable", Exit::Failed));
    assert!(fault.mend.contains(&format!("df -h {folder:?}")), "{fault}");
    let fault = unusable(&folder.join("a.state"), &ErrorKind::PermissionDenied.into());
    assert_eq!(fault.exit, Exit::Usage);
}

#[test]
fn a_new_file_has_the_room_of_everything_that_is_written_later() {
    let path = OwnPath::new();
    let (mut memory, _) = open_memory(Some(&path.0), "slot").unwrap().unwrap();
    let made = std::fs::metadata(&path.0).unwrap();
    assert_eq!(made.len(), BYTES as u64);
    // Blocks of 512 bytes.
    assert!(made.blocks() * 512 >= ROOM, "{} blocks", made.blocks());
    // WHEN both copies of the memory are almost as long as they may be
    let publication = Some("x".repeat(1_000_000).into());
    let remembered = Remembered { publication, ..stopped("slot.moved") };
    memory.write(&remembered).unwrap();
    memory.write(&remembered).unwrap();
    // THEN the file is not longer than that room
    assert!(std::fs::metadata(&path.0).unwrap().len() <= ROOM);
}

#[test]
fn an_empty_file_is_checked_like_one_that_is_to_be_made() {
    let path = OwnPath::new();
    std::fs::write(&path.0, "").unwrap();
    check(&path.0).unwrap();
    assert_eq!(inspect(Some(&path.0), "slot").level, Level::Ok);
    assert_eq!(std::fs::metadata(&path.0).unwrap().len(), 0);
}

/// With `fsGroup` kubelet makes the files of a volume writable by the group at each start of a pod.
#[test]
fn the_mode_of_a_file_of_ones_own_is_set_right() {
    let mode_of = |path: &OwnPath| std::fs::metadata(&path.0).unwrap().mode() & 0o777;
    for given in [0o660, 0o664, 0o606, 0o777] {
        let path = OwnPath::new();
        marked(&path, &[mark(100, 0)], 50);
        std::fs::set_permissions(&path.0, Permissions::from_mode(given)).unwrap();
        // `check` accepts it and changes nothing.
        let found = inspect(Some(&path.0), "slot");
        assert_eq!(found.level, Level::Ok, "{given:o}: {}", found.text);
        assert_eq!(mode_of(&path), given);
        assert_eq!(left(&path, 50), [mark(100, 0)], "{given:o}");
        assert_eq!(mode_of(&path), 0o600, "{given:o}");
    }
}

#[test]
fn a_look_makes_no_file() {
    let path = OwnPath::new();
    assert!(look_at_memory(Some(&path.0), "slot").unwrap().is_none());
    assert!(!path.0.exists());
    // One that is there stays as it is.
    std::fs::write(&path.0, "").unwrap();
    assert_eq!(look_at_memory(Some(&path.0), "slot").unwrap().unwrap().1, Remembered::default());
    assert_eq!(std::fs::metadata(&path.0).unwrap().len(), 0);
    open_memory(Some(&path.0), "slot").unwrap().unwrap().0.write(&stopped("slot.moved")).unwrap();
    let (_, found) = look_at_memory(Some(&path.0), "slot").unwrap().unwrap();
    assert_eq!(found, stopped("slot.moved"));
}

#[test]
fn a_file_that_was_removed_or_replaced_is_not_written() {
    let path = OwnPath::new();
    let (mut memory, _) = open_memory(Some(&path.0), "slot").unwrap().unwrap();
    memory.write(&stopped("slot.moved")).unwrap();
    std::fs::remove_file(&path.0).unwrap();
    assert_eq!(memory.write(&stopped("slot.moved")).unwrap_err().kind(), ErrorKind::NotFound);
    // Another process has made a file.
    marked(&path, &[mark(100, 0)], 50);
    assert!(memory.write(&stopped("slot.moved")).is_err() && memory.saw(lsn(60)).is_err());
    assert_eq!(look_at_memory(Some(&path.0), "slot").unwrap().unwrap().1, Remembered::default());
}

#[test]
fn a_stop_of_another_slot_is_not_overwritten() {
    // GIVEN a stop that nobody has acknowledged
    let path = OwnPath::new();
    let file = Some(path.0.as_path());
    let (mut memory, _) = open_memory(file, "slot").unwrap().unwrap();
    memory.write(&stopped("slot.moved")).unwrap();
    // WHEN a relay of another slot is to use the file THEN it does not start, and `check` says why
    let faults = [
        open_memory(file, "other").unwrap_err(),
        look_at_memory(file, "other").unwrap_err(),
        inspect(file, "other").fault.unwrap(),
    ];
    for fault in faults {
        assert_eq!((fault.code, fault.exit), ("state-file.unusable", Exit::Usage));
        assert!(fault.what.contains("a stop of slot slot that nobody has acknowledged"), "{fault}");
        assert!(fault.mend.contains("walrelay --set source.slot=slot resume"), "{fault}");
    }
    // THEN every process of the slot finds the stop
    assert_eq!(inspect(file, "slot").level, Level::Ok);
    assert_eq!(look_at_memory(file, "slot").unwrap().unwrap().1, stopped("slot.moved"));
    assert_eq!(open_memory(file, "slot").unwrap().unwrap().1, stopped("slot.moved"));
    // WHEN it is acknowledged THEN the other relay may start
    memory.write(&Remembered { stop: None, ..stopped("slot.moved") }).unwrap();
    assert!(open_memory(file, "other").unwrap().is_some());
}

#[test]
fn check_warns_of_a_file_of_another_slot() {
    let path = OwnPath::new();
    let file = Some(path.0.as_path());
    // GIVEN a file that no relay has written to yet
    let (mut memory, _) = open_memory(file, "slot").unwrap().unwrap();
    assert_eq!(inspect(file, "other").level, Level::Ok);
    // WHEN a relay has written to it
    memory.write(&Remembered { stop: None, ..stopped("slot.moved") }).unwrap();
    // THEN a relay of another slot needs another file
    assert_eq!(inspect(file, "slot").level, Level::Ok);
    let found = inspect(file, "other");
    assert_eq!(found.level, Level::Warn, "{}", found.text);
    assert!(found.text.contains("a relay of slot slot has written"), "{}", found.text);
}
