use super::*;
use crate::relay::testing::MemoryFile;

fn open(file: &MemoryFile) -> (Memory, Remembered) {
    Memory::read(file.bytes(), PathBuf::new())
}

fn stopped(code: &str) -> Remembered {
    let stop = Stop { code: code.to_owned(), ..Stop::default() };
    Remembered { slot: "slot".to_owned(), stop: Some(stop), ..Remembered::default() }
}

#[test]
fn the_next_process_reads_what_was_written_last() {
    let file = MemoryFile::default();
    let (mut memory, nothing) = open(&file);
    assert_eq!((nothing, memory.seen()), (Remembered::default(), Lsn::ZERO));
    for code in ["slot.moved", "slot.went-back", "slot.other-system"] {
        memory.write(&stopped(code)).unwrap();
        assert_eq!(open(&file).1, stopped(code));
    }
    memory.saw(Lsn::from_wire(7)).unwrap();
    assert_eq!(open(&file).0.seen(), Lsn::from_wire(7));
    // The file is a state file for the rest of the relay, and of one that marks.
    let mut relay = file.process("system");
    relay.crash.begin(Lsn::from_wire(1));
    drop(relay);
    assert_eq!(open(&file).1, stopped("slot.other-system"));
}

#[test]
fn a_copy_that_was_written_half_is_none() {
    let file = MemoryFile::default();
    let (mut memory, _) = open(&file);
    memory.write(&stopped("slot.moved")).unwrap();
    memory.write(&stopped("slot.went-back")).unwrap();
    // WHEN the newest copy is torn, at whatever place
    for at in [0, 8, 15, 16, HEAD_BYTES as u64 + 3] {
        let place = place_of(memory.number % 2) + at;
        let mut byte = [0];
        memory.file.read_at(&mut byte, place).unwrap();
        memory.file.write_at(&[byte[0] ^ 1], place).unwrap();
        // THEN the one before counts
        assert_eq!(open(&file).1, stopped("slot.moved"), "{at}");
        memory.file.write_at(&byte, place).unwrap();
    }
    assert_eq!(open(&file).1, stopped("slot.went-back"));
}

#[test]
fn a_stop_of_another_slot_is_not_overwritten() {
    let file = MemoryFile::default();
    let of = |slot: &str, it: Remembered| Remembered { slot: slot.to_owned(), ..it };
    let (mut memory, _) = open(&file);
    let (mut other, _) = open(&file);
    memory.write(&of("a", stopped("slot.moved"))).unwrap();
    assert!(other.write(&of("b", Remembered::default())).is_err());
    assert_eq!(open(&file).1, of("a", stopped("slot.moved")));
    // WHEN the stop was acknowledged THEN it is
    memory.write(&of("a", Remembered::default())).unwrap();
    other.write(&of("b", stopped("slot.went-back"))).unwrap();
    assert_eq!(open(&file).1, of("b", stopped("slot.went-back")));
}

#[test]
fn what_has_no_room_is_refused_and_the_last_copy_stays() {
    let file = MemoryFile::default();
    let (mut memory, _) = open(&file);
    memory.write(&stopped("slot.moved")).unwrap();
    let publication = Some(Value::String("x".repeat(2 << 20)));
    assert!(memory.write(&Remembered { publication, ..Remembered::default() }).is_err());
    assert_eq!(open(&file).1, stopped("slot.moved"));
}

#[test]
fn what_a_full_disk_does_not_take_leaves_the_last_copy_and_is_written_once_there_is_room() {
    let file = MemoryFile::default();
    let (mut memory, _) = open(&file);
    memory.write(&stopped("slot.moved")).unwrap();
    file.set_full(true);
    assert!(memory.write(&stopped("slot.went-back")).is_err());
    assert!(memory.saw(Lsn::from_wire(7)).is_err());
    let (_, found) = open(&file);
    assert_eq!((found, memory.seen()), (stopped("slot.moved"), Lsn::ZERO));
    file.set_full(false);
    memory.write(&stopped("slot.went-back")).unwrap();
    assert_eq!(open(&file).1, stopped("slot.went-back"));
}

#[test]
fn a_process_that_waits_takes_over_only_a_newer_copy_that_is_whole() {
    let file = MemoryFile::default();
    let (mut memory, _) = open(&file);
    memory.write(&stopped("slot.moved")).unwrap();
    assert_eq!(memory.reload(), None);
    let (mut other, _) = open(&file);
    let acknowledged = Remembered { stop: None, ..stopped("slot.moved") };
    other.write(&acknowledged).unwrap();
    assert_eq!(memory.reload(), Some(acknowledged));
    // WHEN no copy is whole THEN nobody has acknowledged anything
    for copy in [0, 1] {
        file.bytes().write_at(&[0; HEAD_BYTES], place_of(copy)).unwrap();
    }
    assert_eq!(memory.reload(), None);
}

#[test]
fn a_copy_has_room_for_a_mebibyte_with_its_head() {
    let remembered = |length| Remembered {
        publication: Some("x".repeat(length).into()),
        ..stopped("slot.moved")
    };
    let others = serde_json::to_vec(&remembered(0)).unwrap().len();
    let length = COPY_BYTES as usize - HEAD_BYTES - others;
    let file = MemoryFile::default();
    let (mut memory, _) = open(&file);
    for length in [length, length - 1] {
        memory.write(&remembered(length)).unwrap();
        assert!(open(&file).1 == remembered(length));
    }
    assert!(memory.write(&remembered(length + 1)).is_err());
    // No copy reaches into the other one, nor is before the position that was seen last.
    let places = [REGION + 8, place_of(0), place_of(1)];
    assert!(places.is_sorted() && places[2] - places[1] == COPY_BYTES, "{places:?}");
}

#[test]
fn a_copy_of_another_process_is_noticed_whoever_writes_first() {
    let file = MemoryFile::default();
    let ((mut relay, _), (mut command, _)) = (open(&file), open(&file));
    relay.write(&stopped("slot.moved")).unwrap();
    command.write(&stopped("slot.went-back")).unwrap();
    assert_eq!(relay.reload(), Some(stopped("slot.went-back")));
    assert_eq!((relay.reload(), command.reload()), (None, None));
    relay.write(&stopped("slot.missing")).unwrap();
    assert_eq!(command.reload(), Some(stopped("slot.missing")));
}

/// A file on a disk that takes what is written, and cannot keep it.
#[derive(Debug)]
struct Unsynced(Arc<dyn FileBytes>);

impl FileBytes for Unsynced {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn a_stop_that_does_not_reach_the_disk_does_not_stand_in_the_file() {
    let file = MemoryFile::default();
    let (mut memory, _) = open(&file);
    memory.write(&stopped("slot.moved")).unwrap();
    memory.file = Arc::new(Unsynced(file.bytes()));
    assert!(memory.write(&stopped("slot.went-back")).is_err());
    // It is kept in the topic then, and would have to be acknowledged twice.
    assert_eq!(open(&file).1, stopped("slot.moved"));
}
