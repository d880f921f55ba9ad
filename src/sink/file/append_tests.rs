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
fn a_last_line_of_somebody_else_is_left_alone() {
    let folder = Folder::new("foreign");
    let error = append_behind(&folder, b"my notes").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(folder.text("f"), text(&[TWO, b"my notes"]));
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
