use super::super::testing::OwnPath;
use super::*;

fn open(path: &OwnPath) -> (Memory, Remembered) {
    Memory::open(Some(&path.0), "slot").unwrap().unwrap()
}

fn stopped(code: &str) -> Remembered {
    let stop = Stop { code: code.to_owned(), ..Stop::default() };
    Remembered { slot: "slot".to_owned(), stop: Some(stop), ..Remembered::default() }
}

#[test]
fn the_next_process_reads_what_was_written_last() {
    let path = OwnPath::new();
    let (mut memory, nothing) = open(&path);
    assert_eq!((nothing, memory.seen()), (Remembered::default(), Lsn::ZERO));
    for code in ["slot.moved", "slot.went-back", "slot.other-system"] {
        memory.write(&stopped(code)).unwrap();
        assert_eq!(open(&path).1, stopped(code));
    }
    memory.saw(Lsn::from_wire(7)).unwrap();
    assert_eq!(open(&path).0.seen(), Lsn::from_wire(7));
    // The file is a state file for the rest of the relay, and of one that marks.
    let mut relay = path.process("system");
    relay.crash.begins(Lsn::from_wire(1));
    drop(relay);
    assert_eq!(open(&path).1, stopped("slot.other-system"));
}

#[test]
fn a_copy_that_was_written_half_is_none() {
    let path = OwnPath::new();
    let (mut memory, _) = open(&path);
    memory.write(&stopped("slot.moved")).unwrap();
    memory.write(&stopped("slot.went-back")).unwrap();
    // WHEN the newest copy is torn, at whatever place
    for at in [0, 8, 16, HEAD_BYTES as u64 + 3] {
        let place = place_of(memory.number % 2) + at;
        let mut byte = [0];
        memory.file.read_exact_at(&mut byte, place).unwrap();
        memory.file.write_all_at(&[byte[0] ^ 1], place).unwrap();
        // THEN the one before counts
        assert_eq!(open(&path).1, stopped("slot.moved"), "{at}");
        memory.file.write_all_at(&byte, place).unwrap();
    }
    assert_eq!(open(&path).1, stopped("slot.went-back"));
}

#[test]
fn a_look_makes_no_file() {
    let path = OwnPath::new();
    assert!(Memory::look(Some(&path.0), "slot").unwrap().is_none());
    assert!(!path.0.exists());
    // One that is there stays as it is.
    std::fs::write(&path.0, "").unwrap();
    assert_eq!(Memory::look(Some(&path.0), "slot").unwrap().unwrap().1, Remembered::default());
    assert_eq!(std::fs::metadata(&path.0).unwrap().len(), 0);
    open(&path).0.write(&stopped("slot.moved")).unwrap();
    let (_, found) = Memory::look(Some(&path.0), "slot").unwrap().unwrap();
    assert_eq!(found, stopped("slot.moved"));
}

#[test]
fn what_has_no_room_is_refused_and_the_last_copy_stays() {
    let path = OwnPath::new();
    let (mut memory, _) = open(&path);
    memory.write(&stopped("slot.moved")).unwrap();
    let publication = Some(Value::String("x".repeat(2 << 20)));
    assert!(memory.write(&Remembered { publication, ..Remembered::default() }).is_err());
    assert_eq!(open(&path).1, stopped("slot.moved"));
}
