use super::super::testing::Folder;
use super::*;

const ONE: &[u8] = b"{\"topic\":\"one\"}\n";
const TWO: &[u8] = b"{\"topic\":\"two\"}\n";

fn text(parts: &[&[u8]]) -> String {
    String::from_utf8(parts.concat()).unwrap()
}

/// Appends ONE to a file that ends in `tail`.
fn append_behind(folder: &Folder, tail: &[u8]) -> io::Result<()> {
    std::fs::write(folder.path("f"), [TWO, tail].concat()).unwrap();
    AppendFile::new(&folder.path("f")).append(ONE)
}

#[test]
fn what_a_crash_has_left_of_a_write_is_removed() {
    let folder = Folder::new("torn");
    let torn: [&[u8]; 5] = [
        b"{\"topic\":\"torn",
        b"{\"to",
        b"{\"topic\":\"ho\0\0\0\0le\"}\n{\"topic\":\"behind the hole\"}\n",
        b"\0\0\0\0",
        b"\0\0{\"topic\":\"x\"}\n",
    ];
    for torn in torn {
        append_behind(&folder, torn).unwrap();
        assert_eq!(folder.text("f"), text(&[TWO, ONE]), "{torn:?}");
    }
    // Larger than what is looked at first.
    let large = [&b"{\"topic\":\""[..], &vec![b'x'; 3 * TAIL_BYTES as usize]].concat();
    append_behind(&folder, &large).unwrap();
    assert_eq!(folder.text("f"), text(&[TWO, ONE]));
    std::fs::write(folder.path("f"), &large).unwrap();
    AppendFile::new(&folder.path("f")).append(ONE).unwrap();
    assert_eq!(folder.text("f"), text(&[ONE]));
}

#[test]
fn a_write_that_a_crash_tore_in_its_first_part_is_removed_whole() {
    // GIVEN a line longer than what is always searched, with a hole near its beginning, behind
    // others
    let folder = Folder::new("hole");
    let mut torn = [&b"{\"topic\":\""[..], &vec![b'x'; 2 * TAIL_BYTES as usize], b"\"}\n"].concat();
    torn[4096..8192].fill(0);
    append_behind(&folder, &torn).unwrap();
    assert_eq!(folder.text("f"), text(&[TWO, ONE]));
    // A hole that is older is none of the last write: nothing that was confirmed is removed.
    let old = [TWO, b"{\"to\0\0\"}\n", &ONE.repeat(1 + TAIL_BYTES as usize / ONE.len())].concat();
    std::fs::write(folder.path("f"), &old).unwrap();
    AppendFile::new(&folder.path("f")).append(ONE).unwrap();
    assert!(folder.text("f") == text(&[&old, ONE]));
}

#[test]
fn what_somebody_else_has_written_is_left_alone() {
    let folder = Folder::new("foreign");
    for foreign in [&b"my notes"[..], b"my\0notes\n", b"\0\0\0\0\0\0\0\0\0\0\0\0notes\n"] {
        std::fs::write(folder.path("f"), foreign).unwrap();
        let error = AppendFile::new(&folder.path("f")).append(ONE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{foreign:?}");
        assert_eq!(folder.text("f"), text(&[foreign]));
        let behind = [b"my diary\n", foreign].concat();
        std::fs::write(folder.path("f"), &behind).unwrap();
        AppendFile::new(&folder.path("f")).append(ONE).unwrap_err();
        assert_eq!(folder.text("f"), text(&[&behind]));
    }
    let error = append_behind(&folder, b"my notes").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(folder.text("f"), text(&[TWO, b"my notes"]));
}

#[test]
fn a_closed_file_writes_no_more_even_if_it_waited_for_the_lock() {
    let folder = Folder::new("closed");
    let mut file = AppendFile::new(&folder.path("f"));
    file.append(ONE).unwrap();
    let other = File::open(folder.path("f")).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let closed = Arc::clone(&file.closed);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| file.append(TWO));
        closed.store(true, Ordering::SeqCst);
        drop(other);
        assert!(waiting.join().unwrap().is_err());
    });
    assert_eq!(folder.text("f"), text(&[ONE]));
}

#[test]
fn a_rotated_file_is_opened_again_and_a_truncated_one_goes_on() {
    let folder = Folder::new("rotated");
    let mut file = AppendFile::new(&folder.path("f"));
    file.append(ONE).unwrap();
    std::fs::rename(folder.path("f"), folder.path("f.1")).unwrap();
    file.append(TWO).unwrap();
    assert_eq!((folder.text("f.1"), folder.text("f")), (text(&[ONE]), text(&[TWO])));
    std::fs::remove_file(folder.path("f")).unwrap();
    file.append(ONE).unwrap();
    assert_eq!(folder.text("f"), text(&[ONE]));
    OpenOptions::new().write(true).truncate(true).open(folder.path("f")).unwrap();
    file.append(TWO).unwrap();
    assert_eq!(folder.text("f"), text(&[TWO]));
}

#[test]
fn two_writers_do_not_mix_their_lines() {
    let folder = Folder::new("two");
    let write = |line: &[u8]| {
        let mut file = AppendFile::new(&folder.path("f"));
        (0..100).for_each(|_| file.append(&line.repeat(3)).unwrap());
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(ONE));
        scope.spawn(|| write(TWO));
    });
    let text = folder.text("f");
    let count = |line: &[u8]| text.matches(std::str::from_utf8(line).unwrap()).count();
    assert_eq!((count(ONE), count(TWO), text.lines().count()), (300, 300, 600));
}

#[test]
fn a_full_disk_and_a_failed_sync_are_errors() {
    // GIVEN files whose write fails, and whose sync fails
    for (path, errno) in [("/dev/full", libc::ENOSPC), ("/dev/null", libc::EINVAL)] {
        let options = OpenOptions::new().read(true).append(true).clone();
        let mut file = AppendFile::opened(Path::new(path), &options);
        // WHEN lines are appended THEN that does not succeed, however often
        for _ in 0..2 {
            assert_eq!(file.append(ONE).unwrap_err().raw_os_error(), Some(errno), "{path}");
        }
    }
}
